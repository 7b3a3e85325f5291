"""A handful of deaths inside the kernel and around it, and windows that are right nevertheless."""

from pathlib import Path

import pytest

from tests.crash.kernel.work import Windowing
from tests.crash.sink.campaign import Campaign
from tests.streams.needs import require_spark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

SEED = 1
ROUNDS = len(Windowing.phases)


def test_windows_are_right_after_every_death(tmp_path: Path) -> None:
    require_spark()
    folder = tmp_path / "work"
    campaign = Campaign(folder, SEED, work=Windowing(folder, SEED), progress=print)

    campaign.run(ROUNDS)

    found = campaign.tally.as_json()
    assert found["rounds"] == found["fired"] == ROUNDS
    assert found["lost"] == found["doubled"] == 0
