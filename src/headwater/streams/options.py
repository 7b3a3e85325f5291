"""What the options of `format("headwater")` mean.

This file alone decides which options the source knows, what their texts mean and which values they
have where none is given; they are those of Spark's own Kafka source, so that a query changes its
format and nothing else. It asks no broker. What is unknown, forbidden or contradicts itself is an
`OptionError` that names the option and, where one is close, the right spelling. Spark does not keep
upper and lower case of an option's name apart, so neither does this.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from headwater.base.spelling import nearest
from headwater.delivery.client.cluster import is_own_topic
from headwater.streams.client_options import ClientOptions, client_options, is_client_option
from headwater.streams.errors import OptionError
from headwater.streams.time.durations import duration_us
from headwater.streams.time.errors import DurationError

OffsetMap = Mapping[str, Mapping[int, int]]
"""A number for each partition of each topic: offsets or timestamps."""

EARLIEST_OFFSET = -2
LATEST_OFFSET = -1
"""What stands for the ends of a partition in a map of offsets, as in Spark's Kafka source."""

_DEFAULT_BOOTSTRAP = "localhost:9092"
_DEFAULT_GROUP_PREFIX = "headwater-spark"
_DEFAULT_TRIGGER_DELAY_MS = 15 * 60 * 1000  # as in Spark's Kafka source

