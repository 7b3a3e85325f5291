"""Runs pipelines and watches them.

This file alone decides how queries are started, heard of and ended in one process: one after the
other is checked against its checkpoint, then all are started; when one fails, the others stop.
"""

import contextlib
import json
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

from headwater.base.errors import HeadwaterError
from headwater.streams.running.checkpoints import Checkpoint, Note, data_directory
from headwater.streams.running.errors import (
    DefinitionError,
    PipelineError,
    PipelineFailedError,
    translated,
)
from headwater.streams.running.feedback import refuse_feedback
from headwater.streams.running.logs import log_file
from headwater.streams.running.output_mode import mode_noted
from headwater.streams.running.plans import operators, plan_text, section, times_read
from headwater.streams.running.progress import Listener, Publisher, batch_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.streams.running.pipeline import Pipeline

_LOG = logging.getLogger(__name__)
_LOOK_AGAIN_S = 0.1
_PUBLISH_WITHIN_S = 5.0
# Spark tells of a batch a moment after its end.
_HEAR_WITHIN_S = 10.0
# Whoever supervises us waits longer than this, and for the rest of the end.
_FINISH_WITHIN_S = 20.0


class Driver:
    """Runs some pipelines of one Spark session."""

    def __init__(
        self,
        pipelines: "Sequence[Pipeline]",
        *,
        data: str | None = None,
        file: Path | None = None,
        every: str | None = None,
        once: bool = False,
        on_batch: Listener | None = None,
    ) -> None:
        """Prepare; `start` runs them.

        Args:
            pipelines: Which.
            data: Where checkpoints are kept.
            file: Where they are written down.
            every: The time between batches.
            once: End when everything that is there has been read.
            on_batch: Hears of each batch.

        Raises:
            DefinitionError: Both `every` and `once` are given.
        """
        if once and every is not None:
            raise DefinitionError(
                f"once and every={every!r} exclude each other: once is up to now",
                hint="leave one of them out",
            )
        self._pipelines = list(pipelines)
        self._data = data_directory(data)
        self._file = file
        self._trigger: dict[str, Any] = {}
        if once:
            self._trigger = {"availableNow": True}
        elif every is not None:
            self._trigger = {"processingTime": every}
        self._on_batch = on_batch
        self._running: dict[str, StreamingQuery] = {}
        self._unstarted: list[str] = []
        self._checkpoints: dict[str, Checkpoint] = {}
        self._logs: dict[str, logging.Logger] = {}
        self._held = ExitStack()
        # One thread at a time ends anything: who stops them need not be who waits.
        self._ending = threading.RLock()
        self._were_cut_off = False
        self._stopping = threading.Event()
        self._news = threading.Condition()
        self._last_heard: dict[str, int] = {}
        self._warned: set[str] = set()
        self._error: PipelineError | None = None

    def start(self) -> Self:
        """Start them all, or none.

        Raises:
            PipelineError: One is running elsewhere, or its checkpoint is of another plan.
            FeedbackError: One would read what it writes.
        """
        with ExitStack() as stack:
            for each in self._pipelines:
                checkpoint = Checkpoint(self._data, each.name)
                stack.enter_context(checkpoint.locked())
                log = stack.enter_context(log_file(checkpoint.log, each.name))
                self._logs[each.name] = log
                self._checkpoints[each.name] = checkpoint
            frames = {each.name: each.rows() for each in self._pipelines}
            plans = {
                name: section(plan_text(frame), "Analyzed Logical Plan")
                for name, frame in frames.items()
            }
            for each in self._pipelines:
                refuse_feedback(
                    each.name,
                    each.topics(),
                    bootstrap=each.wanted_target().bootstrap,
                    analyzed=plans[each.name],
                )
            stack.callback(self._end_unstarted)
            for each in self._pipelines:
                spark = str(frames[each.name].sparkSession.version)
                self._checkpoints[each.name].begin(self._note(each, spark, plans[each.name]))
                self._unstarted.append(each.name)
            self._listen({name: times_read(plan) for name, plan in plans.items()}, stack)
            stack.callback(self._end_all)
            for each in self._pipelines:
                self._unstarted.remove(each.name)
                self._running[each.name] = self._begin(each, frames[each.name])
            self._held = stack.pop_all()
        return self

    def _end_unstarted(self) -> None:
        """Note of those that another has kept from starting that they have not failed."""
        for name in self._unstarted:
            self._checkpoints[name].end(None)

    def _note(self, pipeline: "Pipeline", spark: str, plan: str) -> Note:
        return Note(
            pipeline.name,
            file=str(self._file.absolute()) if self._file else None,
            to=pipeline.wanted_target().name,
            spark=spark,
            operators=[*operators(plan), *mode_noted(pipeline.mode)],
        )

    def _begin(self, pipeline: "Pipeline", frame: "DataFrame") -> StreamingQuery:
        location = self._checkpoints[pipeline.name].location
        try:
            writer = pipeline.writer(frame, location)
            if self._trigger:
                writer = writer.trigger(**self._trigger)
            query: StreamingQuery = writer.start()
        except Exception as error:
            told = self._told(pipeline.name, error)
            self._logs[pipeline.name].error("%s\n%s", told.message, error)
            self._checkpoints[pipeline.name].end(told.message)
            raise told from error
        self._logs[pipeline.name].info("started: query %s, run %s", query.id, query.runId)
        return query

    def _listen(self, times: Mapping[str, Sequence[int]], stack: ExitStack) -> None:
        session = self._pipelines[0].frame.sparkSession
        target = self._pipelines[0].wanted_target()
        publisher = Publisher(target.connect(timeout_s=_PUBLISH_WITHIN_S))
        stack.callback(publisher.close)
        hearers: list[Listener] = [self._heard, publisher, self._published]
        listener = _Listener(times, hearers)
        session.streams.addListener(listener)

        def unlisten() -> None:
            # A JVM that has ended tells nobody any more.
            with contextlib.suppress(ConnectionError, Py4JError):
                session.streams.removeListener(listener)

        stack.callback(unlisten)

    def _heard(self, batch: dict[str, Any]) -> None:
        name = str(batch["pipeline"])
        self._checkpoints[name].keep_progress(batch)
        if batch["rows"]:
            self._logs[name].info(
                "batch %s: %s rows in %s ms, lag %s",
                *(batch[each] for each in ("batch", "rows", "took_ms", "lag")),
            )
        self._warn_once(name, batch["warnings"])
        if self._on_batch is not None:
            self._on_batch(batch)

    def _warn_once(self, name: str, warnings: Sequence[str]) -> None:
        """Pass a warning on: what is wrong with one batch is mostly wrong with the next."""
        if not warnings or name in self._warned:
            return
        self._warned.add(name)
        for text in warnings:
            self._logs[name].warning("%s", text)
            _LOG.warning("pipeline %r: %s", name, text)

    def _published(self, batch: dict[str, Any]) -> None:
        with self._news:
            self._last_heard[str(batch["pipeline"])] = int(batch["batch"])
            self._news.notify_all()

    def _wait_for_news(self, name: str, query: StreamingQuery) -> None:
        """Wait until all who want to hear of its last batch have heard of it."""
        last = _last_batch(query)
        if last is None:
            return
        with self._news:
            self._news.wait_for(lambda: self._last_heard.get(name, -1) >= last, _HEAR_WITHIN_S)

    def wait(self, *, tick: Callable[[], None] | None = None) -> None:
        """Wait until all have ended, one has failed, or somebody has asked them to stop.

        An interrupt ends them too.

        Args:
            tick: Called every moment, in this thread.

        Raises:
            PipelineError: One has failed; the others are stopped.
        """
        try:
            while self._running and not self._stopping.wait(_LOOK_AGAIN_S):
                with self._ending, self._while_spark_lives():
                    for name, query in list(self._running.items()):
                        if not query.isActive:
                            self._ended(name, query)
                if tick is not None:
                    tick()
                if self._error is not None:
                    break
        finally:
            with self._ending:
                self._held.close()
        if self._error is not None:
            raise self._error

    def ask_to_stop(self) -> None:
        """Have whoever waits end them; for signal handlers and other threads."""
        self._stopping.set()

    def stop(self) -> None:
        """End them, each after the batch that it is at if that ends soon."""
        self.ask_to_stop()
        self.wait()

    @property
    def were_cut_off(self) -> bool:
        """Whether one was stopped that would have gone on."""
        return self._were_cut_off

    @property
    def queries(self) -> dict[str, StreamingQuery]:
        """Spark's queries that run, by name."""
        return dict(self._running)

    def _ended(self, name: str, query: StreamingQuery) -> None:
        self._wait_for_news(name, query)
        error = query.exception()
        del self._running[name]
        if error is None:
            self._logs[name].info("ended")
            self._checkpoints[name].end(None)
            return
        told = self._told(name, error)
        self._logs[name].error("%s\n%s", told.message, error)
        self._checkpoints[name].end(told.message)
        self._error = self._error or told

    def _told(self, name: str, error: Exception) -> PipelineError:
        return translated(name, str(error), where=str(self._checkpoints[name].folder))

    @contextlib.contextmanager
    def _while_spark_lives(self) -> Iterator[None]:
        """Note of all that run that they have failed, if Spark is gone."""
        try:
            yield
        except (ConnectionError, Py4JError) as error:
            if isinstance(error, Py4JJavaError):
                raise  # Spark is there: it says so
            for name in list(self._running):
                told = PipelineFailedError(
                    f"pipeline {name!r} failed: Spark's JVM has ended",
                    hint="it was killed, or it crashed: a system that is short of memory does so "
                    "(see its log); give Spark less, or the machine more, and start it again",
                )
                self._logs[name].error("%s\n%s", told.message, error)
                self._checkpoints[name].end(told.message)
                self._error = self._error or told
            self._running.clear()

    def _end_all(self) -> None:
        with self._while_spark_lives():
            try:
                self._let_batches_finish()
            finally:
                for name, query in list(self._running.items()):
                    self._end(name, query)

    def _end(self, name: str, query: StreamingQuery) -> None:
        if not query.isActive:
            self._ended(name, query)
            return
        with contextlib.suppress(StreamingQueryException):
            query.stop()
            self._wait_for_news(name, query)
        self._were_cut_off = True
        self._logs[name].info("stopped")
        self._checkpoints[name].end(None)
        del self._running[name]

    def _let_batches_finish(self) -> None:
        """Wait until each has ended the batch that it is at; what is cut off is done again."""
        last = {name: _last_batch(query) for name, query in self._running.items()}
        end_s = time.monotonic() + _FINISH_WITHIN_S
        while time.monotonic() < end_s and any(
            _is_in_batch(query) and _last_batch(query) == last[name]
            for name, query in self._running.items()
        ):
            time.sleep(_LOOK_AGAIN_S / 2)


def _is_in_batch(query: StreamingQuery) -> bool:
    status = query.status
    return bool(query.isActive and status["isTriggerActive"] and status["isDataAvailable"])


def _last_batch(query: StreamingQuery) -> int | None:
    last = query.lastProgress
    return None if last is None else last.batchId


class _Listener(StreamingQueryListener):
    """Passes on the batches of some queries; it is called by a thread of Spark's."""

    def __init__(
        self, times_read: Mapping[str, Sequence[int]], hearers: Sequence[Listener]
    ) -> None:
        self._times_read = times_read
        self._hearers = hearers

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - the name is Spark's
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - as above
        """Tell all who want to hear; none of them may stop the others, or the query."""
        progress = event.progress
        if progress.name is None or progress.name not in self._times_read:
            return
        times = self._times_read[progress.name]
        batch = batch_of(progress.name, json.loads(progress.json), times)
        for hear in self._hearers:
            try:
                hear(batch)
            except (HeadwaterError, OSError):
                _LOG.warning("of a batch could not be told\n%s", traceback.format_exc())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - as above
        """Nothing has happened."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - as above
        """The driver looks for itself: it also hears of what never started."""
