"""What a batch is in few words, and who hears of it.

This file alone decides what is published of each batch to the topic ``__hw_progress``, and
that nobody's failure to hear of it stops a query. It knows nothing of Spark but the JSON that it
reports.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from headwater.streams.formats.letters import COUNTS, DEAD, LATE_COUNTS, LATE_EVENTS
from headwater.streams.time import faults
from headwater.streams.time.faults import Faults
from headwater.streams.time.moments import EPOCH, maybe_moment

TOPIC: Final = "__hw_progress"
# A console shows hours, not weeks.
_CONFIGS = {"retention.ms": str(86_400_000), "cleanup.policy": "delete"}
_RATES = ("processedRowsPerSecond", "inputRowsPerSecond")
_RETRY_AFTER_S = 10.0
_LOG = logging.getLogger(__name__)


class Listener(Protocol):
    """Whoever wants to hear of batches."""

    def __call__(self, batch: dict[str, Any]) -> None:
        """Hear of one."""


def batch_of(
    name: str, progress: Mapping[str, Any], times_read: Sequence[int] = ()
) -> dict[str, Any]:
    """Return what is worth knowing of a batch.

    Args:
        name: The pipeline.
        progress: What Spark tells.
        times_read: How often the plan reads each source; Spark counts rows as often.
    """
    sources = _counted_once(progress.get("sources", []), times_read)
    clocks = [said for each in sources if (said := _maybe_clock(each)) is not None]
    # What a clock says is a row for Spark, and an event for nobody.
    sources = [each for each in sources if _maybe_clock(each) is None]
    untimed = _untimed(progress)
    operators = progress.get("stateOperators", [])
    return {
        "pipeline": name,
        "query": progress.get("id"),
        "run": progress.get("runId"),
        "batch": progress.get("batchId"),
        "at": progress.get("timestamp"),
        "took_ms": (progress.get("durationMs") or {}).get("triggerExecution"),
        "rows": sum(each.get("numInputRows") or 0 for each in sources),
        "rows_per_second": _sum_rates(sources, "processedRowsPerSecond"),
        "input_rows_per_second": _sum_rates(sources, "inputRowsPerSecond"),
        "lag": lag_of(sources),
        "rows_out": _rows_out(progress.get("sink") or {}),
        "state_rows": sum(each.get("numRowsTotal") or 0 for each in operators),
        "state_bytes": sum(each.get("memoryUsedBytes") or 0 for each in operators),
        "late_rows": sum(each.get("numRowsDroppedByWatermark") or 0 for each in operators)
        + _observed(progress, LATE_COUNTS, LATE_EVENTS),
        "no_time_rows": sum(each.no_time for each in untimed.values()),
        "future_rows": sum(each.future for each in untimed.values()),
        **_watermark(progress, clocks),
        "undecodable": _observed(progress, COUNTS, DEAD),
        "durations_ms": progress.get("durationMs"),
        "warnings": [
            text
            for columns, each in untimed.items()
            if (text := faults.maybe_warning(columns, each)) is not None
        ],
    }


def _rows_out(sink: Mapping[str, Any]) -> int | None:
    """Return how many rows were written; Spark says -1 where it does not know."""
    count = sink.get("numOutputRows")
    return None if count is None or count < 0 else int(count)


def _counted_once(
    sources: list[Mapping[str, Any]], times_read: Sequence[int]
) -> list[Mapping[str, Any]]:
    if len(sources) != len(times_read):
        return sources
    # A rate that is not known is a text, "NaN".
    return [
        {
            **each,
            **{name: each[name] / times for name in _RATES if isinstance(each.get(name), float)},
            "numInputRows": (each.get("numInputRows") or 0) // times,
        }
        for each, times in zip(sources, times_read, strict=True)
    ]


def _sum_rates(sources: list[Mapping[str, Any]], name: str) -> float:
    rates = [each.get(name) for each in sources]
    return round(sum(rate for rate in rates if isinstance(rate, int | float)), 1)


def _observed(progress: Mapping[str, Any], prefix: str, count: str) -> int:
    """Add up a count that several steps of a plan have made."""
    return sum(int(counts.get(count) or 0) for _, counts in _all_observed(progress, prefix))


def _untimed(progress: Mapping[str, Any]) -> dict[str, Faults]:
    """Return how many events had no time, by what their watermark goes by."""
    found: dict[str, Faults] = {}
    for name, counts in _all_observed(progress, faults.COUNTS):
        columns = faults.columns_in(name)
        found[columns] = found.get(columns, Faults()).with_more(faults.counted(counts))
    return found


def _all_observed(
    progress: Mapping[str, Any], prefix: str
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, metrics in (progress.get("observedMetrics") or {}).items():
        if name.startswith(prefix) and isinstance(metrics, dict):
            yield name, _named(metrics)


def _named(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return counts by their names, which a Connect server tells apart from the numbers."""
    if set(metrics) != {"schema", "values"}:
        return metrics
    names = [field["name"] for field in metrics["schema"]["fields"]]
    return dict(zip(names, metrics["values"], strict=True))


