"""Which transactions of a partition are undecided, and thus the last stable offset.

This file alone decides below which offset readers of committed data may read. It knows producers
by their numbers alone, and no file.

A transaction is open from its first record in this partition to its marker. Its marker decides it
for readers only when they may see the marker: until the high watermark has passed it, what the
transaction wrote is as unstable as if it were open.

    first_unstable_offset   the first offset of all open transactions and of those whose marker is
                            not below the high watermark

First offsets grow in the order in which transactions are opened, so the oldest open one is the
first of a dict, and neither the beginning nor the end of a transaction needs a search.
"""

from typing import Final

from headwater.log.txn_index import TxnIndexEntry

NOTHING_UNSTABLE: Final = 2**63 - 1


class Transactions:
    """The undecided transactions of one partition.

    Attributes:
        first_unstable_offset: The end of what is stable; `NOTHING_UNSTABLE` where all is.
    """

    __slots__ = ("_ended", "_open", "first_unstable_offset")

    def __init__(self) -> None:
        """Start with none."""
        # By producer id: the first offset.
        self._open: dict[int, int] = {}
        # By first offset: the offset of the marker.
        self._ended: dict[int, int] = {}
        self.first_unstable_offset = NOTHING_UNSTABLE

    def open_first_offsets(self) -> dict[int, int]:
        """Return the first offset of each open transaction by producer id, oldest first."""
        return self._open.copy()

    def begin(self, producer_id: int, offset: int) -> None:
        """Open a transaction with the record at `offset`, which lies behind all others."""
        assert producer_id not in self._open
        self._open[producer_id] = offset
        self.first_unstable_offset = min(self.first_unstable_offset, offset)

    def end(self, producer_id: int, marker_offset: int) -> TxnIndexEntry | None:
        """End a transaction by the marker at an offset.

        Returns:
            What the index has to hold if it was aborted; None where none was open.
        """
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return None
        self._ended[first_offset] = marker_offset
        oldest = next(iter(self._open.values()), marker_offset + 1)
        return TxnIndexEntry(producer_id, first_offset, marker_offset, oldest)

    def advance(self, high_watermark: int) -> None:
        """Let go of ended transactions whose marker the high watermark has passed."""
        ended = self._ended
        if not ended:
            return
        for first_offset in [first for first, marker in ended.items() if marker < high_watermark]:
            del ended[first_offset]
        oldest = next(iter(self._open.values()), NOTHING_UNSTABLE)
        self.first_unstable_offset = min(oldest, *ended) if ended else oldest
