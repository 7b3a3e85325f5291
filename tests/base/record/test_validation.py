"""The rules of the produce path: which batch is refused, with which code, and nothing slips by."""

import random
import socket
import struct
import uuid

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import CorruptRecordError, ErrorCode
from headwater.base.record.batch import BatchHeader, parse_header, write_crc
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch
from headwater.base.record.validation import validate_for_append
from tests.base.record.samples import CODECS, NOW_MS, record_lists, typical

SIZE_MAX = 1_048_588


def _refused(batch: bytes | bytearray, size_max: int = SIZE_MAX) -> CorruptRecordError:
    with pytest.raises(CorruptRecordError) as caught:
        validate_for_append(batch, size_max=size_max)
    return caught.value


def _changed(layout: str, pos: int, value: int) -> bytearray:
    """Change one field of a good batch and give it the checksum that fits."""
    batch = build_batch(typical())
    struct.pack_into(layout, batch, pos, value)
    write_crc(batch, 0, len(batch))
    return batch


def _counting(count: int, codec: Codec = Codec.NONE) -> bytearray:
    """Let a good batch claim another number of records, in both fields alike."""
    batch = build_batch(typical(), codec=codec)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">i", batch, 23, count - 1)
    write_crc(batch, 0, len(batch))
    return batch


REFUSED: list[tuple[bytes | bytearray, ErrorCode, str]] = [
    (b"", ErrorCode.INVALID_RECORD, "0 were sent"),
    (build_batch(typical()) * 2, ErrorCode.INVALID_RECORD, "exactly one batch"),
    (build_batch(typical()) + b"x", ErrorCode.INVALID_RECORD, "1 bytes follow"),
    (_changed(">b", 16, 0), ErrorCode.INVALID_RECORD, "format 0 is no longer"),
    (_changed(">b", 16, 1), ErrorCode.INVALID_RECORD, "format 1 is no longer"),
    (_changed(">b", 16, 3), ErrorCode.CORRUPT_MESSAGE, "magic 3"),
    (_changed(">b", 16, -1), ErrorCode.CORRUPT_MESSAGE, "magic -1"),
    (_changed(">i", 8, 48), ErrorCode.CORRUPT_MESSAGE, "length is 48"),
    (_changed(">i", 8, -1), ErrorCode.CORRUPT_MESSAGE, "length is -1"),
    (_changed(">i", 8, 2**31 - 1), ErrorCode.INVALID_RECORD, "2147483659 bytes"),
    (_changed(">q", 0, 1), ErrorCode.INVALID_RECORD, "base offset"),
    (_changed(">i", 23, 1), ErrorCode.INVALID_RECORD, "last offset delta of 1"),
    (_changed(">i", 23, -1), ErrorCode.INVALID_RECORD, "last offset delta of -1"),
    (_changed(">i", 57, 0), ErrorCode.INVALID_RECORD, "0 records"),
    (_changed(">i", 57, 4), ErrorCode.INVALID_RECORD, "4 records"),
    (_counting(100), ErrorCode.INVALID_RECORD, "100 records cannot be in"),
    (_counting(2**31 - 1), ErrorCode.INVALID_RECORD, "2147483647 records cannot be in"),
    *(
        (_counting(10**6, codec), ErrorCode.INVALID_RECORD, f"1000000 records(?#{codec.name})")
        for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4)
    ),
    (_changed(">h", 21, 0b0010_0000), ErrorCode.INVALID_RECORD, "control batches"),
    (_changed(">h", 21, 0b0000_1000), ErrorCode.INVALID_TIMESTAMP, "log append time"),
    (_changed(">h", 21, 0b0100_0000), ErrorCode.INVALID_RECORD, "delete horizon"),
    (_changed(">q", 43, 5), ErrorCode.INVALID_RECORD, "producer 5 sent .* number -1"),
    *(
        (_changed(">h", 21, codec), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{codec} is")
        for codec in (5, 6, 7)
    ),
]


@given(record_lists(), st.sampled_from(CODECS), st.booleans())
def test_good_batches_pass(records: list[Record], codec: Codec, idempotent: bool) -> None:
    batch = (
        build_batch(records, codec=codec, producer_id=5, producer_epoch=0, base_sequence=0)
        if idempotent
        else build_batch(records, codec=codec)
    )
    for buffer in (batch, bytes(batch), memoryview(batch)):
        header = validate_for_append(buffer, size_max=len(batch))
        assert header == parse_header(batch)
        assert type(header) is BatchHeader


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("count", [1, 5, 1_000, 100_000])
def test_the_smallest_records_pass_however_well_they_are_packed(codec: Codec, count: int) -> None:
    batch = build_batch([Record(0, NOW_MS, None, None)] * count, codec=codec)
    assert validate_for_append(batch, size_max=len(batch)).record_count == count


