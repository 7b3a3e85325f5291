"""Batches of others are read by us, and ours by others, in every compression.

Judges: aiokafka's C records, kafka-python, kio, librdkafka with its mock broker, and Kafka's own
Java classes.
"""

import datetime as dt
import io
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka.record.default_records as kafka_python
import pytest
from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st
from kio.records import readers as kio_readers
from kio.records import schema
from kio.records import writers as kio_writers
from kio.static.primitive import TZAwareMicros

from headwater.base.record.batch import parse_header, scan
from headwater.base.record.codecs import Codec
from headwater.base.record.records import Record, build_batch, iterate
from headwater.base.record.validation import validate_for_append
from tests import peers
from tests.base.record.samples import CODECS, NOW_MS, record_lists, typical

SIZE_MAX = 1 << 20
# Its integer types of each width need no proof here.
KIO: Any = schema


def _read_by(batch: Any) -> list[Record]:  # noqa: ANN401 - two libraries, one shape
    return [
        Record(r.offset, r.timestamp, r.key, r.value, tuple((k, v) for k, v in r.headers))
        for r in batch
    ]


def _build_by(builder: Any, records: list[Record]) -> bytes:  # noqa: ANN401 - as above
    for record in records:
        arguments = (record.timestamp, record.key, record.value, list(record.headers))
        assert builder.append(record.offset, *arguments) is not None
    return bytes(builder.build())


@given(record_lists(), st.sampled_from(CODECS), st.booleans())
def test_aiokafka(records: list[Record], codec: Codec, is_transactional: bool) -> None:
    ours = build_batch(
        records,
        codec=codec,
        is_transactional=is_transactional,
        producer_id=9,
        producer_epoch=1,
        base_sequence=30,
    )
    theirs = _build_by(
        DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=int(is_transactional),
            producer_id=9,
            producer_epoch=1,
            base_sequence=30,
            batch_size=1 << 30,
        ),
        records,
    )
    if codec == Codec.NONE:
        assert ours == theirs
    assert iterate(theirs) == records
    assert validate_for_append(theirs, size_max=SIZE_MAX).producer_id == 9
    read = DefaultRecordBatch(bytes(ours))
    assert read.validate_crc()
    assert read.is_transactional is is_transactional
    assert _read_by(read) == records


@given(record_lists(), st.sampled_from([codec for codec in CODECS if codec != Codec.SNAPPY]))
def test_kafka_python(records: list[Record], codec: Codec) -> None:
    """All but snappy, for which kafka-python wants one more package."""
    ours = build_batch(records, codec=codec, leader_epoch=0)
    builder = kafka_python.DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 30)
    theirs = _build_by(builder, records)
    if codec == Codec.NONE:
        assert ours == theirs
    assert iterate(theirs) == records
    read = kafka_python.DefaultRecordBatch(ours)
    assert read.validate_crc()
    assert _read_by(read) == records


