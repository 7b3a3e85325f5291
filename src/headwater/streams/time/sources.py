"""Which topics are below a DataFrame.

This file alone decides from which sources a stream comes, by its plan: ours, and Spark's own for
Kafka, with their options. Plans are the JVM's, so it needs a session in this process.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from headwater.streams.formats.json import END_DIGITS, END_PREFIX
from headwater.streams.options import is_time_role
from headwater.streams.time.errors import WatermarkError
from headwater.streams.time.reader_options import Read, client_part, read_of

_STREAMS: Final = "StreamingRelation"
_OURS: Final = "headwater"
_SPARKS: Final = "kafka"
# Numbers of columns and addresses of objects differ each time a plan is made.
_PASSING: Final = re.compile(r"#\d+L?|@[0-9a-f]+\b|plan_id=\d+")
# The variables of a lambda have numbers that the process counts up.
_VARIABLE: Final = re.compile(r"\blambda \w+")
# The mark of `hf.json` is drawn anew in each process; a plan has it as a text and as bytes.
_MARKS: Final = tuple(
    re.compile(re.escape(prefix) + rf"(?:[0-9a-f]{{2}}){{{count}}}", re.IGNORECASE)
    for prefix, count in (
        (END_PREFIX, END_DIGITS // 2),
        (END_PREFIX.encode().hex(), END_DIGITS),
    )
)


class Sources(NamedTuple):
    """Where a stream comes from.

    Attributes:
        client: The options by which the brokers are reached.
        reads: What each source reads.
    """

    client: dict[str, str]
    reads: tuple[Read, ...]

    def topic(self) -> str | None:
        """Return the topic, if there can be only one."""
        names = {name for read in self.reads for name in read.choice.names()}
        has_pattern = any(read.choice.pattern is not None for read in self.reads)
        return names.pop() if len(names) == 1 and not has_pattern else None


def sources_of(rows: DataFrame) -> Sources:
    """Find the sources below a DataFrame.

    Raises:
        WatermarkError: There are none, or others than topics, or those of several clusters.
        OptionError: The options of one are wrong.
    """
    clients: list[dict[str, str]] = []
    reads: list[Read] = []
    for source, options in _streams(rows):
        if source not in {_OURS, _SPARKS}:
            raise WatermarkError(
                f"a source of the format {source!r} has no partitions and offsets to go by",
                hint='read topics: format("headwater"), or Spark\'s own format("kafka")',
            )
        if source == _OURS and is_time_role(options):
            continue
        clients.append(client_part(options))
        # Spark's own source reads whatever is there.
        read = read_of(options, read_committed=source == _OURS)
        if read not in reads:
            reads.append(read)
    if not clients:
        raise WatermarkError(
            "there is no topic below this DataFrame",
            hint='begin with spark.readStream.format("headwater")',
        )
    addresses = sorted({each["kafka.bootstrap.servers"] for each in clients})
    if len(addresses) > 1:
        raise WatermarkError(
            f"one watermark over two clusters: {addresses[0]} and {addresses[1]}",
            hint="give each its own with hf.watermark, and join what comes of them",
        )
    return Sources(clients[0], tuple(reads))


def time_readers_of(rows: DataFrame) -> list[dict[str, str]]:
    """Return the options of the time readers below a DataFrame."""
    return [
        options for source, options in _streams(rows) if source == _OURS and is_time_role(options)
    ]


def stable_plan_text(rows: DataFrame) -> str:
    """Return the plan of a DataFrame as a text that is the same for the same plan.

    Spark's own text of a plan leaves out columns where they are many.
    """
    said = []
    waiting = [_plan(rows)]
    while waiting:
        node = waiting.pop()
        children = node.children()
        own = node.expressions().mkString(", ") if children.size() else node.toString()
        said.append(f"{node.nodeName()} {own}")
        waiting += [children.apply(number) for number in range(children.size())]
    text = _PASSING.sub("", "\n".join(said))
    for mark in _MARKS:
        text = mark.sub(END_PREFIX, text)
    numbers: dict[str, int] = {}
    return _VARIABLE.sub(lambda found: f"lambda {numbers.setdefault(found[0], len(numbers))}", text)


def metadata_of(rows: DataFrame, column: str) -> list[dict[str, Any]]:
    """Return what is said of a column wherever its rows got it: of a union, at each of its sides.

    Spark itself tells of the first side alone.
    """
    found: list[dict[str, Any]] = []
    waiting = [_plan(rows)]
    while waiting:
        node = waiting.pop()
        made = node.expressions()
        named = [
            each
            for each in (made.apply(number) for number in range(made.size()))
            if each.getClass().getSimpleName() == "Alias" and each.name() == column
        ]
        found += [json.loads(each.metadata().json()) for each in named]
        if not named:
            children = node.children()
            waiting += [children.apply(number) for number in range(children.size())]
    return found


def _streams(rows: DataFrame) -> Iterator[tuple[str, dict[str, str]]]:
    leaves = _plan(rows).collectLeaves()
    for number in range(leaves.size()):
        leaf = leaves.apply(number)
        if leaf.getClass().getSimpleName().startswith(_STREAMS):
            yield _named(leaf)


def _named(leaf: Any) -> tuple[str, dict[str, str]]:  # noqa: ANN401 - an object of the JVM
    if leaf.getClass().getSimpleName() == "StreamingRelationV2":
        given = leaf.extraOptions().asCaseSensitiveMap()
        return leaf.sourceName(), {name: given[name] for name in given}
    return leaf.sourceName(), {}


def _plan(rows: DataFrame) -> Any:  # noqa: ANN401 - an object of the JVM
    made = getattr(rows, "_jdf", None)
    if made is None:
        raise WatermarkError(
            "a watermark needs the plan of a query, which Spark Connect keeps to itself",
            hint="use a session in this process: hw.session()",
        )
    return made.queryExecution().analyzed()
