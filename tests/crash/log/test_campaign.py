"""Every fault at every operation of a data directory's life breaks no promise."""

import os
import subprocess
import sys

import pytest

from headwater.testing.memory_disk import Operation
from tests.crash.log.campaign import FAULTS, Fault, count_operations, ends, run
from tests.crash.log.ledger import Broken, Ledger
from tests.crash.log.workload import OPERATIONS_MAX, Life, new_disk

SEED = int(os.environ.get("HEADWATER_CRASH_SEED", "0"))
STEP = 140
"""Operations per test: few enough that two workers share them."""

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("first", range(1, OPERATIONS_MAX + 1, STEP))
@pytest.mark.parametrize("fault", FAULTS)
def test_every_promise_is_kept(fault: Fault, first: int) -> None:
    run(fault, range(first, first + STEP), SEED)


def test_the_life_is_long_enough_and_no_longer() -> None:
    assert 480 < count_operations(SEED) <= OPERATIONS_MAX


def test_the_life_sees_every_kind_of_operation() -> None:
    disk = new_disk()
    Life(disk, Ledger(), SEED).run()
    kinds = {operation.kind for operation in disk.trace}

    assert kinds == {
        "create",
        "append",
        "truncate",
        "sync",
        "make_directory",
        "rename",
        "remove",
        "sync_directory",
        "lock",
    }


def test_a_seed_gives_the_same_life() -> None:
    first, second = new_disk(), new_disk()
    Life(first, Ledger(), SEED + 1).run()
    Life(second, Ledger(), SEED + 1).run()

    assert first.trace == second.trace


def test_a_broken_promise_names_the_command_that_shows_it_again() -> None:
    def forget_journal(operation: Operation) -> bool:
        return operation.path.endswith(".journal")

    with pytest.raises(Broken) as broken:
        ends("crash", range(30, 60), SEED, lie=forget_journal)
    command = str(broken.value).partition("replay: ")[2]
    assert command.startswith("python -m tests.crash.log --fault crash --operation ")
    told = subprocess.run(
        [sys.executable, *command.split()[1:]], capture_output=True, text=True, check=False
    )

    assert told.returncode == 0, "without the lie the same cut breaks nothing"
    assert '"broken": 0' in told.stdout