@pytest.mark.parametrize("count, allowed", [(1 << 20, True), ((1 << 20) + 1, False)])
def test_a_batch_cannot_claim_the_offsets_of_a_whole_segment(count: int, allowed: bool) -> None:
    batch = build_batch(
        [Record(0, NOW_MS, b"k", random.Random(7).randbytes(300))], codec=Codec.ZSTD
    )
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">i", batch, 23, count - 1)
    write_crc(batch, 0, len(batch))

    if allowed:
        assert validate_for_append(batch, size_max=SIZE_MAX).record_count == count
    else:
        assert _refused(batch).code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_transactional_batch_passes() -> None:
    batch = build_batch(
        typical(), producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    assert validate_for_append(batch, size_max=SIZE_MAX).is_transactional


@pytest.mark.parametrize("batch, code, wrong", REFUSED)
def test_each_rule(batch: bytes | bytearray, code: ErrorCode, wrong: str) -> None:
    error = _refused(batch)
    assert error.code == code
    with pytest.raises(CorruptRecordError, match=wrong):
        raise error


def test_no_records_and_a_delta_that_fits_are_refused() -> None:
    batch = _changed(">i", 57, 0)
    struct.pack_into(">i", batch, 23, -1)
    write_crc(batch, 0, len(batch))
    assert _refused(batch).code == ErrorCode.INVALID_RECORD


def test_the_size_limit_counts_the_whole_batch() -> None:
    batch = build_batch(typical())
    assert validate_for_append(batch, size_max=len(batch)).size_bytes == len(batch)
    assert _refused(batch, len(batch) - 1).code == ErrorCode.MESSAGE_TOO_LARGE


def test_size_is_judged_before_the_checksum_and_the_checksum_before_fields() -> None:
    batch = build_batch(typical(), is_control=True)
    batch[-1] ^= 1
    assert _refused(batch, 100).code == ErrorCode.MESSAGE_TOO_LARGE
    assert _refused(batch).code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation_is_refused(codec: Codec) -> None:
    batch = build_batch(typical(), codec=codec)
    for size in range(len(batch)):
        assert _refused(batch[:size]).code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", CODECS)
def test_every_bit_flip_is_refused_or_harmless(codec: Codec) -> None:
    """Only the leader epoch lies outside all checks, and the broker overwrites it."""
    batch = build_batch([Record(0, NOW_MS, b"key", b"value", (("h", b"1"),))], codec=codec)
    good = parse_header(batch)
    harmless = range(12 * 8, 16 * 8)
    for bit in range(8 * len(batch)):
        batch[bit // 8] ^= 1 << bit % 8
        if bit in harmless:
            header = validate_for_append(batch, size_max=SIZE_MAX)
            assert header._replace(leader_epoch=good.leader_epoch) == good
        else:
            _refused(batch)
        batch[bit // 8] ^= 1 << bit % 8


@given(st.binary(max_size=200))
def test_nonsense_is_refused(data: bytes) -> None:
    _refused(data)


@given(st.binary(min_size=61, max_size=61), st.binary(max_size=30))
def test_nonsense_with_a_right_frame_is_refused_or_well_formed(front: bytes, data: bytes) -> None:
    batch = bytearray(front + data)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    batch[16] = 2
    write_crc(batch, 0, len(batch))
    try:
        header = validate_for_append(batch, size_max=SIZE_MAX)
    except CorruptRecordError:
        return
    assert header.base_offset == 0
    assert header.record_count == header.last_offset_delta + 1 > 0
    assert header.codec <= Codec.ZSTD
    assert not header.is_control
    assert not header.has_producer_id or header.base_sequence >= 0


# What Apache Kafka answers where we answer something else on purpose; see the module's docstring.
ANOTHER_ANSWER = {
    "delete horizon": ErrorCode.NONE,
    "log append time": ErrorCode.NONE,
    "1 bytes follow": ErrorCode.NONE,
    "2147483659 bytes": ErrorCode.UNKNOWN_SERVER_ERROR,
    "5 is": ErrorCode.UNKNOWN_SERVER_ERROR,
    "6 is": ErrorCode.UNKNOWN_SERVER_ERROR,
    "7 is": ErrorCode.UNKNOWN_SERVER_ERROR,
}


def _ask_kafka(connection: socket.socket, topic: bytes, records: bytes | bytearray) -> ErrorCode:
    """Send one batch by Produce v7 and return the partition's error."""
    request = struct.pack(">hhihhhi", 0, 7, 1, -1, -1, -1, 5000)
    request += struct.pack(f">ih{len(topic)}sii", 1, len(topic), topic, 1, 0)
    request += struct.pack(">i", len(records)) + records
    connection.sendall(struct.pack(">i", len(request)) + request)
    with connection.makefile("rb") as file:
        (size,) = struct.unpack(">i", file.read(4))
        answer = file.read(size)
    (code,) = struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)
    return ErrorCode(code)


def test_apache_kafka_judges_alike(apache_kafka: str) -> None:
    topic = f"validation-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": apache_kafka})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    # The topic exists before its leader does: a delivered record says that both are there.
    delivered: list[object] = []
    producer = Producer({"bootstrap.servers": apache_kafka})
    producer.produce(topic, b"first", on_delivery=lambda error, _: delivered.append(error))
    assert producer.flush(30) == 0
    assert delivered == [None]
    host, port = apache_kafka.rsplit(":", 1)
    damaged = build_batch(typical())
    damaged[-1] ^= 1
    cases = [
        (build_batch(typical()), ErrorCode.NONE, "good"),
        (build_batch(typical())[:-1], ErrorCode.INVALID_RECORD, "cut"),
        (damaged, ErrorCode.CORRUPT_MESSAGE, "damaged"),
        (
            build_batch([Record(0, NOW_MS, b"k", bytes(SIZE_MAX))]),
            ErrorCode.MESSAGE_TOO_LARGE,
            "large",
        ),
        *REFUSED,
    ]
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        answers = {
            wrong: _ask_kafka(connection, topic.encode(), batch) for batch, _, wrong in cases
        }
    assert answers == {wrong: ANOTHER_ANSWER.get(wrong, code) for _, code, wrong in cases}
