"""What a start makes of transactions that a crash has interrupted."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import ErrorCode, StorageError
from headwater.base.settings import BrokerSettings
from headwater.delivery.broker.configs import Change, Operation
from headwater.delivery.broker.state_topic import StateTopic
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.broker.transactions.recovery import compare
from headwater.delivery.broker.transactions.states import TransactionState
from headwater.delivery.broker.transactions.transaction import Transaction
from headwater.log.noted import Note
from headwater.log.reading import OpenTransaction
from tests.delivery.broker.transactions.world import Crashed, Producer, World, codes

OK = ErrorCode.NONE
ABORT_INTERVAL_MS = 10_000
LAX = {"log.flush.interval.messages": "1000000"}
KEY = ("t", 0)
OTHER = ("t", 1)


# By cases


def known(
    state: TransactionState,
    *,
    epoch: int = 3,
    version: int = 2,
    partitions: frozenset[tuple[str, int]] = frozenset(),
    next_producer_id: int = -1,
) -> Transaction:
    return Transaction(
        transactional_id="x",
        producer_id=7,
        producer_epoch=epoch,
        timeout_ms=1,
        updated_ms=0,
        state=state,
        client_version=version,
        partitions=partitions,
        next_producer_id=next_producer_id,
    )


STATES = TransactionState
ADOPTED, STRAY, LEFT_ALONE = "adopted", "stray", "left alone"


@pytest.mark.parametrize(
    "transaction, opened, expected",
    [
        (None, (7, 3), STRAY),
        (known(STATES.EMPTY), (7, 3), ADOPTED),
        (known(STATES.EMPTY, version=0), (7, 3), ADOPTED),
        (known(STATES.EMPTY), (7, 2), STRAY),
        (known(STATES.EMPTY), (7, 4), STRAY),
        (known(STATES.EMPTY), (8, 3), STRAY),
        (known(STATES.COMPLETE_COMMIT), (7, 3), ADOPTED),
        (known(STATES.COMPLETE_ABORT), (7, 3), ADOPTED),
        (known(STATES.COMPLETE_COMMIT, version=0), (7, 3), STRAY),
        (known(STATES.COMPLETE_COMMIT), (7, 2), STRAY),
        (known(STATES.ONGOING, partitions=frozenset({KEY})), (7, 3), ADOPTED),
        (known(STATES.ONGOING, partitions=frozenset({OTHER})), (7, 3), ADOPTED),
        (known(STATES.ONGOING, partitions=frozenset({KEY})), (7, 2), STRAY),
        (known(STATES.ONGOING, version=0, partitions=frozenset({KEY})), (7, 3), LEFT_ALONE),
        (known(STATES.ONGOING, version=0, partitions=frozenset({OTHER})), (7, 3), STRAY),
        (known(STATES.PREPARE_COMMIT, partitions=frozenset({KEY})), (7, 2), LEFT_ALONE),
        (known(STATES.PREPARE_ABORT, partitions=frozenset({KEY})), (7, 2), LEFT_ALONE),
        (known(STATES.PREPARE_COMMIT, partitions=frozenset({KEY})), (7, 3), ADOPTED),
        (known(STATES.PREPARE_COMMIT, partitions=frozenset({OTHER})), (7, 2), STRAY),
        (known(STATES.PREPARE_COMMIT, version=0, partitions=frozenset({KEY})), (7, 3), LEFT_ALONE),
        (known(STATES.PREPARE_COMMIT, version=0, partitions=frozenset({OTHER})), (7, 3), STRAY),
        (known(STATES.PREPARE_COMMIT, next_producer_id=9), (9, 0), ADOPTED),
        (known(STATES.PREPARE_COMMIT, next_producer_id=9), (9, 1), STRAY),
    ],
)
def test_to_whom_an_open_transaction_belongs(
    transaction: Transaction | None, opened: tuple[int, int], expected: str
) -> None:
    found = OpenTransaction(*opened, first_offset=0, since_ms=0)

    adopted, stray = compare([transaction] if transaction else [], [(KEY, found)])

    assert (adopted == {"x": {KEY}}, bool(stray)) == (expected == ADOPTED, expected == STRAY)


# Over a log


def test_an_outcome_is_carried_out_after_a_crash() -> None:
    for commit in (True, False):
        world = World()
        me = world.init()
        world.send(me)
        world.begin_end(me, commit=commit)
        world.commits.run_one()  # type: ignore[attr-defined]
        world.crash()

        assert world.state() == ("PrepareCommit" if commit else "PrepareAbort")
        world.settle()
        assert world.state() == ("CompleteCommit" if commit else "CompleteAbort")
        expected = [b"v"] if commit else []
        assert [world.committed(name) for name in world.names] == [expected] * 2
        error, new = world.end(me, commit=commit)
        assert (error, new) == (OK, Producer(me.producer_id, 1)), "asked again"
        assert world.send(new) == [OK, OK]


def test_a_decision_that_did_not_reach_the_disk_was_never_made() -> None:
    world = World()
    me = world.init()
    world.send(me)
    world.begin_end(me, commit=True)
    world.crash()
    world.settle()

    assert world.state() == "Ongoing"
    assert world.committed("t0") == []
    assert world.end(me, commit=True)[0] is OK
    assert world.committed("t0") == [b"v"]


def test_a_batch_whose_joining_was_lost_is_adopted() -> None:
    world = World()
    me = world.init()
    call = world.begin_send(me)
    partition = world.broker.topics.partition("t0", 0)
    assert partition is not None
    for file in partition.begin_commit():
        file.sync()
    assert world.answer(call) is None
    world.crash()
    world.settle()

    assert world.state() == "Ongoing"
    transaction = world.transactions.get("x")
    assert transaction is not None
    assert transaction.partitions == {("t0", 0)}
    assert world.send(me) == [OK, OK], "the client sends it again"
    assert world.end(me, commit=True)[0] is OK
    assert [world.committed(name) for name in world.names] == [[b"v"], [b"v"]]


def test_a_batch_is_adopted_though_the_disk_is_full() -> None:
    world = World()
    me = world.init()
    world.begin_send(me)
    partition = world.broker.topics.partition("t0", 0)
    assert partition is not None
    for file in partition.begin_commit():
        file.sync()
    world.disk = world.disk.crash(0, keep="nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTopic, "append", no_room)
        world.restart()

    assert world.state() == "Ongoing"
    assert world.end(me, commit=True)[0] is OK
    assert world.committed("t0") == [b"v"]


def no_room(*_: object, **__: object) -> int:
    raise StorageError("no space left")


def test_a_batch_of_the_next_transaction_is_not_taken_for_one_of_the_last() -> None:
    """The end of the first is known as decided only; the second's batch lies behind its marker."""
    world = World(topics=1)
    me = world.init()
    world.send(me, value=b"first")
    end = world.begin_end(me, commit=True)
    world.commits.run_one()  # type: ignore[attr-defined]
    new = Producer(me.producer_id, world.answer(end).producer_epoch)
    world.commits.run_one()  # type: ignore[attr-defined]
    assert world.state() == "CompleteCommit", "but not yet on disk"
    world.begin_send(new, value=b"second")
    partition = world.broker.topics.partition("t0", 0)
    assert partition is not None
    for file in partition.begin_commit():
        file.sync()
    world.crash()
    world.settle()

    assert world.state() == "Ongoing", "the first was found ended, the second open"
    assert world.committed("t0") == [b"first"]
    world.clock.advance(80_000)
    world.settle()
    assert world.committed("t0") == [b"first"], "nobody came back"
    assert world.open_in("t0") == 0


