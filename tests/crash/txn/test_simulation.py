"""Exactly once in process, whenever the power goes; and a bug of any kind is found."""

from collections.abc import Callable

import pytest

from tests.crash.txn import bugs
from tests.crash.txn.failpoints import Verdict, fill_up, judge, live, sample
from tests.crash.txn.history import Ended, Failed
from tests.crash.txn.simulation import Simulation

pytestmark = [pytest.mark.crash]

EVERY = range(1, 1 << 30)
# The first of them find most bugs sooner than others do.
SEEDS = (2, 8, 4, 7, 5, *range(10, 20))
WHEN_CLIENTS_WORK = range(60, 1 << 30)


def told(verdict: Verdict) -> str:
    return "\n".join(f"{kind}: {what}" for kind, what in verdict.anomalies)


def test_nothing_is_wrong_whenever_the_power_goes() -> None:
    verdict = judge(1, 250, EVERY)
    assert not verdict.anomalies, told(verdict)
    assert verdict.cuts == 2 * verdict.operations > 250


@pytest.mark.parametrize("seed", range(2, 12))
def test_nothing_is_wrong_in_longer_histories(seed: int) -> None:
    verdict = judge(seed, 1_200, sample(seed, 12, 500))
    assert not verdict.anomalies, told(verdict)
    assert verdict.cuts >= 16


@pytest.mark.parametrize("seed", range(1, 9))
def test_nothing_is_wrong_after_many_starts(seed: int) -> None:
    verdict = live(seed, 12, 300)
    assert not verdict.anomalies, told(verdict)
    assert verdict.cuts > 3


@pytest.mark.parametrize("seed", range(1, 16))
def test_nothing_is_wrong_when_the_disk_was_full_for_a_while(seed: int) -> None:
    verdict = fill_up(seed, 250)
    assert not verdict.anomalies, told(verdict)


def test_a_seed_gives_the_same_history() -> None:
    first, second = Simulation(7), Simulation(7)
    for simulation in (first, second):
        simulation.start()
        simulation.run(500)
    assert first.history == second.history
    assert first.disk.trace == second.disk.trace
    assert sum(isinstance(event, Ended) and event.commit for event in first.history) > 2


def test_histories_see_commits_aborts_and_producers_that_are_replaced() -> None:
    simulation = Simulation(3)
    simulation.start()
    simulation.run(4_000)
    assert simulation.finish() == []
    ends = [event.commit for event in simulation.history if isinstance(event, Ended)]
    assert ends.count(True) > 30
    assert ends.count(False) > 5
    assert sum(isinstance(event, Failed) for event in simulation.history) > 5


BUGS: dict[Callable[[pytest.MonkeyPatch], None], set[str]] = {
    bugs.marker_missing: {"lost", "torn", "hanging"},
    bugs.stable_is_high_watermark: {"dirty", "aborted"},
    bugs.stable_is_log_end: {"went back"},
    bugs.decided_before_durable: {"lost", "torn", "repeated", "zombie"},
    bugs.answered_before_durable: {"lost"},
    bugs.complete_before_markers_are_durable: {"lost", "torn", "hanging"},
    bugs.nothing_is_aborted: {"aborted"},
    bugs.aborted_counts_as_committed: {"aborted"},
    bugs.nobody_is_fenced: {"zombie"},
    bugs.epoch_stays: {"repeated"},
    bugs.takeover_commits: {"aborted"},
    bugs.nothing_times_out: {"hanging"},
    bugs.half_ended_is_forgotten: {"hanging", "lost", "torn"},
    bugs.nobody_is_reconciled: {"hanging"},
    bugs.repetitions_are_new: {"doubled"},
    bugs.held_requests_change_places: {"reordered"},
    bugs.offsets_count_on_abort: {"offsets", "skipped"},
    bugs.offsets_never_count: {"offsets"},
    bugs.offsets_are_stable_at_once: {"went back", "offsets"},
    bugs.offsets_count_at_once: {"offsets"},
    bugs.open_is_forgotten_at_start: {"dirty", "aborted", "early", "lost"},
    bugs.aborted_is_forgotten_at_start: {"aborted"},
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    found: set[str] = set()
    for seed in SEEDS:
        # Without any cut first: most bugs need none, and that is quick.
        found |= judge(seed, 800, ()).kinds
        if not found & BUGS[bug]:
            found |= judge(seed, 400, WHEN_CLIENTS_WORK, keeps=("nothing",), enough=1).kinds
        if found & BUGS[bug]:
            return
    pytest.fail(f"{bug.__name__} is not found, only {found}")
