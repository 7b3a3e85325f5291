"""How many files are open at once, and which idle one is closed so that another can be opened.

This file alone decides that. A process has a limited number of descriptors, and a log may have far
more files than that. Whatever keeps a file open between two uses registers as a holder and marks
itself as used; where no more files may be open, holders are asked to let go, the one that was not
used for longest first.

The order is that of a clock with one hand (second chance): a use costs the holder one assignment
and nothing here, and a holder that was used since the hand last passed is spared once. What must
not be closed (bytes that are not synced, a file that is being sent) stays open although its holder
was asked: holders forget a file, and it closes when nothing refers to it any more. The number of
open files is counted where they are opened and closed, so it is exact all the same.

A file that is handed out to be sent stays open for as long as its reader takes. So of the files
that may be open, at most half can be handed out; the other half is for all that writes. A file that
was handed out counts until it is closed, also while it is idle, so that handing it out again costs
nothing here.

Opening, and with it all asking, is for one thread. A file may be closed by any thread.
"""

import errno
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")


def lacks_descriptors(error: OSError) -> bool:
    """Tell whether something could not be opened because too much is open."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


class Holder(Protocol):
    """Keeps files open for the next use."""

    def let_go(self) -> bool:
        """Forget the files unless they were used since the last call; tell whether it forgot."""
        ...


class Handles:
    """The open files of one disk.

    Attributes:
        most: How many may be open; more are refused with EMFILE unless an idle one can be closed.
        refused: How often a file was to be opened and none of the open ones was idle.
    """

    __slots__ = ("_holders", "_lenders", "_lent", "_open", "most", "refused")

    def __init__(self, most: int = sys.maxsize) -> None:
        """Begin with no open file."""
        self.most = most
        self.refused = 0
        self._open: set[int] = set()
        self._lent: set[int] = set()
        self._holders: OrderedDict[Holder, None] = OrderedDict()
        self._lenders: OrderedDict[Holder, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many files are open."""
        return len(self._open)

    # For the disk.

    def opened(self, file: object) -> None:
        """Count a file."""
        self._open.add(id(file))

    def closed(self, file: object) -> None:
        """Count a file no more; harmless when repeated, and in any thread."""
        self._open.discard(id(file))
        self._lent.discard(id(file))

    def open(self, attempt: Callable[[], T]) -> T:
        """Open a file by calling `attempt`, after closing an idle one if that is needed.

        Raises:
            OSError: EMFILE or ENFILE: too many files are open, and none of them is idle.
        """
        if len(self._open) >= self.most and not self.close_one():
            raise OSError(
                errno.EMFILE,
                f"all {self.most} files that the log may have open (headwater.max.open.files) "
                "are being written or sent",
            )
        return self.open_at_any_rate(attempt)

    def open_at_any_rate(self, attempt: Callable[[], T]) -> T:
        """Open something that is closed again at once; see `open`, but `most` does not count."""
        try:
            return attempt()
        except OSError as error:
            if not lacks_descriptors(error) or not self.close_one():
                raise
        return attempt()

    def close_one(self) -> bool:
        """Close the file that was idle for longest; tell whether there was one."""
        closed = self._close_one_of(self._open, self._holders)
        self.refused += not closed
        return closed

    def _close_one_of(self, files: set[int], holders: OrderedDict[Holder, None]) -> bool:
        before = len(files)
        # Twice round: the first time, holders that were used are merely told so.
        for _ in range(2 * len(holders)):
            holder, _ = holders.popitem(last=False)
            if not holder.let_go():
                holders[holder] = None
            else:
                self.drop(holder)
                if len(files) < before:
                    return True
            if not holders:
                break
        return False

    # For holders.

    def keep(self, holder: Holder) -> None:
        """Ask this one too from now on: it keeps a file that may be closed."""
        self._holders[holder] = None

    def drop(self, holder: Holder) -> None:
        """Do not ask this one any more: it keeps no file."""
        self._holders.pop(holder, None)
        self._lenders.pop(holder, None)

    def lend(self, holder: Holder, file: object) -> None:
        """Allow a file of a holder to be handed out, from now on until it is closed.

        Raises:
            OSError: EMFILE: half of all files are being sent.
        """
        most = max(self.most // 2, 1)
        if len(self._lent) >= most and not self._close_one_of(self._lent, self._lenders):
            raise OSError(
                errno.EMFILE,
                f"{most} files, half of those that the log may have open "
                "(headwater.max.open.files), are being sent",
            )
        self._lent.add(id(file))
        self._lenders[holder] = None
