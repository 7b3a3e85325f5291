"""Which file is closed so that another can be opened."""

import errno
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.handles import Handles


class Shelf:
    """Holds one file, open or not."""

    def __init__(self, handles: Handles) -> None:
        self.handles = handles
        self.is_open = False
        self.used = False
        self.pinned = False
        self.lent = False

    def use(self) -> None:
        self.used = True
        if not self.is_open:
            self.handles.open(lambda: self.handles.opened(self))
            self.is_open = True
            self.handles.keep(self)

    def lend(self) -> None:
        self.use()
        if not self.lent:
            self.handles.lend(self, self)
            self.lent = True

    def let_go(self) -> bool:
        if self.used:
            self.used = False
            return False
        if not self.pinned:
            self.is_open = self.lent = False
            self.handles.closed(self)
        return True


def test_the_one_that_was_not_used_for_longest_goes() -> None:
    handles = Handles(3)
    shelves = [Shelf(handles) for _ in range(5)]
    for shelf in shelves[:3]:
        shelf.use()
    shelves[3].use()
    assert [shelf.is_open for shelf in shelves] == [False, True, True, True, False]
    shelves[1].use()
    shelves[4].use()
    assert [shelf.is_open for shelf in shelves] == [False, True, False, True, True]


def test_one_that_is_always_used_is_rarely_closed() -> None:
    """At most once in a turn of the hand, which is as many opens as there are files."""
    handles = Handles(10)
    hot, *cold = (Shelf(handles) for _ in range(1_000))
    closed = 0
    for shelf in cold:
        hot.use()
        shelf.use()
        closed += not hot.is_open
    assert closed <= len(cold) // handles.most


def test_a_refusal_by_the_system_closes_one_and_tries_again() -> None:
    handles = Handles()
    shelves = [Shelf(handles) for _ in range(3)]
    for shelf in shelves:
        shelf.use()
    attempts = []

    def attempt() -> None:
        attempts.append(len(handles))
        if len(handles) > 2:
            raise OSError(errno.ENFILE, os.strerror(errno.ENFILE))

    handles.open(attempt)
    assert attempts == [3, 2]
    assert handles.refused == 0


def test_any_other_error_closes_nothing() -> None:
    handles = Handles()
    Shelf(handles).use()

    def attempt() -> None:
        raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        handles.open(attempt)
    assert len(handles) == 1


def test_half_of_them_may_be_handed_out() -> None:
    handles = Handles(6)
    shelves = [Shelf(handles) for _ in range(8)]
    for shelf in shelves[:3]:
        shelf.lend()
    shelves[0].lend()
    shelves[3].lend()
    assert [shelf.is_open for shelf in shelves[:4]] == [False, True, True, True]

    for shelf in shelves[1:4]:
        shelf.pinned = True
    with pytest.raises(OSError, match="half of those"):
        shelves[4].lend()
    assert len(handles) == 4
    for shelf in shelves[5:]:
        shelf.use()
    assert len(handles) == 6
    assert handles.refused == 0


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(0, 9), st.sampled_from("uuupf"))))
def test_there_are_never_more_than_allowed(most: int, steps: list[tuple[int, str]]) -> None:
    """And a file is refused only where all that are open must not be closed."""
    handles = Handles(most)
    shelves = [Shelf(handles) for _ in range(10)]
    for number, step in steps:
        shelf = shelves[number]
        if step == "u":
            pinned = sum(each.is_open and each.pinned for each in shelves)
            refused = handles.refused
            try:
                shelf.use()
            except OSError:
                assert pinned == most
                assert handles.refused == refused + 1
            else:
                assert handles.refused == refused
        elif step == "p":
            shelf.pinned = shelf.is_open
        elif shelf.pinned:
            shelf.pinned = False
            handles.keep(shelf)
        assert len(handles) == sum(each.is_open for each in shelves) <= most
