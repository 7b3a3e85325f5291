"""Messages of tasks: what fits in, what is left in a file, and what is found there again."""

import pickle
from pathlib import Path

import pytest

from headwater.base.record.records import Record, build_batch
from headwater.streams.sink import message
from headwater.streams.sink.errors import MessageTooLargeError, StagingError
from headwater.streams.sink.message import Origin, TaskMessage, gather, make_message, remove_staged

ORIGIN = Origin("query", "run", 7)


def _batch(size_bytes: int, tag: bytes = b"x") -> bytes:
    return bytes(build_batch([Record(0, 1, None, tag * size_bytes)]))


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "INLINE_BYTES_MAX", 1_000)
    monkeypatch.setattr(message, "UNSTAGED_BYTES_MAX", 5_000)


def _passed_on(task: TaskMessage) -> TaskMessage:
    again: TaskMessage = pickle.loads(pickle.dumps(task))
    return again


def test_what_is_small_travels_in_the_message(small_limits: None, tmp_path: Path) -> None:
    batches = {("t", 0): [_batch(10)], ("t", 1): [_batch(20), _batch(30)]}

    task = _passed_on(make_message(ORIGIN, batches, str(tmp_path)))

    assert task.staged is None
    assert gather([task]) == batches
    assert list(tmp_path.iterdir()) == []


def test_what_is_large_is_left_in_a_file(small_limits: None, tmp_path: Path) -> None:
    batches = {("t", 0): [_batch(900, b"a")], ("u", 1): [_batch(800, b"b"), _batch(2, b"c")]}

    task = _passed_on(make_message(ORIGIN, batches, str(tmp_path)))

    assert task.staged is not None
    assert not task.batches
    assert {place: [bytes(each) for each in found] for place, found in gather([task]).items()} == (
        batches
    )


def test_partitions_keep_the_order_of_tasks(small_limits: None, tmp_path: Path) -> None:
    tasks = [
        make_message(ORIGIN, {("t", 0): [_batch(size)]}, str(tmp_path))
        for size in (5, 2_000, 6, 3_000)
    ]

    sizes = [len(each) for each in gather(tasks)["t", 0]]

    assert sizes == [len(_batch(size)) for size in (5, 2_000, 6, 3_000)]


def test_without_a_place_for_files_what_is_too_large_is_named(small_limits: None) -> None:
    assert make_message(ORIGIN, {("t", 0): [_batch(4_000)]}, None).staged is None

    with pytest.raises(MessageTooLargeError) as caught:
        make_message(ORIGIN, {("t", 0): [_batch(6_000)]}, None)

    assert "stagingLocation" in caught.value.hint
    assert "maxOffsetsPerTrigger" in caught.value.hint


def test_a_place_that_cannot_be_written_to_is_named(small_limits: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StagingError, match="cannot be written"):
        make_message(ORIGIN, {("t", 0): [_batch(2_000)]}, str(tmp_path / "file"))


def test_a_file_that_the_driver_does_not_see_is_named(small_limits: None, tmp_path: Path) -> None:
    task = make_message(ORIGIN, {("t", 0): [_batch(2_000)]}, str(tmp_path))
    assert task.staged is not None
    Path(task.staged).unlink()

    with pytest.raises(StagingError, match="cannot be read by the driver"):
        gather([task])


@pytest.mark.parametrize("position", [70, 1_000, -1])
def test_damage_in_a_file_is_not_sent(small_limits: None, tmp_path: Path, position: int) -> None:
    task = make_message(ORIGIN, {("t", 0): [_batch(2_000)]}, str(tmp_path))
    assert task.staged is not None
    content = bytearray(Path(task.staged).read_bytes())
    content[position] ^= 1
    Path(task.staged).write_bytes(content)

    with pytest.raises(StagingError, match="damaged"):
        gather([task])


def test_files_go_with_those_of_losers_and_of_batches_before(
    small_limits: None, tmp_path: Path
) -> None:
    kept = make_message(Origin("other", "run", 1), {("t", 0): [_batch(2_000)]}, str(tmp_path))
    for batch_id in (5, 7, 7):
        winner = make_message(
            Origin("query", "run", batch_id), {("t", 0): [_batch(2_000)]}, str(tmp_path)
        )

    remove_staged([winner])

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [Path(kept.staged or "")]


def test_an_older_run_leaves_the_files_of_a_newer_one(small_limits: None, tmp_path: Path) -> None:
    """It is fenced and gives up its batch, which the newer one has begun to repeat."""
    older, newer, dead = (
        make_message(Origin("query", run, number), {("t", 0): [_batch(2_000)]}, str(tmp_path))
        for run, number in (("older", 7), ("newer", 7), ("dead", 6))
    )

    remove_staged([older])

    assert gather([newer]).keys() == {("t", 0)}
    assert [Path(each.staged or "").exists() for each in (older, dead)] == [False, False]
