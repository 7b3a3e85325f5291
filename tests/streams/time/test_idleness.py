"""Who is idle, in a made-up query that Spark plans as it does, with all orders it may choose."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.time.fold import Place, Progress, Report, advanced
from headwater.streams.time.idleness import Idleness, Log, Plannings

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
    plannings: Plannings = field(default_factory=Plannings)
    batches: int = 0

    def __post_init__(self) -> None:
        self.idleness = Idleness(IDLE_MS, 0, bounded=self.bound is not None)

    def logs(self, places: set[Place] | tuple[Place, ...] = PLACES) -> dict[Place, Log]:
        return {place: Log(0, len(self.rows[place])) for place in places}

    def plan(
        self,
        *,
        between: Callable[[], None] = lambda: None,
        source_first: bool = True,
        takes_ms: int = 0,
    ) -> set[Place]:
        """Plan a batch and run it; return who is idle.

        Args:
            between: What happens after one of the two was asked, and before the other is.
            source_first: Whether Spark asks the source first.
            takes_ms: How long the batch runs.
        """
        self.plannings.begin()
        if source_first:
            ends = self._ends()
            between()
            idle = self._idle()
        else:
            idle = self._idle()
            between()
            ends = self._ends()
        if ends != self.read:
            if self.batches:
                self.plannings.commit()
            self.batches += 1
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
            if end > self.read[place]:
                report = Report(max(times, default=None), self.read[place], end - 1, self.now_ms)
                self.progress[place] = advanced(self.progress[place], report)
        self.read = ends

    def _idle(self) -> set[Place]:
        silent = self.idleness.silent(self.progress, self.now_ms)
        idle = self.idleness.idle(self.logs(silent), self.progress, self.plannings)
        self.asked_with = {place: len(self.rows[place]) for place in PLACES}
        self.knew = dict(self.read)
        return idle

    def unread_times(self, place: Place) -> list[int]:
        """Return event times that were there when it was decided who is idle, but not read."""
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
def test_nobody_is_idle_who_has_times_to_be_read(
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
    query.plan()
    query.plan()
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


def test_a_batch_that_takes_long_makes_nobody_silent() -> None:
    query = Query()
    query.rows = {A: [1], B: [1]}
    query.plan(takes_ms=10 * IDLE_MS)
    assert query.plan() == set(), "nor does the first of a process, which may be a repeated one"
    query.now_ms += IDLE_MS
    assert query.plan() == {A, B}


def test_a_partition_that_is_read_slowly_is_not_idle() -> None:
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


def test_what_an_earlier_process_heard_counts_from_when_it_was_written() -> None:
    watched = Idleness(IDLE_MS, 1090, bounded=False)
    progress = {A: Progress(5, 1000, 3), B: Progress(5, 1090, 3)}
    assert watched.silent(progress, 1100) == {A}
    assert watched.silent(progress, 1199) == {A}
    assert watched.silent(progress, 1200) == {A, B}


def test_nobody_is_idle_where_all_are_waited_for() -> None:
    watched = Idleness(None, 0, bounded=False)
    assert watched.silent({A: None}, 10**12) == set()


def test_a_query_that_ends_judges_at_once_what_it_never_heard_of() -> None:
    """A is empty, B has rows that a filter takes away: after the first batch both are idle."""
    watched, plannings = Idleness(IDLE_MS, 0, bounded=False), Plannings()
    logs = {A: Log(0, 0), B: Log(0, 5)}
    watched.hurry(logs, 0)
    plannings.begin()
    nothing: dict[Place, Progress | None] = {A: None, B: None}
    assert watched.silent(nothing, 0) == {A, B}
    assert watched.idle(logs, nothing, plannings) == {A}
    plannings.begin()
    assert watched.silent(nothing, 0) == {A, B}
    assert watched.idle(logs, nothing, plannings) == {A, B}


def test_a_query_that_ends_waits_for_what_it_has_heard_however_long_it_takes() -> None:
    watched = Idleness(IDLE_MS, 0, bounded=False)
    watched.hurry({A: Log(0, 5), B: Log(0, 5)}, 1000)
    assert watched.silent({A: Progress(1, 900, 3), B: Progress(1, 901, 3)}, 1000) == {A}
    assert watched.silent({A: Progress(1, 1001, 5), B: Progress(1, 901, 3)}, 10**9) == set()


def test_bounded_batches_prove_nothing_by_their_number() -> None:
    watched, plannings = Idleness(IDLE_MS, 0, bounded=True), Plannings()
    watched.silent({A: None}, 0)
    for _ in range(5):
        plannings.begin()
        plannings.commit()
        watched.silent({A: None}, IDLE_MS)
        assert watched.idle({A: Log(0, 5)}, {A: None}, plannings) == set()
    assert watched.unread((), {A: Progress(None, None, 3)}) == {A: Log(3, 5)}
    watched.prove(A)
    assert watched.idle({A: Log(0, 5)}, {A: None}, plannings) == {A}


def test_where_rows_are_held_back_a_planning_in_vain_proves_nothing() -> None:
    for held in (False, True):
        watched, plannings = Idleness(IDLE_MS, 0, bounded=False, held=held), Plannings()
        watched.silent({A: None}, 0)
        plannings.begin()
        plannings.commit()
        for _ in range(4):
            plannings.begin()
            watched.silent({A: None}, IDLE_MS)
            idle = watched.idle({A: Log(0, 5)}, {A: None}, plannings)
        assert idle == (set() if held else {A})


def test_a_planning_without_a_batch_is_known_by_the_next() -> None:
    plannings = Plannings()
    plannings.begin()
    plannings.begin()
    assert plannings.quiet == 0, "the first batch is committed with the second"
    plannings.commit()
    plannings.begin()
    assert plannings.quiet == 0
    plannings.begin()
    assert (plannings.quiet, plannings.number) == (3, 4)
