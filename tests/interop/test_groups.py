"""Groups whose members come, go and crash while records keep coming, in every client."""

import pytest

from headwater.testing.broker import EmbeddedBroker
from tests.interop.clients import WITNESS, Clients
from tests.interop.members import LONG_SESSION_MS, SHORT_SESSION_MS, Group, read_by
from tests.interop.scenarios import create

MEMBERS = ("confluent", "kafka-python", "aiokafka", "kcat", "kafkajs", "java-4.3", "java-3.9")


@pytest.mark.parametrize("client", MEMBERS)
def test_members_come_crash_and_leave(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    create(clients, bootstrap, name, partitions=4)
    with Group(clients, bootstrap, name, partitions=4) as group:
        first = group.join(client)
        group.settle()
        assert first.owned == {0, 1, 2, 3}

        second = group.join(client, session_ms=SHORT_SESSION_MS)
        group.settle()
        assert (len(first.owned), len(second.owned)) == (2, 2)

        group.kill(second)
        taken_over_s = group.settle()
        # Nobody tells the broker of a crash: its partitions wait for the end of the session.
        assert taken_over_s * 1_000 > SHORT_SESSION_MS * 0.7
        assert first.owned == {0, 1, 2, 3}

        third = group.join(client)
        group.settle()
        group.leave(third)
        left_s = group.settle()
        assert left_s * 1_000 < LONG_SESSION_MS / 3, "a member that leaves is not waited for"
        # librdkafka notes an offset for its next commit when it hands a record over, before kcat
        # prints it. The one record between the two goes with a kill, and kcat drops it too when a
        # signal has told it to leave.
        group.check_that_nothing_is_lost(unprinted_by=[second, third] if client == "kcat" else [])

        if not first.commits_refused and not third.commits_refused and client != "kcat":
            assert not read_by([first]) & read_by([third]), "read again what was committed"


@pytest.mark.parametrize(
    "one, other",
    [
        ("confluent", "confluent"),
        ("java-4.3", "java-4.3"),
        ("kafka-python", "kafka-python"),
        ("confluent", "java-3.9"),
    ],
)
def test_cooperative_members_keep_what_they_have(
    clients: Clients, bootstrap: str, name: str, one: str, other: str
) -> None:
    create(clients, bootstrap, name, partitions=4)
    with Group(clients, bootstrap, name, partitions=4) as group:
        first = group.join(one, assignor="cooperative-sticky")
        group.settle()
        second = group.join(other, assignor="cooperative-sticky")
        group.settle()
        moved = set(second.owned)
        assert len(moved) == 2
        # An eager member would have given up all four.
        assert [lost for event, lost in first.history if event != "assigned"] == [moved]

        seen = len(first.history)
        group.leave(second)
        group.settle()
        changes = [change for change in first.history[seen:] if change[1]]
        assert changes == [("assigned", moved)]
        group.check_that_nothing_is_lost()


@pytest.mark.parametrize(
    "client, end",
    [
        ("confluent", "close"),
        ("confluent", "crash"),
        ("kafka-python", "crash"),
        ("aiokafka", "crash"),
        ("java-4.3", "close"),
        ("java-3.9", "crash"),
    ],
)
def test_a_static_member_comes_back_unnoticed(
    clients: Clients, bootstrap: str, name: str, client: str, end: str
) -> None:
    create(clients, bootstrap, name, partitions=4)
    with Group(clients, bootstrap, name, partitions=4) as group:
        first = group.join(client, instance_id="one")
        group.settle()
        second = group.join(client, instance_id="two")
        group.settle()
        share, seen = set(second.owned), len(first.history)

        (group.leave if end == "close" else group.kill)(second)
        again = group.join(client, instance_id="two")
        group.settle()
        assert again.owned == share
        assert first.history[seen:] == [], "the group was disturbed"
        group.check_that_nothing_is_lost()


@pytest.mark.parametrize("client", ["confluent", "java-4.3"])
def test_two_members_of_one_name_fence_each_other(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    create(clients, bootstrap, name, partitions=4)
    with Group(clients, bootstrap, name, partitions=4) as group:
        first = group.join(client, instance_id="same")
        group.settle()
        group.replace(first)
        second = group.join(client, instance_id="same")
        group.settle()
        assert second.owned == {0, 1, 2, 3}
        failure = group.failure_of(first)
        # To librdkafka this is one of its fatal errors, which have a number of its own.
        assert failure["code"] in {82, -150}
        assert "fenced" in failure["error"].lower() + failure["message"].lower(), failure


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka", "java-4.3"])
def test_a_topic_grows_under_its_group(
    clients: Clients, bootstrap: str, name: str, client: str
) -> None:
    create(clients, bootstrap, name, partitions=2)
    with Group(clients, bootstrap, name, partitions=2) as group:
        group.join(client)
        group.settle()
        clients[WITNESS].call("grow", bootstrap=bootstrap, topic=name, partitions=5)
        group.partitions = set(range(5))
        group.settle()
        group.check_that_nothing_is_lost()


def test_a_broker_restarts_under_its_group(
    clients: Clients, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = str(tmp_path_factory.mktemp("restarted"))
    with EmbeddedBroker(data_directory=folder) as broker:
        create(clients, broker.bootstrap_servers, name, partitions=14)
        with Group(clients, broker.bootstrap_servers, name, partitions=14) as group:
            for client in MEMBERS:
                # kcat ends itself when its only broker is gone.
                if client != "kcat":
                    group.join(client)
            group.settle()
            broker.stop()
            broker.start()
            # A member that has no work to do any more would not be noticed otherwise.
            newcomer = group.join(WITNESS)
            group.settle()
            assert newcomer.owned
            group.check_that_nothing_is_lost()


def test_every_language_in_one_group(clients: Clients, bootstrap: str, name: str) -> None:
    create(clients, bootstrap, name, partitions=14)
    with Group(clients, bootstrap, name, partitions=14) as group:
        # The first to come leads: its crash makes another language divide the partitions.
        leader = group.join(MEMBERS[0], session_ms=SHORT_SESSION_MS)
        group.settle()
        others = {client: group.join(client) for client in MEMBERS[1:]}
        group.settle()
        assert {len(member.owned) for member in (leader, *others.values())} == {2}

        group.kill(leader)
        group.settle()
        group.leave(others["kafkajs"])
        group.leave(others["java-4.3"])
        group.settle()
        group.join("java-4.3")
        group.settle()
        group.check_that_nothing_is_lost()
