"""How far a batch goes and how it is cut, for any state of any topics."""

import itertools
import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.errors import CheckpointError, DataLossError, TopicRecreatedError
from headwater.streams.source.offsets import Offsets, Place, make_offsets, parse_offsets
from headwater.streams.source.ranges import (
    Available,
    Range,
    batch_end,
    locate,
    planned,
    share,
    split,
)

places = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 4))
backlogs = st.dictionaries(places, st.integers(0, 50), max_size=8)
ranges = st.lists(
    st.builds(
        lambda topic, partition, start, count: Range(topic, "id", partition, start, start + count),
        st.sampled_from("ab"),
        st.integers(0, 5),
        st.integers(0, 1000),
        st.integers(1, 500),
    ),
    max_size=8,
    unique_by=lambda each: (each.topic, each.partition),
)


def available_of(ends: dict[Place, int], starts: dict[Place, int] | None = None) -> Available:
    """Describe topics by where their partitions end."""
    firsts = starts or dict.fromkeys(ends, 0)
    return Available({topic: f"id-{topic}" for topic, _ in ends}, firsts, ends, ends)


def offsets_of(positions: dict[Place, int], *, initial: bool = False) -> Offsets:
    """Make offsets of the topics that `available_of` describes."""
    ids = {topic: f"id-{topic}" for topic, _ in positions}
    return make_offsets(positions, ids, group="g", initial=initial)


@given(backlogs, st.integers(1, 120))
def test_a_limit_is_used_up_and_nobody_gets_more_than_it_has(
    waiting: dict[Place, int], limit: int
) -> None:
    shares = share(waiting, limit)
    assert shares.keys() == waiting.keys()
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 <= shares[place] <= waiting[place] for place in waiting)


@given(backlogs, st.integers(1, 120))
def test_whoever_waits_gets_something_where_the_limit_allows_it(
    waiting: dict[Place, int], limit: int
) -> None:
    count = sum(1 for each in waiting.values() if each)
    if limit >= count:
        shares = share(waiting, limit)
        assert all(shares[place] for place, each in waiting.items() if each)


@given(backlogs, st.integers(1, 120))
def test_who_has_more_waiting_never_gets_fewer(waiting: dict[Place, int], limit: int) -> None:
    shares = share(waiting, limit)
    for one, more in waiting.items():
        for other, fewer in waiting.items():
            if more > fewer:
                assert shares[one] >= shares[other]


def test_a_limit_is_divided_in_proportion() -> None:
    shares = share({("a", 0): 1000, ("a", 1): 3000}, 402)
    assert shares == {("a", 0): 101, ("a", 1): 301}


@given(ranges, st.none() | st.integers(1, 40), st.none() | st.integers(1, 100))
def test_cut_ranges_hold_the_same_offsets_once(
    whole: list[Range], partitions_min: int | None, records_max: int | None
) -> None:
    cut = split(whole, partitions_min=partitions_min, records_max=records_max)
    assert all(each.span > 0 for each in cut)
    joined: dict[tuple[str, int], list[Range]] = {}
    for each in cut:
        joined.setdefault((each.topic, each.partition), []).append(each)
    for each in whole:
        parts = joined.pop((each.topic, each.partition))
        assert parts[0].start == each.start
        assert parts[-1].end == each.end
        assert all(one.end == next_.start for one, next_ in itertools.pairwise(parts))
        if records_max is not None:
            assert all(part.span <= records_max for part in parts)
    assert not joined
    if partitions_min is not None:
        assert len(cut) >= min(partitions_min, sum(each.span for each in whole))


@pytest.mark.parametrize("asked", [{"records_max": 1}, {"partitions_min": 1000}])
def test_all_partitions_share_the_number_of_ranges(
    monkeypatch: pytest.MonkeyPatch, asked: dict[str, int]
) -> None:
    monkeypatch.setattr("headwater.streams.source.ranges._RANGES_MAX", 12)
    whole = [Range("a", "id", number, 5, 5 + span) for number, span in enumerate((300, 100, 1))]
    counts = Counter(each.partition for each in split(whole, **asked))
    assert counts == {0: 8, 1: 3, 2: 1}
    many = [Range("a", "id", number, 0, 9) for number in range(20)]
    assert split(many, **asked) == many


@given(
    st.dictionaries(places, st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1),
    st.none() | st.integers(1, 30),
)
def test_batches_read_everything_once_whatever_the_limit(
    spans: dict[Place, tuple[int, int]], limit: int | None
) -> None:
    available = available_of({place: begin + count for place, (begin, count) in spans.items()})
    at = offsets_of({place: begin for place, (begin, _) in spans.items()}, initial=True)
    seen: dict[Place, list[int]] = {place: [] for place in spans}
    for _ in range(1000):
        located = locate(at, available)
        assert not located.losses
        end = batch_end(at, located, available, limit)
        if end is None:
            break
        # What Spark keeps is the text.
        start, end = (parse_offsets(json.loads(json.dumps(each.as_json()))) for each in (at, end))
        batch = planned(start, end)
        assert batch == planned(start, end)
        if limit is not None:
            assert sum(each.span for each in batch) <= limit
        for each in batch:
            seen[each.topic, each.partition] += range(each.start, each.end)
        at = end
    else:
        pytest.fail("it never came to an end")
    assert seen == {
        place: list(range(begin, begin + count)) for place, (begin, count) in spans.items()
    }


