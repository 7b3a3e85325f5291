"""Files that a process left on their way in or out.

This file alone decides what becomes of them when a partition is opened, by Kafka's rules:

    .deleted    was on its way out: removed, but for the index of aborted transactions of a segment
                that is still there: its name was changed, and the segment's was not; it cannot be
                made anew without the segments before
    .tmp        was never complete: removed
    .cleaned    compaction was still writing: removed, and so are `.swap` files at or above the
                lowest of them, because the set they belong to is not complete
    .swap       complete: takes the place of the segments it was made from; its indexes are made
                anew, because a crash between two renames leaves old ones beside a new log

An index without its segment is removed too.
"""

from headwater.base.disk import Disk, sync_names
from headwater.log.names import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SEGMENT_SUFFIXES,
    SWAP,
    TEMPORARY,
    TIME_INDEX,
    TXN_INDEX,
    offset_name,
    parse_offset_name,
)
from headwater.log.segment import walk_headers


def clear_leftovers(disk: Disk, directory: str) -> set[str]:
    """Finish or undo what was under way; return the names that are left."""
    names = _bring_back_indexes(disk, directory, set(disk.list_directory(directory)))
    doomed = {name for name in names if name.endswith((DELETED, CLEANED, TEMPORARY))}
    cleaned = [_offset(name) for name in doomed if name.endswith(CLEANED)]
    swaps = {name for name in names if name.endswith(SWAP) and parse_offset_name(name)}
    if cleaned:
        discarded = {name for name in swaps if _offset(name) >= min(cleaned)}
        swaps -= discarded
        for name in discarded:
            disk.remove(f"{directory}/{name}")
        if discarded:
            # One that outlived the .cleaned files would count as complete at the next start.
            sync_names(disk, directory)
        names -= discarded
    for name in doomed:
        disk.remove(f"{directory}/{name}")
    names -= doomed
    if swaps:
        # The removals above must not be undone by a crash that keeps what follows.
        sync_names(disk, directory)
        for offset in sorted({_offset(name) for name in swaps}):
            _complete_swap(disk, directory, offset)
        sync_names(disk, directory)
        names = set(disk.list_directory(directory))
    return _remove_orphans(disk, directory, names)


def _bring_back_indexes(disk: Disk, directory: str, names: set[str]) -> set[str]:
    """Undo the removal of indexes of aborted transactions that came without their segment's.

    A compacted segment has such an index where one of those has that it replaces, so what is
    brought back is never that of an older segment with the same offset.
    """
    for name in sorted(names):
        parsed = parse_offset_name(name)
        if parsed is None or parsed[1:] != (TXN_INDEX, DELETED):
            continue
        log, index = (offset_name(parsed[0], suffix) for suffix in (LOG, TXN_INDEX))
        if log in names and index not in names:
            disk.rename(f"{directory}/{name}", f"{directory}/{index}")
            names = names - {name} | {index}
    return names


def _offset(name: str) -> int:
    parsed = parse_offset_name(name)
    return parsed[0] if parsed else -1


def _complete_swap(disk: Disk, directory: str, base_offset: int) -> None:
    """Let a compacted segment take its place, and remove what it was made from."""
    swapped = offset_name(base_offset, LOG) + SWAP
    if disk.exists(f"{directory}/{swapped}"):
        end_offset = _end_offset(disk, f"{directory}/{swapped}", base_offset)
        for name in disk.list_directory(directory):
            parsed = parse_offset_name(name)
            if parsed is None or parsed[2] or parsed[1] not in SEGMENT_SUFFIXES:
                continue
            if base_offset < parsed[0] < end_offset:
                disk.remove(f"{directory}/{name}")
        # Under its final name it would not tell another start that these are to go.
        sync_names(disk, directory)
        disk.rename(f"{directory}/{swapped}", f"{directory}/{offset_name(base_offset, LOG)}")
    for suffix in (INDEX, TIME_INDEX):
        path = f"{directory}/{offset_name(base_offset, suffix)}"
        for doomed in (path, path + SWAP):
            if disk.exists(doomed):
                disk.remove(doomed)
    transactions = f"{directory}/{offset_name(base_offset, TXN_INDEX)}"
    if disk.exists(transactions + SWAP):
        disk.rename(transactions + SWAP, transactions)


def _end_offset(disk: Disk, path: str, base_offset: int) -> int:
    file = disk.open_for_reading(path)
    try:
        end_offset = base_offset
        for _, header in walk_headers(file, 0, file.size()):
            end_offset = header.next_offset
        return end_offset
    finally:
        file.close()


def _remove_orphans(disk: Disk, directory: str, names: set[str]) -> set[str]:
    orphans = set()
    for name in names:
        parsed = parse_offset_name(name)
        if parsed is None or parsed[1] not in SEGMENT_SUFFIXES:
            continue
        if offset_name(parsed[0], LOG) not in names:
            orphans.add(name)
            disk.remove(f"{directory}/{name}")
    return names - orphans
