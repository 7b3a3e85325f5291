"""What the options of `format("headwater")` mean where rows are written.

This file alone decides which options the sink knows, what their texts mean and which values they
have where none is given. Names are those of Spark's own Kafka sink where it has them. It asks no
broker; what the client is told stands in `client_options`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from headwater.base.record.codecs import Codec
from headwater.streams.client_options import ClientOptions, client_options
from headwater.streams.errors import OptionError
from headwater.streams.options import bootstrap_of, refuse_unknown

_KNOWN = (
    "topic",
    "compression",
    "sinkName",
    "oversized",
    "deadLetterTopic",
    "stagingLocation",
    "includeHeaders",
    "bootstrap",
)
_ASYNC = "asyncProgressTrackingEnabled"
_CHECKPOINT = "checkpointLocation"
_QUERY_NAME = "queryName"
# Spark's own, which it hands to every sink.
_OF_SPARK = (
    _CHECKPOINT,
    _QUERY_NAME,
    "outputMode",
    "asyncProgressTrackingCheckpointIntervalMs",
    "_asyncProgressTrackingOverrideSinkSupportCheck",
    _ASYNC,
)

# As a Java producer.
_RECORD_BYTES_MAX = 1 << 20
# Each batch is a request's share of a partition; half of what topics take by default.
_BATCH_BYTES = 1 << 19

_SINK_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")

_PREFIX = "kafka."
_COMPRESSION = "compression.type"
_REQUEST = "max.request.size"
_BATCH = "batch.size"
_TIMEOUT = "transaction.timeout.ms"
_ACKS = "acks"
_IDEMPOTENCE = "enable.idempotence"
_EFFECTIVE = frozenset({_COMPRESSION, _REQUEST, _BATCH, _TIMEOUT, _ACKS, _IDEMPOTENCE})
# They tune the queues of a producer, of which there are none: a batch is sent when it is whole.
_WITHOUT_EFFECT = frozenset(
    {
        "buffer.memory",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "delivery.timeout.ms",
        "linger.ms",
        "max.block.ms",
        "max.in.flight.requests.per.connection",
        "metadata.max.idle.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "retries",
    }
)
_REFUSED = {
    "transactional.id": "it is made of the query's id and sinkName, which a restart keeps",
    "partitioner.class": "keys choose as Java's default partitioner does; add a partition column "
    "to choose yourself",
    "partitioner.ignore.keys": "leave the key column out, or add a partition column",
}
# Those of a consumer: whoever sets one here has mistaken the place, or the sink for the source.
_OF_CONSUMERS = frozenset(
    {
        "allow.auto.create.topics",
        "check.crcs",
        "exclude.internal.topics",
        "fetch.max.bytes",
        "fetch.max.wait.ms",
        "fetch.min.bytes",
        "group.id",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "session.timeout.ms",
    }
)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that a writer has to be told."""

    bootstrap: str
    client: ClientOptions
    topic: str | None
    sink_name: str
    codec: Codec
    dead_letter_topic: str | None
    staging_location: str | None
    include_headers: bool
    batch_bytes: int
    record_bytes_max: int
    transaction_timeout_ms: int | None
    checkpoint: str | None = None
    query_name: str | None = None


def sink_options(
    given: Mapping[str, str], *, environment: Mapping[str, str] | None = None
) -> SinkOptions:
    """Read all options of a sink.

    Raises:
        OptionError: One of them is unknown, refused, wrong or contradicts another.
    """
    texts = {name.lower(): text for name, text in given.items()}
    refuse_unknown(given, (*_KNOWN, *_OF_SPARK), "sink")
    _refuse_async(texts)
    for name, hint in _REFUSED.items():
        if _PREFIX + name in texts:
            raise OptionError(f"{_PREFIX}{name} cannot be set", hint=hint)
    for name in sorted(_OF_CONSUMERS):
        if _PREFIX + name in texts:
            raise OptionError(
                f"{_PREFIX}{name} is an option of the source, not of the sink",
                hint="set it where the topic is read, and leave it out here",
            )
    _refuse_weak(texts)
    return SinkOptions(
        bootstrap=bootstrap_of(given, environment),
        client=client_options(given, more=_EFFECTIVE | _WITHOUT_EFFECT),
        topic=_name(texts, "topic"),
        sink_name=_sink_name(texts),
        codec=_codec(texts),
        dead_letter_topic=_dead_letter_topic(texts),
        staging_location=_staging_location(texts),
        include_headers=_one_of(texts, "includeHeaders", ("true", "false")) == "true",
        batch_bytes=_number(texts, _BATCH) or _BATCH_BYTES,
        record_bytes_max=_number(texts, _REQUEST) or _RECORD_BYTES_MAX,
        transaction_timeout_ms=_number(texts, _TIMEOUT),
        checkpoint=texts.get(_CHECKPOINT.lower()),
        query_name=texts.get(_QUERY_NAME.lower()),
    )