_CHOICES = ("subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
_STREAMING_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_KNOWN = (
    *_CHOICES,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    *_ENDINGS,
    *_STREAMING_ONLY,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "isolation",
    "groupIdPrefix",
    "bootstrap",
)
# Options of Spark's Kafka source about its own caches and retries: there is nothing to set here.
_WITHOUT_EFFECT = (
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
)
_BOOTSTRAP = "kafka.bootstrap.servers"
_BOOTSTRAP_NAMES = frozenset({_BOOTSTRAP, "bootstrap"})


class Kind(Enum):
    """How a place to begin or to end is given."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSETS = "offsets"
    TIMESTAMP = "timestamp"
    TIMESTAMPS = "timestamps"


@dataclass(frozen=True, slots=True)
class Bound:
    """Where to begin or to end: one end of the log, or what is said of each partition."""

    kind: Kind
    timestamp_ms: int = 0
    by_partition: OffsetMap = field(default_factory=dict)


class Choice(NamedTuple):
    """Which partitions are read: of named topics, of topics like a pattern, or named ones."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[int, ...]] | None = None

    def names(self) -> tuple[str, ...]:
        """The topics that must exist; none for a pattern."""
        return tuple(self.partitions) if self.partitions is not None else self.topics

    def option(self) -> str:
        """Return the name of the option that makes it."""
        if self.pattern is not None:
            return "subscribePattern"
        return "subscribe" if self.partitions is None else "assign"

    def told(self) -> str:
        """Return it as the option that makes it."""
        if self.partitions is not None:
            places = [f"{topic}-{each}" for topic, some in self.partitions.items() for each in some]
            return f"assign = {','.join(places)}"
        return f"{self.option()} = {self.pattern or ','.join(self.topics)}"

    def in_order(self) -> "Choice":
        """Return the same with its topics in order, so that equal choices are equal."""
        named = None if self.partitions is None else dict(sorted(self.partitions.items()))
        return Choice(tuple(sorted(self.topics)), self.pattern, named)

    def takes(self, topic: str, partition: int) -> bool:
        """Tell whether a partition is among what is read, if it exists."""
        if self.partitions is not None:
            return partition in self.partitions.get(topic, ())
        return topic in self.topics if self.pattern is None else self.matches(topic)

    def matches(self, topic: str) -> bool:
        """Tell whether a topic is like the pattern; no pattern is meant for Headwater's own."""
        assert self.pattern is not None
        return not is_own_topic(topic) and re.fullmatch(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """All that a reader has to be told."""

    bootstrap: str
    client: ClientOptions
    choice: Choice
    starting: Bound
    ending: Bound
    timestamp_strategy: str
    offsets_max: int | None
    offsets_min: int | None
    trigger_delay_ms: int
    partitions_min: int | None
    records_max: int | None
    fail_on_data_loss: bool
    include_headers: bool
    read_committed: bool
    group: str | None
    group_prefix: str


def source_options(
    given: Mapping[str, str], *, streaming: bool, environment: Mapping[str, str] | None = None
) -> SourceOptions:
    """Read all options of a source.

    Raises:
        OptionError: One of them is unknown, forbidden, wrong or contradicts another.
    """
    texts = {name.lower(): value for name, value in given.items()}
    _refuse_unknown(given)
    _refuse_misplaced(texts, streaming=streaming)
    client = client_options(given)
    starting = _bound(texts, "starting", Kind.LATEST if streaming else Kind.EARLIEST)
    if not streaming and starting.kind is Kind.LATEST:
        raise OptionError(
            "startingOffsets = latest leaves a batch read nothing to read",
            hint="leave it out, or give earliest, offsets or a timestamp",
        )
    _refuse_side(starting, "startingOffsets", LATEST_OFFSET if not streaming else None)
    ending = _bound(texts, "ending", Kind.LATEST)
    _refuse_side(ending, "endingOffsets", EARLIEST_OFFSET)
    if ending.kind is Kind.EARLIEST:
        raise OptionError(
            "endingOffsets = earliest leaves nothing to read", hint="give latest or offsets"
        )
    offsets_max = _optional(texts, "maxOffsetsPerTrigger", _positive)
    offsets_min = _optional(texts, "minOffsetsPerTrigger", _positive)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        raise OptionError(
            f"minOffsetsPerTrigger = {offsets_min} is above maxOffsetsPerTrigger = {offsets_max}",
            hint="no batch could ever have so many",
        )
    trigger_delay_ms = _optional(texts, "maxTriggerDelay", _duration_ms)
    return SourceOptions(
        bootstrap=_bootstrap_of(texts, os.environ if environment is None else environment),
        client=client,
        choice=_choice(texts),
        starting=starting,
        ending=ending,
        timestamp_strategy=_one_of(
            texts, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error"
        ),
        offsets_max=offsets_max,
        offsets_min=offsets_min,
        # As in Spark's own source, 0 is a time: no batch waits.
        trigger_delay_ms=(
            _DEFAULT_TRIGGER_DELAY_MS if trigger_delay_ms is None else trigger_delay_ms
        ),
        partitions_min=_optional(texts, "minPartitions", _positive),
        records_max=_optional(texts, "maxRecordsPerPartition", _positive),
        fail_on_data_loss=_flag(texts, "failOnDataLoss", default=True),
        include_headers=includes_headers(given),
        read_committed=_read_committed(texts, client),
        group=client.group,
        group_prefix=texts.get("groupidprefix", _DEFAULT_GROUP_PREFIX),
    )


def check_source_options(given: Mapping[str, str]) -> None:
    """Raise if the options are right neither for a stream nor for a batch read.

    Raises:
        OptionError: As `source_options`.
    """
    try:
        source_options(given, streaming=True)
    except OptionError as error:
        try:
            source_options(given, streaming=False)
        except OptionError:
            raise error from None


def names_a_source(given: Mapping[str, str]) -> bool:
    """Tell whether the options say what to read; those of a sink do not."""
    names = {name.lower() for name in given}
    return any(each.lower() in names for each in _CHOICES)


def includes_headers(given: Mapping[str, str]) -> bool:
    """Tell whether there is to be a column of headers, which the schema depends on."""
    return _flag({name.lower(): text for name, text in given.items()}, "includeHeaders")


def is_time_role(given: Mapping[str, str]) -> bool:
    """Tell whether a reader is to say what time it is, not what topics hold.

    Raises:
        OptionError: There is a role, but none that exists.
    """
    texts = {name.lower(): text for name, text in given.items()}
    return "role" in texts and _one_of(texts, "role", ("time",), "") == "time"


def choice_of(given: Mapping[str, str]) -> Choice:
    """Read which partitions the options of a source choose, and nothing else of them.

    Raises:
        OptionError: Not exactly one of them says so, or it cannot be read.
    """
    return _choice({name.lower(): value for name, value in given.items()})


def choice_as_json(choice: Choice) -> dict[str, str]:
    """Write down which partitions are read, as `choice_of` reads it."""
    if choice.partitions is not None:
        text = json.dumps({topic: list(numbers) for topic, numbers in choice.partitions.items()})
        return {"assign": text}
    if choice.pattern is not None:
        return {"subscribePattern": choice.pattern}
    return {"subscribe": ",".join(choice.topics)}


def bootstrap_of(given: Mapping[str, str], environment: Mapping[str, str] | None = None) -> str:
    """Return the brokers' address: an option, else HEADWATER_BOOTSTRAP, else this machine's."""
    texts = {name.lower(): value for name, value in given.items()}
    return _bootstrap_of(texts, os.environ if environment is None else environment)


def names_bootstrap(given: Mapping[str, str]) -> bool:
    """Tell whether options name brokers."""
    return not _BOOTSTRAP_NAMES.isdisjoint(name.lower() for name in given)


def refuse_unknown(given: Mapping[str, str], known: tuple[str, ...], what: str) -> None:
    """Raise for the first option that is neither known nor the client's.

    Raises:
        OptionError: With the nearest known name.
    """
    by_lower = {name.lower(): name for name in known}
    for name in given:
        lower = name.lower()
        if lower in by_lower or is_client_option(lower) or lower == _BOOTSTRAP:
            continue
        if lower == "path":
            raise OptionError(
                f"a {what} has no path: {given[name]!r}",
                hint=f"name the topic with .option({known[0]!r}, {given[name]!r})",
            )
        close = nearest(lower, [*by_lower, _BOOTSTRAP])
        spelt = by_lower.get(close, close) if close else None
        raise OptionError(
            f"{name!r} is no option of a {what}" + (f"; did you mean {spelt}?" if spelt else ""),
            hint=f"options are: {', '.join(known)}, and kafka.* for the client",
        )


def _refuse_unknown(given: Mapping[str, str]) -> None:
    refuse_unknown(given, (*_KNOWN, *_WITHOUT_EFFECT), "source")


def _refuse_misplaced(texts: Mapping[str, str], *, streaming: bool) -> None:
    for name in _ENDINGS if streaming else _STREAMING_ONLY:
        if name.lower() in texts:
            where = "a batch read (spark.read)" if streaming else "a stream (spark.readStream)"
            raise OptionError(f"{name} is for {where} alone", hint=f"leave {name} out")


# --- which partitions ---------------------------------------------------------------------------


def _choice(texts: Mapping[str, str]) -> Choice:
    found = [name for name in _CHOICES if name.lower() in texts]
    if len(found) != 1:
        said = f"both {found[0]} and {found[1]} are given" if found else "no topic is named"
        raise OptionError(said, hint="give exactly one of subscribe, subscribePattern and assign")
    (name,) = found
    text = texts[name.lower()]
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError("subscribe names no topic", hint='write "orders" or "orders,clicks"')
        return Choice(topics=topics)
    if name == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(
                f"subscribePattern = {text!r} is no regular expression: {error}",
                hint='write for example "orders-.*"; the whole name has to match',
            ) from error
        if not text.strip():
            raise OptionError("subscribePattern is empty", hint='write for example "orders-.*"')
        return Choice(pattern=text)
    return Choice(partitions=_assigned(text))


def _assigned(text: str) -> Mapping[str, tuple[int, ...]]:
    form = 'write {"orders": [0, 1]}'
    read = _json_object(text, "assign", form)
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, numbers in read.items():
        if not isinstance(numbers, list) or not numbers:
            raise OptionError(f"assign: {topic!r} needs a list of partitions", hint=form)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise OptionError(f"assign: {number!r} is no partition of {topic!r}", hint=form)
        assigned[topic] = tuple(sorted(set(numbers)))
    if not assigned:
        raise OptionError("assign names no partition", hint=form)
    return assigned


# --- where to begin and to end ------------------------------------------------------------------


def _bound(texts: Mapping[str, str], side: str, default: Kind) -> Bound:
    """Read one side; a timestamp for all goes before timestamps, and these before offsets."""
    name = f"{side}Timestamp"
    if (text := texts.get(name.lower())) is not None:
        return Bound(Kind.TIMESTAMP, timestamp_ms=_not_negative(text, name))
    name = f"{side}OffsetsByTimestamp"
    if (text := texts.get(name.lower())) is not None:
        form = 'write {"orders": {"0": 1700000000000}}, in milliseconds'
        return Bound(Kind.TIMESTAMPS, by_partition=_by_partition(text, name, form, lowest=0))
    name = f"{side}Offsets"
    text = texts.get(name.lower())
    if text is None:
        return Bound(default)
    word = text.strip().lower()
    if word in {Kind.EARLIEST.value, Kind.LATEST.value}:
        return Bound(Kind(word))
    form = 'write earliest, latest or {"orders": {"0": 17, "1": -2}} (-2: earliest, -1: latest)'
    return Bound(Kind.OFFSETS, by_partition=_by_partition(text, name, form, lowest=-2))


def _refuse_side(bound: Bound, name: str, refused: int | None) -> None:
    """Raise where a partition would begin at its end, or end at its beginning."""
    if bound.kind is not Kind.OFFSETS or refused is None:
        return
    for topic, offsets in bound.by_partition.items():
        for number, offset in offsets.items():
            if offset == refused:
                raise OptionError(
                    f"{name}: {refused} for {topic}-{number} leaves nothing to read",
                    hint="-2 stands for earliest, -1 for latest",
                )


def _by_partition(text: str, name: str, form: str, *, lowest: int) -> OffsetMap:
    found: dict[str, dict[int, int]] = {}
    for topic, numbers in _json_object(text, name, form).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"{name}: {topic!r} needs a number for each partition", hint=form)
        found[topic] = {}
        for partition, value in numbers.items():
            if not partition.isdigit():
                raise OptionError(f"{name}: {partition!r} is no partition of {topic!r}", hint=form)
            if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
                raise OptionError(
                    f"{name}: {value!r} is nothing for {topic}-{partition}", hint=form
                )
            found[topic][int(partition)] = value
    return found


def _json_object(text: str, name: str, form: str) -> dict[str, Any]:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise OptionError(f"{name} = {text!r} is no JSON: {error}", hint=form) from error
    if not isinstance(read, dict):
        raise OptionError(f"{name} = {text!r} is no JSON object", hint=form)
    return read


# --- single values ------------------------------------------------------------------------------


def _optional(texts: Mapping[str, str], name: str, read: Callable[[str, str], int]) -> int | None:
    text = texts.get(name.lower())
    return None if text is None else read(text, name)


def _positive(text: str, name: str) -> int:
    number = _not_negative(text, name)
    if number == 0:
        raise OptionError(f"{name} = 0 would read nothing, ever", hint=f"give {name} at least 1")
    return number


def _not_negative(text: str, name: str) -> int:
    if not text.strip().isdecimal():
        raise OptionError(f"{name} = {text!r} is no whole number", hint=f"as in {name} = 10000")
    return int(text)


def _duration_ms(text: str, name: str) -> int:
    """Read a length of time; a number by itself is in milliseconds, as with Spark."""
    try:
        return duration_us(f"{text} ms" if text.strip().isdecimal() else text, name) // 1000
    except DurationError as error:
        raise OptionError(
            f"{name} = {text!r} is no time", hint=f"as in {name} = 15m or 30 seconds"
        ) from error


def _flag(texts: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    text = texts.get(name.lower())
    if text is None:
        return default
    return _one_of(texts, name, ("true", "false"), "") == "true"


def _one_of(texts: Mapping[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    text = texts.get(name.lower())
    if text is None:
        return default
    word = text.strip().lower()
    if word not in allowed:
        raise OptionError(f"{name} = {text!r}", hint=f"{name} is one of: {', '.join(allowed)}")
    return word


def _read_committed(texts: Mapping[str, str], client: ClientOptions) -> bool:
    levels = ("read_committed", "read_uncommitted")
    own = _one_of(texts, "isolation", levels, "")
    if own and client.isolation and own != client.isolation:
        raise OptionError(
            f"isolation = {own} and kafka.isolation.level = {client.isolation} contradict",
            hint="give one of them",
        )
    return (own or client.isolation or levels[0]) == levels[0]


def _bootstrap_of(texts: Mapping[str, str], environment: Mapping[str, str]) -> str:
    given = {texts[name] for name in _BOOTSTRAP_NAMES if name in texts}
    if len(given) > 1:
        raise OptionError(
            f"{_BOOTSTRAP} and bootstrap name different brokers", hint="give one of them"
        )
    found = given.pop() if given else environment.get("HEADWATER_BOOTSTRAP", _DEFAULT_BOOTSTRAP)
    if not found.strip():
        raise OptionError(f"{_BOOTSTRAP} is empty", hint="write HOST:PORT, as localhost:9092")
    return found.strip()
