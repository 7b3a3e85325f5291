"""What befalls a whole `headwater run`: a second driver, a full disk, a broker that goes away."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from headwater.cli.errors import Exit
from headwater.testing.broker import EmbeddedBroker
from tests.streams.cluster.pipeline_file import FILE, NAME, Home, expected
from tests.streams.needs import require_spark

pytestmark = pytest.mark.timeout(900)
LOCAL = ("--master", "local[2]")
# Without state, of which two drivers would keep two; with a step that one of them waits in.
HELD_FILE = FILE.replace('orders.dropDuplicates(["key"])', "orders.mapInArrow(held, orders.schema)")
HELD_FILE = HELD_FILE.replace(
    "orders = (",
    """
def held(batches):
    import os, time
    while "HOLD" in os.environ and os.path.exists(os.environ["HOLD"]):
        time.sleep(0.05)
    yield from batches

orders = (""",
)
assert "HOLD" in HELD_FILE
assert "dropDuplicates" not in HELD_FILE
ROOM_BYTES = 4 << 20


@pytest.fixture(autouse=True, scope="module")
def spark_can_start() -> None:
    require_spark()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """Give a broker that the test may stop and start."""
    with EmbeddedBroker(data_directory=str(tmp_path / "broker")) as running:
        yield running


def test_of_two_drivers_on_one_checkpoint_the_older_stops(
    broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = (
        Home(folder, broker.bootstrap_servers, text=HELD_FILE)
        for folder in (tmp_path / "older", tmp_path / "newer")
    )
    older.create_topics()
    older.send(range(50))
    # Two machines have one storage, but not the lock of one machine.
    Path(older.checkpoint.location).mkdir(parents=True)
    newer.checkpoint.folder.mkdir(parents=True)
    Path(newer.checkpoint.location).symlink_to(older.checkpoint.location)
    hold = tmp_path / "hold"
    with ExitStack() as stack:
        with monkeypatch.context() as patch:
            patch.setenv("HOLD", str(hold))
            first = stack.enter_context(older.running(*LOCAL))
        first.wait_until(lambda: older.batch() >= 0)
        hold.touch()
        older.send(range(50, 150))
        first.wait_until(lambda: Path(older.checkpoint.location, "offsets", "1").exists())
        with newer.running(*LOCAL) as second:
            second.wait_until(lambda: newer.has_written(range(150)))
            hold.unlink()
            assert first.end() == Exit.FAILED
            newer.send(range(150, 200))
            second.wait_until(lambda: newer.has_written(range(200)))
            assert second.stop() == Exit.DONE
    assert "OlderDriverError: another driver of query" in first.said()
    assert "hint:  one checkpoint is for one driver" in first.said()
    assert newer.written() == expected(range(200))


def test_a_full_disk_is_named_and_nothing_is_lost_or_doubled(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    home = Home(tmp_path, broker.bootstrap_servers)
    home.create_topics()
    home.send(range(100))
    data = tmp_path / "headwater-data"
    with small_disk(data):
        with home.running(*LOCAL) as run:
            run.wait_until(lambda: home.has_written(range(100)))
            run.wait_until(lambda: home.batch() >= 0)
            filler = fill(data)
            home.send(range(50, 300))
            assert run.end() == Exit.ENVIRONMENT
        said = run.said()
        assert f"stopped because a disk is full; its checkpoint is in {home.checkpoint.folder}" in (
            said
        )
        assert "hint:  make room there" in said
        assert "Logging error" not in said
        assert home.checkpoint.state() == "failed"
        filler.unlink()
        with home.running(*LOCAL, "--once") as again:
            assert again.end() == Exit.DONE, again.said()
        assert home.written() == expected(range(300))


def test_a_broker_that_returns_is_waited_for_and_one_that_forgot_is_named(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    home = Home(tmp_path, broker.bootstrap_servers)
    home.create_topics()
    home.send(range(250))
    with home.running(*LOCAL) as run:
        run.wait_until(lambda: home.batch() >= 0)
        broker.stop()
        broker.start()
        home.send(range(200, 300))
        run.wait_until(lambda: home.has_written(range(300)))
        broker.stop()
        shutil.rmtree(tmp_path / "broker")
        broker.start()
        home.create_topics()
        home.send(range(10))
        assert run.end() == Exit.FAILED
    assert "TopicRecreatedError" in run.said()
    assert f"headwater pipeline reset {NAME}" in run.said()
    assert home.written() == []


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Mount a file system of a few megabytes, or skip where that is not allowed."""
    folder.mkdir()
    options = f"size={ROOM_BYTES}"
    mount = ["mount", "-t", "tmpfs", "-o", options, "headwater-small-disk", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount program")
    if done.returncode != 0:
        pytest.skip(f"nothing can be mounted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        # Lazily: a process that is just ending may still look into it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room at all."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(os.statvfs(folder).f_frsize))
    return path
