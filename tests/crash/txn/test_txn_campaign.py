"""A handful of rounds with real processes, and the proof that they would notice a missing sync."""

from pathlib import Path

import pytest

from tests.crash.broker.campaign import Campaign
from tests.crash.broker.machine import BrokenPromisesError
from tests.crash.txn.life import Life

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

NAME = "tests.crash.txn"
ROUNDS = 3
SEED = 2


def test_nothing_is_lost_doubled_or_torn(tmp_path: Path) -> None:
    campaign = Campaign(NAME, Life, tmp_path, SEED, ROUNDS)
    try:
        campaign.run()
    except BrokenPromisesError as error:
        pytest.fail(f"{error}\nrepeat: {campaign.repeat}")
    found = campaign.tally.as_json()
    assert found["rounds"] == ROUNDS
    assert found["acked"] > 20
    assert found["committed"] > 5
    assert found["lost"] == found["doubled"] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_sync_that_is_missing_is_noticed(tmp_path: Path) -> None:
    lie = r"/[ab]-\d/.*\.log$"
    campaign = Campaign(NAME, Life, tmp_path, SEED, ROUNDS, lie=lie, cut="nothing")
    with pytest.raises(BrokenPromisesError):
        campaign.run()
    # Often a client hears of it first: what follows its records is then out of order.
    assert {"lost", "unexpected"} & set(campaign.tally.broken)
    assert f"python -m {NAME} --seed {SEED} --first 1 --rounds" in campaign.repeat
