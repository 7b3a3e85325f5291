"""What a time reader knows after a stop, a kill, a copy of its checkpoint, and an upgrade."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from headwater.streams.errors import CheckpointError
from tests.streams.brokers import Broker
from tests.streams.time.planned import LIMIT, Query


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.topic("time", partitions=2)


def test_it_goes_on_after_a_restart(start: Callable[..., Query], topic: str) -> None:
    query = start(topic)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.start()
    query.plan({1: (300, 10, 19)})
    assert query.decided == (90, False), "the reports are in the topic"
    query.start()
    offset = query.plan()
    assert query.decided == (290, False)
    assert {number: each[0] for number, each in offset["fold"][topic].items()} == {
        "0": 1000,
        "1": 300,
    }
    query.start()
    assert query.plan() == offset


def test_a_batch_that_is_repeated_has_the_same_row(start: Callable[..., Query], topic: str) -> None:
    query = start(topic)
    first = query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    begin, end = first, query.plan()
    query.start()
    query.run({1: (5000, 10, 19)})
    for start_of_batch in (begin, query.reader.initialOffset()):
        (partition,) = query.reader.partitions(start_of_batch, end)
        (rows,) = list(query.reader.read(partition))
        assert rows.to_pylist() == query.rows


def test_a_copy_of_a_checkpoint_knows_what_it_has_read_though_the_original_goes_on(
    start: Callable[..., Query], topic: str
) -> None:
    query, copy = start(topic), start(topic)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan({0: (1100, 10, 19)})
    query.copied(copy)
    for number in range(2, 9):
        first = 10 * number
        query.plan({0: (1000 * number, first, first + 9), 1: (1000 * number, first, first + 9)})
    query.plan()
    assert query.decided == (7990, False)
    copy.start()
    copy.plan({0: (2000, 20, 29), 1: (2000, 10, 29)})
    assert copy.decided == (90, False), "all reports of this query's id are of rows it has not read"
    copy.plan()
    assert copy.decided == (1990, False)
    assert {number: each[0] for number, each in copy.offset["fold"][topic].items()} == {
        "0": 2000,
        "1": 2000,
    }


@pytest.mark.parametrize("name, watermark", [("at/any/p01", 8990), ("at/any/p02", 1990)])
def test_rows_that_are_read_again_with_other_times_need_another_plan(
    start: Callable[..., Query], topic: str, name: str, watermark: int
) -> None:
    """As after a function was repaired and the checkpoint restored: a limit, and the way out."""
    query, restored = start(topic), start(topic, name=name)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    query.copied(restored)
    query.plan({0: (9000, 10, 19), 1: (9000, 10, 19)})
    query.plan()
    restored.start()
    restored.plan({0: (2000, 10, 19), 1: (2000, 10, 19)})
    assert restored.decided == (90, False), "whoever reports rows that were not read"
    restored.plan()
    assert restored.decided == (watermark, False)


def test_what_was_read_last_before_a_stop_counts_though_nothing_comes_any_more(
    start: Callable[..., Query], topic: str
) -> None:
    """Killed between the commit of a batch and the planning of the next."""
    query = start(topic, idle_ms=None)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.start()
    query.plan()
    assert query.decided == (90, False)
    query.start()
    query.plan({1: (500, 10, 19)})
    for available_now in (True, False):
        query.start(available_now=available_now)
        query.plan()
        assert query.decided == (490, False)


def test_a_batch_that_was_cut_off_and_repeated_counts_once_it_is_done(
    start: Callable[..., Query], topic: str
) -> None:
    query = start(topic)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    query.report({1: (700, 10, 14)})
    query.start()
    query.run({1: (700, 10, 14), 0: (1200, 10, 19)})
    query.start()
    query.plan()
    assert query.decided == (690, False)


def test_a_checkpoint_of_an_earlier_release_goes_on(
    start: Callable[..., Query], topic: str
) -> None:
    query = start(topic, name="at/any/1", idle_ms=None)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan()
    query.run({0: (1200, 10, 19)})
    query.offset = {
        "version": 1,
        "clock": query.offset["clock"],
        "asked": 1,
        "query": query.query_id,
        "watermark": 90,
        "idle": False,
    }
    query.options = dataclasses.replace(query.options, name="at/any/p01")
    query.start()
    old = query.offset
    assert query.plan() != old, "what it has read is written down before it goes on"
    assert query.decided == (90, False)
    query.start()
    query.plan({1: (300, 10, 19)})
    query.plan()
    assert query.decided == (290, False), "partition 0 has not been heard of since"


def test_a_plan_that_is_changed_goes_on_with_what_was_read(
    start: Callable[..., Query], topic: str
) -> None:
    query = start(topic, idle_ms=None)
    query.plan({0: (1000, 0, 9), 1: (100, 0, 9)})
    query.plan({0: (1200, 10, 19)})
    for name in ("at/any/p02", "at/any/p03"):
        query.options = dataclasses.replace(query.options, name=name)
        query.start()
        before = query.offset
        assert query.plan() != before
    assert query.offset["fold"][topic]["0"][0] == 1200
    query.plan({1: (300, 10, 19)})
    query.plan()
    assert query.decided == (290, False)


def test_the_time_of_another_column_is_not_gone_on_with(
    start: Callable[..., Query], topic: str
) -> None:
    query = start(topic, name="expires/any/p01")
    query.plan({0: (1000, 0, 9), 1: (1000, 0, 9)})
    query.plan()
    query.options = dataclasses.replace(query.options, name="at/any/p02")
    query.start()
    with pytest.raises(CheckpointError, match=f"by 'expires' of {topic}, and .* by 'at'") as it:
        query.plan()
    assert "checkpointLocation" in it.value.hint


def test_another_delay_another_idle_and_another_rule_are_gone_on_with(
    start: Callable[..., Query], topic: str
) -> None:
    query = start(topic)
    query.plan({0: (1000, 0, 9), 1: (1000, 0, 9)})
    query.plan()
    changed: dict[str, Any] = {"delay_us": 5, "idle_ms": None, "name": "at/mark 5/p01"}
    query.options = dataclasses.replace(query.options, **changed)
    query.start()
    query.plan()
    assert query.decided == (995, False)


def test_a_clock_that_lies_at_the_place_of_another_is_gone_on_with(
    start: Callable[..., Query], broker: Broker, topic: str
) -> None:
    """As after the inputs of a join were exchanged."""
    query, other = start(topic), start(broker.topic("time"))
    query.plan({0: (1000, 0, 9), 1: (1000, 0, 9)})
    query.plan()
    other.plan({0: (70, 0, 9)})
    other.plan()
    own, others = query.offset, other.offset
    query.offset, query.others = others, (own,)
    query.start()
    query.plan()
    assert query.offset["clock"] == own["clock"], "there is a batch, in which it is put right"
    assert query.decided == (990, False)
    put_right = query.offset
    assert query.plan() == put_right


@pytest.mark.parametrize(
    "stored",
    [
        {"version": 1, "topics": {}},
        {"version": 9, "clock": "c", "asked": 1, "watermark": None, "idle": False},
        {"version": 1, "clock": "c", "asked": 1, "watermark": "soon", "idle": False},
        {"version": 1, "clock": "c"},
        {"version": 1, "clock": "c", "asked": 1, "watermark": 1, "idle": False, "ends": [["t"]]},
        {"version": 2, "clock": "c", "asked": 1, "watermark": 1, "idle": False, "fold": {"t": 1}},
        {"version": 2, "clock": "c", "asked": 1, "watermark": 1, "idle": False, "reads": [{}]},
        [],
    ],
)
def test_a_checkpoint_that_is_none_of_ours_is_said_by_name(
    stored: Any,  # noqa: ANN401 - whatever a checkpoint holds
    start: Callable[..., Query],
    topic: str,
) -> None:
    with pytest.raises(CheckpointError) as caught:
        start(topic).reader.latestOffset(stored, LIMIT)
    assert caught.value.hint
