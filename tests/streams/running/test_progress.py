"""What is said of a batch, and that nobody's failure to hear of it matters."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from headwater.delivery.client.cluster import Cluster
from headwater.streams.running.progress import TOPIC, Publisher, batch_of, lag_of
from tests.streams.brokers import Broker

PROGRESS: dict[str, Any] = {
    "id": "q",
    "runId": "r",
    "name": "p",
    "timestamp": "2026-11-15T18:21:03.556Z",
    "batchId": 3,
    "durationMs": {"addBatch": 129, "triggerExecution": 272},
    "eventTime": {"watermark": "2026-11-15T18:20:00.000Z"},
    "observedMetrics": {"headwater.decode.1": {"records": 9, "undecodable": 2}, "mine": {"x": 1}},
    "stateOperators": [
        {"numRowsTotal": 5, "memoryUsedBytes": 100, "numRowsDroppedByWatermark": 1},
        {"numRowsTotal": 6, "memoryUsedBytes": 200, "numRowsDroppedByWatermark": 0},
    ],
    "sources": [
        {"numInputRows": 5, "inputRowsPerSecond": 1.25, "processedRowsPerSecond": 18.4},
        {"numInputRows": 7, "inputRowsPerSecond": "NaN", "processedRowsPerSecond": 1.6},
    ],
    "sink": {"numOutputRows": 4},
}


def test_a_batch_in_few_words() -> None:
    batch = batch_of("p", PROGRESS)
    assert batch["rows"] == 12
    assert batch["rows_per_second"] == 20.0
    assert batch["took_ms"] == 272
    assert batch["rows_out"] == 4
    assert batch_of("p", {**PROGRESS, "sink": {"numOutputRows": -1}})["rows_out"] is None
    assert (batch["state_rows"], batch["state_bytes"], batch["late_rows"]) == (11, 300, 1)
    assert batch["undecodable"] == 2
    assert batch["watermark"] == "2026-11-15T18:20:00.000Z"
    assert batch["watermark_behind_ms"] == 63_556
    assert batch["lag"] is None
    assert batch["warnings"] == []
    json.dumps(batch)


def test_rows_are_counted_once_however_often_a_source_is_read() -> None:
    batch = batch_of("p", PROGRESS, [5, 1])
    assert batch["rows"] == 1 + 7
    assert batch["rows_per_second"] == round(18.4 / 5 + 1.6, 1)
    assert batch["input_rows_per_second"] == round(1.25 / 5, 1)
    assert batch_of("p", PROGRESS, [2])["rows"] == 12, "of another plan"


def clock(watermark_us: int | None, *, idle: bool = False, as_text: bool = False) -> dict[str, Any]:
    said = {"version": 1, "clock": "c", "asked": 1, "watermark": watermark_us, "idle": idle}
    return {
        "numInputRows": 1,
        "inputRowsPerSecond": 9.0,
        "processedRowsPerSecond": 9.0,
        "endOffset": json.dumps(said) if as_text else said,
    }


@pytest.mark.parametrize("as_text", [True, False])
def test_what_a_clock_says_is_no_row(as_text: bool) -> None:
    sources = [clock(0, as_text=as_text), *PROGRESS["sources"]]
    batch = batch_of("p", {**PROGRESS, "sources": sources}, [3, 5, 1])
    assert batch["rows"] == 1 + 7
    assert batch["rows_per_second"] == round(18.4 / 5 + 1.6, 1)
    assert batch["lag"] is None


NOON_US = 1_794_744_000_000_000
"""2026-11-15 12:00"""


@pytest.mark.parametrize(
    "clocks, watermark",
    [
        ([clock(None)], None),
        ([clock(NOON_US)], "2026-11-15T12:00:00.000Z"),
        ([clock(NOON_US, idle=True)], "2026-11-15T12:00:00.000Z"),
        ([clock(NOON_US), clock(NOON_US - 1)], "2026-11-15T11:59:59.999Z"),
        ([clock(NOON_US), clock(0, idle=True)], "2026-11-15T12:00:00.000Z"),
        ([clock(NOON_US), clock(None)], None),
        ([clock(NOON_US), clock(None, idle=True)], "2026-11-15T12:00:00.000Z"),
        ([clock(-62_135_596_800_000_000)], "0001-01-01T00:00:00.000Z"),
        ([clock(2**62)], None),
    ],
)
def test_the_watermark_is_that_of_the_slowest_clock(
    clocks: list[dict[str, Any]], watermark: str | None
) -> None:
    batch = batch_of("p", {**PROGRESS, "sources": clocks})
    assert batch["watermark"] == watermark
    if watermark == "2026-11-15T12:00:00.000Z":
        assert batch["watermark_behind_ms"] == (6 * 60 + 21) * 60_000 + 3_556


def test_a_watermark_that_spark_does_not_have_is_none() -> None:
    for event_time in ({}, {"watermark": "1970-01-01T00:00:00.000Z"}):
        batch = batch_of("p", {**PROGRESS, "eventTime": event_time})
        assert (batch["watermark"], batch["watermark_behind_ms"]) == (None, None)


def test_events_without_a_time_are_counted_apart_from_late_ones() -> None:
    observed = {
        "headwater.late.1.aligned_windows": {"late": 4},
        "headwater.late.2.session_windows": {"late": None},
        "headwater.time.3.at": {"rows": 9, "no_time": 1, "future": 2, "furthest_us": NOON_US},
        "headwater.time.4.at": {"rows": 9, "no_time": 1, "future": 2, "furthest_us": 0},
        "headwater.time.5.seen": {"rows": 2, "no_time": 1, "future": 0, "furthest_us": None},
        "headwater.time.6.none": dict.fromkeys(["rows", "no_time", "future", "furthest_us"]),
    }
    batch = batch_of("p", {**PROGRESS, "observedMetrics": observed})
    assert batch["late_rows"] == 4 + 1
    assert (batch["no_time_rows"], batch["future_rows"]) == (3, 4)
    (warning,) = batch["warnings"]
    assert "1 of 2 events" in warning
    assert "'seen'" in warning


def test_counts_that_a_connect_server_tells() -> None:
    fields = [{"name": "records", "type": "long"}, {"name": "undecodable", "type": "long"}]
    metrics = {"schema": {"type": "struct", "fields": fields}, "values": [9, 2]}
    told = {**PROGRESS, "observedMetrics": {"headwater.decode.1": metrics}}
    assert batch_of("p", told)["undecodable"] == 2


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("ours", [True, False])
def test_lag(as_text: bool, ours: bool) -> None:
    def offsets(first: int, second: int) -> object:
        partitions = {"0": first, "1": second}
        made: Any = {"t": partitions}
        if ours:
            made = {"version": 1, "topics": {"t": {"id": "x", "partitions": partitions}}}
        return json.dumps(made) if as_text else made

    sources: list[Mapping[str, Any]] = [
        {"endOffset": offsets(10, 4), "latestOffset": offsets(15, 4)}
    ]
    assert lag_of(sources) == 5
    assert lag_of([*sources, *sources]) == 10


def test_a_lag_that_nobody_tells() -> None:
    assert lag_of([]) is None
    assert lag_of([{"endOffset": 3, "latestOffset": 4}]) is None
    assert lag_of([{"endOffset": "{", "latestOffset": "{"}]) is None


def test_a_new_partition_is_no_lag_before_it_is_known_where_it_begins() -> None:
    assert lag_of([{"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 2, "1": 9}}}]) == 1


def test_published_to_a_topic(broker: Broker) -> None:
    publisher = Publisher(Cluster(broker.bootstrap))
    batches = [{"pipeline": f"p{i}", "batch": i} for i in range(3)]
    for each in batches:
        publisher(each)
    publisher.close()
    read = [json.loads(each.value() or b"") for each in broker.read(TOPIC)]
    assert read[-3:] == batches


def test_no_broker_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(Cluster("127.0.0.1:1", timeout_s=0.2))
    publisher({"pipeline": "p"})
    publisher({"pipeline": "p"})
    publisher.close()
    assert len([each for each in caplog.records if "not published" in each.message]) == 1
