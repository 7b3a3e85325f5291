"""Leader epochs: what a consumer is told about the end of one, and the checkpoint's text."""

import pytest

from headwater.log.epochs import LeaderEpochs


def epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    result = LeaderEpochs()
    for epoch, start in entries:
        result.assign(epoch, start)
    return result


@pytest.mark.parametrize(
    "asked,answer",
    [
        (-1, (-1, -1)),  # undefined
        (0, (0, 10)),  # older than all known: itself, and where the first known begins
        (2, (2, 20)),
        (3, (2, 20)),  # never wrote anything: the one before it
        (5, (5, 40)),
        (6, (5, 40)),
        (7, (7, 99)),  # the latest ends at the log end
        (8, (-1, -1)),  # newer than all known
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_begins(asked: int, answer: tuple[int, int]) -> None:
    assert epochs((2, 10), (5, 20), (7, 40)).end_offset(asked, log_end_offset=99) == answer


def test_nothing_is_known_of_an_empty_log() -> None:
    assert LeaderEpochs().end_offset(0, log_end_offset=0) == (-1, -1)
    assert LeaderEpochs().epoch_of(0) == -1
    assert LeaderEpochs().latest == -1


def test_an_offset_has_the_epoch_that_began_last_before_it() -> None:
    known = epochs((2, 10), (5, 20))

    assert [known.epoch_of(offset) for offset in (9, 10, 19, 20, 99)] == [-1, 2, 2, 5, 5]


def test_an_epoch_without_batches_vanishes() -> None:
    assert epochs((2, 10), (3, 10)).items() == [(3, 10)]
    assert epochs((2, 10), (3, 20), (4, 15)).items() == [(2, 10), (4, 15)]


def test_a_cut_tail_takes_its_epochs_along() -> None:
    known = epochs((2, 10), (5, 20), (7, 40))

    assert known.truncate_from(40)
    assert known.items() == [(2, 10), (5, 20)]
    assert not known.truncate_from(21)


def test_a_trimmed_head_keeps_the_epoch_it_is_in() -> None:
    known = epochs((2, 10), (5, 20), (7, 40))

    assert not known.truncate_before(10)
    assert not known.truncate_before(3)
    assert known.truncate_before(25)
    assert known.items() == [(5, 25), (7, 40)]
    assert not known.truncate_before(25)
    assert known.truncate_before(40)
    assert known.items() == [(7, 40)]


def test_the_checkpoint_is_kafkas_text() -> None:
    known = epochs((2, 10), (5, 20))

    assert known.encode() == b"0\n2\n2 10\n5 20\n"
    decoded = LeaderEpochs.decode(known.encode())
    assert decoded is not None
    assert decoded.items() == known.items()
    assert LeaderEpochs().encode() == b"0\n0\n"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 14,
        b"0\n2\n2 10\n",
        b"0\n1\n2 10\n5 20\n",
        b"1\n1\n2 10\n",
        b"0\n1\n2 10",
        b"0\n1\n2 x\n",
        b"0\n1\n2\n",
        b"0\n2\n5 20\n2 30\n",
        b"0\n1\n2 -1\n",
        b"\xff\xfe\n",
    ],
)
def test_a_damaged_checkpoint_is_not_believed(content: bytes) -> None:
    assert LeaderEpochs.decode(content) is None
