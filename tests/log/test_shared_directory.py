"""A data directory that existed before: whose it is, and who can open it."""

import stat
from pathlib import Path

import pytest

from headwater.base.chance import SystemChance
from headwater.base.clock import SystemClock
from headwater.base.directory_lock import AlreadyLockedError
from headwater.base.disk import RealDisk
from headwater.base.errors import HeadwaterError
from headwater.base.settings import BrokerSettings, TopicConfig
from headwater.log.store import LogStore


def open_store(path: Path) -> LogStore:
    return LogStore.open(
        RealDisk(),
        str(path),
        settings=BrokerSettings(),
        topic_defaults=TopicConfig(),
        clock=SystemClock(),
        chance=SystemChance(),
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    "used, names", [(False, ()), (False, ("lost+found",)), (False, ("log", "logs")), (True, ("x",))]
)
def test_one_that_is_ours_is_closed_to_others(
    tmp_path: Path, used: bool, names: tuple[str, ...]
) -> None:
    if used:
        open_store(tmp_path).close()
    for name in names:
        (tmp_path / name).mkdir()
    tmp_path.chmod(0o755)
    open_store(tmp_path).close()

    assert mode(tmp_path) == 0o700


def test_one_that_is_shared_on_purpose_stays_and_the_log_in_it_is_closed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "somebody's").touch()
    (tmp_path / "log").mkdir(mode=0o755)
    tmp_path.chmod(0o1777)
    for _ in range(2):
        caplog.clear()
        open_store(tmp_path).close()
        assert "is shared (mode 1777)" in caplog.text
        assert mode(tmp_path) == 0o1777
        assert mode(tmp_path / "log") == 0o700


def test_one_with_other_things_that_others_can_open_is_refused_and_left_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "thesis.tex").touch()
    tmp_path.chmod(0o755)
    with pytest.raises(HeadwaterError, match=r"is shared.*thesis\.tex") as refused:
        open_store(tmp_path)

    assert "--data" in refused.value.hint
    assert mode(tmp_path) == 0o755
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    tmp_path.chmod(0o700)
    open_store(tmp_path).close()


def test_who_comes_second_changes_no_modes(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    tmp_path.chmod(0o755)
    with pytest.raises(AlreadyLockedError):
        open_store(tmp_path)

    assert mode(tmp_path) == 0o755
    store.close()
