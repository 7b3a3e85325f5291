"""Faults at operation N of the workload, and what must be true afterwards.

This file alone decides which faults there are and how a disk is judged after one. A fault, an
operation and a seed give the same run, and a failure names the command that repeats it.

    crash    the power goes right after operation N; nothing that was not synced survives
    tear     the same; some of it survives, torn and garbled
    kill     the process ends right after operation N; the next one starts on the same page cache,
             and the power goes before or after that one has acknowledged more
    full     operation N finds no room (an append writes a part); the process goes on
    broken   operation N fails for good (an append writes a part, a sync loses what it should have
             written); the next process starts after a power cut, or as after "kill"
"""

import errno
import os
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from headwater.base.disk import read_file
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.record.batch import parse_header
from headwater.log import manifest
from headwater.log.names import TEMPORARY
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from headwater.testing.memory_disk import Keep, MemoryDisk, Operation
from tests.crash.log.ledger import Broken, Ledger
from tests.crash.log.workload import (
    DATA,
    DURABLE,
    OPERATIONS_MAX,
    Life,
    StoppedError,
    new_disk,
    open_store,
)

Fault = Literal["crash", "tear", "kill", "full", "broken"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
TEARS = 2
"""Seeds per operation: each keeps other parts of what was not synced."""

AFTERWARDS = 10**9
"""Added to the seeds of what follows a fault: no two starts of one life roll the same dice."""

FINAL_WHEN_FULL = {"sync", "sync_directory", "truncate", "rename"}
"""What no retry can mend; a full file system fails none of these but in theory."""

Lie = Callable[[Operation], bool]


@contextmanager
def small_journal() -> Iterator[None]:
    """Let the journal be folded every few entries, so that a short life sees it."""
    before = manifest._FOLD_AT_LEAST_BYTES
    manifest._FOLD_AT_LEAST_BYTES = 1_000  # type: ignore[misc]
    try:
        yield
    finally:
        manifest._FOLD_AT_LEAST_BYTES = before  # type: ignore[misc]


def count_operations(seed: int = 0) -> int:
    """Return how many operations the workload has when nothing goes wrong."""
    disk = new_disk()
    with small_journal():
        Life(disk, Ledger(), seed).run()
    return disk.operations


def ends(fault: Fault, operations: Container[int], seed: int, *, lie: Lie | None = None) -> None:
    """Live the workload once, and judge what an end after each operation would leave.

    Args:
        fault: "crash", "tear" or "kill".
        operations: After which ones to judge.
        seed: Decides all that is left to chance.
        lie: Which syncs only pretend, before and after the cut.

    Raises:
        Broken: The first promise that was not kept, and how to see it again.
    """
    disk = new_disk()
    ledger = Ledger()
    life = Life(disk, ledger, seed)

    def look(operation: Operation) -> None:
        if operation.kind != "lock":
            # A start has begun to write, so the clean stop before it counts no more.
            ledger.stopped_cleanly = False
        if operation.number not in operations:
            return
        syncing, Life.syncing = Life.syncing, ""
        with explained(fault, operation, seed):
            if fault == "kill":
                dice = (seed * OPERATIONS_MAX + operation.number) * 10
                judge_cached(life.disk, ledger, life.clock, dice, lie)
                rounds = 0
            else:
                rounds = 1 if fault == "crash" else TEARS
            for round_ in range(rounds):
                dice = (seed * OPERATIONS_MAX + operation.number) * 10 + round_
                keep: Keep = "nothing" if fault == "crash" else "some"
                found = life.disk.after_power_cut(dice, keep=keep)
                judge(found, ledger, life.clock, dice, lie)
        Life.syncing = syncing

    disk.after_operation = look
    disk.lie = lie
    with small_journal():
        life.run()
        if disk.operations + 1 in operations:
            with explained(fault, disk.trace[-1], seed):
                judge(life.disk.after_power_cut(seed), ledger, life.clock, seed + 1, lie)


def failure(fault: Fault, number: int, seed: int) -> None:
    """Live the workload with one operation that fails, then judge what the next start finds.

    Raises:
        Broken: The first promise that was not kept, and how to see it again.
    """
    code = errno.ENOSPC if fault == "full" else errno.EIO
    disk = new_disk()
    disk.fail_at(number, OSError(code, os.strerror(code)))
    ledger = Ledger(was_full=fault == "full")
    life = Life(disk, ledger, seed)
    stopped = False
    with small_journal():
        try:
            with explained(fault, None, seed, number):
                life.run()
        except StoppedError:
            stopped = True
        if number > len(disk.trace):
            return
        operation = disk.trace[number - 1]
        with explained(fault, operation, seed):
            if fault == "full" and operation.kind not in FINAL_WHEN_FULL:
                expect(not stopped, "a full disk ended the process")
            dice = (seed * OPERATIONS_MAX + number) * 10
            for keep in get_args(Keep):
                judge(life.disk.after_power_cut(dice, keep=keep), ledger, life.clock, dice)
            if life.disk.read_only:
                expect_refusal(life.disk.after_kill(), life.clock)
            else:
                judge_cached(life.disk, ledger, life.clock, dice)


def run(fault: Fault, operations: range, seed: int) -> None:
    """Run one fault at each of some operations; "number + 1" of the last one is the end of it all.

    Raises:
        Broken: The first promise that was not kept, and how to see it again.
    """
    if fault in {"crash", "tear", "kill"}:
        ends(fault, operations, seed)
    else:
        for number in operations:
            failure(fault, number, seed)


def judge_cached(
    disk: MemoryDisk, ledger: Ledger, clock: ManualClock, seed: int, lie: Lie | None = None
) -> None:
    """Judge a start on the same page cache; the power goes right after it, or later."""
    for cut_at_once in (True, False):
        judge(disk.after_kill(), ledger, clock, seed, lie, cut_at_once=cut_at_once)


def expect_refusal(disk: MemoryDisk, clock: ManualClock) -> None:
    """A file system that takes no changes lets no process start."""
    try:
        open_store(disk, clock, AFTERWARDS)
    except StorageError:
        return
    raise Broken("a start on a read-only file system was not refused")


def judge(
    disk: MemoryDisk,
    ledger: Ledger,
    clock: ManualClock,
    seed: int,
    lie: Lie | None = None,
    *,
    cut_at_once: bool = True,
) -> None:
    """Open what was left, hold it to its promises, cut the power, and live on.

    Args:
        disk: What was left.
        ledger: What was promised before.
        clock: What time it is.
        seed: Decides all that is left to chance.
        lie: Which syncs only pretend.
        cut_at_once: Whether the power goes before the store is used, too.

    Raises:
        Broken: A promise was not kept.
    """
    disk.lie = lie
    life = Life(disk, ledger.copy(), seed)
    life.clock = ManualClock(clock.now_ms(), clock.monotonic_ms())
    start(life, AFTERWARDS + seed)
    if cut_at_once:
        cut(life, 2 * AFTERWARDS + seed, lie)
    live_on(life)
    cut(life, 3 * AFTERWARDS + seed, lie)


def start(life: Life, seed: int) -> None:
    """Open the store and check it; what it shows is a promise from then on."""
    life.ledger.check_files(life.disk, f"{DATA}/log")
    life.store = open_store(life.disk, life.clock, seed)
    if life.disk.lie is None and not life.store.stopped_cleanly:
        expect_durable(life.disk)
    life.take_stock()


def expect_durable(disk: MemoryDisk) -> None:
    """Whatever is there after a recovery, and later starts believe, survives a power cut."""
    durable = _contents(disk.after_power_cut(0, keep="nothing"))
    lost = [
        path
        for path, content in _contents(disk).items()
        if durable.get(path) != content and not path.endswith(TEMPORARY)
    ]
    expect(not lost, f"a start has not made durable: {lost}")


def _contents(disk: MemoryDisk, path: str = DATA) -> dict[str, bytes]:
    if not disk.is_directory(path):
        return {path: read_file(disk, path)}
    names = disk.list_directory(path)
    return {k: v for name in names for k, v in _contents(disk, f"{path}/{name}").items()}


def cut(life: Life, seed: int, lie: Lie | None) -> None:
    """Take away all that is not synced, and start again: what was shown must be the same."""
    life.disk = life.disk.crash(seed, keep="nothing")
    life.disk.lie = lie
    start(life, seed)


def live_on(life: Life) -> None:
    """Use a recovered store: repetitions are known, offsets go on, deletions are finished."""
    ledger = life.ledger
    logs = list(life.store.logs())
    for log in logs:
        for sent in ledger.promise(log).sent.values():
            if sent and (sent[-1][1] >= log.log_start_offset or not ledger.was_full):
                send_again(log, bytearray(sent[-1][0]), sent[-1][1])
        life.end_all(log.topic, log.partition)
        life.append(log.topic, log.partition)
    life.commit_together(*((log.topic, log.partition) for log in logs))
    life.create(("after", 1, DURABLE))
    life.append("after", 0)
    life.commit("after", 0)
    life.producer_id()
    life.upkeep(after_ms=70_000)
    names = life.disk.list_directory(f"{DATA}/log")
    directories = {name for name in names if life.disk.is_directory(f"{DATA}/log/{name}")}
    known = {f"{log.topic}-{log.partition}" for log in life.store.logs()}
    expect(directories <= known, f"nobody removes {directories - known}")


def send_again(log: PartitionLog, batch: bytearray, offset: int) -> None:
    """Repeat a batch: it is known, or refused where its transaction has ended."""
    header = parse_header(batch)
    open_since = {each.producer_id: each.first_offset for each in log.open_transactions()}
    if header.is_transactional and offset < open_since.get(header.producer_id, offset + 1):
        try:
            appended = log.append(batch, header)
        except KafkaError as error:
            expect(error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{log}: {error!r}")
            return
        raise Broken(f"{log}: what ended at offset {offset} is repeated: {appended}")
    appended = log.append(batch, header)
    expect(
        appended.duplicate and appended.base_offset == offset,
        f"{log}: a repetition of offset {offset} is {appended}",
    )


def expect(kept: bool, otherwise: str) -> None:
    """Raise ``Broken`` where something does not hold."""
    if not kept:
        raise Broken(otherwise)


@contextmanager
def explained(
    fault: Fault, operation: Operation | None, seed: int, number: int = 0
) -> Iterator[None]:
    """Add to any error how to see it again."""
    number = operation.number if operation else number
    try:
        yield
    except StoppedError:
        raise
    except Exception as error:
        raise Broken(
            f"{error!r}\n  after fault {fault} at operation {operation or number}\n  replay: "
            f"python -m tests.crash.log --fault {fault} --operation {number} --seed {seed}"
        ) from error
