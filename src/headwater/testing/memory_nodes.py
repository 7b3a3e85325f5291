"""Files and directories in memory: what a program sees of them, and what the device holds.

This file alone decides what a sync writes, what a failed one loses, and what a power cut leaves. It
knows no paths, no handles and no faults; ``memory_disk`` does.
"""

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes written at a position, in the page cache only until they are synced."""

    position: int
    content: bytes


Change = Write | int
"""What waits to be synced; an ``int`` cuts the file to that size."""


@dataclass(eq=False, slots=True)
class FileNode:
    """A file apart from its names.

    Attributes:
        cached: What programs read.
        durable: What survives a power cut.
        queue: What was changed since the last sync, oldest first.
        lost: Writes that a failed sync has dropped: programs still read them, and no sync writes
            them any more.
    """

    cached: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    queue: list[Change] = field(default_factory=list)
    lost: list[Write] = field(default_factory=list)

    def append(self, content: bytes) -> None:
        """Write behind the end."""
        self.queue.append(Write(len(self.cached), content))
        self.cached += content

    def truncate(self, size: int) -> None:
        """Cut the file, or fill it up with zeros."""
        _resize(self.cached, size)
        self.queue.append(size)

    def sync(self) -> None:
        """Make durable what was changed since the last sync, whether that one failed or not."""
        for change in self.queue:
            _apply(self.durable, change)
        self.queue.clear()
        self.lost.clear()

    def fail_sync(self) -> None:
        """Drop the bytes that were to be synced. The size is metadata, which has a journal."""
        self.lost += [change for change in self.queue if isinstance(change, Write)]
        self.queue = [change for change in self.queue if not isinstance(change, Write)]

    def on_device(self) -> bytes:
        """Return what a read past the page cache finds, which writes out what is dirty before."""
        content = bytearray(self.durable)
        for change in self.queue:
            _apply(content, change)
        _resize(content, len(self.cached))
        return bytes(content)

    def surviving_content(self, dice: random.Random | None) -> bytearray:
        """Return what a power cut leaves, without dice only what was synced."""
        content = bytearray(self.durable)
        changes: list[Change] = [*self.lost, *self.queue]
        if dice is None or not changes:
            return content
        whole = dice.randint(0, len(changes))
        safe = len(content)
        for change in changes[:whole]:
            _apply(content, change)
            safe = min(safe, len(content))
        if whole < len(changes):
            torn = changes[whole]
            if isinstance(torn, Write):
                part = torn.content[: dice.randint(0, len(torn.content))]
                _apply(content, Write(torn.position, part))
        # Blocks of one write reach the platter in any order: what lies between the durable end and
        # the end of the file may be missing (zeros) or half written.
        if len(content) > safe and dice.random() < 0.4:
            start = dice.randint(safe, len(content) - 1)
            end = len(content) if dice.random() < 0.7 else dice.randint(start + 1, len(content))
            zeros = dice.random() < 0.5
            content[start:end] = bytes(end - start) if zeros else dice.randbytes(end - start)
        return content


@dataclass(eq=False, slots=True)
class DirectoryNode:
    """The names in one directory; the queue holds whole operations, each a set of new bindings."""

    cached: "dict[str, Node]" = field(default_factory=dict)
    durable: "dict[str, Node]" = field(default_factory=dict)
    queue: "list[dict[str, Node | None]]" = field(default_factory=list)

    def bind(self, names: "dict[str, Node | None]") -> None:
        """Give names to nodes, or take them away, in one operation."""
        _bind(self.cached, names)
        self.queue.append(names)

    def sync(self) -> None:
        """Make the names durable."""
        self.durable = dict(self.cached)
        self.queue.clear()


Node = FileNode | DirectoryNode


def size_of(node: Node) -> int:
    """Return the bytes of all files that have a name at or below a node."""
    if isinstance(node, FileNode):
        return len(node.cached)
    return sum(size_of(child) for child in node.cached.values())


def survivor(node: Node, dice: random.Random | None, known: dict[int, Node]) -> Node:
    """Return what a power cut leaves of a file or directory, without dice only what was synced."""
    found = known.get(id(node))
    if found is None:
        if isinstance(node, FileNode):
            content = node.surviving_content(dice)
            found = FileNode(cached=content, durable=bytearray(content))
        else:
            names = dict(node.durable)
            for operation in node.queue:
                if dice is not None and dice.random() < 0.5:
                    _bind(names, operation)
            # Sorted, so that a seed gives the same result whatever the history of the names was.
            survivors = {name: survivor(names[name], dice, known) for name in sorted(names)}
            found = DirectoryNode(cached=survivors, durable=dict(survivors))
        known[id(node)] = found
    return found


def _bind(entries: dict[str, Node], names: dict[str, Node | None]) -> None:
    """Apply one operation; a node that gets a new name loses any other it had here.

    The second half matters when an earlier rename of the same node was lost: no file system shows
    one directory twice.
    """
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
            continue
        for other in [key for key, value in entries.items() if value is node]:
            del entries[other]
        entries[name] = node


def _resize(content: bytearray, size: int) -> None:
    del content[size:]
    content += bytes(size - len(content))


def _apply(content: bytearray, change: Change) -> None:
    if isinstance(change, int):
        _resize(content, change)
        return
    if len(content) < change.position:
        _resize(content, change.position)
    content[change.position : change.position + len(change.content)] = change.content
