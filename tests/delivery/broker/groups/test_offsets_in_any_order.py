"""Plain and transactional commits in any order, with ends, deletions and crashes between them.

The model is a list of what was written, in the order of the log. What a group has committed is
read off it by definition: of the records that count, the last one of each key.
"""

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode
from headwater.base.record.batch import scan
from headwater.base.record.control import read_end_transaction
from headwater.base.record.records import Record, build_batch, iterate
from tests.delivery.broker.groups.world import FakePartition, World

# Few, so that they meet often. In an offsets topic of two partitions each has its own.
GROUPS = ("a", "b")
PRODUCERS = (1, 2)
PARTITIONS = (0,)


class Written(NamedTuple):
    """A record, in the order of the log; without an offset it is a tombstone."""

    group: str
    partition: int
    offset: int | None
    producer: int | None = None


class Ended(NamedTuple):
    """A marker in the partition that a group belongs to."""

    producer: int
    place: int
    committed: bool


class Model:
    """All that was written, and how much of it is durable."""

    def __init__(self, place_of: dict[str, int]) -> None:
        self.place_of = place_of
        self.history: list[Written | Ended] = []
        self.durable = 0

    def outcome(self, index: int, *, upto: int) -> bool | None:
        """How the transaction of a record ended; None while it is open."""
        record = self.history[index]
        assert isinstance(record, Written)
        for later in self.history[index:upto]:
            if (
                isinstance(later, Ended)
                and later.producer == record.producer
                and later.place == self.place_of[record.group]
            ):
                return later.committed
        return None

    def committed(self, group: str, partition: int) -> int | None:
        """The last record that counts, of those that are durable."""
        for index in reversed(range(self.durable)):
            record = self.history[index]
            if not isinstance(record, Written):
                continue
            if (record.group, record.partition) != (group, partition):
                continue
            if record.producer is None or self.outcome(index, upto=self.durable):
                return record.offset
        return None

    def is_pending(self, group: str, partition: int) -> bool:
        """Whether a record behind the last tombstone belongs to a transaction that is open.

        A record counts from when it is written, a marker from when it is durable.
        """
        for index in reversed(range(len(self.history))):
            record = self.history[index]
            if not isinstance(record, Written):
                continue
            if (record.group, record.partition) != (group, partition):
                continue
            if record.offset is None:
                return False
            if record.producer is not None and self.outcome(index, upto=self.durable) is None:
                return True
        return False


def compact(partition: FakePartition) -> None:
    """Do what Kafka's cleaner may do: below the first open transaction, keep what counts."""
    log = partition.log
    flat: list[tuple[Record, int, bool]] = []
    ends: dict[int, list[tuple[int, bool]]] = {}
    for batch in log.batches:
        ((_, header),) = scan(batch)
        for record in iterate(batch):
            flat.append((record, header.producer_id, header.is_control))
            if header.is_control:
                marker = read_end_transaction(record)
                assert marker is not None
                ends.setdefault(header.producer_id, []).append((record.offset, marker.is_commit))

    def outcome(record: Record, producer: int) -> bool | None:
        if producer < 0:
            return True
        return next((end for at, end in ends.get(producer, []) if at > record.offset), None)

    data = [(record, producer) for record, producer, is_control in flat if not is_control]
    stable = min(
        (record.offset for record, producer in data if outcome(record, producer) is None),
        default=log.high_watermark,
    )
    clean = min(stable, log.high_watermark)
    last = {
        record.key: record.offset
        for record, producer in data
        if record.offset < clean and outcome(record, producer)
    }
    log.batches = [
        bytes(
            build_batch(
                [record],
                base_offset=record.offset,
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                is_transactional=header.is_transactional,
                is_control=header.is_control,
            )
        )
        for batch in log.batches
        for _, header in scan(batch)
        for record in iterate(batch)
        if record.offset >= clean
        or header.is_control
        or (outcome(record, header.producer_id) and last.get(record.key) == record.offset)
    ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.sampled_from(PARTITIONS)),
        st.tuples(
            st.just("transactional"),
            st.sampled_from(GROUPS),
            st.sampled_from(PARTITIONS),
            st.sampled_from(PRODUCERS),
        ),
        st.tuples(
            st.just("end"),
            st.sampled_from(GROUPS),
            st.sampled_from(PRODUCERS),
            st.booleans(),
        ),
        st.tuples(st.just("delete offset"), st.sampled_from(GROUPS), st.sampled_from(PARTITIONS)),
        st.tuples(st.just("delete group"), st.sampled_from(GROUPS)),
        st.tuples(st.sampled_from(["settle", "crash", "restart", "compact"])),
    ),
    # Long enough for a transaction, a plain commit inside it and an end to meet in most runs.
    min_size=20,
    max_size=60,
)


class Run:
    """The coordinator and the model, side by side."""

    def __init__(self) -> None:
        self.world = World(auto_settle=False)
        places = {group: self.world.groups.partition_of(group) for group in GROUPS}
        assert len(set(places.values())) == 2
        self.model = Model(places)
        self.next_offset = 0

    def step(self, name: str, *arguments: object) -> None:
        getattr(self, "do_" + name.replace(" ", "_"))(*arguments)
        for group in GROUPS:
            for partition in PARTITIONS:
                place = (name, group, partition)
                found = self.world.committed(partition, group=group)
                assert found == self.model.committed(group, partition), place
                pending = self.world.is_pending(partition, group=group)
                assert pending == self.model.is_pending(group, partition), place

    def do_commit(self, group: str, partition: int) -> None:
        self.next_offset += 1
        self.world.commit(self.next_offset, group=group, partition=partition)
        self.model.history.append(Written(group, partition, self.next_offset))

    def do_transactional(self, group: str, partition: int, producer: int) -> None:
        self.next_offset += 1
        self.world.commit_in_transaction(
            self.next_offset, group=group, partition=partition, producer=producer
        )
        self.model.history.append(Written(group, partition, self.next_offset, producer))

    def do_end(self, group: str, producer: int, committed: bool) -> None:
        self.world.end_transaction(group=group, producer=producer, committed=committed)
        self.model.history.append(Ended(producer, self.model.place_of[group], committed))
        # The coordinator of transactions begins no other before this one's markers are durable.
        self.do_settle()

    def do_delete_offset(self, group: str, partition: int) -> None:
        answer = self.world.delete_offsets(("t", partition), group=group)
        if answer != [(ErrorCode.GROUP_ID_NOT_FOUND, [])]:
            self.model.history.append(Written(group, partition, None))
            if answer:
                # Nothing was known of it, so nothing was written.
                self.do_settle()

    def do_delete_group(self, group: str) -> None:
        if self.world.delete(group) != [ErrorCode.GROUP_ID_NOT_FOUND]:
            self.model.history.extend(Written(group, each, None) for each in PARTITIONS)

    def do_settle(self) -> None:
        self.world.settle()
        self.model.durable = len(self.model.history)

    def do_restart(self) -> None:
        self.world.restart()
        self.model.durable = len(self.model.history)

    def do_crash(self) -> None:
        self.world.crash()
        del self.model.history[self.model.durable :]

    def do_compact(self) -> None:
        self.do_settle()
        for partition in self.world.topics.offsets_partitions():
            compact(partition)
        self.do_crash()


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_what_is_committed_is_the_last_record_that_counts(
    steps: list[tuple[object, ...]],
) -> None:
    run = Run()
    for name, *arguments in steps:
        run.step(str(name), *arguments)
    run.do_settle()
    run.step("crash")
    run.step("compact")
