"""What lies under a data directory is its owner's alone."""

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


def test_a_directory_of_another_owner_stays_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o755)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    restrict_directory(folder)

    assert mode(folder) == 0o755
    assert "chmod 700" in caplog.text