def _maybe_clock(source: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a watermark's clock has said, or None where a source reads something else."""
    said = _as_json(source.get("endOffset"))
    return said if isinstance(said, dict) and "clock" in said and "watermark" in said else None


def _watermark(
    progress: Mapping[str, Any], clocks: Sequence[Mapping[str, Any]]
) -> dict[str, object]:
    """Return up to when all events are believed to have come, and how far that is behind now.

    Of several clocks the slowest counts that is not idle, as for operators. A query without one may
    have a watermark of Spark's; where it has not, Spark says 1970.
    """
    if clocks:
        said = [each["watermark"] for each in clocks if not each.get("idle")]
        said = said or [each["watermark"] for each in clocks if each["watermark"] is not None]
        moment = None if None in said or not said else maybe_moment(min(said))
    else:
        moment = _parsed((progress.get("eventTime") or {}).get("watermark"))
        moment = None if moment == EPOCH else moment
    at = _parsed(progress.get("timestamp"))
    behind = None if moment is None or at is None else (at - moment) // timedelta(milliseconds=1)
    return {
        "watermark": None if moment is None else _text_of(moment),
        "watermark_behind_ms": behind,
    }


def _parsed(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text_of(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def lag_of(sources: list[Mapping[str, Any]]) -> int | None:
    """Return how many records lie behind the batch; None where a source does not say."""
    total = 0
    known = False
    for each in sources:
        end, latest = _offsets(each.get("endOffset")), _offsets(each.get("latestOffset"))
        if not latest:
            continue
        known = True
        total += sum(max(0, offset - end.get(place, offset)) for place, offset in latest.items())
    return total if known else None


def _offsets(reported: object) -> dict[tuple[str, str], int]:
    """Return offsets by partition, whether our source tells them or Spark's own for Kafka."""
    reported = _as_json(reported)
    if not isinstance(reported, dict):
        return {}
    topics = reported.get("topics") if "version" in reported else reported
    if not isinstance(topics, dict):
        return {}
    found = {}
    for topic, of_topic in topics.items():
        partitions = of_topic.get("partitions", of_topic) if isinstance(of_topic, dict) else {}
        for number, offset in partitions.items():
            if isinstance(offset, int):
                found[topic, number] = offset
    return found


def _as_json(reported: object) -> object:
    """Return an offset as what it is, where it comes as a text."""
    if not isinstance(reported, str):
        return reported
    try:
        return json.loads(reported)
    except ValueError:
        return None


class Publisher:
    """Writes batches to the topic; after a failure it is silent for a while, then tries again."""

    def __init__(self, cluster: Cluster) -> None:
        """Take a client, which is closed with this."""
        self._cluster = cluster
        self._producer: Producer | None = None
        self._silent_until_s = 0.0

    def __call__(self, batch: dict[str, Any]) -> None:
        """Publish a batch."""
        if time.monotonic() < self._silent_until_s:
            return
        try:
            if self._producer is None:
                self._create_topic()
                self._producer = Producer(self._cluster)
            key = str(batch["pipeline"]).encode()
            self._producer.send(TOPIC, json.dumps(batch).encode(), key=key)
            self._producer.flush()
        except HeadwaterError as error:
            # What was sent may wait in the old one; whoever looks wants the newest alone.
            self._producer = None
            self._silent_until_s = time.monotonic() + _RETRY_AFTER_S
            _LOG.warning("progress is not published for a while: %s", error.message)

    def close(self) -> None:
        """Close the client."""
        self._cluster.close()

    def _create_topic(self) -> None:
        if TOPIC in self._cluster.topics():
            return
        try:
            admin.create_topic(self._cluster, TOPIC, partitions=1, configs=_CONFIGS)
        except KafkaError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
