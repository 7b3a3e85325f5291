"""The same conversations about groups and offsets with us and with Apache Kafka.

A scenario is a function that talks to one broker over as many connections as it has members and
writes down every answer. It is held with both brokers, and the two transcripts must be equal, word
for word. Only what chance decides is replaced: member ids by the order in which they appear,
topic ids, and the port.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka.messages import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MetadataRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from headwater.testing.broker import EmbeddedBroker
from tests.interop.talk import SUBSCRIPTION, Client, Talk

_unique = itertools.count()


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    settings = {"group.min.session.timeout.ms": "6000", "auto.create.topics.enable": "false"}
    with EmbeddedBroker(settings=settings) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def theirs(apache_kafka: str) -> str:
    # The first request about groups makes Kafka create its offsets topic, and waits for it.
    client = Client(apache_kafka)
    client.ask_until(FindCoordinatorRequest("warm-up"), 3, lambda answer: not answer.error_code)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    client.ask_until(
        HeartbeatRequest("warm-up", 1, "nobody"), 4, lambda answer: answer.error_code == unknown
    )
    client.close()
    return apache_kafka


@pytest.fixture(scope="module")
def topics(ours: str, theirs: str) -> None:
    for bootstrap in (ours, theirs):
        client = Client(bootstrap)
        new = [CreateTopicsRequest.CreatableTopic(n, 2, 1) for n in ("topic1", "topic2")]
        client.send(CreateTopicsRequest(new), 7)
        client.receive()
        wanted = [MetadataRequest.MetadataRequestTopic(name="topic2")]
        client.ask_until(
            MetadataRequest(wanted), 12, lambda answer: not answer.topics[0].error_code
        )
        client.close()


def held(scenario: Callable[[Talk], None], bootstrap: str, group: str) -> list[tuple[str, Any]]:
    talk = Talk(bootstrap, group)
    try:
        scenario(talk)
    finally:
        talk.close()
    return talk.transcript


# The scenarios


def life_of_a_group(talk: Talk) -> None:
    talk.describe()
    talk.describe(5)
    talk.join("a")
    talk.describe()
    talk.beat("a")
    talk.sync("a", assign={"a": b"everything"})
    talk.describe(6)
    talk.describe(0)
    talk.beat("a")
    talk.start_first_join("b", 2)
    talk.beat("a")
    talk.sync("a")
    talk.describe()
    talk.start_join("a")
    talk.end_join("a")
    talk.end_join("b")
    talk.start_sync("b")
    talk.sync("a", assign={"a": b"one", "b": b"two"})
    talk.take("synced", "b")
    talk.describe()
    talk.sync("b")
    talk.leave("a")
    talk.beat("b")
    talk.beat("a")
    talk.join("b")
    talk.sync("b", assign={"b": b"all"})
    talk.leave("b")
    talk.describe()
    talk.leave("b")
    talk.beat("b")


def followers_and_leaders_rejoin(talk: Talk) -> None:
    talk.join("a")
    talk.sync("a", assign={})
    talk.start_first_join("b", 2)
    talk.start_join("a")
    talk.end_join("a")
    talk.end_join("b")
    # In the sync phase both are just told again.
    talk.join("a")
    talk.join("b")
    talk.start_sync("b")
    talk.sync("a", assign={"b": b"b"})
    talk.take("synced", "b")
    # In a stable group the follower is told again, the leader starts a rebalance.
    talk.join("b")
    talk.sync("b")
    talk.start_join("a")
    talk.wait_for_group(lambda group: group.group_state == "PreparingRebalance")
    talk.beat("b")
    talk.start_join("b")
    talk.end_join("a")
    talk.end_join("b")
    talk.start_sync("b")
    # New metadata in the sync phase sends those who wait back.
    talk.start_join("a", protocols={"range": SUBSCRIPTION + b"more"})
    talk.take("synced", "b")
    talk.start_join("b")
    talk.end_join("a")
    talk.end_join("b")


def wrong_claims(talk: Talk) -> None:
    talk.member_ids["x"] = "made-up"
    talk.join("x")
    talk.sync("x", generation_id=1)
    talk.beat("x")
    talk.leave("x")
    talk.join("a")
    talk.join("x")
    talk.sync("x")
    talk.beat("x")
    talk.leave("x")
    talk.beat("a", generation_id=5)
    talk.beat("a", generation_id=-1)
    talk.sync("a", generation_id=0)
    talk.sync("a", protocol_type=None)
    talk.sync("a", protocol_name=None)
    talk.sync("a", protocol_type="other")
    talk.sync("a", protocol_name="other")
    talk.sync("a", protocol_type="consumer", protocol_name="range", assign={"a": b"x"})
    talk.beat("a", group_instance_id="nobody")
    talk.sync("a", group_instance_id="nobody")
    claims: list[dict[str, Any]] = [
        {"protocols": {}},
        {"protocols": {"sticky": b""}},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
        {"session_timeout_ms": 5_999},
        {"session_timeout_ms": 1_800_001},
        {"group_id": ""},
    ]
    for more in claims:
        request = talk.join_request("b", **more)
        for version in (3, 5, 9):
            talk.ask(f"joins with {more}", request, version, "b")
    talk.beat("a", group_id="")
    talk.sync("a", group_id="")
    talk.ask("leaves nothing", LeaveGroupRequest("", members=[]), 5)
    talk.ask("leaves nothing", LeaveGroupRequest("", "m"), 1)
    talk.ask("leaves nothing", LeaveGroupRequest(talk.group, members=[]), 5)
    talk.ask("leaves nowhere", LeaveGroupRequest("no-such-group", "m"), 1)


def a_group_cannot_be_founded_without_a_protocol(talk: Talk) -> None:
    claims: list[dict[str, Any]] = [{"protocols": {}}, {"protocol_type": ""}]
    for more in claims:
        talk.ask("founds", talk.join_request("a", **more), 9, "a")


def votes(talk: Talk) -> None:
    talk.join("a", protocols={"one": b"1", "two": b"2"})
    talk.start_first_join("b", 2, protocols={"two": b"22", "one": b"11"})
    talk.start_first_join("c", 3, protocols={"two": b"222", "three": b"3"})
    talk.start_join("a", protocols={"one": b"1", "two": b"2"})
    for who in "abc":
        talk.end_join(who)


def static_members(talk: Talk) -> None:
    talk.join("a", group_instance_id="i-a")
    talk.sync("a", group_instance_id="i-a", assign={"a": b"all"})
    talk.start_first_join("b", 2, group_instance_id="i-b")
    talk.start_join("a", group_instance_id="i-a")
    talk.end_join("a")
    talk.end_join("b")
    talk.start_sync("b", group_instance_id="i-b")
    talk.sync("a", group_instance_id="i-a", assign={"a": b"one", "b": b"two"})
    talk.take("synced", "b")
    talk.describe()
    # Restarted: its place, its assignment, no rebalance.
    old = dict(talk.member_ids)
    del talk.member_ids["b"]
    talk.join("b", group_instance_id="i-b")
    talk.sync("b", group_instance_id="i-b")
    talk.beat("a", group_instance_id="i-a")
    # The one it replaced is fenced.
    talk.member_ids["old b"] = old["b"]
    talk.beat("old b", group_instance_id="i-b")
    talk.sync("old b", group_instance_id="i-b")
    talk.join("old b", group_instance_id="i-b")
    talk.commit("old b", {("topic1", 0): 1}, group_instance_id="i-b")
    talk.beat("old b")
    # The leader restarts too.
    for version in (9, 8):
        del talk.member_ids["a"]
        talk.join("a", version, group_instance_id="i-a")
        talk.sync("a", group_instance_id="i-a")
    talk.describe()
    # Tools remove by instance.
    members = [
        LeaveGroupRequest.MemberIdentity("", "i-b"),
        LeaveGroupRequest.MemberIdentity("", "nobody"),
        LeaveGroupRequest.MemberIdentity(old["a"], "i-a"),
        LeaveGroupRequest.MemberIdentity("", None),
    ]
    talk.ask("removes", LeaveGroupRequest(talk.group, members=members), 5)
    talk.beat("b", group_instance_id="i-b")
    talk.beat("a", group_instance_id="i-a")


def a_static_member_returns_in_other_phases(talk: Talk) -> None:
    talk.join("a", group_instance_id="i-a")
    talk.sync("a", group_instance_id="i-a", assign={})
    talk.start_first_join("b", 2, group_instance_id="i-b")
    talk.start_join("a", group_instance_id="i-a")
    talk.end_join("a")
    talk.end_join("b")
    talk.start_sync("b", group_instance_id="i-b")
    # In the sync phase: everybody starts again.
    talk.start_join("new b", group_instance_id="i-b")
    talk.take("synced", "b")
    talk.wait_for_group(lambda group: group.group_state == "PreparingRebalance")
    talk.beat("a", group_instance_id="i-a")
    # In the join phase: the join that waits is fenced.
    talk.start_join("newer b", group_instance_id="i-b")
    talk.take("joined", "new b")
    talk.start_join("a", group_instance_id="i-a")
    talk.end_join("a")
    talk.end_join("newer b")


def committing(talk: Talk) -> None:
    for version in range(2, 11):
        talk.commit("tool", {("topic1", 0): version, ("topic2", 1): 100}, version)
        talk.fetch({"topic1": [0, 1], "topic2": [1]}, 9)
    talk.commit("tool", {("topic1", 0): 1, ("topic1", 7): 1, ("nope", 0): 1})
    talk.commit("tool", {("topic1", 0): 1, ("topic1", 7): 1, ("nope", 0): 1}, 10)
    talk.commit("tool", {("nope", 0): 1}, 5)
    talk.commit("tool", {("topic1", 0): 1, ("topic1", 1): 2}, metadata="x" * 4097)
    talk.commit("tool", {("topic1", 0): 1}, metadata="x" * 4096)
    talk.commit("tool", {("topic1", 1): 1}, metadata=None)
    talk.commit("tool", {("topic1", 1): -1})
    talk.commit("tool", {("topic1", 0): 1}, member_id="m")
    talk.commit("tool", {("topic1", 0): 1}, member_id="m", generation_id_or_member_epoch=1)
    talk.commit("tool", {("topic1", 0): 1}, group_instance_id="i")
    for version in (8, 9):
        talk.commit(
            "tool",
            {("topic1", 0): 1},
            version,
            group_id="no-such-group",
            generation_id_or_member_epoch=1,
        )
    for version in range(1, 11):
        talk.fetch({"topic1": [0, 1], "topic2": [0, 9], "nope": [0]}, version, stable=True)
        if version >= 2:
            talk.fetch(None, version)
    talk.describe()


def fetching_what_is_not_there(talk: Talk) -> None:
    for version in range(1, 11):
        talk.fetch({"topic1": [0]}, version)
        if version >= 2:
            talk.fetch(None, version)
    groups = [
        OffsetFetchRequest.OffsetFetchRequestGroup(name, topics=None) for name in ("", "none")
    ]
    talk.ask("fetches", OffsetFetchRequest(groups=groups), 9)
    talk.ask("fetches", OffsetFetchRequest(groups=[]), 9)
    talk.describe()


def members_commit(talk: Talk) -> None:
    talk.join("a")
    talk.commit("a", {("topic1", 0): 1})
    talk.sync("a", assign={})
    talk.commit("a", {("topic1", 0): 2})
    talk.commit("tool", {("topic1", 0): 3})
    talk.commit("tool", {("topic1", 0): 3}, member_id="m")
    talk.commit("a", {("topic1", 0): 4}, generation_id_or_member_epoch=9)
    talk.commit("a", {("topic1", 0): 4}, generation_id_or_member_epoch=-1)
    talk.commit("a", {("topic1", 0): 4}, group_instance_id="i")
    talk.fetch(None)
    talk.start_first_join("b", 2)
    talk.commit("a", {("topic1", 0): 5})
    talk.start_join("a")
    talk.end_join("a")
    talk.end_join("b")
    talk.commit("b", {("topic1", 0): 6})
    talk.fetch(None)
    talk.leave("a")
    talk.leave("b")
    talk.commit("tool", {("topic1", 0): 7})
    talk.fetch(None)


def offset_delete(group: str, *partitions: tuple[str, int]) -> OffsetDeleteRequest:
    topics: dict[str, OffsetDeleteRequest.OffsetDeleteRequestTopic] = {}
    for name, partition in partitions:
        topics.setdefault(
            name, OffsetDeleteRequest.OffsetDeleteRequestTopic(name)
        ).partitions.append(OffsetDeleteRequest.OffsetDeleteRequestPartition(partition))
    return OffsetDeleteRequest(group, list(topics.values()))


def deleting(talk: Talk) -> None:
    everything = (("topic1", 0), ("topic1", 1), ("topic2", 0), ("nope", 0))
    talk.ask("deletes", offset_delete(talk.group, *everything), 0)
    talk.ask("deletes", DeleteGroupsRequest([talk.group]), 2)
    talk.join("a")
    talk.sync("a", assign={})
    talk.commit("a", {("topic1", 0): 1, ("topic2", 0): 2})
    talk.ask("deletes", offset_delete(talk.group, *everything), 0)
    talk.fetch(None)
    for version in range(3):
        talk.ask("deletes", DeleteGroupsRequest([talk.group, "no-such-group"]), version)
    talk.leave("a")
    talk.ask("deletes", offset_delete(talk.group, *everything), 0)
    talk.fetch(None)
    talk.commit("tool", {("topic1", 0): 5})
    talk.ask("deletes", DeleteGroupsRequest([talk.group]), 2)
    talk.fetch(None)
    talk.describe()
    talk.ask("deletes", offset_delete("", *everything), 0)
    # A group that does not tell what it reads.
    talk.member_ids.clear()
    talk.join("c", protocol_type="connect", protocols={"x": b"?"})
    talk.sync("c", assign={})
    talk.commit("c", {("topic1", 0): 5})
    talk.ask("deletes", offset_delete(talk.group, *everything), 0)


def metadata_that_nobody_understands(talk: Talk) -> None:
    talk.join("a", protocols={"range": b"?"})
    talk.sync("a", assign={})
    talk.commit("a", {("topic1", 0): 1})
    talk.ask("deletes", offset_delete(talk.group, ("topic1", 0)), 0)
    talk.describe()


def every_version_joins(talk: Talk) -> None:
    for version in range(10):
        talk.member_ids.clear()
        talk.join("a", version)
        talk.sync("a", min(version, 5), assign={"a": b"x"})
        talk.beat("a", min(version, 4))
        talk.describe(min(version, 6))
        member = talk.member_ids["a"]
        request = LeaveGroupRequest(talk.group, member)
        if version >= 3:
            request.members = [LeaveGroupRequest.MemberIdentity(member)]
        talk.ask("leaves", request, min(version, 5), "a")


def finding_coordinators(talk: Talk) -> None:
    for version in range(7):
        for key_type in (0, 7):
            request = FindCoordinatorRequest(
                talk.group, key_type if version else 0, [talk.group, "other"]
            )
            talk.ask(f"finds v{version} type {key_type}", request, version)


SCENARIOS = [
    life_of_a_group,
    followers_and_leaders_rejoin,
    wrong_claims,
    a_group_cannot_be_founded_without_a_protocol,
    votes,
    static_members,
    a_static_member_returns_in_other_phases,
    committing,
    fetching_what_is_not_there,
    members_commit,
    deleting,
    metadata_that_nobody_understands,
    every_version_joins,
    finding_coordinators,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_the_same_is_said(
    scenario: Callable[[Talk], None], ours: str, theirs: str, topics: None
) -> None:
    group = f"{scenario.__name__}-{next(_unique)}"

    here = held(scenario, ours, group)
    there = held(scenario, theirs, group)

    for number, (our_turn, their_turn) in enumerate(zip(here, there, strict=True)):
        assert our_turn == their_turn, f"turn {number}"


def test_the_same_groups_are_listed(ours: str, theirs: str, topics: None) -> None:
    group = f"listed-{next(_unique)}"

    def scenario(talk: Talk) -> None:
        talk.join("a")
        talk.sync("a", assign={})
        for version, states, types in (
            (0, [], []),
            (3, [], []),
            (4, ["stable"], []),
            (4, ["Empty"], []),
            (5, [], ["CLASSIC"]),
            (5, [], ["consumer"]),
            (5, ["Stable"], ["classic", "consumer"]),
        ):
            client = talk.client("tool")
            client.send(ListGroupsRequest(states, types), version)
            response = client.receive()
            # Other tests have left groups of their own.
            response.groups = [one for one in response.groups if one.group_id == group]
            talk.transcript.append((f"lists v{version}", talk._plain(response)))

    assert held(scenario, ours, group) == held(scenario, theirs, group)
