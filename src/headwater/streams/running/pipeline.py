"""A pipeline: a streaming DataFrame, a name, and where its rows go.

This file alone decides what people write down: `hw.pipeline(name, frame).to(hw.topic("out")).run()`
and how rows of any columns become records. How a pipeline is run and watched stands in `driver`;
which output mode a plan needs, in `output_mode`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from headwater.delivery.client.cluster import Cluster
from headwater.streams.connecting import connect
from headwater.streams.errors import hints_shown
from headwater.streams.formats.dead_letters import dead_letter_topics, with_dead_letters
from headwater.streams.formats.json import to_json
from headwater.streams.formats.types import quoted
from headwater.streams.formats.writing import json_text
from headwater.streams.running import definitions
from headwater.streams.running.checkpoints import check_name
from headwater.streams.running.errors import DefinitionError
from headwater.streams.running.output_mode import (
    APPEND,
    COMPLETE,
    UPDATE,
    maybe_group_columns,
    mode_of,
)
from headwater.streams.running.plans import plan_text, section
from headwater.streams.sink.foreach_batch import connected_writers, each_batch, own_writers
from headwater.streams.sink.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headwater.streams.running.driver import Driver

_KEY: Final = "key"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that rows go to.

    Attributes:
        name: The topic.
        key: The column whose text is the key, where rows are turned into JSON.
        options: Options of the sink.
    """

    name: str
    key: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        """The brokers that have it."""
        return sink_options({**self.options, "topic": self.name}).bootstrap

    def connect(self, *, timeout_s: float | None = None) -> Cluster:
        """Return a client of the broker that has it, if need be with another patience."""
        options = sink_options({**self.options, "topic": self.name})
        return connect(options.bootstrap, options.client, timeout_s=timeout_s)


@dataclass(frozen=True, slots=True)
class Letters:
    """What becomes of records that cannot be decoded, where a format names a topic for them.

    Attributes:
        are_written: Whether they are written at all; they are counted in any case.
        topic: Where they go, if not where the format says.
    """

    are_written: bool = True
    topic: str | None = None


def topic(name: str, *, key: str | None = None, options: Mapping[str, str] | None = None) -> Topic:
    """Name a topic that a pipeline writes to.

    Args:
        name: The topic.
        key: The column whose text becomes the key. For rows without a column ``value``, which are
            written as JSON.
        options: Options of the sink, such as ``kafka.bootstrap.servers``.
    """
    return Topic(name, key, dict(options or {}))


def pipeline(name: str, frame: "DataFrame", *, mode: str | None = None) -> "Pipeline":
    """Name a streaming DataFrame, so that it can be run, found and watched.

    Args:
        name: The name, to which its checkpoint belongs.
        frame: The rows.
        mode: Spark's output mode: "append", each row is final, or "update", each row is the newest
            of its group and replaces those before it. Without it: append wherever Spark can, else
            update, which an aggregate without a watermark needs.

    Raises:
        DefinitionError: The name will not do, is taken in this file, the frame does not stream, or
            there is no such mode.
        RetractionError: Spark itself counts rows that may be taken back.
    """
    if not frame.isStreaming:
        raise DefinitionError(
            f"pipeline {name!r} reads nothing that streams",
            hint="read with spark.readStream; a batch is written with df.write",
        )
    if mode == COMPLETE:
        raise DefinitionError(
            f"pipeline {name!r} cannot run in complete mode, which writes all rows in each batch",
            hint='use mode="update": unless rows are filtered behind the aggregate, the newest of '
            "all keys in the topic are the whole result",
        )
    if mode not in {None, APPEND, UPDATE}:
        raise DefinitionError(
            f"pipeline {name!r}: there is no mode {mode!r}",
            hint='use mode="append" or mode="update", or leave it out',
        )
    from headwater.streams.kernel.whole import check_counted  # noqa: PLC0415 - it compiles loops

    with hints_shown():
        check_counted(frame)
    return Pipeline(check_name(name), frame, mode)


