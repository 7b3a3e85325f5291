"""What a batch is in few words, and who hears of it.

This file alone decides what is published of each batch to the topic ``__hw_progress``, and
that nobody's failure to hear of it stops a query. It knows nothing of Spark but the JSON that it
reports.
"""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.producer import Producer
from headwater.streams.formats.letters import COUNTS, DEAD

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
        "rows_out": (progress.get("sink") or {}).get("numOutputRows"),
        "state_rows": sum(each.get("numRowsTotal") or 0 for each in operators),
        "state_bytes": sum(each.get("memoryUsedBytes") or 0 for each in operators),
        "late_rows": sum(each.get("numRowsDroppedByWatermark") or 0 for each in operators),
        "watermark": (progress.get("eventTime") or {}).get("watermark"),
        "undecodable": _undecodable(progress.get("observedMetrics") or {}),
        "durations_ms": progress.get("durationMs"),
    }


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


def _undecodable(observed: Mapping[str, Any]) -> int:
    return sum(
        int(_named(metrics).get(DEAD) or 0)
        for name, metrics in observed.items()
        if name.startswith(COUNTS) and isinstance(metrics, dict)
    )


def _named(metrics: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return counts by their names, which a Connect server tells apart from the numbers."""
    if set(metrics) != {"schema", "values"}:
        return metrics
    names = [field["name"] for field in metrics["schema"]["fields"]]
    return dict(zip(names, metrics["values"], strict=True))


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
    if isinstance(reported, str):
        try:
            reported = json.loads(reported)
        except ValueError:
            return {}
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
