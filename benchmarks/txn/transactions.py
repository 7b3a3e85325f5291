"""How many transactions a second one broker commits.

This file alone decides how transactional load is made: bare requests of the newest protocol
(KIP-890: records, then the end) over plain sockets, and an ordinary client with the older one.
"""

import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.broker import load
from benchmarks.broker.brokers import Contender, create_topic
from headwater.base.errors import ErrorCode
from headwater.base.record.batch import ATTRIBUTES_POS, CRC_POS
from headwater.base.record.crc import crc32c
from headwater.base.record.records import Record, build_batch
from headwater.delivery.wire.kafka import framing, messages

RECORD_COUNTS = (1, 10, 1_000)
PRODUCERS = 8

_VALUE_BYTES = 100
_PARTITIONS = 4
_PRODUCER_EPOCH_POS = 51
_PRODUCE, _FIND_COORDINATOR, _INIT, _END = 0, 10, 22, 26
_VERSIONS = {_PRODUCE: 12, _FIND_COORDINATOR: 4, _INIT: 5, _END: 5}
_TRANSACTIONAL_ID = 1
_NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)

Figures = dict[str, float]


class Producer:
    """One transactional producer that speaks by hand, so that a client is not what is measured."""

    def __init__(self, contender: Contender, name: str, topic: str, records: int) -> None:
        self._socket = load.connect(("127.0.0.1", contender.port))
        self._name = name
        self._topic = topic
        # Records of today: older ones would be removed by retention while they are counted.
        now_ms = int(time.time() * 1000)
        self._batch = build_batch(
            [Record(0, now_ms, None, bytes(_VALUE_BYTES)) for _ in range(records)],
            producer_id=0,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        request = messages.FindCoordinatorRequest(
            key_type=_TRANSACTIONAL_ID, coordinator_keys=[name]
        )
        self._until(lambda: self._ask(_FIND_COORDINATOR, request).coordinators[0])
        begin = messages.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        given = self._until(lambda: self._ask(_INIT, begin))
        self._producer_id, self._epoch = given.producer_id, given.producer_epoch

    def transaction(self, partition: int) -> None:
        """Write one batch and commit it."""
        struct.pack_into(
            ">qhi", self._batch, _PRODUCER_EPOCH_POS - 8, self._producer_id, self._epoch, 0
        )
        body = memoryview(self._batch)[ATTRIBUTES_POS:]
        struct.pack_into(">I", self._batch, CRC_POS, crc32c(body))
        body.release()
        data = messages.ProduceRequest.PartitionProduceData(partition, self._batch)
        topic = messages.ProduceRequest.TopicProduceData(name=self._topic, partition_data=[data])
        produce = messages.ProduceRequest(self._name, -1, 30_000, [topic])
        self._until(lambda: self._ask(_PRODUCE, produce).responses[0].partition_responses[0])
        end = messages.EndTxnRequest(self._name, self._producer_id, self._epoch, committed=True)
        ended = self._until(lambda: self._ask(_END, end))
        self._producer_id, self._epoch = ended.producer_id, ended.producer_epoch

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def _ask(self, api_key: int, request: Any) -> Any:  # noqa: ANN401 - any message
        version = _VERSIONS[api_key]
        self._socket.sendall(b"".join(framing.encode_request(api_key, version, 1, "load", request)))
        return framing.decode_response(api_key, version, load.receive_frame(self._socket))[1]

    @staticmethod
    def _until(ask: Any) -> Any:  # noqa: ANN401 - any message
        """Ask until the broker is ready for it, as clients do."""
        for wait_s in _waits():
            answer = ask()
            if not answer.error_code:
                return answer
            error = ErrorCode(answer.error_code)
            assert error in _NOT_YET, error
            time.sleep(wait_s)
        raise TimeoutError("the broker was not ready within 30 s")


def _waits() -> Iterator[float]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        yield 0.001


def bare(contender: Contender, records: int, producers: int, seconds: float) -> Figures:
    """Transactions a second by hand-made requests, and how busy their maker was."""
    topic = f"txn-{records}"
    clients = [
        Producer(contender, f"bench-{records}-{producers}-{number}", topic, records)
        for number in range(producers)
    ]
    done = [0] * producers
    clients[0].transaction(0)
    busy = time.process_time()
    start = time.perf_counter()

    def run(number: int) -> None:
        while time.perf_counter() - start < seconds:
            clients[number].transaction(number % _PARTITIONS)
            done[number] += 1

    threads = [threading.Thread(target=run, args=(number,)) for number in range(producers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - start
    for client in clients:
        client.close()
    name = f"{records} records, {producers} producer{'s' if producers > 1 else ''}"
    return {
        f"{name}: transactions/s": sum(done) / took_s,
        f"generator busy, {name}": (time.process_time() - busy) / took_s,
    }


def through_confluent_kafka(contender: Contender, records: int, seconds: float) -> Figures:
    """The same with an ordinary client of the older protocol, one transaction after the other."""
    from confluent_kafka import Producer as Client  # noqa: PLC0415

    client = Client(
        {
            "bootstrap.servers": f"127.0.0.1:{contender.port}",
            "transactional.id": f"confluent-{records}",
            "linger.ms": 0,
        }
    )
    client.init_transactions(30)
    topic = f"txn-{records}"
    value = bytes(_VALUE_BYTES)
    done = 0
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        client.begin_transaction()
        for _ in range(records):
            client.produce(topic, value, partition=done % _PARTITIONS)
        client.commit_transaction(30)
        done += 1
    rate = done / (time.perf_counter() - start)
    return {f"{records} records through confluent-kafka: transactions/s": rate}


def prepare(contender: Contender) -> None:
    """Create the topics."""
    for records in RECORD_COUNTS:
        create_topic(contender.port, f"txn-{records}", _PARTITIONS, durable=True)


def check(contender: Contender, records: int, seconds: float) -> None:
    """Read what was committed back: whole transactions, nothing else."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415

    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{contender.port}",
            "group.id": "check",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(f"txn-{records}", number, 0) for number in range(_PARTITIONS)])
    seen, ends = 0, 0
    deadline = time.monotonic() + seconds
    while ends < _PARTITIONS:
        assert time.monotonic() < deadline, f"{contender.name}: committed records do not come"
        for message in consumer.consume(10_000, 1):
            if message.error():
                ends += 1
            else:
                seen += 1
                assert message.value() == bytes(_VALUE_BYTES)
    consumer.close()
    assert seen > 0, f"{contender.name}: nothing was committed"
    assert seen % records == 0, f"{contender.name}: {seen} records are no whole transactions"
