"""The coordinator over a real log: what waits for what, time-outs, expiry, what fails."""

import errno
import os

import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.broker.topics import NewTopic
from headwater.delivery.broker.transactions import decisions
from headwater.delivery.broker.transactions.markers import Marker
from headwater.delivery.wire.kafka import messages
from headwater.log.partition import PartitionLog
from tests.delivery.broker.transactions.world import Producer, World, codes

OK = ErrorCode.NONE
SWEEP_MS = 10_000
UPKEEP_MS = 1_000


@pytest.fixture
def world() -> World:
    return World()


# What waits for what


def test_an_outcome_is_answered_when_it_is_durable_and_markers_come_after(world: World) -> None:
    me = world.init()
    assert world.send(me) == [OK, OK]
    ends = [world.log(name).log_end_offset for name in world.names]

    call = world.begin_end(me, commit=True)
    assert world.answer(call) is None
    assert [world.log(name).log_end_offset for name in world.names] == ends, "no marker yet"
    world.commits.run_one()  # type: ignore[attr-defined]
    assert world.answer(call).error_code == 0
    assert world.state() == "PrepareCommit"
    assert [world.log(name).last_stable_offset for name in world.names] == [0, 0]
    world.commits.run_one()  # type: ignore[attr-defined]
    assert world.state() == "CompleteCommit"
    assert [world.committed(name) for name in world.names] == [[b"v"], [b"v"]]