@given(record_lists())
def test_kio(records: list[Record]) -> None:
    """Without compression, which kio leaves to its caller, and with whole seconds, its unit."""
    records = [record._replace(timestamp=record.timestamp // 1000 * 1000) for record in records]
    ours = build_batch(records, producer_id=9, producer_epoch=1, base_sequence=30)
    theirs = KIO.NewRecordBatch(
        producer_id=9,
        producer_epoch=1,
        partition_leader_epoch=-1,
        base_sequence=30,
        attributes=0,
        records=tuple(
            KIO.Record(
                attributes=0,
                timestamp=TZAwareMicros.parse(
                    dt.datetime.fromtimestamp(record.timestamp / 1000, dt.UTC)
                ),
                offset=record.offset,
                key=record.key,
                value=record.value,
                headers=tuple(
                    KIO.RecordHeader(key=name.encode(), value=value)
                    for name, value in record.headers
                ),
            )
            for record in records
        ),
    )
    out = io.BytesIO()
    kio_writers.write_new_batch(out, theirs)
    assert out.getvalue() == ours
    read, size = kio_readers.read_batch(bytes(ours), 0)
    assert size == len(ours)
    assert read.records == theirs.records


class MockBroker:
    """The broker inside librdkafka, which keeps the batches of its clients as they came."""

    def __init__(self) -> None:
        self._owner = confluent_kafka.Producer(
            {"test.mock.num.brokers": 1, "log_level": 0, "bootstrap.servers": "unused"}
        )
        (broker,) = self._owner.list_topics(timeout=10).brokers.values()
        self.address = f"{broker.host}:{broker.port}"
        self._socket = socket.create_connection((broker.host, broker.port), timeout=10)

    def close(self) -> None:
        self._socket.close()

    def produce(self, topic: str, batch: bytearray) -> None:
        body = struct.pack(">hhi", -1, 1, 1000)
        body += self._one_partition(topic) + struct.pack(">i", len(batch)) + batch
        answer = self._ask(0, 3, body)
        (error,) = struct.unpack_from(">h", answer, 4 + 2 + len(topic) + 4 + 4)
        assert error == 0

    def fetch(self, topic: str) -> bytes:
        body = struct.pack(">iiiib", -1, 1000, 1, SIZE_MAX, 0)
        body += self._one_partition(topic) + struct.pack(">qi", 0, SIZE_MAX)
        answer = self._ask(1, 4, body)
        # throttle time, topics; name, partitions; index, error, two offsets, aborted transactions
        pos = 4 + 4 + 2 + len(topic) + 4 + struct.calcsize(">ihqqi")
        (size,) = struct.unpack_from(">i", answer, pos)
        return answer[pos + 4 : pos + 4 + size]

    @staticmethod
    def _one_partition(topic: str) -> bytes:
        name = topic.encode()
        return struct.pack(f">ih{len(name)}sii", 1, len(name), name, 1, 0)

    def _ask(self, key: int, version: int, body: bytes) -> bytes:
        request = struct.pack(">hhih", key, version, 1, -1) + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        with self._socket.makefile("rb") as file:
            (size,) = struct.unpack(">i", file.read(4))
            return file.read(size)[4:]


@pytest.fixture(scope="module")
def mock_broker() -> Iterator[MockBroker]:
    broker = MockBroker()
    yield broker
    broker.close()


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_writes_what_we_read(mock_broker: MockBroker, codec: Codec) -> None:
    topic = f"read-{uuid.uuid4()}"
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": mock_broker.address,
            "compression.type": codec.name.lower(),
            "linger.ms": 100,
            "enable.idempotence": True,
        }
    )
    records = typical(200)
    for record in records:
        producer.produce(
            topic,
            record.value,
            record.key,
            partition=0,
            timestamp=record.timestamp,
            headers=list(record.headers),
        )
    assert producer.flush(10) == 0
    data = mock_broker.fetch(topic)
    batches = list(scan(data))
    assert {header.codec for _, header in batches} == {codec}
    read = [record for pos, _ in batches for record in iterate(data, pos)]
    assert [record[1:] for record in read] == [record[1:] for record in records]
    for pos, header in batches:
        batch = bytearray(data[pos : pos + header.size_bytes])
        batch[:8] = bytes(8)  # as it was before the mock broker stamped it
        assert validate_for_append(batch, size_max=SIZE_MAX).has_producer_id


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_we_write(mock_broker: MockBroker, codec: Codec) -> None:
    topic = f"write-{uuid.uuid4()}"
    records = [*typical(200), Record(200, NOW_MS, None, None, (("n", None), ("n", b"")))]
    confluent_kafka.Producer({"bootstrap.servers": mock_broker.address}).list_topics(topic, 10)
    mock_broker.produce(topic, build_batch(records, codec=codec))
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": mock_broker.address, "group.id": "g", "check.crcs": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    messages: list[Any] = consumer.consume(len(records), timeout=20)
    consumer.close()
    assert [
        Record(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ()))
        for m in messages
    ] == records


def _wide() -> list[Record]:
    """Records with numbers of every length, nulls, empty fields and header keys beyond ASCII."""
    sizes = [0, 1, 63, 64, 8191, 8192, 70_000]
    records = [
        Record(offset, NOW_MS + (-1) ** offset * 9**offset, bytes(size), b"ab" * size)
        for offset, size in enumerate(sizes)
    ]
    return [
        *records,
        Record(len(sizes), NOW_MS, None, None, (("", b""), ("naïve ☃ 𝄞", None))),
        *(Record(offset, NOW_MS, b"k", None) for offset in range(len(sizes) + 1, 300)),
    ]


def _shown(record: Record) -> str:
    def show(field: bytes | None) -> str:
        return "null" if field is None else field.hex()

    headers = ",".join(f"{name.encode().hex()}={show(value)}" for name, value in record.headers)
    shown = [show(record.key), show(record.value), f"[{headers}]"]
    return " ".join([str(record.offset), str(record.timestamp), *shown])


@pytest.mark.peer
def test_java(tmp_path: Path) -> None:
    peers.require("kafka")
    peers.require("javac")
    records = _wide()
    written = {
        codec: build_batch(
            records,
            codec=codec,
            producer_id=77,
            producer_epoch=3,
            base_sequence=12,
            leader_epoch=5,
        )
        for codec in CODECS
    }
    (tmp_path / "ours").write_bytes(b"".join(written.values()))
    classes = peers.compile_java(Path(__file__).with_name("RecordOracle.java"), tmp_path / "java")
    files = (str(tmp_path / "ours"), str(tmp_path / "theirs"))
    done = peers.java("RecordOracle", *files, more=[classes])
    assert done.stdout.splitlines() == [
        f"{codec.name.lower()} 77 3 12 5 false {_shown(record)}"
        for codec in CODECS
        for record in records
    ]
    theirs = (tmp_path / "theirs").read_bytes()
    found = list(scan(theirs))
    assert [header.codec for _, header in found] == CODECS
    for pos, header in found:
        batch = theirs[pos : pos + header.size_bytes]
        assert iterate(theirs, pos) == records
        assert validate_for_append(batch, size_max=SIZE_MAX) == header
        assert parse_header(written[Codec(header.codec)])[5:] == header[5:]
        if header.codec == Codec.NONE:
            assert batch == written[Codec.NONE]
