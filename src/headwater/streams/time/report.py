"""How a task says how far it has come.

This file alone decides who may report, and that a task whose report is not safe has failed: the
watermark of the next batch would be that of rows which nobody has seen. Retries are harmless: see
`records`.

The client is kept from one task to the next, as the sink keeps its own: Spark uses its Python
processes again, and a batch of a few rows is over sooner than connections are made.
"""

import atexit
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark import TaskContext

from headwater.base.errors import HeadwaterError
from headwater.base.record.records import Record
from headwater.streams.client_options import ClientOptions
from headwater.streams.time.errors import ReportError
from headwater.streams.time.fold import Place, Reach, Report
from headwater.streams.time.records import TIME_TOPIC, report_record
from headwater.streams.time.time_log import TimeWriter


@dataclass(frozen=True)
class Reporter:
    """Reports for one clock; it travels to the tasks.

    Attributes:
        bootstrap: The brokers.
        client: How to connect to them.
        name: Under which name the clock's reports are found.
        topic: The topic that is meant where none is named, if the clock has only one.
    """

    bootstrap: str
    client: ClientOptions
    name: str
    topic: str | None = None

    def report(self, reached: Mapping[Place, Reach]) -> None:
        """Report the largest event times of this task's rows; returns when that is safe.

        Args:
            reached: By topic and partition; the topic may be empty where there is only one. What
                has no event time is not reported: that a partition was read is known without it.

        Raises:
            ReportError: It is not safe.
        """
        timed = {place: reach for place, reach in reached.items() if reach.time_us is not None}
        if not timed:
            return
        query_id = _query_id()
        now_ms = time.time_ns() // 1_000_000
        records = []
        for (topic, partition), reach in sorted(timed.items()):
            named = topic or self.topic
            assert named, "a clock of several topics needs them named"
            place = (named, partition)
            records.append(report_record(query_id, self.name, place, Report(*reach, now_ms)))
        _write(self.bootstrap, self.client, records)


def _query_id() -> str:
    context = TaskContext.get()
    query_id = context.getLocalProperty("sql.streaming.queryId") if context else None
    if not query_id:
        raise ReportError(
            "there is no streaming query here that a watermark could belong to",
            hint="start it with writeStream",
        )
    return query_id


_kept: list[tuple[tuple[str, ClientOptions], TimeWriter]] = []


def _write(bootstrap: str, client: ClientOptions, records: list[Record]) -> None:
    wanted = (bootstrap, client)
    if _kept and _kept[0][0] != wanted:
        _close()
    if not _kept:
        _kept.append((wanted, TimeWriter(bootstrap, client)))
    try:
        _kept[0][1].write(records)
    except HeadwaterError as error:
        _close()
        raise ReportError(
            f"the watermark's report cannot be written to {TIME_TOPIC}: {error.message}",
            hint=error.hint or "the batch is run again when the query is started again",
        ) from error
    except BaseException:
        _close()
        raise


@atexit.register
def _close() -> None:
    while _kept:
        _kept.pop()[1].close()
