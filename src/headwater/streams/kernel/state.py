"""The state of one bucket: tables by name, and small values.

This file alone decides what the header of a bucket's state says, and which chunks have to be
written and removed when one state follows another. It knows no state store.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from headwater.streams.kernel.chunks import Chunk, ChunkStore
from headwater.streams.kernel.errors import check_version
from headwater.streams.kernel.table import Table

JSON = None | bool | int | float | str | list["JSON"] | dict[str, "JSON"]
VERSION: Final = 1


class Changes(NamedTuple):
    """What a store has to do to hold another state.

    Attributes:
        write: Chunks that are new, by name.
        remove: Names of chunks that are not needed any more.
    """

    write: tuple[Chunk, ...]
    remove: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """Everything that a step leaves for the next one.

    Attributes:
        tables: Rows by key; operators make names up as they need them.
        values: Small things, as JSON has them.
    """

    tables: Mapping[str, Table] = field(default_factory=dict)
    values: Mapping[str, JSON] = field(default_factory=dict)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """What a store has to hold, each chunk once, sorted by name."""
        found = {chunk.name: chunk for table in self.tables.values() for chunk in table.chunks}
        return tuple(found[name] for name in sorted(found))

    def describe(self) -> dict[str, Any]:
        """Return the header: all but the chunks, as JSON can hold it, in one order."""
        tables = {name: self.tables[name].describe() for name in sorted(self.tables)}
        # Tables of one kind come by the hundred, and their schema is most of a description.
        schemas = sorted({table["schema"] for table in tables.values()})
        for table in tables.values():
            table["schema"] = schemas.index(table["schema"])
        values = {name: self.values[name] for name in sorted(self.values)}
        return {"version": VERSION, "schemas": schemas, "tables": tables, "values": values}

    @classmethod
    def restore(cls, header: Mapping[str, Any], store: ChunkStore, *, stagger: int = 0) -> "State":
        """Return the state that was described; chunks are loaded when they are needed.

        Args:
            header: What `describe` has returned, through JSON or not.
            store: Where the chunks are.
            stagger: Shifts when tables merge their runs: the number of the bucket.

        Raises:
            StateDamagedError: Another version has written the header.
        """
        check_version(header["version"], VERSION)
        schemas = header["schemas"]
        tables = {
            name: Table.restore(
                {**table, "schema": schemas[table["schema"]]}, store, stagger=stagger
            )
            for name, table in header["tables"].items()
        }
        return cls(tables, dict(header["values"]))


def changes(old: State, new: State) -> Changes:
    """Return what turns a store that holds the old state into one that holds the new one."""
    held = {chunk.name for chunk in old.chunks}
    needed = {chunk.name for chunk in new.chunks}
    write = tuple(chunk for chunk in new.chunks if chunk.name not in held)
    return Changes(write, tuple(sorted(held - needed)))