@pytest.fixture
def lazy_world() -> World:
    """A world with a topic that leaves its records to the page cache."""
    world = World()
    world.names.append("lazy")
    world.broker.topics.create([NewTopic("lazy", 1, {"flush.messages": "1000000"})])
    return world


def test_what_a_crash_may_have_taken_a_part_of_is_not_committed(lazy_world: World) -> None:
    """The client has been told that all of it was written."""
    world = lazy_world
    me = world.init()
    assert world.send(me) == [OK] * 3
    world.crash()

    assert world.end(me, commit=True)[0] is ErrorCode.INVALID_TXN_STATE
    assert [world.committed(name) for name in world.names] == [[], [], []]
    assert [world.open_in(name) for name in world.names] == [0, 0, 0]
    me = world.init()
    assert world.send(me, value=b"again") == [OK] * 3
    assert world.end(me, commit=True)[0] is OK
    assert [world.committed(name) for name in world.names] == [[b"again"]] * 3


def test_a_partition_has_joined_for_good_when_its_records_are_acknowledged(
    lazy_world: World,
) -> None:
    """Else the start would not know that a part of the transaction lay there."""
    world = lazy_world
    me = world.init()
    world.send(me, "t0")
    call = world.begin_send(me, "lazy")
    assert world.answer(call) is None
    world.settle()
    assert codes(world.answer(call)) == [OK]
    world.crash()

    assert world.end(me, commit=True)[0] is ErrorCode.INVALID_TXN_STATE
    assert world.committed("t0") == []


