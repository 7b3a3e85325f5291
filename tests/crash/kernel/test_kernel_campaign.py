"""A handful of deaths inside the kernel and around it, and windows that are right nevertheless."""

from pathlib import Path

import pytest

from tests.crash.kernel.query import PHASES
from tests.crash.kernel.work import Windowing
from tests.crash.sink.campaign import Campaign
from tests.streams.needs import require_spark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

SEED = 1
# Of the places around a commit, all of which the sink's own campaign has, those that differ most.
PLACES = (*PHASES, "before write", "deciding", "after commit")


def test_windows_are_right_after_every_death(tmp_path: Path) -> None:
    require_spark()
    folder = tmp_path / "work"
    campaign = Campaign(folder, SEED, work=Windowing(folder, SEED, PLACES), progress=print)

    campaign.run(len(PLACES))

    found = campaign.tally.as_json()
    assert found["rounds"] == found["fired"] == len(PLACES)
    assert found["lost"] == found["doubled"] == 0
