"""Every phase once, and the proof that a sink without a memory would be noticed."""

import itertools
from pathlib import Path

import pytest

from tests.crash.broker.machine import BrokenPromisesError
from tests.crash.sink.campaign import Campaign, planned
from tests.crash.sink.failing import EXECUTOR, PHASES, VICTIMS
from tests.streams.needs import require_spark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

SEED = 1
ROUNDS = len(PHASES)
AFTER_COMMIT = PHASES.index("after commit") + 1


@pytest.fixture(autouse=True)
def spark() -> None:
    require_spark()


@pytest.mark.parametrize("victims", [VICTIMS, (*VICTIMS, EXECUTOR)])
def test_rounds_go_through_all_phases_and_victims(victims: tuple[str, ...]) -> None:
    pairs = {
        (each.phase, each.victim)
        for each in (
            planned(SEED, number, victims) for number in range(1, len(victims) * len(PHASES) + 1)
        )
    }

    assert pairs == {(phase, victim) for phase in PHASES for victim in victims}


def test_a_repetition_has_another_number_of_tasks() -> None:
    for number in range(1, 50):
        tasks = planned(SEED, number).tasks
        assert all(one != other for one, other in itertools.pairwise(tasks))


def test_no_row_is_lost_or_doubled(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path / "work", SEED, progress=print)

    campaign.run(ROUNDS)

    found = campaign.tally.as_json()
    assert found["rounds"] == found["fired"] == ROUNDS
    assert found["lost"] == found["doubled"] == 0
    assert found["acked"] > 10 * ROUNDS  # batches have dozens of rows


def test_a_sink_that_remembers_nothing_is_noticed(tmp_path: Path) -> None:
    assert planned(SEED, AFTER_COMMIT).phase == "after commit"
    campaign = Campaign(tmp_path / "work", SEED, forgetful=True, progress=print)

    with pytest.raises(BrokenPromisesError, match="doubled"):
        campaign.run(1, first=AFTER_COMMIT)
