"""Searching by timestamp, where records do not make it easy."""

from headwater.base.record.batch import write_crc
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import NOW_MS, append, commit, make_batch, open_log


def test_the_record_inside_a_compressed_batch_is_found() -> None:
    for codec in range(5):
        log = open_log(MemoryDisk())
        append(log, make_batch([b"a"], timestamps=[NOW_MS]))
        times = [NOW_MS + 5, NOW_MS + 1, NOW_MS + 9, NOW_MS + 9]
        append(log, make_batch([b"b", b"c", b"d", b"e"], timestamps=times, codec=codec))

        assert log.offset_for_timestamp(NOW_MS + 1, upto_offset=5) == (1, NOW_MS + 5, 0)
        assert log.offset_for_timestamp(NOW_MS + 6, upto_offset=5) == (3, NOW_MS + 9, 0)
        assert log.offset_for_timestamp(NOW_MS + 10, upto_offset=5) is None
        assert log.max_timestamp(upto_offset=5) == (3, NOW_MS + 9, 0)


def test_a_batch_that_cannot_be_read_answers_for_its_records() -> None:
    log = open_log(MemoryDisk(), leader_epoch=4)
    append(log, make_batch([b"a"], timestamps=[NOW_MS]))
    batch = make_batch([b"b", b"c"], timestamps=[NOW_MS + 3, NOW_MS + 7])
    batch[61:] = b"\xff" * (len(batch) - 61)
    write_crc(batch, 0, len(batch))
    append(log, batch)

    assert log.offset_for_timestamp(NOW_MS + 5, upto_offset=3) == (1, NOW_MS + 7, 4)
    assert log.max_timestamp(upto_offset=3) == (1, NOW_MS + 7, 4)


def test_nothing_below_the_log_start_or_beyond_the_limit_is_found() -> None:
    log = open_log(MemoryDisk())
    for number in range(40):
        append(log, make_batch([b"v"], timestamps=[NOW_MS + 100 - abs(20 - number)]))
    commit(log)
    log.trim(30)

    assert log.offset_for_timestamp(NOW_MS, upto_offset=40) == (30, NOW_MS + 90, 0)
    assert log.offset_for_timestamp(NOW_MS + 91, upto_offset=40) is None
    assert log.max_timestamp(upto_offset=40) == (30, NOW_MS + 90, 0)
    assert log.max_timestamp(upto_offset=30) is None
    log = open_log(log._disk)
    assert log.offset_for_timestamp(NOW_MS + 100, upto_offset=20) is None
    assert log.offset_for_timestamp(NOW_MS + 100, upto_offset=21) == (20, NOW_MS + 100, 0)
    for upto in range(1, 21):
        assert log.max_timestamp(upto_offset=upto) == (upto - 1, NOW_MS + 79 + upto, 0)
    for upto in range(21, 41):
        assert log.max_timestamp(upto_offset=upto) == (20, NOW_MS + 100, 0)


def test_an_empty_log_has_no_timestamps() -> None:
    log = open_log(MemoryDisk())

    assert log.offset_for_timestamp(0, upto_offset=0) is None
    assert log.max_timestamp(upto_offset=0) is None
    assert log.oldest_timestamp_from(0) == -1
