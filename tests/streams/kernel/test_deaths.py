"""A process that dies at any step of a batch leaves nothing that the next one would believe.

For each operator, each batch and each step of it (every call of Spark's state store, every
operation on a local copy): the attempt ends there, Spark throws away what it has written, and the
batch is run again by another process, of rows that were split and sent in another way, beside what
is left of the local copies, in many cases damaged. What it gives, and the state, must be those of a
run in which nobody died, to the byte; and so must be those of the batch behind it.
"""

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, cast

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

from headwater.streams.joins.asof import AsofJoin
from headwater.streams.joins.changelog import Upserts
from headwater.streams.joins.interval import IntervalJoin
from headwater.streams.joins.latest import LatestJoin
from headwater.streams.joins.rows import LEFT, RIGHT
from headwater.streams.kernel import processor
from headwater.streams.kernel.buckets import bucket_ids
from headwater.streams.kernel.errors import StateDamagedError
from headwater.streams.kernel.operator import Operator
from headwater.streams.kernel.packing import to_bytes
from headwater.streams.kernel.processor import BucketProcessor, Setting
from headwater.streams.windows.aggregates import aggregation
from headwater.streams.windows.aligned import AlignedWindows
from headwater.streams.windows.lateness import Correct
from headwater.streams.windows.panes import Windows
from headwater.streams.windows.ranking import Order
from headwater.streams.windows.running import RunningGroups
from headwater.streams.windows.sessions import SessionWindows
from headwater.streams.windows.sliding import SlidingWindows
from headwater.streams.windows.top_rows import TopRows
from tests.streams.joins import test_tables
from tests.streams.joins.histories import VALUES, Event, rows_of
from tests.streams.kernel.failing import (
    Death,
    Handle,
    KilledError,
    RefusedError,
    StateStore,
    Steps,
    failing_disk,
)
from tests.streams.kernel.laws import Batch, dealt, rows

BATCHES = 6
# Of a step that fails there is one for each call; more than these no batch of this size has.
STEPS_MAX = 300
NUMBERS = pa.schema([("c0", pa.int64())])
GIVEN = (None, 1, 2, 3)
MEASURES = [aggregation("count"), aggregation("sum", "c0", pa.int64())]


class Case(NamedTuple):
    """An operator, and what comes to it."""

    operator: Operator
    batches: list[Batch]


class Run(NamedTuple):
    """What one batch leads to."""

    results: list[Row]
    store: StateStore


def of_windows(operator: Operator) -> Case:
    dice = random.Random(1)
    batches = []
    for number in range(BATCHES):
        events = [
            (dice.choice("abcdef"), 10 * number + dice.randint(-25, 12), dice.randint(-9, 9))
            for _ in range(40)
        ]
        table = rows(events, NUMBERS, first_offset=40 * number)
        batches.append(Batch((table,), 10 * number - 5))
    return Case(operator, batches)


def of_streams(operator: Operator) -> Case:
    dice = random.Random(2)
    batches = []
    for number in range(BATCHES):
        events = [
            Event(
                dice.choice((LEFT, RIGHT)),
                dice.choice("abcdef"),
                10 * number + dice.randint(-25, 12),
                100 * number + each,
                each,
            )
            for each in range(40)
        ]
        batches.append(_both(operator, events, 10 * number - 5))
    return Case(operator, batches)


def of_tables(operator: Operator) -> Case:
    dice = random.Random(3)
    tables = test_tables.Tables()
    batches = []
    for _ in range(BATCHES):
        before = len(tables.changes)
        for _ in range(20):
            value = dice.choice((None, 1, 2, 3))
            change = test_tables.Change(
                dice.choice((LEFT, RIGHT)), dice.randint(0, 9), dice.choice("abc"), value
            )
            tables.write(change)
        batches.append(_both(operator, tables.changes[before:], None))
    return Case(operator, batches)


def of_upserts(operator: Operator) -> Case:
    dice = random.Random(4)
    batches = []
    for number in range(BATCHES):
        events = [
            Event(LEFT, dice.choice("abcdef"), 10 * number, 100 * number + each, dice.choice(GIVEN))
            for each in range(40)
        ]
        batches.append(Batch((rows_of(events, LEFT, operator.inputs[0]),), None))
    return Case(operator, batches)


def _both(operator: Operator, events: Sequence[Event], watermark: int | None) -> Batch:
    sides = (rows_of(events, side, operator.inputs[side]) for side in (LEFT, RIGHT))
    return Batch(tuple(sides), watermark)


CASES: dict[str, Callable[[], Case]] = {
    "windows": lambda: of_windows(AlignedWindows(Windows(10, 10), MEASURES, NUMBERS, Correct(20))),
    "sessions": lambda: of_windows(SessionWindows(4, MEASURES, NUMBERS, Correct(20))),
    "sliding": lambda: of_windows(SlidingWindows(10, MEASURES, NUMBERS, Correct(20))),
    "without an end": lambda: of_windows(RunningGroups(MEASURES, NUMBERS)),
    "top": lambda: of_windows(TopRows(2, [Order("c0", descending=True)], NUMBERS, ranked=True)),
    "upserts": lambda: of_upserts(Upserts(VALUES)),
    "as of": lambda: of_streams(AsofJoin(VALUES, VALUES, kind="left", until_us=20)),
    "interval": lambda: of_streams(
        IntervalJoin(VALUES, VALUES, kind="full", lower_us=-5, upper_us=5)
    ),
    "latest": lambda: of_streams(LatestJoin(VALUES, VALUES, kind="left")),
    "tables": lambda: of_tables(test_tables.join("full")),
}


