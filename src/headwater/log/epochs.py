"""Which leader epoch began at which offset.

This file alone decides how epochs and offsets belong together, and the text of
`leader-epoch-checkpoint`:

    0            version
    2            number of lines
    0 0          epoch, first offset written in it
    3 1042

A consumer that was cut off asks for the end of the epoch it read last (KIP-320); the answer tells
it whether the tail it saw still exists.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from headwater.base.record.batch import NO_LEADER_EPOCH, NO_OFFSET

VERSION: Final = "0"


class LeaderEpochs:
    """Epochs and their first offsets, both strictly growing."""

    def __init__(self) -> None:
        """Start without an epoch."""
        self._epochs: list[int] = []
        self._starts: list[int] = []

    def copy(self) -> "LeaderEpochs":
        """Return another one with the same epochs."""
        other = LeaderEpochs()
        other._epochs = self._epochs.copy()
        other._starts = self._starts.copy()
        return other

    @property
    def latest(self) -> int:
        """The last epoch in which something was written, -1 before the first."""
        return self._epochs[-1] if self._epochs else NO_LEADER_EPOCH

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch; epochs that would start at or behind it held nothing and vanish."""
        assert epoch > self.latest, (epoch, self.latest)
        self.truncate_from(start_offset)
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def truncate_from(self, offset: int) -> bool:
        """Forget epochs that begin at or behind `offset`; tell whether there were any."""
        kept = bisect_left(self._starts, offset)
        changed = kept < len(self._starts)
        del self._epochs[kept:]
        del self._starts[kept:]
        return changed

    def truncate_before(self, offset: int) -> bool:
        """Forget epochs that end at or before `offset`; tell whether anything changed."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or self._starts[at] == offset == self._starts[0]:
            return False
        del self._epochs[:at]
        del self._starts[:at]
        self._starts[0] = offset
        return True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch not above the one asked for, and the offset where it ends.

        Returns:
            (-1, -1) for an epoch that is newer than all known or undefined. For one older than all
            known: itself and the first known offset, as Kafka answers.
        """
        if epoch == NO_LEADER_EPOCH or not self._epochs:
            return NO_LEADER_EPOCH, NO_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return NO_LEADER_EPOCH, NO_OFFSET
        if higher == 0:
            return epoch, self._starts[0]
        return self._epochs[higher - 1], self._starts[higher]

    def epoch_of(self, offset: int) -> int:
        """Return the epoch in which an offset was, or would now be, written; -1 if unknown."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else NO_LEADER_EPOCH

    def items(self) -> list[tuple[int, int]]:
        """Return every epoch with its first offset."""
        return list(zip(self._epochs, self._starts, strict=True))

    def encode(self) -> bytes:
        """Write the checkpoint's text."""
        lines = [VERSION, str(len(self._epochs))]
        lines += [f"{epoch} {start}" for epoch, start in self.items()]
        return ("\n".join(lines) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes) -> "LeaderEpochs | None":
        """Read a checkpoint; None where the text is damaged."""
        epochs = cls()
        try:
            version, count, *lines = content.decode("ascii").split("\n")
            if version != VERSION or lines.pop() or len(lines) != int(count):
                return None
            for line in lines:
                epoch, start = map(int, line.split())
                if epoch <= epochs.latest or start < 0:
                    return None
                epochs.assign(epoch, start)
        except (ValueError, IndexError):
            return None
        return epochs
