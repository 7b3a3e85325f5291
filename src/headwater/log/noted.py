"""What a start must know of the defaults that held before it.

This file alone decides which defaults of the broker are noted in the journal. They come from its
settings, which may have changed when it starts again, while what the last run did with them stays
true: log starts that readers were told must not go back.

The note stands in the journal, in the entry of the change that brings the defaults into force, or,
for those of a start, in an entry of its own before anything happens by them. So no note is there
for a change that was refused. Where there is nothing to know, the note is empty.
"""

from typing import Final

from headwater.base.disk import Disk, parent_directory, sync_names
from headwater.base.settings import TopicConfig
from headwater.log.checkpoints import read_properties

OLD_NOTE: Final = "overflow.properties"
"""The file that had the note before the journal did; the first start that finds it removes it."""

_OLD_VERSION: Final = "0"
_OVERFLOW: Final = ("headwater.overflow", "headwater.overflow.bytes")


def facts(defaults: TopicConfig) -> dict[str, str]:
    """Return what is to be noted of these defaults, by Kafka's names of topic configs."""
    dropping = defaults.headwater_overflow == "drop"
    return {key: defaults.render(key) for key in _OVERFLOW} if dropping else {}


def read_old_note(disk: Disk, path: str) -> dict[str, str]:
    """Return what the file from before the journal's note says; nothing where there is none."""
    found = read_properties(disk, path)
    if found.get("version") != _OLD_VERSION:
        return {}
    return {key: found[key] for key in _OVERFLOW if key in found}


def remove_old_note(disk: Disk, path: str) -> None:
    """Remove that file for good: were it to come back, it would be believed."""
    disk.remove(path)
    sync_names(disk, parent_directory(path))