def test_what_was_torn_is_not_committed_though_there_is_no_room_to_abort(
    lazy_world: World,
) -> None:
    world = lazy_world
    me = world.init()
    world.send(me)
    world.disk = world.disk.crash(0, keep="nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTopic, "append", no_room)
        world.restart()
        assert world.state() == "Ongoing"
        assert world.end(me, commit=True)[0] is not OK

    assert world.end(me, commit=True)[0] is ErrorCode.INVALID_TXN_STATE
    assert [world.committed(name) for name in world.names] == [[], [], []]


def commit_torn(world: World, me: Producer) -> ErrorCode:
    """Ask for the commit of a transaction of which no part may be seen."""
    code = world.end(me, commit=True)[0]
    world.settle()
    assert [world.committed(name) for name in world.names] == [[]] * len(world.names)
    return code


@pytest.mark.parametrize("by_default", [True, False])
@pytest.mark.parametrize("then", ["a clean stop", "another config", "another crash"])
def test_what_was_torn_is_still_torn_at_a_later_start(*, by_default: bool, then: str) -> None:
    """There is no room for the abort, and the next start finds no trace of the crash itself."""
    world = World(LAX if by_default else {})
    if not by_default:
        world.broker.topics.create([NewTopic("lazy", 1, {"flush.messages": "1000000"})])
        world.names.append("lazy")
    me = world.init()
    assert world.send(me) == [OK] * len(world.names)
    partition = world.broker.topics.partition("t0", 0)
    assert partition is not None
    partition.request_commit()
    world.settle()
    world.settings = BrokerSettings()
    world.disk = world.disk.crash(0, keep="nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTopic, "append", no_room)
        world.restart()
    if then == "a clean stop":
        world.broker.store.close()
    elif then == "another config":
        durable = [Change("flush.messages", Operation.SET, "1")]
        for name in world.names:
            world.broker.configs.alter_topic(name, durable, keep_others=True, validate_only=False)
    world.crash()

    assert commit_torn(world, me) is ErrorCode.INVALID_TXN_STATE


def test_a_config_does_not_overtake_the_abort_of_what_was_torn(lazy_world: World) -> None:
    world = lazy_world
    me = world.init()
    assert world.send(me) == [OK] * 3
    world.crash()
    durable = Change("flush.messages", Operation.SET, "1")
    world.broker.configs.alter_topic("lazy", [durable], keep_others=True, validate_only=False)
    world.crash()

    assert commit_torn(world, me) is ErrorCode.INVALID_TXN_STATE


def test_what_was_torn_is_aborted_as_soon_as_there_is_room(lazy_world: World) -> None:
    world = lazy_world
    me = world.init()
    assert world.send(me) == [OK] * 3
    world.disk = world.disk.crash(0, keep="nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StateTopic, "append", no_room)
        world.restart()
        world.clock.advance(ABORT_INTERVAL_MS)
        assert world.state() == "Ongoing"
    world.clock.advance(ABORT_INTERVAL_MS)
    world.settle()

    assert world.state() == "CompleteAbort"
    assert world.broker.store.note.torn
    world.clock.advance(ABORT_INTERVAL_MS)
    assert not world.broker.store.note.torn


def test_where_it_cannot_be_noted_what_was_torn_nothing_starts(lazy_world: World) -> None:
    """Else it could be forgotten."""
    world = lazy_world
    me = world.init()
    assert world.send(me) == [OK] * 3
    world.disk = world.disk.crash(0, keep="nothing")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Note, "note_torn", no_room)
        with pytest.raises(StorageError):
            world.restart()
    world.crash()

    assert commit_torn(world, me) is ErrorCode.INVALID_TXN_STATE


def test_nothing_is_torn_by_a_clean_stop(lazy_world: World) -> None:
    world = lazy_world
    me = world.init()
    world.send(me)
    world.broker.store.close()
    world.disk = world.disk.crash(0, keep="nothing")
    world.restart()

    assert world.end(me, commit=True)[0] is OK
    assert [world.committed(name) for name in world.names] == [[b"v"]] * 3


@pytest.mark.parametrize("change", [("1", Operation.SET), (None, Operation.DELETE)])
def test_a_topic_that_becomes_durable_loses_nothing_from_before(
    lazy_world: World, change: tuple[str | None, Operation]
) -> None:
    """The start judges by the config that it finds, which must not be ahead of the records."""
    world = lazy_world
    me = world.init()
    assert world.send(me) == [OK] * 3
    value, operation = change
    durable = Change("flush.messages", operation, value)
    world.broker.configs.alter_topic("lazy", [durable], keep_others=True, validate_only=False)
    world.crash()

    assert world.end(me, commit=True)[0] is OK
    assert [world.committed(name) for name in world.names] == [[b"v"]] * 3


@pytest.mark.parametrize("resource", ["1", ""])
def test_a_broker_that_becomes_durable_loses_nothing_from_before(resource: str) -> None:
    world = World({"log.flush.interval.messages": "1000000"})
    me = world.init()
    assert world.send(me) == [OK] * 2
    durable = Change("log.flush.interval.messages", Operation.SET, "1")
    world.broker.configs.alter_broker(resource, [durable], keep_others=True, validate_only=False)
    world.crash()

    assert world.end(me, commit=True)[0] is OK
    assert [world.committed(name) for name in world.names] == [[b"v"]] * 2


@pytest.mark.parametrize("crashes", [1, 2])
def test_a_start_with_a_stricter_default_judges_by_the_laxer_one(crashes: int) -> None:
    world = World(LAX)
    me = world.init()
    assert world.send(me) == [OK] * 2
    world.settle()
    assert world.send(me, value=b"not synced") == [OK] * 2
    world.settings = BrokerSettings()
    for _ in range(crashes):
        world.crash()

    assert world.end(me, commit=True)[0] is ErrorCode.INVALID_TXN_STATE
    assert [world.committed(name) for name in world.names] == [[], []]


def test_the_laxer_default_is_forgotten_when_all_that_it_may_have_torn_is_aborted() -> None:
    world = World(LAX)
    me = world.init()
    assert world.send(me) == [OK] * 2
    world.settings = BrokerSettings()
    world.crash()
    world.clock.advance(ABORT_INTERVAL_MS)
    world.settle()
    world.clock.advance(ABORT_INTERVAL_MS)

    for run in range(3):
        me = world.init()
        assert world.send(me, value=b"%d" % run) == [OK] * 2
        world.crash()
        assert world.end(me, commit=True)[0] is OK
    assert [world.committed(name) for name in world.names] == [[b"0", b"1", b"2"]] * 2


def test_a_topic_that_says_itself_that_it_is_durable_is_believed() -> None:
    world = World(LAX, topics=0)
    world.names = ["strict"]
    world.broker.topics.create([NewTopic("strict", 1, {"flush.messages": "1"})])
    me = world.init()
    assert world.send(me) == [OK]
    world.settings = BrokerSettings()
    world.crash()

    assert world.end(me, commit=True)[0] is OK
    assert world.committed("strict") == [b"v"]


def test_after_a_clean_stop_the_laxer_default_is_forgotten() -> None:
    world = World(LAX)
    world.broker.store.close()
    world.settings = BrokerSettings()
    world.restart()
    me = world.init()
    assert world.send(me) == [OK] * 2
    world.crash()

    assert world.end(me, commit=True)[0] is OK
    assert [world.committed(name) for name in world.names] == [[b"v"]] * 2


def test_a_disk_that_cannot_sync_keeps_the_config(lazy_world: World) -> None:
    world = lazy_world
    me = world.init()
    world.send(me)
    world.disk.fail_at(world.disk.operations + 1, OSError(5, "Input/output error"))
    durable = Change("flush.messages", Operation.SET, "1")
    with pytest.raises(StorageError):
        world.broker.configs.alter_topic("lazy", [durable], keep_others=True, validate_only=False)
    assert world.log("lazy").failed
    world.crash()

    assert world.end(me, commit=True)[0] is ErrorCode.INVALID_TXN_STATE
    assert [world.committed(name) for name in world.names] == [[], [], []]


def test_what_belongs_to_nobody_is_aborted() -> None:
    world = World({"transaction.partition.verification.enable": "false"})
    stranger = Producer(4711, 0)
    assert world.send(stranger, version=9) == [OK, OK]
    assert world.log("t0").last_stable_offset == 0

    world.crash()
    assert world.log("t0").last_stable_offset == 0
    world.settle()

    assert [world.open_in(name) for name in world.names] == [0, 0]
    assert world.log("t0").last_stable_offset == 2
    assert world.committed("t0") == []


def test_epochs_that_are_used_up_survive_a_crash() -> None:
    world = World(topics=1)
    me = world.init()
    stored = world.transactions.get("x")
    assert stored is not None
    worn_out = Transaction(
        transactional_id="x",
        producer_id=me.producer_id,
        producer_epoch=32_766,
        timeout_ms=60_000,
        updated_ms=stored.updated_ms,
    )
    world.transactions._write(worn_out, lambda: None)
    last = Producer(me.producer_id, 32_766)
    assert world.send(last) == [OK]
    end = world.begin_end(last, commit=True)
    world.commits.run_one()  # type: ignore[attr-defined]
    answer = world.answer(end)
    new = Producer(answer.producer_id, answer.producer_epoch)
    assert (new.producer_id != me.producer_id, new.producer_epoch) == (True, 0)

    world.crash()
    world.settle()

    assert world.committed("t0") == [b"v"]
    assert world.end(last, commit=True) == (OK, new), "asked again"
    assert world.send(new) == [OK]
    assert world.end(new, commit=True) == (OK, Producer(new.producer_id, 1))
    assert world.committed("t0") == [b"v", b"v"]


# Crashes between any two syncs


def script(world: World, told: dict[str, bool]) -> None:
    """Two transactions and a fenced third; notes which outcomes were told."""
    me = world.init()
    for value, commit in (("a", True), ("b", False), ("c", True)):
        assert world.send(me, value=value.encode()) == [OK, OK]
        error, me = world.end(me, commit=commit)
        assert error is OK
        told[value] = commit
    world.send(me, value=b"d")
    me = world.init()
    told["d"] = False
    batch = world.begin_send(me, value=b"e")
    end = world.begin_end(me, commit=True)
    world.settle()
    assert codes(world.answer(batch)) == [OK, OK]
    assert world.answer(end).error_code == 0, "though it was asked for too early"
    told["e"] = True


def syncs_of(script: Callable[[World, dict[str, bool]], None]) -> int:
    world = World()
    rounds = world.rounds()
    script(world, {})
    return rounds.syncs


@settings(max_examples=60)
@given(st.integers(0, syncs_of(script)), st.integers(0, 50), st.booleans())
def test_a_crash_at_any_moment_keeps_what_was_told(syncs: int, seed: int, keep: bool) -> None:
    world = World()
    world.rounds(seed=seed, syncs_max=syncs)
    told: dict[str, bool] = {}
    with contextlib.suppress(Crashed):
        script(world, told)
    world.crash(seed if keep else None)
    world.settle()
    world.clock.advance(80_000)
    world.settle()

    first, second = (world.committed(name) for name in world.names)
    assert first == second, "all or nothing"
    assert len(set(first)) == len(first), "nothing twice"
    for value, commit in told.items():
        assert (value.encode() in first) == commit
    assert [world.open_in(name) for name in world.names] == [0, 0], "nothing hangs"
    me = world.init()
    assert world.send(me, value=b"z") == [OK, OK]
    assert world.end(me, commit=True)[0] is OK
    assert world.committed("t0") == [*first, b"z"]
