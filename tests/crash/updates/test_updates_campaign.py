"""A handful of deaths around the commit of a batch that `foreachBatch` writes.

There the driver's own Python process commits, so that the worker that dies in a commit is it.
"""

from pathlib import Path

import pytest

from tests.crash.sink.campaign import Campaign
from tests.crash.sink.work import Counting
from tests.streams.needs import require_spark

pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

SEED = 1
PHASES = ("after commit", "marker sent", "deciding")


def test_no_count_is_lost_or_doubled(tmp_path: Path) -> None:
    require_spark()
    folder = tmp_path / "work"
    campaign = Campaign(folder, SEED, work=Counting(folder, PHASES), progress=print)

    campaign.run(len(PHASES))

    found = campaign.tally.as_json()
    assert found["rounds"] == found["fired"] == len(PHASES)
    assert found["lost"] == found["doubled"] == 0
