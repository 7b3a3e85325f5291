"""The shape of a data directory, by number.

This file alone decides what ``<data>/VERSION`` means: which layouts this program can use, which it
can upgrade and which it must refuse. It knows none of the files behind that number.
"""

import errno
import logging
from collections.abc import Callable, Mapping
from typing import Final

from headwater.base.disk import Disk, Names, parent_directory, read_file, replace_file
from headwater.base.errors import HeadwaterError
from headwater.base.private import strangers

LAYOUT_VERSION: Final = 1

LAYOUT_UPGRADES: Mapping[int, Callable[[Disk, str], None]] = {}
"""By the layout they start from: what turns a data directory into the next layout."""

_UNSYNCABLE: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EROFS}
)
"""What is said of a directory that is not ours to open, cannot be synced or is read-only."""

logger = logging.getLogger(__name__)


def make_directory(disk: Disk, path: str) -> None:
    """Create a directory and those above it, durably.

    One that exists may be the work of a process that ended before it could sync the name. Where the
    parent does not let anybody do that, somebody else has made it.
    """
    parent = parent_directory(path)
    if not disk.exists(parent):
        make_directory(disk, parent)
    if not disk.exists(path):
        with Names(disk, parent) as names:
            disk.make_directory(path)
            names.sync()
        return
    try:
        disk.sync_directory(parent)
    except OSError as error:
        if error.errno not in _UNSYNCABLE:
            raise


def check_unshared(disk: Disk, data_directory: str) -> None:
    """Refuse a directory that others use.

    Closing it would lock them out; leaving it open would show them our records.

    Raises:
        HeadwaterError: Other users can open it, it holds what is not ours, and we were never there.
    """
    if not disk.exists(data_directory) or not disk.others_may_enter(data_directory):
        return
    found = strangers(disk.list_directory(data_directory))
    if found:
        message = f"{data_directory} is shared: other users can open it, and it holds {found[0]}"
        hint = f"choose a directory of its own: --data {data_directory}/headwater"
        raise HeadwaterError(message, hint=f"{hint}; or run chmod 700 {data_directory}")


def check_layout(disk: Disk, data_directory: str) -> int | None:
    """Return the layout of a data directory, None where it has none yet.

    Raises:
        HeadwaterError: A newer program laid it out, or VERSION cannot be read.
    """
    path = f"{data_directory}/VERSION"
    if not disk.exists(path):
        return None
    text = read_file(disk, path).decode(errors="replace").strip()
    if not text.isdecimal():
        message = f"{path} should hold a number and holds {text[:40]!r}"
        raise HeadwaterError(message, hint=f"write {LAYOUT_VERSION} into it if you are sure")
    if int(text) > LAYOUT_VERSION:
        message = f"{data_directory} has layout {text}; this program knows up to {LAYOUT_VERSION}"
        raise HeadwaterError(message, hint="use the newer headwater that wrote it")
    return int(text)


def name_layout(disk: Disk, data_directory: str) -> None:
    """Say what layout a new directory has, when everything that must be there is durable.

    So a directory with a VERSION and without the rest has lost it.
    """
    if check_layout(disk, data_directory) is None:
        _write_version(disk, data_directory)


def upgrade_layout(disk: Disk, data_directory: str) -> None:
    """Bring an older layout to ours.

    Raises:
        HeadwaterError: The layout is too old for this program.
    """
    version = check_layout(disk, data_directory)
    if version is None or version == LAYOUT_VERSION:
        return
    for step in range(version, LAYOUT_VERSION):
        if step not in LAYOUT_UPGRADES:
            message = f"{data_directory} has layout {step}, which this program cannot upgrade"
            raise HeadwaterError(message, hint="start the release in between once, then this one")
        logger.info("upgrading %s from layout %d", data_directory, step)
        LAYOUT_UPGRADES[step](disk, data_directory)
    _write_version(disk, data_directory)


def _write_version(disk: Disk, data_directory: str) -> None:
    replace_file(disk, f"{data_directory}/VERSION", f"{LAYOUT_VERSION}\n".encode())
