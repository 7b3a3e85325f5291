"""What lies under a data directory is its owner's alone."""

import errno
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.base.disk import RealDisk, replace_file
from headwater.base.private import (
    make_private_directory,
    private_opener,
    restrict_data_directory,
    restrict_directory,
    write_private_text,
)


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_disk_makes(tmp_path: Path) -> None:
    disk = RealDisk()
    disk.make_directory(str(tmp_path / "d"))
    replace_file(disk, str(tmp_path / "d" / "a"), b"one")
    disk.lock(str(tmp_path / "d" / ".lock")).release()

    assert mode(tmp_path / "d") == 0o700
    assert mode(tmp_path / "d" / "a") == mode(tmp_path / "d" / ".lock") == 0o600


def test_directories_and_texts(tmp_path: Path) -> None:
    make_private_directory(tmp_path / "a" / "b")
    make_private_directory(tmp_path / "a" / "b")
    write_private_text(tmp_path / "a" / "text", "one")
    with open(tmp_path / "a" / "log", "ab", opener=private_opener) as file:
        file.write(b"two")

    assert mode(tmp_path / "a") == mode(tmp_path / "a" / "b") == 0o700
    assert mode(tmp_path / "a" / "text") == mode(tmp_path / "a" / "log") == 0o600
    assert (tmp_path / "a" / "text").read_text() == "one"


@pytest.mark.parametrize("wide", [0o755, 0o750, 0o701, 0o2770])
def test_an_open_directory_is_closed_and_that_is_said_once(
    tmp_path: Path, wide: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(wide)
    restrict_directory(folder)
    restrict_directory(folder)

    assert mode(folder) & 0o777 == 0o700
    assert mode(folder) & 0o7000 == wide & 0o7000
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert str(folder) in record.getMessage()
    assert f"mode {wide:o}" in record.getMessage()


NUMBERS = ["EPERM", "EACCES", "EROFS", "ENOTSUP", "ENOSYS"]


@pytest.mark.parametrize("name", NUMBERS)
def test_a_directory_whose_mode_cannot_be_changed_stays_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)

    def refuse(*_: object, **__: object) -> None:
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "chmod", refuse)
    restrict_directory(folder)

    assert mode(folder) == 0o755
    assert "chmod 700" in caplog.text


def test_a_broken_disk_is_no_matter_of_modes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    tmp_path.chmod(0o755)
    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(OSError, match="Input/output"):
        restrict_directory(tmp_path)


def test_a_directory_that_is_shared_on_purpose_stays_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o1777)
    restrict_directory(tmp_path)

    assert mode(tmp_path) == 0o1777
    assert "is shared (mode 1777)" in caplog.text


def test_a_data_directory_with_other_peoples_things_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "thesis.tex").touch()
    restrict_data_directory(tmp_path)
    assert mode(tmp_path) == 0o755
    assert "thesis.tex" in caplog.text

    (tmp_path / "VERSION").touch()
    restrict_data_directory(tmp_path)
    assert mode(tmp_path) == 0o700
