"""A broker over a disk in memory, with transactional producers in front of it.

Nothing becomes durable before the test says so, file by file, so that a crash can come between any
two of them. Time stands still until the test moves it.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from headwater.base.disk import Syncable
from headwater.base.errors import ErrorCode
from headwater.base.record.batch import scan
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import Record, build_batch, iterate
from headwater.delivery.broker.partition import Committable
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.broker.transactions import Transactions
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.wire.kafka import messages
from headwater.log.partition import PartitionLog
from headwater.testing.manual_clock import ManualClock
from tests.delivery.dialects.kafka.desk import Desk

TIMEOUT_MS = 60_000


class Crashed(Exception):  # noqa: N818 - not an error
    """The power went."""


class Rounds:
    """A group commit like the server's: rounds, and nothing is durable before all of one is."""

    def __init__(self, *, seed: int = 0, syncs_max: int | None = None) -> None:
        self.seed = seed
        self.syncs = 0
        self.syncs_max = syncs_max
        self._next: dict[Committable, None] = {}

    def add(self, item: Committable) -> None:
        self._next[item] = None

    def between_rounds(self, action: Callable[[], None]) -> None:
        action()

    def run_one(self) -> bool:
        """Run one round; tell whether there was one."""
        current, self._next = self._next, {}
        files: dict[Syncable, None] = {}
        for item in current:
            files.update(dict.fromkeys(item.begin_commit()))
        order = list(files)
        random.Random(f"{self.seed}-{self.syncs}").shuffle(order)
        for file in order:
            if self.syncs == self.syncs_max:
                raise Crashed
            self.syncs += 1
            file.sync()
        for item in current:
            item.end_commit()
        return bool(current)

    def run(self) -> None:
        """Run rounds until nothing is left to sync."""
        while self.run_one():
            pass


class Producer(NamedTuple):
    """Who a producer is."""

    producer_id: int
    producer_epoch: int


class World(Desk):
    """A broker, and whoever writes transactions."""

    def __init__(self, settings: Mapping[str, str] | None = None, *, topics: int = 2) -> None:
        super().__init__(settings)
        self.rounds()
        self.names = [f"t{number}" for number in range(topics)]
        for name in self.names:
            self.broker.topics.create([NewTopic(name, 1, {})])
        self.settle()

    def rounds(self, *, seed: int = 0, syncs_max: int | None = None) -> Rounds:
        """Begin to commit in rounds; what was added before is committed first."""
        self.commits.run()
        rounds = Rounds(seed=seed, syncs_max=syncs_max)
        self.commits = rounds  # type: ignore[assignment]
        self.broker.topics._commits = rounds
        for topic in self.broker.topics:
            for partition in topic.partitions:
                partition._commits = rounds
        return rounds

    def crash(self, seed: int | None = None) -> None:
        """Cut the power and start again; with a seed some of what was not synced survives."""
        keep = "nothing" if seed is None else "some"
        self.disk = self.disk.crash(seed or 0, keep=keep)  # type: ignore[arg-type]
        self.restart()

    def restart(self) -> None:
        """Start a broker on what is on the disk."""
        self.line.answers.clear()
        # The timers of the broker that died are gone with it.
        self.clock = ManualClock(self.clock.now_ms(), self.clock.monotonic_ms())
        self.commits = Rounds()  # type: ignore[assignment]
        self.broker = self._open()

    def settle(self) -> None:
        """Let everything become durable."""
        self.commits.run()

    @property
    def transactions(self) -> Transactions:
        return self.broker.transactions

    def state(self, transactional_id: str = "x") -> str:
        found = self.transactions.get(transactional_id)
        return "" if found is None else found.state.label

    # Requests; what they answer comes when the commits have run.

    def begin_init(self, transactional_id: str = "x", timeout_ms: int = TIMEOUT_MS) -> Call:
        return self.begin(messages.InitProducerIdRequest(transactional_id, timeout_ms), 5)

    def init(self, transactional_id: str = "x", timeout_ms: int = TIMEOUT_MS) -> Producer:
        answer = self.settled(self.begin_init(transactional_id, timeout_ms))
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        return Producer(answer.producer_id, answer.producer_epoch)

    def begin_send(
        self,
        me: Producer,
        *names: str,
        value: bytes = b"v",
        sequence: int = 0,
        transactional_id: str = "x",
        version: int = 12,
    ) -> Call:
        request = messages.ProduceRequest(transactional_id, -1, 30_000)
        for name in names or self.names:
            batch = build_batch(
                [Record(0, self.clock.now_ms(), b"k", value)],
                producer_id=me.producer_id,
                producer_epoch=me.producer_epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
            data = messages.ProduceRequest.PartitionProduceData(0, batch)
            request.topic_data.append(
                messages.ProduceRequest.TopicProduceData(name, partition_data=[data])
            )
        return self.begin(request, version)

    def send(self, me: Producer, *names: str, **how: Any) -> list[ErrorCode]:  # noqa: ANN401 - as begin_send
        return codes(self.settled(self.begin_send(me, *names, **how)))

    def begin_end(
        self, me: Producer, *, commit: bool, transactional_id: str = "x", version: int = 5
    ) -> Call:
        return self.begin(messages.EndTxnRequest(transactional_id, *me, commit), version)

    def end(
        self, me: Producer, *, commit: bool, transactional_id: str = "x", version: int = 5
    ) -> tuple[ErrorCode, Producer]:
        call = self.begin_end(me, commit=commit, transactional_id=transactional_id, version=version)
        answer = self.settled(call)
        return ErrorCode(answer.error_code), Producer(answer.producer_id, answer.producer_epoch)

    def settled(self, call: Call) -> Any:  # noqa: ANN401 - its own class
        self.settle()
        answer = self.answer(call)
        assert answer is not None, "not answered"
        return answer

    def answer(self, call: Call) -> Any:  # noqa: ANN401 - its own class
        """Return a call's answer, None while it is awaited."""
        return next((answer for answered, answer in self.line.answers if answered is call), None)

    # What the logs hold

    def log(self, name: str) -> PartitionLog:
        partition = self.broker.topics.partition(name, 0)
        assert partition is not None
        return partition.log

    def committed(self, name: str) -> list[bytes]:
        """Return what readers of committed data may see, by the markers themselves."""
        log = self.log(name)
        stable = log.last_stable_offset
        pending: dict[int, list[bytes]] = {}
        values: list[bytes] = []
        offset = log.log_start_offset
        while offset < stable:
            extent = log.read(offset, 1 << 20, upto_offset=stable, at_least_one=True)
            assert extent is not None
            data = extent.read()
            for position, header in scan(data):
                offset = header.next_offset
                records = list(iterate(data, position))
                if header.is_control:
                    marker = read_end_transaction(records[0])
                    assert marker is not None
                    ended = pending.pop(header.producer_id, [])
                    values += ended if marker.is_commit else []
                else:
                    found = [record.value or b"" for record in records]
                    pending.setdefault(header.producer_id, []).extend(found)
        return values

    def open_in(self, name: str) -> int:
        return len(self.log(name).open_transactions())


def codes(answer: Any) -> list[ErrorCode]:  # noqa: ANN401 - the message
    """Return what is said of each partition that was written to."""
    return [
        ErrorCode(partition.error_code)
        for topic in answer.responses
        for partition in topic.partition_responses
    ]
