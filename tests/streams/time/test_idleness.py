"""Which partitions are idle, in a made-up query that is planned as Spark plans, in any order."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.time.fold import Place, Progress, merged
from headwater.streams.time.idleness import Idleness, Log

A, B = ("t", 0), ("t", 1)
PLACES = (A, B)
IDLE_MS = 100


@dataclass
class Query:
    """A source, Spark and a time reader. A row is its event time, None for one that has none."""

    bound: int | None = None
    now_ms: int = 0
    rows: dict[Place, list[int | None]] = field(default_factory=lambda: {A: [], B: []})
    read: dict[Place, int] = field(default_factory=lambda: {A: 0, B: 0})
    progress: dict[Place, Progress | None] = field(default_factory=lambda: {A: None, B: None})
    counts: dict[Place, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.idleness = Idleness(IDLE_MS, 0)

    def logs(self, places: set[Place] | tuple[Place, ...] = PLACES) -> dict[Place, Log]:
        return {place: Log(0, len(self.rows[place])) for place in places}

    def plan(
        self,
        *,
        between: Callable[[], None] = lambda: None,
        source_first: bool = True,
        takes_ms: int = 0,
    ) -> set[Place]:
        """Plan a batch and run it; return which partitions are idle.

        Args:
            between: What happens after one of the two was asked, and before the other is.
            source_first: Whether Spark asks the source first.
            takes_ms: How long the batch runs.
        """
        if source_first:
            ends = self._ends()
            between()
            idle = self._idle()
        else:
            idle = self._idle()
            between()
            ends = self._ends()
        if ends != self.read:
            self._run(ends)
            self.now_ms += takes_ms
        return idle

    def _ends(self) -> dict[Place, int]:
        left = self.bound
        ends = {}
        for place in PLACES:
            count = len(self.rows[place]) - self.read[place]
            taken = count if left is None else min(left, count)
            left = None if left is None else left - taken
            ends[place] = self.read[place] + taken
        return ends

    def _run(self, ends: dict[Place, int]) -> None:
        for place, end in ends.items():
            times = [time for time in self.rows[place][self.read[place] : end] if time is not None]
            if times:
                new = Progress(max(times), self.now_ms)
                self.progress[place] = merged(self.progress[place], new)
                self.counts[place] = self.counts.get(place, 0) + 1
        self.read = ends

    def _idle(self) -> set[Place]:
        silent = self.idleness.silent(self.progress, self.counts, self.now_ms)
        idle = self.idleness.idle(self.logs(silent), self.read)
        self.asked_with = {place: len(self.rows[place]) for place in PLACES}
        self.knew = dict(self.read)
        return idle

    def unread_times(self, place: Place) -> list[int]:
        """Return event times that were there when idleness was decided, but were not read."""
        rows = self.rows[place][self.knew[place] : self.asked_with[place]]
        return [time for time in rows if time is not None]


STEPS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(PLACES), st.just(7)), max_size=3),
        st.lists(st.tuples(st.sampled_from(PLACES), st.just(7)), max_size=2),
        st.booleans(),
        st.sampled_from([0, 10, IDLE_MS, 3 * IDLE_MS]),
        st.sampled_from([0, 0, 2 * IDLE_MS]),
    ),
    max_size=14,
)


@settings(max_examples=200)
@given(STEPS, st.sampled_from([None, 1, 2]))
def test_no_partition_is_idle_that_has_times_to_be_read(
    steps: list[tuple[list[tuple[Place, int]], list[tuple[Place, int]], bool, int, int]],
    bound: int | None,
) -> None:
    query = Query(bound)

    def arrive(rows: list[tuple[Place, int]]) -> None:
        for place, time in rows:
            query.rows[place].append(time)

    for early, meanwhile, source_first, wait_ms, takes_ms in steps:
        arrive(early)
        query.now_ms += wait_ms
        idle = query.plan(
            between=lambda rows=meanwhile: arrive(rows),  # type: ignore[misc]
            source_first=source_first,
            takes_ms=takes_ms,
        )
        for place in idle:
            assert not query.unread_times(place), (place, query)


@settings(max_examples=100)
@given(STEPS, st.sampled_from([None, 1, 2]))
def test_all_are_idle_in_the_end_when_nothing_comes_any_more(
    steps: list[tuple[list[tuple[Place, int]], list[tuple[Place, int]], bool, int, int]],
    bound: int | None,
) -> None:
    query = Query(bound)
    for early, _, source_first, wait_ms, _ in steps:
        for place, time in early:
            query.rows[place].append(time)
        query.now_ms += wait_ms
        query.plan(source_first=source_first)
    while query.read != {place: len(query.rows[place]) for place in PLACES}:
        query.plan()
    query.plan()
    query.now_ms += IDLE_MS
    assert query.plan() == set(PLACES)


def test_a_row_makes_a_partition_awake_at_once() -> None:
    query = Query()
    query.rows = {A: [1], B: [1]}
    query.plan()
    query.plan()
    query.now_ms += IDLE_MS
    assert query.plan() == {A, B}
    query.rows[A].append(2)
    assert query.plan() == {B}
    assert query.plan() == {B}


def test_a_row_that_comes_between_two_questions_of_one_planning_is_waited_for() -> None:
    """The source did not see it, the time reader did: the batch after reads it."""
    query = Query()
    query.rows = {A: [1], B: [1]}
    query.plan()
    query.plan()
    query.now_ms += IDLE_MS
    assert A not in query.plan(between=lambda: query.rows[A].append(2))
    assert A not in query.plan()
    assert A not in query.plan()


def test_a_batch_that_takes_long_makes_no_partition_silent() -> None:
    query = Query()
    query.rows = {A: [1], B: [1]}
    query.plan(takes_ms=10 * IDLE_MS)
    assert query.plan() == set(), "nor does the first of a process, which may be a repeated one"
    query.now_ms += IDLE_MS
    assert query.plan() == {A, B}


def test_a_partition_that_has_rows_and_is_not_read_is_not_idle() -> None:
    query = Query(bound=1)
    query.rows = {A: [1] * 50, B: [1] * 3}
    query.plan()
    for _ in range(20):
        query.now_ms += 10 * IDLE_MS
        assert B not in query.plan()


def test_rows_without_any_time_do_not_stop_the_others() -> None:
    query = Query()
    for time in range(20):
        query.rows[A].append(time)
        query.rows[B].append(None)
        query.now_ms += IDLE_MS // 4
        idle = query.plan(source_first=time % 2 == 0)
    assert idle == {B}


@pytest.mark.parametrize("comes", [1, 2])
def test_in_bounded_batches_rows_without_any_time_do_not_stop_the_others_either(comes: int) -> None:
    """Though there is always more to be read of them, and as much as ever, or more and more."""
    query = Query(bound=1)
    query.rows = {A: [None] * 10, B: []}
    seen = []
    for _ in range(30):
        query.rows[A] += [None] * comes
        query.now_ms += IDLE_MS // 2
        seen.append(A in query.plan())
    assert len(query.rows[A]) >= query.read[A] + 10
    # It is silent in the third planning, and read by one row in each.
    waits = 10 + comes * 3
    assert seen == [False] * waits + [True] * (30 - waits), "what was there at first is read"
    query.rows[A][query.read[A]] = 7
    query.plan()
    assert A not in query.plan(), "a time is heard"


def test_a_partition_that_is_catching_up_is_waited_for_as_long_as_it_has_a_backlog() -> None:
    """Its first rows are filtered out; those behind them are as old as what the others bring."""
    query = Query(bound=10)
    query.rows = {A: [None] * 800 + [7] * 50, B: []}
    while query.progress[A] is None:
        query.now_ms += IDLE_MS // 2
        assert A not in query.plan()
    assert query.read[A] == 810


def test_a_backlog_that_grows_less_while_it_is_read_is_waited_for_too() -> None:
    """Rows go on coming, slower than they are read: it is caught up with when few are left."""
    query = Query(bound=10)
    query.rows = {A: [None] * 800, B: []}
    plannings = 0
    idle = False
    while not idle:
        query.rows[A] += [None] * 4
        query.now_ms += IDLE_MS // 2
        plannings += 1
        idle = A in query.plan()
    assert len(query.rows[A]) - query.knew[A] <= 10
    assert 800 // 10 < plannings < 2 * 800 // 10


def test_after_its_end_was_reached_the_next_rows_are_waited_for_again() -> None:
    query = Query()
    query.rows = {A: [None] * 3, B: []}
    query.plan()
    query.now_ms += IDLE_MS
    for _ in range(4):
        assert A in query.plan()
        query.rows[A].append(None)
        assert A not in query.plan(), "one batch after each end tells nothing of the next"


def test_what_an_earlier_process_heard_counts_from_when_it_was_written() -> None:
    """By the wall clock, of which the process knows only how late it was when it began."""
    watched = Idleness(IDLE_MS, 1090)
    progress: dict[Place, Progress | None] = {A: Progress(5, 1000), B: Progress(5, 1090)}
    assert watched.silent(progress, {}, 7) == set()
    assert watched.silent(progress, {}, 17) == {A}
    assert watched.silent(progress, {}, 106) == {A}
    assert watched.silent(progress, {}, 107) == {A, B}


def test_reports_from_the_future_of_this_process_count_from_now() -> None:
    """The wall clock of a host was set back between two runs, or is ahead of the driver's."""
    watched = Idleness(IDLE_MS, 1000)
    progress: dict[Place, Progress | None] = {A: Progress(5, 999_000)}
    assert watched.silent(progress, {}, 0) == set()
    assert watched.silent(progress, {}, IDLE_MS - 1) == set()
    assert watched.silent(progress, {}, IDLE_MS) == {A}