@pytest.fixture(autouse=True)
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the folder of local copies, of which there is one of every chunk."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(processor, "_COPIED_BYTES_MIN", 0)
    another_process()
    yield processor._copies()._directory
    another_process()


def another_process() -> None:
    """Forget what only this process knows."""
    processor._copies.cache_clear()


def run(
    case: Case, number: int, before: StateStore, *, dice: random.Random, steps: Steps | None = None
) -> Run:
    """Run a batch, of rows that are split and sent as the dice say."""
    counted = steps or Steps(Death.KILL, None)
    store = before.attempt()
    batch = case.batches[number]
    schemas = tuple(table.schema for table in batch.inputs)
    runner = BucketProcessor(Setting(case.operator, schemas, {"operator": "one"}, 4, 1))
    runner.init(cast("StatefulProcessorHandle", Handle(store, counted)))
    bucket = bucket_ids(4)[1]
    sent = _sent(case.operator, batch, bucket, dice)
    with failing_disk(counted):
        results = list(runner.handleInputRows((bucket,), iter(sent), cast("TimerValues", None)))
    return Run(results, store)


def _sent(operator: Operator, batch: Batch, bucket: int, dice: random.Random) -> list[Row]:
    head = {"bucket": bucket, "clock": None, "watermark": None, "idle": None, "hold": None}
    sent = [
        Row(**head | {"input": -1, "blob": None})
        if batch.watermark is None
        else Row(
            **head
            | {"input": -1, "blob": None, "clock": "a", "watermark": batch.watermark}
            | {"idle": False, "hold": 0}
        )
    ]
    for which, table in enumerate(batch.inputs):
        for part in dealt(table, dice.randint(1, 4), dice):
            blob = to_bytes(operator.combine(which, part)).to_pybytes()
            sent.append(Row(**head | {"input": which, "blob": blob}))
    dice.shuffle(sent)
    return sent


def without_deaths(case: Case) -> list[Run]:
    """Run all batches, and return what each leads to."""
    found = [Run([], StateStore())]
    for number in range(len(case.batches)):
        found.append(run(case, number, found[-1].store, dice=random.Random(number)))
    return found[1:]


def leave(folder: Path, store: StateStore | None) -> None:
    """Have the folder hold copies of what the store has, or nothing."""
    for path in folder.iterdir() if folder.exists() else ():
        path.unlink()
    if store is not None:
        folder.mkdir(mode=0o700, exist_ok=True)
        for name, data in store.chunks.items():
            (folder / f"{name}.chunk").write_bytes(data)


def damage(folder: Path, dice: random.Random) -> None:
    """Do to some copies what crashes of machines and careless hands do to files."""
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        data = bytearray(path.read_bytes())
        what = dice.choice(("nothing", "flip", "cut", "empty", "other", "gone"))
        path.unlink()
        if what == "flip" and data:
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        elif what == "cut":
            del data[dice.randrange(len(data) + 1) :]
        elif what == "empty":
            data.clear()
        elif what == "other":
            data = bytearray(dice.randbytes(len(data)))
        if what != "gone":
            path.write_bytes(data)


@pytest.mark.parametrize("death", list(Death), ids=lambda each: each.value)
@pytest.mark.parametrize("name", sorted(CASES))
def test_whoever_dies_at_whichever_step_the_next_one_gives_the_same(
    name: str, death: Death, copied: Path
) -> None:
    case = CASES[name]()
    wanted = without_deaths(case)
    seen: set[str] = set()
    # Steps that begin beside copies of all state in one batch begin without any in the other.
    for number in (BATCHES - 3, BATCHES - 2) if death is Death.KILL else (BATCHES - 2,):
        before = wanted[number - 1].store
        for fails_at in range(0, STEPS_MAX, 1 if death is Death.KILL else 3):
            dice = random.Random(fails_at)
            leave(copied, before if (fails_at + number) % 2 else None)
            another_process()
            steps = Steps(death, fails_at)
            died = True
            with contextlib.suppress(KilledError, RefusedError):
                survived = run(case, number, before, dice=dice, steps=steps)
                assert survived == wanted[number], steps.taken
                died = False
            seen |= set(steps.taken)
            if not steps.is_over:
                break
            assert died or death is not Death.KILL
            if dice.random() < 0.5:
                another_process()
                damage(copied, dice)
            again = run(case, number, before, dice=dice)
            assert again == wanted[number], (number, steps.taken)
            if dice.random() < 0.2:
                after = run(case, number + 1, again.store, dice=dice)
                assert after == wanted[number + 1], (number, steps.taken)
        else:
            pytest.fail(f"a batch has more than {STEPS_MAX} steps")
    assert {"header get", "chunk get", "chunk put", "chunk remove", "header update"} <= seen
    assert {"mkstemp", "fdopen", "write", "rename", "map"} <= seen


def test_a_chunk_that_the_state_store_has_damaged_is_named(copied: Path) -> None:
    case = CASES["sessions"]()
    wanted = without_deaths(case)
    before = wanted[3].store
    named = []
    for name, data in before.chunks.items():
        leave(copied, None)
        another_process()
        flipped = bytearray(data)
        flipped[len(flipped) // 2] ^= 1
        hurt = StateStore(before.header, before.chunks | {name: bytes(flipped)})
        try:
            # What a batch does not read it does not find out, and does not need.
            assert run(case, 4, hurt, dice=random.Random(1)).results == wanted[4].results
        except StateDamagedError as error:
            assert name in str(error)  # noqa: PT017 - not every chunk is read
            named.append(name)
        assert not (copied / f"{name}.chunk").exists()
    assert named
