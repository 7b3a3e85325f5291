"""Messages of tasks: what fits in, what is left in a file, and what is found there again."""

import pickle
from pathlib import Path

import pytest

from headwater.base.record.records import Record, build_batch
from headwater.delivery.client.cluster import Place
from headwater.streams.sink import message
from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.errors import MessageTooLargeError, StagingError
from headwater.streams.sink.message import Outbox, TaskMessage, parts, remove_staged
from tests.streams.sink.messages import make_message

ATTEMPT = Attempt("query", "run", 7)


def _batch(size_bytes: int, tag: bytes = b"x") -> bytes:
    return bytes(build_batch([Record(0, 1, None, tag * size_bytes)]))


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message, "INLINE_BYTES_MAX", 1_000)
    monkeypatch.setattr(message, "UNSTAGED_BYTES_MAX", 5_000)


def gather(tasks: list[TaskMessage]) -> dict[Place, list[bytes]]:
    """Bring all parts together."""
    gathered: dict[Place, list[bytes]] = {}
    for part in parts(tasks):
        for place, batches in part.items():
            gathered.setdefault(place, []).extend(map(bytes, batches))
    return gathered


def _path(task: TaskMessage) -> Path:
    assert task.staged is not None
    return Path(task.staged.path)


def _passed_on(task: TaskMessage) -> TaskMessage:
    again: TaskMessage = pickle.loads(pickle.dumps(task))
    return again


def test_what_is_small_travels_in_the_message(small_limits: None, tmp_path: Path) -> None:
    batches = {("t", 0): [_batch(10)], ("t", 1): [_batch(20), _batch(30)]}

    task = _passed_on(make_message(ATTEMPT, batches, str(tmp_path)))

    assert task.staged is None
    assert gather([task]) == batches
    assert list(tmp_path.iterdir()) == []


def test_what_is_large_is_left_in_a_file(small_limits: None, tmp_path: Path) -> None:
    batches = {("t", 0): [_batch(900, b"a")], ("u", 1): [_batch(800, b"b"), _batch(2, b"c")]}

    task = _passed_on(make_message(ATTEMPT, batches, str(tmp_path)))

    assert task.staged is not None
    assert not task.batches
    assert gather([task]) == batches


def test_partitions_keep_the_order_of_tasks(small_limits: None, tmp_path: Path) -> None:
    tasks = [
        make_message(ATTEMPT, {("t", 0): [_batch(size)]}, str(tmp_path))
        for size in (5, 2_000, 6, 3_000)
    ]

    sizes = [len(each) for each in gather(tasks)["t", 0]]

    assert sizes == [len(_batch(size)) for size in (5, 2_000, 6, 3_000)]


def test_without_a_place_for_files_what_is_too_large_is_named(small_limits: None) -> None:
    assert make_message(ATTEMPT, {("t", 0): [_batch(4_000)]}, None).staged is None

    with pytest.raises(MessageTooLargeError) as caught:
        make_message(ATTEMPT, {("t", 0): [_batch(6_000)]}, None)

    assert "stagingLocation" in caught.value.hint
    assert "maxOffsetsPerTrigger" in caught.value.hint


def test_shares_of_tasks_that_are_alike_stay_within_what_a_driver_bears() -> None:
    """No task knows how many there are; the last of them has the smallest share."""
    for count in (1, 8, 64, 128, 256):
        last = Outbox(ATTEMPT, None, task=count - 1)
        assert count * last._unstaged_max <= 256 << 20
        assert count * last._inline_max <= 64 << 20
    assert Outbox(ATTEMPT, None, task=10_000)._unstaged_max == 1 << 20


def test_a_file_is_begun_as_soon_as_a_message_would_be_too_large(
    small_limits: None, tmp_path: Path
) -> None:
    with Outbox(ATTEMPT, lambda: tmp_path) as outbox:
        outbox.add(("t", 0), _batch(600, b"a"))
        assert not list(tmp_path.rglob("*"))
        outbox.add(("t", 1), _batch(600, b"b"))
        (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
        assert not outbox._batches
        outbox.add(("t", 0), _batch(600, b"c"))
        task = outbox.message()

    assert file.read_bytes() == b"".join(_batch(600, tag) for tag in (b"a", b"b", b"c"))
    assert gather([task]) == {
        ("t", 0): [_batch(600, b"a"), _batch(600, b"c")],
        ("t", 1): [_batch(600, b"b")],
    }


def test_a_task_that_fails_leaves_no_file(small_limits: None, tmp_path: Path) -> None:
    def fail() -> None:
        with Outbox(ATTEMPT, lambda: tmp_path) as outbox:
            outbox.add(("t", 0), _batch(2_000))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_the_driver_has_one_part_of_a_batch_at_a_time(
    small_limits: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message, "_PART_BYTES", 2_000)
    tasks = [
        make_message(ATTEMPT, {("t", 0): [_batch(400, tag) for tag in (b"a", b"b", b"c")]}, place)
        for place in (str(tmp_path), None)
    ]

    sizes = [[len(each) for each in part["t", 0]] for part in parts(tasks)]

    one = len(_batch(400))
    assert sizes == [[one] * 4, [one] * 2]


def test_a_place_that_cannot_be_written_to_is_named(small_limits: None, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StagingError, match="cannot be written"):
        make_message(ATTEMPT, {("t", 0): [_batch(2_000)]}, str(tmp_path / "file"))


def test_a_file_that_the_driver_does_not_see_is_named(small_limits: None, tmp_path: Path) -> None:
    task = make_message(ATTEMPT, {("t", 0): [_batch(2_000)]}, str(tmp_path))
    assert task.staged is not None
    Path(task.staged.path).unlink()

    with pytest.raises(StagingError, match="cannot be read by the driver"):
        gather([task])


@pytest.mark.parametrize("position", [70, 1_000, -1])
def test_damage_in_a_file_is_not_sent(small_limits: None, tmp_path: Path, position: int) -> None:
    task = make_message(ATTEMPT, {("t", 0): [_batch(2_000)]}, str(tmp_path))
    assert task.staged is not None
    content = bytearray(Path(task.staged.path).read_bytes())
    content[position] ^= 1
    Path(task.staged.path).write_bytes(content)

    with pytest.raises(StagingError, match="damaged"):
        gather([task])


def test_files_go_with_those_of_losers_and_of_batches_before(
    small_limits: None, tmp_path: Path
) -> None:
    kept = make_message(Attempt("other", "run", 1), {("t", 0): [_batch(2_000)]}, str(tmp_path))
    for batch_id in (5, 7, 7):
        winner = make_message(
            Attempt("query", "run", batch_id), {("t", 0): [_batch(2_000)]}, str(tmp_path)
        )

    remove_staged([winner])

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [_path(kept)]


def test_an_older_run_leaves_the_files_of_a_newer_one(small_limits: None, tmp_path: Path) -> None:
    """It is fenced and gives up its batch, which the newer one has begun to repeat."""
    older, newer, dead = (
        make_message(Attempt("query", run, number), {("t", 0): [_batch(2_000)]}, str(tmp_path))
        for run, number in (("older", 7), ("newer", 7), ("dead", 6))
    )

    remove_staged([older])

    assert gather([newer]).keys() == {("t", 0)}
    assert [_path(each).exists() for each in (older, dead)] == [False, False]
