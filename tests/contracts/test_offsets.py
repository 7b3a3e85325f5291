"""OffsetCommit, v2-10, and OffsetFetch, v1-10: what a group may say, and what it is told."""

import time

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Talk, Topic, code, create_topic, missing_topic, unique
from tests.contracts.members import (
    commit,
    committed,
    committed_by_topic,
    join,
    leave,
    stable,
    subscription,
)

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
ILLEGAL = ErrorCode.ILLEGAL_GENERATION
NOTHING = (-1, -1, "", NONE)
METADATA_MAX = 4_096


# Committing


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_every_partition_has_its_own_fate(talk: Talk, group: str, version: int) -> None:
    topic = create_topic(talk, partitions=2)
    offsets = {0: (5, 3, "note"), 1: (6, -1, None), 7: (1, -1, "")}

    answers = commit(talk, group, topic, offsets, version=version)

    assert answers == {0: NONE, 1: NONE, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    # Leader epochs are committed since v6; null metadata is no metadata.
    epoch = 3 if version >= 6 else -1
    found = committed(talk, group, topic, 0, 1)
    assert found == {0: (5, epoch, "note", NONE), 1: (6, -1, "", NONE)}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_topic_that_does_not_exist(talk: Talk, group: str, version: int) -> None:
    answers = commit(talk, group, missing_topic(), {0: (5, -1, "")}, version=version)

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answers == {0: ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else unknown}


def test_names_and_ids_that_no_topic_can_have(talk: Talk, group: str, topic: Topic) -> None:
    for name in ("", "a b"):
        answers = commit(talk, group, Topic(name, topic.topic_id), {0: (5, -1, "")}, version=9)
        assert answers == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    null = Topic(topic.name, bytes(16))
    answers = commit(talk, group, null, {0: (5, -1, "")}, version=10)
    assert answers == {0: ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize("version", [2, 9, 10])
def test_metadata_has_a_limit(talk: Talk, group: str, version: int) -> None:
    topic = create_topic(talk, partitions=2)
    fits, too_long = "m" * METADATA_MAX, "m" * (METADATA_MAX + 1)

    answers = commit(talk, group, topic, {0: (5, -1, fits)}, version=version)
    assert answers == {0: NONE}
    answers = commit(talk, group, topic, {0: (6, -1, too_long), 1: (7, -1, "")}, version=version)
    assert answers == {0: ErrorCode.OFFSET_METADATA_TOO_LARGE, 1: NONE}
    found = committed(talk, group, topic, 0, 1)
    assert found == {0: (5, -1, fits, NONE), 1: (7, -1, "", NONE)}


@pytest.mark.parametrize("version", [2, 10])
def test_any_number_is_an_offset(talk: Talk, group: str, topic: Topic, version: int) -> None:
    assert commit(talk, group, topic, {0: (-7, -1, "")}, version=version) == {0: NONE}

    assert committed(talk, group, topic, 0) == {0: (-7, -1, "", NONE)}


@pytest.mark.parametrize("version", COMMIT_VERSIONS)
def test_a_group_that_does_not_exist(talk: Talk, topic: Topic, version: int) -> None:
    def ask(member_id: str, generation: int) -> ErrorCode:
        answers = commit(
            talk,
            unique("new"),
            topic,
            {0: (5, -1, "")},
            version=version,
            member_id=member_id,
            generation=generation,
        )
        return answers[0]

    missing = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ILLEGAL
    assert ask("member", 3) is missing
    # Without a generation it is a tool, or a consumer that chooses its partitions itself.
    assert ask("", -1) is NONE
    assert ask("member", -1) is NONE


@pytest.mark.parametrize("version", [2, 9, 10])
def test_the_empty_name_is_a_group_too(talk: Talk, topic: Topic, version: int) -> None:
    assert commit(talk, "", topic, {0: (5, -1, "")}, version=version) == {0: NONE}
    assert committed(talk, "", topic, 0)[0][0] == 5

    # And can be deleted like any other, before other tests find it.
    (deleted,) = talk.ask(messages.DeleteGroupsRequest([""]), 2).results
    assert code(deleted) is NONE


def test_no_topics(talk: Talk, group: str) -> None:
    for version in (2, 9, 10):
        request = messages.OffsetCommitRequest(group, -1, "", None, -1, [])
        assert talk.ask(request, version).topics == []


# (what a member says about itself) and what it is told in each state of the group.
CLAIMS = [
    # member id, generation, instance: completing, stable, empty
    ("member", 1, None, ErrorCode.REBALANCE_IN_PROGRESS, NONE, UNKNOWN),
    ("member", 0, None, ILLEGAL, ILLEGAL, UNKNOWN),
    ("member", 9, None, ILLEGAL, ILLEGAL, UNKNOWN),
    ("member", -1, None, ILLEGAL, ILLEGAL, NONE),
    ("stranger", 1, None, UNKNOWN, UNKNOWN, UNKNOWN),
    ("stranger", -1, None, UNKNOWN, UNKNOWN, NONE),
    ("", -1, None, UNKNOWN, UNKNOWN, NONE),
    ("member", 1, "instance", UNKNOWN, UNKNOWN, UNKNOWN),
]


@pytest.mark.parametrize("version", [2, 7, 9, 10])
@pytest.mark.parametrize("state", ["completing", "stable", "empty"])
def test_who_may_commit(talk: Talk, group: str, topic: Topic, version: int, state: str) -> None:
    member = join(talk, group).member_id if state == "completing" else stable(talk, group)
    if state == "empty":
        leave(talk, group, (member, None))
    for name, generation, instance, *answers in CLAIMS:
        if instance is not None and version < 7:
            continue  # before v7 nobody could say so
        answer = commit(
            talk,
            group,
            topic,
            {0: (5, -1, "")},
            version=version,
            member_id=member if name == "member" else name,
            generation=generation,
            instance=instance,
        )
        expected = answers[("completing", "stable", "empty").index(state)]
        assert (name, generation, answer) == (name, generation, {0: expected})


def test_a_static_member_that_was_replaced(talk: Talk, group: str, topic: Topic) -> None:
    member = stable(talk, group, instance="i1")

    def ask(member_id: str) -> ErrorCode:
        offsets = {0: (5, -1, "")}
        claim = {"member_id": member_id, "generation": 1, "instance": "i1"}
        return commit(talk, group, topic, offsets, **claim)[0]  # type: ignore[arg-type]

    assert ask("stranger") is ErrorCode.FENCED_INSTANCE_ID
    assert ask(member) is NONE


def test_the_partition_is_judged_before_the_member(talk: Talk, group: str, topic: Topic) -> None:
    stable(talk, group)
    claim = {"member_id": "stranger", "generation": 1}

    answers = commit(talk, group, topic, {7: (5, -1, "")}, **claim)  # type: ignore[arg-type]

    assert answers == {7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


# Fetching


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_what_was_and_what_was_not_committed(talk: Talk, group: str, version: int) -> None:
    topic, missing = create_topic(talk, partitions=3), missing_topic()
    commit(talk, group, topic, {0: (5, 3, "note"), 1: (6, -1, None)})

    wanted = [(topic, [0, 1, 2, 9]), (missing, [0])]
    found = committed_by_topic(talk, group, wanted, version=version)

    epoch = 3 if version >= 5 else -1
    by_id = version >= 10
    assert found == {
        topic.topic_id if by_id else topic.name: {
            0: (5, epoch, "note", NONE),
            1: (6, -1, "", NONE),
            2: NOTHING,
            9: NOTHING,
        },
        missing.topic_id if by_id else missing.name: {
            0: (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID if by_id else NONE)
        },
    }


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_a_group_that_does_not_exist_has_committed_nothing(
    talk: Talk, topic: Topic, version: int
) -> None:
    for group in (unique("none"), ""):
        committed_nothing = committed(talk, group, topic, 3, version=version)
        assert committed_nothing == {3: NOTHING}
    assert committed_by_topic(talk, unique("none"), [], version=version) == {}


@pytest.mark.parametrize("version", range(2, 11))
def test_all_that_a_group_has_committed(talk: Talk, group: str, version: int) -> None:
    first, second = create_topic(talk, partitions=2), create_topic(talk)
    commit(talk, group, first, {0: (5, -1, ""), 1: (6, -1, "")})
    commit(talk, group, second, {0: (7, -1, "")})

    everything = committed_by_topic(talk, group, None, version=version)

    by_id = version >= 10
    assert everything == {
        first.topic_id if by_id else first.name: {0: (5, -1, "", NONE), 1: (6, -1, "", NONE)},
        second.topic_id if by_id else second.name: {0: (7, -1, "", NONE)},
    }
    assert committed_by_topic(talk, unique("none"), None, version=version) == {}


@pytest.mark.parametrize("version", [8, 9, 10])
def test_several_groups_at_once(talk: Talk, group: str, topic: Topic, version: int) -> None:
    commit(talk, group, topic, {0: (5, -1, "")})
    other = unique("none")
    fetch = messages.OffsetFetchRequest
    topics = [fetch.OffsetFetchRequestTopics(topic.name, topic.topic_id, [0])]
    groups = [fetch.OffsetFetchRequestGroup(name, None, -1, topics) for name in (group, other)]

    answer = talk.ask(fetch(groups=groups), version)

    found = {
        each.group_id: (code(each), each.topics[0].partitions[0].committed_offset)
        for each in answer.groups
    }
    assert found == {group: (NONE, 5), other: (NONE, -1)}
    assert talk.ask(fetch(groups=[]), version).groups == []


@pytest.mark.parametrize("version", range(7, 11))
def test_stable_offsets(talk: Talk, group: str, topic: Topic, version: int) -> None:
    commit(talk, group, topic, {0: (5, -1, "")})
    fetch = messages.OffsetFetchRequest
    if version >= 8:
        topics = [fetch.OffsetFetchRequestTopics(topic.name, topic.topic_id, [0])]
        asked = fetch(groups=[fetch.OffsetFetchRequestGroup(group, None, -1, topics)])
    else:
        asked = fetch(group_id=group, topics=[fetch.OffsetFetchRequestTopic(topic.name, [0])])
    asked.require_stable = True

    answer = talk.ask(asked, version)

    found = (answer.groups[0] if version >= 8 else answer).topics[0].partitions[0]
    assert (code(found), found.committed_offset) == (NONE, 5)


@pytest.mark.parametrize("member_id, epoch", [("member", 5), ("member", -1), (None, 5)])
def test_classic_groups_do_not_check_member_epochs(
    talk: Talk, group: str, topic: Topic, member_id: str | None, epoch: int
) -> None:
    commit(talk, group, topic, {0: (5, -1, "")})
    fetch = messages.OffsetFetchRequest
    topics = [fetch.OffsetFetchRequestTopics(topic.name, topic.topic_id, [0])]
    asked = fetch.OffsetFetchRequestGroup(group, member_id, epoch, topics)

    (answer,) = talk.ask(fetch(groups=[asked]), 9).groups

    assert (code(answer), answer.topics[0].partitions[0].committed_offset) == (NONE, 5)


def test_offsets_end_with_their_topic(talk: Talk, group: str) -> None:
    name = unique("contract")
    topic, other = create_topic(talk, name=name), create_topic(talk)
    commit(talk, group, topic, {0: (5, -1, "")})
    commit(talk, group, other, {0: (6, -1, "")})
    state = messages.DeleteTopicsRequest.DeleteTopicState(name)
    talk.ask(messages.DeleteTopicsRequest([state], timeout_ms=10_000), 6)
    end_s = time.monotonic() + 20
    while committed(talk, group, topic, 0)[0] != NOTHING:
        assert time.monotonic() < end_s

    assert committed_by_topic(talk, group, None) == {other.name: {0: (6, -1, "", NONE)}}
    by_id = committed(talk, group, topic, 0, version=10)
    assert by_id == {0: (-1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)}
    again = create_topic(talk, name=name)
    assert committed(talk, group, again, 0) == {0: NOTHING}


def test_a_consumer_reads_on_where_its_group_was(talk: Talk, group: str, topic: Topic) -> None:
    member = stable(talk, group, protocols=(("range", subscription(topic.name)),))
    claim = {"member_id": member, "generation": 1}
    commit(talk, group, topic, {0: (5, 0, "note")}, **claim)  # type: ignore[arg-type]
    leave(talk, group, (member, None))

    assert committed(talk, group, topic, 0) == {0: (5, 0, "note", NONE)}
