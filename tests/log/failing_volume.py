"""An ext4 file system on a device that can be told to fail.

This file alone decides how such a device is made: a loop device over a sparse file on a tmpfs. When
the tmpfs is full, every block of the device fails that was never written. The blocks of the file
system's own tables and journal are written beforehand, so that only data is lost; for a journal
that fails they are not. It needs Linux, root, and the tools of ext4 and of loop devices.
"""

import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

TOOLS = ("mount", "umount", "losetup", "mkfs.ext4", "dumpe2fs")
_TMPFS = "24m"
_DEVICE_BYTES = 64 << 20


class CannotBeMadeError(Exception):
    """The machine does not allow it; the message names what is missing."""


class FailingVolume:
    """A mounted file system, whose device fails on demand."""

    def __init__(self, folder: Path) -> None:
        """Take an empty folder for everything."""
        self._backing = folder / "backing"
        self._image = self._backing / "image"
        self._filler = self._backing / "filler"
        self._device = ""
        self.root = folder / "mounted"

    def make(self, cleanup: ExitStack, *, journal_fails: bool) -> None:
        """Make and mount it; what is to be undone goes to `cleanup`."""
        for directory in (self._backing, self.root):
            directory.mkdir()
        _run("mount", "-t", "tmpfs", "-o", f"size={_TMPFS}", "tmpfs", str(self._backing))
        cleanup.callback(_run, "umount", "--lazy", str(self._backing))
        with self._image.open("wb") as image:
            image.truncate(_DEVICE_BYTES)
        _run("mkfs.ext4", "-q", "-b", "4096", "-J", "size=4", str(self._image))
        if not journal_fails:
            self._write_used_blocks()
        self._device = _run("losetup", "--find", "--show", str(self._image)).strip()
        cleanup.callback(_run, "losetup", "--detach", self._device)
        # The loop device takes a write of which a part fails for a success: one page at a time.
        queue = Path("/sys/block") / Path(self._device).name / "queue"
        (queue / "max_sectors_kb").write_text("4")
        self._mount()
        cleanup.callback(self._unmount)

    def _write_used_blocks(self) -> None:
        described = _run("dumpe2fs", str(self._image))
        free: set[int] = set()
        for line in re.findall(r"^  Free blocks: (.*)$", described, re.MULTILINE):
            for part in filter(None, line.split(", ")):
                first, _, last = part.partition("-")
                free.update(range(int(first), int(last or first) + 1))
        descriptor = os.open(self._image, os.O_RDWR)
        for position in range(0, _DEVICE_BYTES, 4096):
            if position // 4096 not in free:
                os.pwrite(descriptor, os.pread(descriptor, 4096, position), position)
        os.close(descriptor)

    def _mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", "nodiscard", self._device, str(self.root))

    def _unmount(self) -> None:
        with suppress(subprocess.CalledProcessError):
            _run("umount", str(self.root))
            return
        _run("umount", "--lazy", str(self.root))

    def break_device(self) -> None:
        """Let writes of new blocks fail from now on."""
        _run("sync", "--file-system", str(self.root))
        stat = os.statvfs(self._backing)
        with self._filler.open("wb") as filler:
            os.posix_fallocate(filler.fileno(), 0, stat.f_bfree * stat.f_frsize)

    def mend_device(self) -> None:
        """Let all writes succeed again. What was lost stays lost, and in the page cache."""
        self._filler.unlink()

    def mount_anew(self) -> None:
        """Empty the page cache: what is read afterwards comes from the device."""
        gc.collect()  # An open file keeps it mounted.
        _run("umount", str(self.root))
        self._mount()


def missing() -> str:
    """Return what this machine lacks, nothing where it lacks nothing."""
    if sys.platform != "linux":
        return "a failing device is made of Linux's loop devices"
    if os.geteuid() != 0:
        return "a failing device needs root, for mount and losetup"
    absent = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"a failing device needs {', '.join(absent)}" if absent else ""


@contextmanager
def failing_volume(folder: Path, *, journal_fails: bool = False) -> Iterator[FailingVolume]:
    """Make a volume, and undo it whatever happens.

    Raises:
        CannotBeMadeError: The machine does not allow it.
    """
    if reason := missing():
        raise CannotBeMadeError(reason)
    with ExitStack() as cleanup:
        volume = FailingVolume(folder)
        try:
            volume.make(cleanup, journal_fails=journal_fails)
        except (OSError, subprocess.CalledProcessError) as error:
            told = getattr(error, "stderr", "") or error
            raise CannotBeMadeError(f"this machine allows no loop device: {told}") from error
        yield volume


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    return done.stdout
