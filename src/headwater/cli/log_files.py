"""`headwater log`: the files of a log, read as they lie on disk.

This file alone decides how a file's entries are told and what counts as damage. It needs no broker
and writes nothing, so it works on a copy, on a directory in use and on Apache Kafka's files alike.
What the bytes mean is known by the rooms that write them.
"""

import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from headwater.cli import dump_entries, dump_log, output
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import examples, json_option

Entry = Mapping[str, Any]
Reader = Callable[[Path, memoryview], Iterator[Entry]]

_BY_SUFFIX: Mapping[str, Reader] = {
    ".index": dump_entries.offset_index,
    ".timeindex": dump_entries.time_index,
    ".txnindex": dump_entries.transaction_index,
    ".snapshot": dump_entries.producer_snapshot,
    ".journal": dump_entries.journal,
}
_BY_NAME: Mapping[str, Reader] = {
    "leader-epoch-checkpoint": dump_entries.leader_epochs,
    "partition.metadata": dump_entries.properties,
    "meta.properties": dump_entries.properties,
}


@click.group(epilog=examples("headwater log dump headwater-data/log/orders-0/*.log"))
def log() -> None:
    """Look into the files of a log, with or without a broker."""


@log.command(
    epilog=examples(
        "headwater log dump headwater-data/log/orders-0/00000000000000000000.log",
        "headwater log dump --batches headwater-data/log/orders-0/*.log",
        "headwater log dump headwater-data/log/orders-0/00000000000000000000.index",
        "headwater log dump headwater-data/log/*-checkpoint",
        "headwater log dump --json FILE | jq 'select(.damage)'",
    )
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--batches", is_flag=True, help="Only the batches of a .log, not their records.")
@json_option
def dump(*, files: tuple[str, ...], batches: bool, as_json: bool) -> int:
    """Show what is in FILE, and where it is damaged.

    Knows .log, .index, .timeindex, .txnindex, .snapshot, the checkpoints, meta.properties,
    partition.metadata and headwater.journal. Ends with exit code 7 if something is damaged.
    """
    damaged = 0
    for name in files:
        path = Path(name)
        if len(files) > 1 and not as_json:
            output.say(f"{path}:")
        for entry in _entries(path, batches=batches):
            damaged += "damage" in entry
            if as_json:
                output.json_line({"file": name, **entry})
            else:
                output.say(dump_entries.as_text(entry))
    if damaged:
        found = f"{output.count(damaged, 'damaged place')} found"
        output.summary({"damaged": damaged}, found, as_json=as_json)
    return Exit.BAD_DATA if damaged else Exit.DONE


def _entries(path: Path, *, batches: bool) -> Iterator[Entry]:
    reader = _reader_for(path, batches=batches)
    try:
        with path.open("rb") as file:
            if not path.stat().st_size:
                yield {"kind": "empty"}
                return
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                view = memoryview(content)
                try:
                    yield from reader(path, view)
                finally:
                    view.release()
    except OSError as error:
        raise CommandError(
            Exit.FAILED, "CANNOT_READ", f"cannot read {path}: {error.strerror}"
        ) from error


def _reader_for(path: Path, *, batches: bool) -> Reader:
    if not path.exists():
        hint = "name a file below the data directory: headwater-data/log/TOPIC-PARTITION/"
        raise CommandError(Exit.NOT_FOUND, "FILE_NOT_FOUND", f"{path} does not exist", hint=hint)
    # Files on their way out keep what they are: 00000000000000000000.log.deleted
    suffixes = [suffix for suffix in path.suffixes if suffix not in {".deleted", ".swap", ".tmp"}]
    suffix = suffixes[-1] if suffixes else ""
    if suffix == ".log":
        return dump_log.batches_only if batches else dump_log.batches_and_records
    if path.name in _BY_NAME:
        return _BY_NAME[path.name]
    if suffix in _BY_SUFFIX:
        return _BY_SUFFIX[suffix]
    if path.name.endswith("-offset-checkpoint"):
        return dump_entries.offset_checkpoint
    raise CommandError(
        Exit.USAGE,
        "UNKNOWN_FILE",
        f"{path.name} is no file that a log has",
        hint="see which there are: headwater log dump --help",
    )