def _refuse_async(texts: Mapping[str, str]) -> None:
    if texts.get(_ASYNC.lower(), "false").strip().lower() != "false":
        raise OptionError(
            f"{_ASYNC} and writing exactly once exclude each other: batches are then repeated "
            "with other rows under the same number",
            hint=f"leave {_ASYNC} out",
        )


def _refuse_weak(texts: Mapping[str, str]) -> None:
    for name, allowed in ((_ACKS, ("all", "-1")), (_IDEMPOTENCE, ("true",))):
        text = texts.get(_PREFIX + name, allowed[0]).strip().lower()
        if text not in allowed:
            raise OptionError(
                f"{_PREFIX}{name} = {text}: a transaction needs {allowed[0]}",
                hint=f"leave {_PREFIX}{name} out",
            )


def _name(texts: Mapping[str, str], option: str) -> str | None:
    text = texts.get(option.lower())
    if text is not None and not text.strip():
        raise OptionError(f"{option} is empty", hint=f'write .option("{option}", "orders")')
    return None if text is None else text.strip()


def _sink_name(texts: Mapping[str, str]) -> str:
    text = texts.get("sinkname", "sink")
    if not _SINK_NAME.fullmatch(text):
        raise OptionError(
            f"sinkName = {text!r} is no name",
            hint="up to 100 letters, digits, dots, underscores and hyphens",
        )
    return text


def _codec(texts: Mapping[str, str]) -> Codec:
    own, clients = texts.get("compression"), texts.get(_PREFIX + _COMPRESSION)
    if own is not None and clients is not None and own.lower() != clients.lower():
        raise OptionError(
            f"compression = {own} and {_PREFIX}{_COMPRESSION} = {clients} contradict",
            hint="give one of them",
        )
    text = own or clients or "none"
    names = {codec.name.lower(): codec for codec in Codec}
    names["uncompressed"] = Codec.NONE
    codec = names.get(text.strip().lower())
    if codec is None:
        raise OptionError(
            f"compression = {text!r} is unknown",
            hint=f"one of: {', '.join(codec.name.lower() for codec in Codec)}",
        )
    return codec


def _dead_letter_topic(texts: Mapping[str, str]) -> str | None:
    topic = _name(texts, "deadLetterTopic")
    if _one_of(texts, "oversized", ("error", "deadletter")) == "error":
        if topic is not None:
            raise OptionError(
                "deadLetterTopic is given, but oversized is not deadLetter",
                hint='add .option("oversized", "deadLetter")',
            )
        return None
    if topic is None:
        raise OptionError(
            "oversized = deadLetter needs a deadLetterTopic",
            hint='add .option("deadLetterTopic", "orders.dlq")',
        )
    return topic


def _staging_location(texts: Mapping[str, str]) -> str | None:
    text = _name(texts, "stagingLocation")
    if text is None:
        return None
    path = maybe_local_path(text)
    if path is None:
        raise OptionError(
            f"stagingLocation = {text!r} is no directory",
            hint="give a directory that the driver and all executors see, as a shared mount",
        )
    if not path.startswith("/"):
        raise OptionError(
            f"stagingLocation = {text!r} is not absolute",
            hint="executors run in directories of their own: begin with /",
        )
    return path


def maybe_local_path(location: str) -> str | None:
    """Return the path that a location names; None where it is on another kind of file system."""
    scheme = _SCHEME.match(location)
    if scheme is None:
        return location
    return "/" + location[scheme.end() :].lstrip("/") if scheme[1].lower() == "file" else None


def _number(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(_PREFIX + name)
    if text is None:
        return None
    if not text.strip().isdecimal() or int(text) == 0:
        raise OptionError(
            f"{_PREFIX}{name} = {text!r} is no whole number above 0", hint=f"as in {name} = 60000"
        )
    return int(text)


def _one_of(texts: Mapping[str, str], option: str, allowed: tuple[str, ...]) -> str:
    """Return one of the allowed words; the first where none is given."""
    text = texts.get(option.lower(), allowed[0]).strip().lower()
    if text not in allowed:
        words = ("error", "deadLetter") if option == "oversized" else allowed
        raise OptionError(
            f"{option} = {texts[option.lower()]!r}", hint=f"{option} is one of: {', '.join(words)}"
        )
    return text