def test_a_time_is_heard_whatever_the_wall_clock_of_the_task_says() -> None:
    watched = Idleness(IDLE_MS, 1000)
    for now_ms in range(0, 10 * IDLE_MS, IDLE_MS // 2):
        reported_ms = 5000 - now_ms
        progress: dict[Place, Progress | None] = {A: Progress(now_ms, max(5000, reported_ms))}
        assert watched.silent(progress, {A: now_ms}, now_ms) == set()


def test_nothing_is_idle_where_everything_is_waited_for() -> None:
    watched = Idleness(None, 0)
    assert watched.silent({A: None}, {}, 10**12) == set()


def test_a_query_that_ends_judges_at_once_what_it_never_heard_of() -> None:
    """A is empty, B has rows that a filter takes away: when it has read them, both are idle."""
    watched = Idleness(IDLE_MS, 0)
    logs = {A: Log(0, 0), B: Log(0, 5)}
    watched.hurry(logs)
    nothing: dict[Place, Progress | None] = {A: None, B: None}
    assert watched.silent(nothing, {}, 0) == {A, B}
    for position in range(5):
        assert watched.idle(logs, {B: position}) == {A}, "however many batches it takes"
    later = {A: Log(0, 3), B: Log(0, 9)}
    assert watched.silent(nothing, {}, 0) == {A, B}
    assert watched.idle(later, {B: 5}) == {A, B}, "what came since is not read in this run"


def test_a_query_that_ends_waits_for_what_it_has_heard_however_long_it_takes() -> None:
    watched = Idleness(IDLE_MS, 1000)
    watched.hurry({A: Log(0, 5), B: Log(0, 5)})
    before: dict[Place, Progress | None] = {A: Progress(1, 900), B: Progress(1, 901)}
    assert watched.silent(before, {A: 1}, 0) == {A}
    heard: dict[Place, Progress | None] = {A: Progress(1, 900), B: Progress(1, 901)}
    assert watched.silent(heard, {A: 2}, 10**9) == set()


def test_what_fell_off_the_start_of_a_log_need_not_be_read() -> None:
    watched = Idleness(IDLE_MS, 0)
    watched.silent({A: None}, {}, 0)
    watched.silent({A: None}, {}, IDLE_MS)
    assert watched.idle({A: Log(7, 7)}, {}) == {A}
