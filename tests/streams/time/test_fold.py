"""What time it is, beside a plain reading of the rule, and under any order of reports."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.time.fold import UNKNOWN, Decision, Place, Progress, decide, merged

Times = list[tuple[Place, int]]

YEAR_1_US = -62_135_596_800_000_000
YEAR_9999_US = 253_402_300_799_999_999

PLACES = [("a", 0), ("a", 1), ("b", 0)]
TIMES = st.lists(
    st.tuples(
        st.sampled_from(PLACES),
        st.one_of(st.integers(0, 50), st.sampled_from([YEAR_1_US, YEAR_9999_US])),
    ),
    max_size=12,
)
IDLE = st.sets(st.sampled_from(PLACES))
BEFORE = st.builds(Decision, st.one_of(st.none(), st.integers(-20, 60)), st.booleans())
DELAY = st.integers(0, 20)


def folded(times: Times) -> dict[Place, Progress]:
    found: dict[Place, Progress] = {}
    for at_ms, (place, time_us) in enumerate(times):
        found[place] = merged(found.get(place), Progress(time_us, at_ms))
    return found


def seen(times: Times) -> dict[Place, Progress | None]:
    progress = folded(times)
    return {place: progress.get(place) for place in PLACES}


def plain(before: Decision, reports: Times, idle: set[Place], delay_us: int) -> Decision:
    """Say the rule once more, without anything being folded."""

    def times(place: Place) -> list[int]:
        return [time_us for at, time_us in reports if at == place]

    awake = [place for place in PLACES if place not in idle]
    if any(not times(place) for place in awake):
        return Decision(before.watermark_us, idle=False)
    if awake:
        target = min(max(times(place)) for place in awake) - delay_us
    else:
        all_times = [time for place in PLACES for time in times(place)]
        if not all_times:
            return Decision(before.watermark_us, idle=True)
        target = max(all_times) - delay_us
    if before.watermark_us is not None and target <= before.watermark_us:
        return Decision(before.watermark_us, idle=not awake)
    return Decision(target, idle=False)


@given(BEFORE, TIMES, IDLE, DELAY)
def test_it_is_the_rule_said_plainly(
    before: Decision, reports: Times, idle: set[Place], delay_us: int
) -> None:
    assert decide(before, seen(reports), idle, delay_us) == plain(before, reports, idle, delay_us)


@given(st.data(), TIMES)
def test_order_and_repetition_of_reports_change_nothing(
    data: st.DataObject, reports: Times
) -> None:
    again = data.draw(st.lists(st.sampled_from(reports), max_size=5)) if reports else []
    shuffled = folded(data.draw(st.permutations(reports + again)))
    assert {place: each.time_us for place, each in shuffled.items()} == {
        place: each.time_us for place, each in folded(reports).items()
    }


@given(st.lists(st.tuples(TIMES, IDLE), max_size=6), DELAY)
def test_it_never_goes_back_and_never_passes_a_partition_that_is_waited_for(
    batches: list[tuple[Times, set[Place]]], delay_us: int
) -> None:
    reports: Times = []
    decision = UNKNOWN
    for new, idle in batches:
        reports += new
        before, decision = decision, decide(decision, seen(reports), idle, delay_us)
        if before.watermark_us is not None:
            assert decision.watermark_us is not None
            assert decision.watermark_us >= before.watermark_us
        if decision.watermark_us == before.watermark_us:
            continue
        assert decision.watermark_us is not None
        for place, progress in seen(reports).items():
            if place not in idle:
                assert progress is not None
                assert decision.watermark_us <= progress.time_us - delay_us


@given(BEFORE, TIMES, IDLE, DELAY)
def test_a_decision_stands_as_long_as_nothing_is_heard(
    before: Decision, reports: Times, idle: set[Place], delay_us: int
) -> None:
    """Or Spark would run empty batches for ever: two steps lead to one that stays."""
    second = decide(decide(before, seen(reports), idle, delay_us), seen(reports), idle, delay_us)
    assert decide(second, seen(reports), idle, delay_us) == second


def test_the_slowest_partition_decides() -> None:
    reports = [(("a", 0), 1000), (("a", 1), 100)]
    partitions = folded(reports)
    assert decide(UNKNOWN, partitions, (), 10) == Decision(90, idle=False)
    assert decide(UNKNOWN, partitions, {("a", 1)}, 10) == Decision(990, idle=False)


def test_a_partition_that_was_never_heard_of_holds_the_time() -> None:
    partitions = {**folded([(("a", 0), 1000)]), ("a", 1): None}
    assert decide(UNKNOWN, partitions, (), 10) == UNKNOWN
    assert decide(Decision(5, idle=False), partitions, (), 10) == Decision(5, idle=False)


def test_of_all_silent_partitions_it_does_not_matter_which_fell_silent_last() -> None:
    partitions = folded([(("a", 0), 1000), (("a", 1), 100)])
    for first in partitions:
        one_by_one = decide(decide(UNKNOWN, partitions, {first}, 10), partitions, partitions, 10)
        at_once = decide(decide(UNKNOWN, partitions, (), 10), partitions, partitions, 10)
        assert one_by_one.watermark_us == at_once.watermark_us == 990


def test_it_says_that_it_is_idle_only_of_a_time_that_it_has_said() -> None:
    partitions = folded([(("a", 0), 1000)])
    first = decide(UNKNOWN, partitions, partitions, 0)
    assert first == Decision(1000, idle=False)
    assert decide(first, partitions, partitions, 0) == Decision(1000, idle=True)


def test_nothing_to_read_is_not_idle() -> None:
    assert decide(UNKNOWN, {}, (), 0) == UNKNOWN