class Pipeline:
    """A named DataFrame on its way to a topic."""

    def __init__(self, name: str, frame: "DataFrame", mode: str | None = None) -> None:
        """Use `pipeline` instead."""
        self.name = name
        self.frame = frame
        self.target: Topic | None = None
        self.letters = Letters()
        self._given_mode = mode

    @cached_property
    def mode(self) -> str:
        """The output mode that it runs in."""
        return self._given_mode or mode_of(self._plan)

    @cached_property
    def _plan(self) -> str:
        return section(plan_text(self.frame), "Analyzed Logical Plan")

    def to(self, target: Topic) -> "Pipeline":
        """Say where its rows go: as records with the sink's columns, else as JSON."""
        self.target = target
        definitions.announce(self)
        return self

    def rows(self) -> "DataFrame":
        """Return what the sink is given: the rows, and records that could not be decoded."""
        target = self.wanted_target()
        if target.key is not None and target.key not in self.frame.columns:
            raise DefinitionError(
                f"pipeline {self.name!r} has no column {target.key!r} for the key",
                hint=f"it has: {', '.join(self.frame.columns)}",
            )
        frame = self._updates() if self.mode == UPDATE else self._records(target.key)
        if not self._letter_topics(frame):
            return frame
        return with_dead_letters(
            frame, topic=target.name, pipeline=self.name, letters_to=self.letters.topic
        )

    def key_columns(self) -> tuple[str, ...]:
        """Return the columns that the key of a record is made of; none if rows have no key.

        Raises:
            DefinitionError: In update mode, if it is not known what a row replaces.
        """
        target, columns = self.wanted_target(), self.frame.columns
        if target.key is not None:
            return (target.key,)
        groups = maybe_group_columns(self._plan, columns) if self.mode == UPDATE else None
        # One among several group columns would not tell groups apart.
        if _KEY in columns and (groups is None or _KEY not in groups):
            return (_KEY,)
        if self.mode == UPDATE and groups is None:
            raise DefinitionError(
                f"pipeline {self.name!r} gives the newest row of each group, and its plan does not "
                f"say which columns tell groups apart: {', '.join(columns)}",
                hint=f'name one: hw.topic("{target.name}", key="COLUMN"); of several make a column '
                '`key`: df.withColumn("key", F.to_json(F.struct("a", "b")))',
            )
        return groups or ()

    def _records(self, key: "str | Column | None", *content: str) -> "DataFrame":
        """Return rows as records, with JSON of some columns where they are none yet."""
        if "value" not in self.frame.columns:
            return self.frame.transform(to_json(*content, key=key))
        if key is None:
            return self.frame
        column = F.col(quoted(key)) if isinstance(key, str) else key
        return self.frame.withColumn(_KEY, column.cast("string"))

    def _updates(self) -> "DataFrame":
        """Return rows as records of which a later one replaces an earlier one with the same key."""
        names, columns = self.key_columns(), self.frame.columns
        if names == (_KEY,):
            return self._records(None, *(name for name in columns if name != _KEY))
        if self.wanted_target().key is not None:
            return self._records(*names, *columns)
        # As an object: a group of nulls has a key, too, and no two groups have the same.
        fields = F.struct(*(F.col(quoted(name)) for name in names)) if names else None
        return self._records(F.lit("{}") if fields is None else json_text(fields), *columns)

    def topics(self) -> list[str]:
        """Return the topics that it writes to."""
        return [self.wanted_target().name, *self._letter_topics(self.frame)]

    def writer(self, rows: "DataFrame", checkpoint: str) -> "DataStreamWriter":
        """Return what writes the rows.

        Args:
            rows: What `rows` has given.
            checkpoint: Where Spark keeps its checkpoint.
        """
        target = self.wanted_target()
        options = dict(target.options)
        # Rows beside dead letters name their topics themselves. Others may still have the topic
        # that they were read from, which must not win.
        if not self._letter_topics(rows):
            options["topic"] = target.name
        writer = rows.writeStream.queryName(self.name).outputMode(self.mode)
        writer = writer.option("checkpointLocation", checkpoint)
        if self.mode != UPDATE:
            return writer.format("headwater").options(**options)
        understood = sink_options({**options, "checkpointLocation": checkpoint})
        if _is_connected(rows):
            return writer.foreachBatch(each_batch(connected_writers(understood, checkpoint)))
        return writer.foreachBatch(each_batch(own_writers(understood)))

    def _letter_topics(self, frame: "DataFrame") -> list[str]:
        found = dead_letter_topics(frame) if self.letters.are_written else []
        return [self.letters.topic] if found and self.letters.topic else found

    def wanted_target(self) -> Topic:
        """Return where rows go.

        Raises:
            DefinitionError: Nobody has said so.
        """
        if self.target is None:
            raise DefinitionError(
                f"pipeline {self.name!r} goes nowhere",
                hint=f'say where: hw.pipeline("{self.name}", df).to(hw.topic("out"))',
            )
        return self.target

    def start(self, *, every: str | None = None, once: bool = False) -> "Driver":
        """Start it and return at once; `headwater run` does the same without this call.

        Args:
            every: The time between batches, as "5 seconds"; none is lost between them.
            once: End when everything that is there has been read.

        Returns:
            Whoever runs it: `wait()` for its end, or `stop()` it.
        """
        from headwater.streams.running.driver import Driver  # noqa: PLC0415 - it needs pipelines

        driver = Driver([self], every=every, once=once)
        if not definitions.are_collected():
            driver.start()
        return driver

    def run(self, *, every: str | None = None, once: bool = False) -> None:
        """Run it until it ends, fails or is interrupted.

        Raises:
            PipelineError: It failed, is running elsewhere, or its checkpoint is of another plan.
        """
        with hints_shown():
            driver = self.start(every=every, once=once)
            driver.wait()


def _is_connected(frame: "DataFrame") -> bool:
    """Tell whether a DataFrame is of a Connect server, without loading what that needs."""
    return type(frame).__module__.startswith("pyspark.sql.connect.")
