"""The note that a running broker leaves in its data directory.

This file alone decides how commands find a broker that runs on this machine: ``headwater.run``
holds its pid and address while it runs. A broker that was killed leaves the note behind, so it is
believed only while the directory's lock is held by the process it names.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from headwater.base import directory_lock
from headwater.base.private import write_private_text

RUN_FILE = "headwater.run"


@dataclass(frozen=True, slots=True)
class Running:
    """A broker of this machine."""

    pid: int
    address: str
    started_ms: int


def write(data_directory: str, running: Running) -> None:
    """Leave the note; it appears whole or not at all."""
    path = Path(data_directory, RUN_FILE)
    temporary = path.with_suffix(".tmp")
    write_private_text(temporary, json.dumps(asdict(running)) + "\n")
    temporary.replace(path)


def remove(data_directory: str) -> None:
    """Take the note away."""
    Path(data_directory, RUN_FILE).unlink(missing_ok=True)


def find(data_directory: str) -> Running | None:
    """Return the broker that runs on the directory, or None."""
    holder = lock_holder(data_directory)
    if holder is None:
        return None
    try:
        running = Running(**json.loads(Path(data_directory, RUN_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return running if running.pid == holder else None


def lock_holder(data_directory: str) -> int | None:
    """Return the pid of the process that holds the directory, or None when nobody does."""
    return directory_lock.lock_holder(f"{data_directory}/log/.lock")