def test_a_commit_waits_for_descriptors_to_sync_what_was_left_to_the_page_cache() -> None:
    world = World(topics=0)
    world.names = ["lazy"]
    world.broker.topics.create([NewTopic("lazy", 1, {"flush.messages": "1000000"})])
    me = world.init()
    assert world.send(me) == [OK]

    def lack(path: str) -> None:
        if path.endswith("/lazy-0"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    world.disk.on_open = lack
    call = world.begin_end(me, commit=True)
    world.settle()
    assert world.answer(call) is None
    world.disk.on_open = lambda _: None
    world.clock.advance(UPKEEP_MS)
    world.settle()

    assert world.answer(call).error_code == 0
    assert world.committed("lazy") == [b"v"]


def test_a_batch_shares_the_round_with_the_joining_of_its_partition(world: World) -> None:
    me = world.init()
    call = world.begin_send(me)

    assert world.state() == "Ongoing"
    assert world.answer(call) is None
    world.commits.run_one()  # type: ignore[attr-defined]
    assert codes(world.answer(call)) == [OK, OK]


def test_requests_during_an_end_wait_for_it_in_their_order(world: World) -> None:
    me = world.init()
    world.send(me)
    end = world.begin_end(me, commit=True)
    world.commits.run_one()  # type: ignore[attr-defined]
    answer = world.answer(end)
    new = Producer(answer.producer_id, answer.producer_epoch)

    batches = [world.begin_send(new, value=b"%d" % n, sequence=n) for n in range(3)]
    second_end = world.begin_end(new, commit=True)
    assert world.state() == "PrepareCommit"
    world.settle()

    assert [codes(world.answer(call)) for call in batches] == [[OK, OK]] * 3
    assert world.answer(second_end).error_code == 0
    assert world.committed("t0") == [b"v", b"0", b"1", b"2"]


def test_what_came_into_being_while_a_request_was_held_is_no_part_of_it(world: World) -> None:
    """Nothing would ever end what was written there."""
    me = world.init()
    world.send(me)
    end = world.begin_end(me, commit=True)
    world.commits.run_one()  # type: ignore[attr-defined]
    me = Producer(me.producer_id, world.answer(end).producer_epoch)
    call = world.begin_send(me, "t0", "late")
    assert world.answer(call) is None
    world.broker.topics.create([NewTopic("late", 1, {})])

    assert codes(world.settled(call)) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert world.open_in("late") == 0
    assert world.send(me, "late") == [OK]
    assert world.end(me, commit=True)[0] is OK
    assert world.committed("late") == [b"v"]


def test_what_is_held_does_not_hang_on_the_connections_memory(world: World) -> None:
    me = world.init()
    world.send(me)
    end = world.begin_end(me, commit=True)
    world.commits.run_one()  # type: ignore[attr-defined]
    new = Producer(me.producer_id, world.answer(end).producer_epoch)
    call = world.begin_send(new, value=b"precious")
    # The server reads the next request into the same memory.
    for topic in held_request(world).topic_data:
        assert bytes(topic.partition_data[0].records).count(b"precious") == 1
    world.settle()

    assert codes(world.answer(call)) == [OK, OK]


def held_request(world: World) -> messages.ProduceRequest:
    """Return the request that is held, out of the actions that wait."""
    ((queue, _),) = world.transactions._holding._queues.values()
    keep = queue[0].go_on.keywords["keep"]  # type: ignore[attr-defined]
    request: messages.ProduceRequest = keep.args[0]
    return request


def test_a_new_producer_waits_for_the_abort_of_the_old_one(world: World) -> None:
    old = world.init()
    world.send(old)

    call = world.begin_init()
    assert world.state() == "PrepareAbort"
    answer = world.settled(call)

    assert (answer.error_code, answer.producer_epoch) == (0, old.producer_epoch + 2)
    assert world.committed("t0") == []
    assert world.open_in("t0") == 0


# Time-outs


def test_a_transaction_is_aborted_when_its_time_is_up(world: World) -> None:
    me = world.init(timeout_ms=15_000)
    world.send(me)

    world.clock.advance(SWEEP_MS)
    world.settle()
    assert world.state() == "Ongoing"
    world.clock.advance(SWEEP_MS)
    world.settle()

    assert world.state() == "CompleteAbort"
    assert [world.open_in(name) for name in world.names] == [0, 0]
    assert world.send(me, sequence=1) == [ErrorCode.INVALID_PRODUCER_EPOCH] * 2
    assert world.end(me, commit=True)[0] is ErrorCode.INVALID_TXN_STATE
    error, new = world.end(me, commit=False)
    assert (error, new) == (OK, Producer(me.producer_id, me.producer_epoch + 1))
    assert world.send(new) == [OK, OK], "the producer goes on"


def test_time_runs_from_the_beginning_of_a_transaction(world: World) -> None:
    me = world.init(timeout_ms=15_000)
    for _ in range(5):
        world.clock.advance(SWEEP_MS)
        assert world.send(me) == [OK, OK]
        me = world.end(me, commit=True)[1]
    world.clock.advance(10 * SWEEP_MS)
    world.settle()

    assert world.state() == "CompleteCommit"
    assert len(world.committed("t0")) == 5


def test_a_time_out_goes_on_after_a_crash(world: World) -> None:
    me = world.init()
    world.send(me)
    world.crash()
    world.settle()
    assert world.state() == "Ongoing"

    world.clock.advance(70_001)
    world.settle()
    assert world.state() == "CompleteAbort"
    assert world.open_in("t0") == 0


def test_late_transactions_are_aborted_when_there_is_room_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        world.send(world.init(f"x{number}"), transactional_id=f"x{number}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.disk, "room_for", no_room)
        world.clock.advance(80_000)
        assert world.transactions.open_count == 3
    assert 1 <= caplog.text.count("not aborted yet") <= 3, "told once at a time, not for each"

    world.clock.advance(SWEEP_MS)
    world.settle()
    assert world.transactions.open_count == 0
    assert world.open_in("t0") == 0


def test_an_answer_that_fails_keeps_no_marker_back(world: World) -> None:
    me = world.init()
    world.send(me)

    def hang_up(_: object) -> None:
        raise ConnectionResetError

    world.transactions.end("x", decisions.Producer(*me), hang_up, commit=True, client_version=2)
    with pytest.raises(ConnectionResetError):
        world.settle()
    world.settle()
    assert world.state() == "CompleteCommit"
    assert world.committed("t0") == [b"v"]


def test_a_state_topic_that_syncs_later(world: World) -> None:
    world.init()
    world.broker.topics.set_configs("__transaction_state", {"flush.messages": "1000000"})
    old = world.init()
    world.send(old)

    new = world.init()
    assert new.producer_epoch == old.producer_epoch + 2
    assert world.send(new) == [OK, OK]
    assert world.end(new, commit=True)[0] is OK
    assert world.committed("t0") == [b"v"]


# Expiry


def test_an_idle_id_is_forgotten_and_stays_so() -> None:
    world = World({"transactional.id.expiration.ms": "7200000"})
    old = world.init()
    open_one = world.init("open", timeout_ms=900_000)

    for _ in range(3):
        world.clock.advance(3_600_000)
        world.send(open_one, transactional_id="open")
        open_one = world.end(open_one, commit=True, transactional_id="open")[1]
    world.clock.advance(1_000)
    world.settle()

    assert (world.state("x"), world.state("open")) == ("", "CompleteCommit")
    assert world.send(old) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    world.crash()
    assert (world.state("x"), world.state("open")) == ("", "CompleteCommit")
    new = world.init()
    assert (new.producer_epoch, new.producer_id != old.producer_id) == (0, True)


def test_many_ids_are_forgotten_some_at_a_time() -> None:
    world = World({"transactional.id.expiration.ms": "1"})
    for number in range(1_200):
        world.begin_init(f"x{number}")
    world.settle()

    world.clock.advance(3_600_000)
    assert 0 < len(world.transactions) < 1_200
    world.clock.advance(1_000)
    assert len(world.transactions) == 0


# What fails


def test_a_topic_that_is_deleted_while_its_marker_is_written(world: World) -> None:
    me = world.init()
    world.send(me)
    world.begin_end(me, commit=True)
    world.commits.run_one()  # type: ignore[attr-defined]
    world.broker.topics.delete("t1")
    world.settle()

    assert world.state() == "CompleteCommit"
    assert world.committed("t0") == [b"v"]


def test_a_topic_that_is_deleted_and_made_again(world: World) -> None:
    me = world.init()
    world.send(me)
    world.broker.topics.delete("t1")
    world.broker.topics.create([NewTopic("t1", 1, {})])

    assert world.end(me, commit=True)[0] is OK
    assert world.state() == "CompleteCommit"
    assert world.committed("t1") == []


def test_a_tool_that_claims_to_be_a_later_coordinator(world: World) -> None:
    me = world.init()
    world.send(me)
    marker = Marker(me.producer_id, me.producer_epoch, False, 1_000_000, 0)
    world.transactions.markers.append(marker, ("t0", 0), lambda: None)
    world.settle()
    assert world.open_in("t0") == 0
    assert world.send(me, "t0", sequence=1) == [OK]

    assert world.end(me, commit=True)[0] is OK
    assert [world.open_in(name) for name in world.names] == [0, 0]


def test_the_longest_name_that_a_request_can_carry(world: World) -> None:
    name = "x" * 32_767
    me = world.init(name)
    assert world.send(me, transactional_id=name) == [OK, OK]
    world.crash()

    assert world.state(name) == "Ongoing"


def no_room(content: bytes) -> bytes:
    """Keep nothing of what is written."""
    return content[:0]


def test_a_marker_waits_for_room_and_so_does_whoever_comes_next(world: World) -> None:
    me = world.init()
    world.send(me)
    end = world.begin_end(me, commit=True)
    # Markers are the next appends after the outcome is durable; the disk has no room for one.
    original = world.disk.room_for
    world.disk.room_for = no_room  # type: ignore[method-assign]
    world.commits.run_one()  # type: ignore[attr-defined]
    new = Producer(me.producer_id, world.answer(end).producer_epoch)
    call = world.begin_send(new)
    world.clock.advance(1_001)
    assert codes(world.answer(call)) == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    assert world.state() == "PrepareCommit"

    world.disk.room_for = original  # type: ignore[method-assign]
    world.clock.advance(1_000)
    world.settle()
    assert world.state() == "CompleteCommit"
    assert [world.committed(name) for name in world.names] == [[b"v"], [b"v"]]
    assert world.send(new) == [OK, OK]


def test_a_marker_is_written_again_after_a_failure_of_any_kind(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    me = world.init()
    world.send(me)
    world.begin_end(me, commit=True)

    def fail(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)

    with monkeypatch.context() as patched:
        patched.setattr(PartitionLog, "append_marker", fail)
        world.settle()
    assert world.state() == "PrepareCommit"
    assert [world.open_in(name) for name in world.names] == [1, 1]

    world.clock.advance(1_000)
    world.settle()
    assert world.state() == "CompleteCommit"
    assert [world.committed(name) for name in world.names] == [[b"v"], [b"v"]]


def test_without_room_nothing_changes(world: World) -> None:
    me = world.init()
    world.send(me)
    original = world.disk.room_for
    world.disk.room_for = no_room  # type: ignore[method-assign]

    assert world.end(me, commit=True)[0] is ErrorCode.NOT_COORDINATOR
    assert world.state() == "Ongoing"
    assert world.settled(world.begin_init()).error_code == ErrorCode.NOT_COORDINATOR
    assert world.settled(world.begin_init("new")).error_code == ErrorCode.NOT_COORDINATOR
    world.disk.room_for = original  # type: ignore[method-assign]
    assert world.end(me, commit=True)[0] is OK
    assert world.committed("t0") == [b"v"]


# Many


def test_ten_thousand_open_transactions(world: World) -> None:
    producers: dict[str, Producer] = {}
    names = [f"x{number}" for number in range(10_000)]
    for name in names:
        world.begin_init(name)
    world.settle()
    for name in names:
        found = world.transactions.get(name)
        assert found is not None
        producers[name] = Producer(found.producer_id, found.producer_epoch)
    for name, me in producers.items():
        world.transactions.enlist(name, *me, [("t0", 0)], lambda _: None)
    world.settle()
    assert world.transactions.open_count == 10_000

    first = producers["x0"]
    assert world.end(first, commit=True, transactional_id="x0")[0] is OK
    assert world.transactions.open_count == 9_999
    world.clock.advance(70_000)
    assert 9_000 < world.transactions.open_count < 9_999, "some at a time"
    world.clock.advance(10_000)
    world.settle()
    assert world.transactions.open_count == 0
    assert all(each.state.is_idle for each in world.transactions)


# Topics that sync later


def test_a_commit_waits_until_all_that_it_commits_is_on_disk() -> None:
    world = World(topics=0)
    world.names = ["lazy"]
    world.broker.topics.create([NewTopic("lazy", 1, {"flush.messages": "1000000"})])
    me = world.init()
    call = world.begin_send(me)
    assert world.answer(call) is None, "that its partition has joined is synced"
    assert codes(world.settled(call)) == [OK]
    again = world.begin_send(me, sequence=1)
    assert codes(world.answer(again)) == [OK], "acknowledged from memory"
    log = world.log("lazy")
    assert log.synced_offset == 0

    end = world.begin_end(me, commit=True)
    assert world.state() == "Ongoing"
    world.commits.run_one()  # type: ignore[attr-defined]
    assert (log.synced_offset, world.state()) == (2, "PrepareCommit")
    assert world.settled(end).error_code == 0
    assert log.synced_offset == 3, "its marker is, too"
    world.crash()
    assert world.committed("lazy") == [b"v", b"v"]


def test_a_client_that_commits_before_its_batches_are_acknowledged(world: World) -> None:
    me = world.init()
    batch = world.begin_send(me)
    end = world.begin_end(me, commit=True)
    assert world.state() == "Ongoing"
    world.settle()

    assert codes(world.answer(batch)) == [OK, OK]
    assert world.answer(end).error_code == 0
    assert world.state() == "CompleteCommit"
