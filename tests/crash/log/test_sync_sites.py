"""No sync can be left out: for each there is a crash that shows that it is missing."""

import pytest

from headwater.testing.memory_disk import Operation
from tests.crash.log.campaign import ends, small_journal
from tests.crash.log.ledger import Ledger
from tests.crash.log.sync_sites import Site, find_all_sites
from tests.crash.log.workload import Life, new_disk

SITES = find_all_sites()
NOT_YET = {
    "log/leftovers.py": "nothing here writes .swap files; the tests of compaction do",
    "snapshot.sync_all()": "no start is cut off here; a test of recovery cuts off each operation",
    "log/snapshots.py": "nothing here lacks room for a snapshot; the tests of snapshots do",
}
"""Files and calls whose syncs the workload cannot reach, and why."""

TEAR_SEEDS = 12
NEARBY = 12
"""Operations behind a missing sync within which a torn write shows it, if any does."""

pytestmark = pytest.mark.crash


def operations_behind(site: Site) -> set[int]:
    """Return the operations right behind each one that would lie."""
    found: set[int] = set()

    def note(operation: Operation) -> bool:
        if site.under_way():
            found.update(range(operation.number, operation.number + NEARBY))
        return False

    disk = new_disk()
    disk.lie = note
    with small_journal():
        Life(disk, Ledger(), 0).run()
    return found


@pytest.mark.parametrize(
    "site", [site for site in SITES if not any(each in site.name for each in NOT_YET)], ids=str
)
def test_a_missing_sync_is_noticed(site: Site) -> None:
    try:
        ends("crash", range(1, 1_000), 0, lie=site.lies)
        ends("kill", range(1, 1_000), 0, lie=site.lies)
        nearby = operations_behind(site)
        for seed in range(TEAR_SEEDS):
            ends("tear", nearby or range(1, 1_000), seed, lie=site.lies)
    except Exception:  # noqa: BLE001 - whatever goes wrong, it is noticed
        return
    pytest.fail(f"{site}: without this sync every promise is kept; is it needed?")


def test_the_places_are_found() -> None:
    names = [site.name for site in SITES]

    assert any("base/disk.py" in name and "file.sync()" in name for name in names)
    assert any("log/manifest.py" in name and "sync()" in name for name in names)
    assert len(set(names)) == len(names) > 25


@pytest.mark.parametrize("excused", NOT_YET)
def test_what_is_left_out_is_still_out_of_reach(excused: str) -> None:
    """An excuse that has become wrong must go."""
    for site in SITES:
        if excused in site.name:
            assert not operations_behind(site)
