"""Where tasks leave for the driver what is too large for their messages.

This file alone decides where such files are, who may read them and when they go. What is in them
stands in `message`.

    <stagingLocation>/headwater-sink/<query id>/<run id>/<batch id>/<any name>

A `stagingLocation` is whoever's who named it: its rights are his to set, since on a cluster the
driver and the executors may be different users. Where none is named and all run on one machine, it
is a folder of this user alone in the temporary directory, which is everybody's: one that is not
ours, or that others may enter, is refused, since rows could be read or changed there.
"""

import contextlib
import os
import shutil
import stat
import tempfile
import time
import uuid
from pathlib import Path
from typing import Final

from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.errors import StagingError

_FOLDER: Final = "headwater-sink"
_OF_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
# No batch takes so long; what is older was left by a driver that died and never came back.
_FORGOTTEN_S: Final = 7 * 86_400


def shared_root(location: str) -> Path:
    """Return the folder in a place that somebody has named."""
    return Path(location, _FOLDER)


def own_root(directory: str | None = None) -> Path:
    """Return this user's folder in the temporary directory, made if it is not there.

    Raises:
        StagingError: It is somebody else's, or others may use it.
    """
    root = Path(directory or tempfile.gettempdir(), f"{_FOLDER}-{os.getuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            root.mkdir(mode=0o700)
        found = root.lstat()
    except OSError as error:
        raise StagingError(
            f"{root} cannot be made: {error}",
            hint="set stagingLocation to a directory that you may write to, or TMPDIR",
        ) from error
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_ours or found.st_mode & _OF_OTHERS:
        raise StagingError(
            f"{root} is not this user's alone (owner {found.st_uid}, {stat.filemode(found.st_mode)}"
            "): others could read or change what is written",
            hint=f"remove it, or chmod 700 {root}, or set stagingLocation to another directory",
        )
    return root


def new_file(root: Path, attempt: Attempt) -> Path:
    """Return where a task may leave a file of its own; its folder is made."""
    folder = root / attempt.query_id / attempt.run_id / str(attempt.batch_id)
    folder.mkdir(parents=True, exist_ok=True)
    return folder / uuid.uuid4().hex


def remove_upto(path: Path, batch_id: int) -> None:
    """Remove the files beside this one, of attempts that did not count, and of batches before.

    Of other runs only what lies behind this batch: a newer one may be writing it just now. What
    cannot be removed stays: nobody reads it.
    """
    own = path.parent.parent
    with contextlib.suppress(OSError):
        for run in own.parent.iterdir():
            _remove_before(run, batch_id + (run == own))
        own.parent.rmdir()
    _remove_forgotten(own.parent.parent)


def _remove_forgotten(root: Path) -> None:
    """Remove what queries have left that nobody will go on with."""
    before_s = time.time() - _FORGOTTEN_S
    with contextlib.suppress(OSError):
        for query in root.iterdir():
            if all(each.lstat().st_mtime < before_s for each in (query, *query.rglob("*"))):
                shutil.rmtree(query, ignore_errors=True)


def _remove_before(run: Path, batch_id: int) -> None:
    """Remove the earlier batches of one run, and its folder if nothing else is in it."""
    with contextlib.suppress(OSError):
        for each in run.iterdir():
            if each.name.isdecimal() and int(each.name) < batch_id:
                shutil.rmtree(each, ignore_errors=True)
        run.rmdir()
