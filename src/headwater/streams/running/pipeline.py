"""A pipeline: a streaming DataFrame, a name, and where its rows go.

This file alone decides what people write down: `hw.pipeline(name, frame).to(hw.topic("out")).run()`
and how rows of any columns become records. How a pipeline is run and watched stands in `driver`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from headwater.delivery.client.cluster import Cluster
from headwater.streams.connecting import connect
from headwater.streams.formats.dead_letters import dead_letter_topics, with_dead_letters
from headwater.streams.formats.json import to_json
from headwater.streams.running import definitions
from headwater.streams.running.checkpoints import check_name
from headwater.streams.running.errors import DefinitionError
from headwater.streams.sink.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from headwater.streams.running.driver import Driver


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


def pipeline(name: str, frame: "DataFrame") -> "Pipeline":
    """Name a streaming DataFrame, so that it can be run, found and watched.

    Raises:
        DefinitionError: The name will not do, is taken in this file, or the frame does not stream.
    """
    if not frame.isStreaming:
        raise DefinitionError(
            f"pipeline {name!r} reads nothing that streams",
            hint="read with spark.readStream; a batch is written with df.write",
        )
    return Pipeline(check_name(name), frame)


class Pipeline:
    """A named DataFrame on its way to a topic."""

    def __init__(self, name: str, frame: "DataFrame") -> None:
        """Use `pipeline` instead."""
        self.name = name
        self.frame = frame
        self.target: Topic | None = None
        self.letters = Letters()

    def to(self, target: Topic) -> "Pipeline":
        """Say where its rows go: as records with the sink's columns, else as JSON."""
        self.target = target
        definitions.announce(self)
        return self

    def rows(self) -> "DataFrame":
        """Return what the sink is given: the rows, and records that could not be decoded."""
        target = self.wanted_target()
        frame = self.frame
        if target.key is not None and target.key not in frame.columns:
            raise DefinitionError(
                f"pipeline {self.name!r} has no column {target.key!r} for the key",
                hint=f"it has: {', '.join(frame.columns)}",
            )
        if "value" not in frame.columns:
            frame = frame.transform(to_json(key=target.key))
        elif target.key is not None:
            frame = frame.withColumn("key", F.col(target.key).cast("string"))
        if not self._letter_topics(frame):
            return frame
        return with_dead_letters(
            frame, topic=target.name, pipeline=self.name, letters_to=self.letters.topic
        )

    def topics(self) -> list[str]:
        """Return the topics that it writes to."""
        return [self.wanted_target().name, *self._letter_topics(self.frame)]

    def writer(self, rows: "DataFrame") -> "DataStreamWriter":
        """Return what writes the rows; where its checkpoint is, the driver says."""
        target = self.wanted_target()
        writer = rows.writeStream.format("headwater").queryName(self.name).options(**target.options)
        # Rows beside dead letters name their topics themselves. Others may still have the topic
        # that they were read from, which must not win.
        return writer if self._letter_topics(rows) else writer.option("topic", target.name)

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
        driver = self.start(every=every, once=once)
        driver.wait()