@given(st.dictionaries(places, st.integers(0, 20), min_size=1), st.integers(0, 100))
def test_a_first_batch_is_the_same_when_its_start_is_asked_for_again(
    ends: dict[Place, int], later: int
) -> None:
    """Spark repeats a first batch from a start that it does not remember: `latest` has moved."""
    start = offsets_of(dict.fromkeys(ends, 0), initial=True)
    end = batch_end(start, locate(start, available_of(ends)), available_of(ends), None)
    moved = offsets_of({place: each + later for place, each in ends.items()}, initial=True)
    assert planned(moved, end or start) == planned(start, end or start)


def test_a_new_partition_is_read_from_its_first_record_and_the_end_says_so() -> None:
    start = offsets_of({("a", 0): 5})
    available = available_of({("a", 0): 5, ("a", 1): 9}, {("a", 0): 0, ("a", 1): 3})
    located = locate(start, available)
    end = batch_end(start, located, available, None)
    assert not located.losses
    assert end is not None
    assert end.began() == {("a", 1): 3}
    assert planned(start, end) == [Range("a", "id-a", 1, 3, 9)]


def test_nothing_new_is_no_batch() -> None:
    start = offsets_of({("a", 0): 5})
    available = available_of({("a", 0): 5})
    assert batch_end(start, locate(start, available), available, None) is None


def test_an_open_transaction_before_the_position_is_no_loss_and_nothing_new() -> None:
    start = offsets_of({("a", 0): 5})
    available = Available({"a": "id-a"}, {("a", 0): 0}, {("a", 0): 2}, {("a", 0): 7})
    located = locate(start, available)
    assert not located.losses
    assert batch_end(start, located, available, None) is None


@pytest.mark.parametrize(
    "available,kind,words,began",
    [
        (
            available_of({("a", 0): 9}, {("a", 0): 7}),
            DataLossError,
            "records 5 to 6",
            {("a", 0): 7},
        ),
        (available_of({("a", 0): 3}), DataLossError, "the log ends at 3", {("a", 0): 3}),
        (
            Available({"a": "other"}, {("a", 0): 1}, {("a", 0): 9}, {("a", 0): 9}),
            TopicRecreatedError,
            "is not the one",
            {("a", 0): 1},
        ),
    ],
)
def test_what_is_lost_is_named_and_going_on_begins_where_something_is(
    available: Available, kind: type, words: str, began: dict[Place, int]
) -> None:
    start = offsets_of({("a", 0): 5})
    located = locate(start, available)
    (loss,) = located.losses
    assert type(loss) is kind
    assert words in loss.message
    assert "failOnDataLoss" in loss.hint
    end = batch_end(start, located, available, None)
    assert end is not None
    assert end.began() == began
    # The next batch finds nothing lost.
    assert not locate(end, available).losses
    assert all(each.start == began[each.topic, each.partition] for each in planned(start, end))


@pytest.mark.parametrize(
    "available,words,began",
    [
        (available_of({}), "'a' does not exist any more", {}),
        (available_of({("b", 0): 3}), "'a' does not exist any more", {("b", 0): 0}),
        (available_of({("a", 1): 3}), "a-0 does not exist", {("a", 1): 0}),
    ],
)
@pytest.mark.parametrize("initial", [False, True])
def test_what_is_not_there_is_named_and_its_place_kept(
    available: Available, words: str, began: dict[Place, int], initial: bool
) -> None:
    start = offsets_of({("a", 0): 5}, initial=initial)
    located = locate(start, available)
    assert not located.losses
    (absence,) = located.absences
    assert words in absence.message
    assert "failOnDataLoss" in absence.hint
    end = batch_end(start, located, available, None)
    if not began:
        assert end is None
        return
    assert end is not None
    assert end.positions() == {("a", 0): 5, **available.ends}
    assert end.began() == began | ({("a", 0): 5} if initial else {})
    assert end.topics["a"].topic_id == "id-a"
    assert all(each.start == began[each.topic, each.partition] for each in planned(start, end))
    back = available_of({("a", 0): 9, **available.ends})
    assert planned(end, batch_end(end, locate(end, back), back, None) or end) == [
        Range("a", "id-a", 0, 5, 9)
    ]


def test_a_broker_without_topic_ids_is_believed() -> None:
    start = make_offsets({("a", 0): 5}, {"a": ""})
    assert not locate(start, available_of({("a", 0): 5})).losses
    start = offsets_of({("a", 0): 5})
    available = Available({"a": ""}, {("a", 0): 0}, {("a", 0): 5}, {("a", 0): 5})
    assert not locate(start, available).losses


def test_an_end_of_another_start_is_refused() -> None:
    with pytest.raises(CheckpointError, match="a-0: a batch cannot end at 3 and begin at 5"):
        planned(offsets_of({("a", 0): 5}), offsets_of({("a", 0): 3}))
    with pytest.raises(CheckpointError, match="b-0"):
        planned(offsets_of({("a", 0): 5}), offsets_of({("b", 0): 3}))
