"""TxnOffsetCommit, v0-5, and what other requests say of offsets that a transaction has pending."""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, Topic, code, create_topic, missing_topic, unique
from tests.contracts.members import commit, committed, join, join_request, stable
from tests.contracts.transactional import KIP_890, Transactional, stable_offset, until

VERSIONS = range(6)
NONE = ErrorCode.NONE
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT
OFFSETS_TOPIC = "__consumer_offsets"
METADATA_MAX = 4_096


def offset_of(talk: Talk, group: str, topic: Topic) -> int:
    """Fetch the offset of partition 0, whatever transactions do."""
    return committed(talk, group, topic, 0)[0][0]


# The life of a pending offset


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_count_when_the_transaction_commits(talk: Talk, group: str, version: int) -> None:
    topic = create_topic(talk, partitions=2)
    producer = Transactional(talk, version)
    assert producer.add(group) is NONE

    answers = producer.commit(group, topic, {0: (5, 3, "note"), 1: (6, -1, None)})

    assert answers == {0: NONE, 1: NONE}
    assert committed(talk, group, topic, 0, 1) == {0: (-1, -1, "", NONE), 1: (-1, -1, "", NONE)}
    assert producer.end(committed=True) is NONE
    until((5, NONE), lambda: stable_offset(talk, group, topic))
    # Leader epochs are committed since v2.
    epoch = 3 if version >= 2 else -1
    found = committed(talk, group, topic, 0, 1)
    assert found == {0: (5, epoch, "note", NONE), 1: (6, -1, "", NONE)}


@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_never_were_when_it_aborts(
    talk: Talk, group: str, topic: Topic, version: int
) -> None:
    commit(talk, group, topic, {0: (2, -1, "")})
    producer = Transactional(talk, version)
    producer.add(group)
    assert producer.commit_one(group, topic, 5) is NONE

    assert producer.end(committed=False) is NONE

    until((2, NONE), lambda: stable_offset(talk, group, topic))


def test_a_later_commit_of_the_transaction_replaces_the_earlier(
    talk: Talk, group: str, topic: Topic
) -> None:
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)
    producer.commit_one(group, topic, 4)

    producer.end(committed=True)

    until((4, NONE), lambda: stable_offset(talk, group, topic))


def test_one_transaction_for_two_groups(talk: Talk, topic: Topic) -> None:
    # Of four partitions, "a" and "b" behind the same prefix have different ones.
    prefix = unique("group")
    groups = [prefix + "a", prefix + "b"]
    producer = Transactional(talk)
    for offset, group in enumerate(groups, 1):
        assert producer.commit_one(group, topic, offset) is NONE

    producer.end(committed=True)

    for offset, group in enumerate(groups, 1):
        until((offset, NONE), lambda group=group: stable_offset(talk, group, topic))  # type: ignore[misc]


def test_transactions_follow_each_other(talk: Talk, group: str, topic: Topic) -> None:
    for version in (4, KIP_890):
        producer = Transactional(talk, version)
        for offset in range(3):
            producer.add(group)
            assert producer.commit_one(group, topic, offset) is NONE
            assert producer.end(committed=offset != 1) is NONE
        until((2, NONE), lambda: stable_offset(talk, group, topic))


# Reading meanwhile


@pytest.mark.parametrize("version", [7, 8, 9, 10])
def test_a_reader_that_wants_stable_offsets_is_told_to_wait(
    talk: Talk, group: str, topic: Topic, version: int
) -> None:
    commit(talk, group, topic, {0: (2, -1, "note")})
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)

    assert stable_offset(talk, group, topic, version) == (-1, UNSTABLE)
    assert committed(talk, group, topic, 0, version=version) == {0: (2, -1, "note", NONE)}

    producer.end(committed=True)
    until((5, NONE), lambda: stable_offset(talk, group, topic, version))


def test_other_partitions_are_stable(talk: Talk, group: str) -> None:
    topic = create_topic(talk, partitions=2)
    producer = Transactional(talk)
    producer.commit(group, topic, {1: (5, -1, "")})

    assert stable_offset(talk, group, topic) == (-1, NONE)
    producer.end(committed=False)


@pytest.mark.parametrize("version", [7, 9, 10])
def test_all_offsets_of_a_group(talk: Talk, group: str, version: int) -> None:
    topic = create_topic(talk, partitions=3)
    commit(talk, group, topic, {0: (1, -1, ""), 1: (2, -1, "")})
    producer = Transactional(talk)
    producer.commit(group, topic, {1: (5, -1, ""), 2: (6, -1, "")})

    fetch = messages.OffsetFetchRequest
    if version >= 8:
        request = fetch(groups=[fetch.OffsetFetchRequestGroup(group, None, -1, None)])
    else:
        request = fetch(group, None)
    request.require_stable = True
    answer = talk.ask(request, version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics

    # What was never committed outside the transaction is not among them.
    found = {
        each.partition_index: (each.committed_offset, code(each)) for each in topics[0].partitions
    }
    assert found == {0: (1, NONE), 1: (-1, UNSTABLE)}
    producer.end(committed=False)


# Beside plain commits


def test_a_plain_commit_behind_it_wins(talk: Talk, group: str, topic: Topic) -> None:
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)

    assert commit(talk, group, topic, {0: (3, -1, "")}) == {0: NONE}
    assert offset_of(talk, group, topic) == 3
    assert stable_offset(talk, group, topic) == (-1, UNSTABLE)
    producer.end(committed=True)

    until((3, NONE), lambda: stable_offset(talk, group, topic))


def test_of_two_transactions_the_later_commit_wins(talk: Talk, group: str, topic: Topic) -> None:
    first, second = Transactional(talk), Transactional(talk)
    first.commit_one(group, topic, 5)
    second.commit_one(group, topic, 6)

    second.end(committed=True)
    until(6, lambda: offset_of(talk, group, topic))
    assert stable_offset(talk, group, topic) == (-1, UNSTABLE)
    first.end(committed=True)

    until((6, NONE), lambda: stable_offset(talk, group, topic))


# Who may commit


@pytest.mark.parametrize("version", [3, 4, 5])
def test_members_commit_as_themselves(talk: Talk, group: str, topic: Topic, version: int) -> None:
    member_id = stable(talk, group, instance="i1")
    producer = Transactional(talk, version)
    producer.add(group)

    def ask(generation: int, member: str, instance: str | None) -> ErrorCode:
        return producer.commit_one(
            group, topic, 5, generation=generation, member_id=member, instance=instance
        )

    assert ask(1, member_id, "i1") is NONE
    assert ask(1, member_id, None) is NONE
    assert ask(2, member_id, "i1") is ErrorCode.ILLEGAL_GENERATION
    assert ask(0, member_id, None) is ErrorCode.ILLEGAL_GENERATION
    assert ask(-1, member_id, None) is ErrorCode.ILLEGAL_GENERATION
    assert ask(1, "nobody", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(1, "", None) is ErrorCode.UNKNOWN_MEMBER_ID
    assert ask(1, "nobody", "i1") is ErrorCode.FENCED_INSTANCE_ID
    assert ask(1, member_id, "i2") is ErrorCode.UNKNOWN_MEMBER_ID
    # Nobody in particular: as all producers were before v3.
    assert ask(-1, "", None) is NONE
    producer.end(committed=False)


@pytest.mark.parametrize("version", [0, 2])
def test_before_v3_a_producer_speaks_for_nobody(
    talk: Talk, group: str, topic: Topic, version: int
) -> None:
    stable(talk, group)
    producer = Transactional(talk, version)
    producer.add(group)

    assert producer.commit_one(group, topic, 5) is NONE
    producer.end(committed=False)


def test_a_member_without_its_assignment_may_commit(talk: Talk, group: str, topic: Topic) -> None:
    joined = join(talk, group)
    producer = Transactional(talk)

    answer = producer.commit_one(
        group, topic, 5, generation=joined.generation_id, member_id=joined.member_id
    )

    assert answer is NONE
    producer.end(committed=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_does_not_exist(talk: Talk, topic: Topic, version: int) -> None:
    producer = Transactional(talk, version)
    new, other = unique("group"), unique("group")
    producer.add(new)
    producer.add(other)

    if version >= 3:
        answer = producer.commit_one(new, topic, 5, generation=1, member_id="member")
        assert answer is ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_one(other, topic, 5) is NONE
    producer.end(committed=False)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_needs_a_name(talk: Talk, topic: Topic, version: int) -> None:
    producer = Transactional(talk, version)

    assert producer.commit_one("", topic, 5) is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", VERSIONS)
def test_every_partition_has_its_own_fate(
    talk: Talk, group: str, topic: Topic, version: int
) -> None:
    producer = Transactional(talk, version)
    producer.add(group)
    fits, too_long = "m" * METADATA_MAX, "m" * (METADATA_MAX + 1)
    wide = create_topic(talk, partitions=2)

    answers = producer.commit(group, wide, {0: (5, -1, fits), 1: (6, -1, too_long), 7: (1, -1, "")})

    assert answers == {
        0: NONE,
        1: ErrorCode.OFFSET_METADATA_TOO_LARGE,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    missing = producer.commit(group, missing_topic(), {0: (5, -1, "")})
    assert missing == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert producer.commit(group, topic, {0: (5, -1, too_long)}) == {
        0: ErrorCode.OFFSET_METADATA_TOO_LARGE
    }
    producer.end(committed=True)
    until((5, NONE), lambda: stable_offset(talk, group, wide))


def test_what_is_wrong_with_the_member_is_told_before_its_metadata(
    talk: Talk, group: str, topic: Topic
) -> None:
    stable(talk, group)
    producer = Transactional(talk)
    too_long = "m" * (METADATA_MAX + 1)

    answers = producer.commit(
        group, topic, {0: (5, -1, too_long), 7: (5, -1, "")}, generation=1, member_id="nobody"
    )

    assert answers == {
        0: ErrorCode.UNKNOWN_MEMBER_ID,
        7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert commit(talk, group, topic, {0: (5, -1, too_long)}, member_id="nobody", generation=1) == {
        0: ErrorCode.UNKNOWN_MEMBER_ID
    }


# Whose transaction


@pytest.mark.parametrize("version", [0, 3, 4])
def test_a_group_that_did_not_join_the_transaction(
    talk: Talk, group: str, topic: Topic, version: int
) -> None:
    producer = Transactional(talk, version)

    abortable = version >= 4
    answer = producer.commit_one(group, topic, 5)

    assert answer is (ErrorCode.TRANSACTION_ABORTABLE if abortable else ErrorCode.INVALID_TXN_STATE)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_was_replaced(talk: Talk, group: str, topic: Topic, version: int) -> None:
    producer = Transactional(talk, version)
    producer.add(group)
    producer.commit_one(group, topic, 5)
    old_epoch = producer.producer_epoch

    producer.init()
    until((-1, NONE), lambda: stable_offset(talk, group, topic))
    producer.producer_epoch = old_epoch

    assert producer.commit_one(group, topic, 6) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_was_replaced_before_it_came_here(
    talk: Talk, group: str, topic: Topic, version: int
) -> None:
    producer = Transactional(talk, version)
    old_epoch = producer.producer_epoch
    producer.init()
    producer.producer_epoch = old_epoch

    assert producer.commit_one(group, topic, 6) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_that_nobody_knows(talk: Talk, group: str, topic: Topic, version: int) -> None:
    producer = Transactional(talk, version)
    known = producer.transactional_id
    producer.transactional_id = unique("unknown")
    assert producer.commit_one(group, topic, 5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    producer.transactional_id = known
    producer.producer_id += 1_000_000
    assert producer.commit_one(group, topic, 5) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


# Tools meanwhile


def delete_offsets(talk: Talk, group: str, topic: Topic, *partitions: int) -> ErrorCode:
    delete = messages.OffsetDeleteRequest
    wanted = delete.OffsetDeleteRequestTopic(
        topic.name, [delete.OffsetDeleteRequestPartition(index) for index in partitions]
    )
    answer = talk.ask(delete(group, [wanted]), 0)
    assert not answer.error_code or not answer.topics
    return code(answer)


def group_state(talk: Talk, group: str) -> str:
    (answer,) = talk.ask(messages.DescribeGroupsRequest([group]), 5).groups
    state = answer.group_state
    assert isinstance(state, str)
    return state


def test_deleting_an_offset_takes_the_pending_one_along(talk: Talk, group: str) -> None:
    topic = create_topic(talk, partitions=2)
    commit(talk, group, topic, {0: (2, -1, ""), 1: (2, -1, "")})
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)

    assert delete_offsets(talk, group, topic, 0) is NONE
    assert stable_offset(talk, group, topic) == (-1, NONE)
    producer.end(committed=True)

    # The next transaction can only begin when this one has ended.
    producer.commit(group, topic, {1: (7, -1, "")})
    producer.end(committed=True)
    until(7, lambda: committed(talk, group, topic, 1)[1][0])
    assert stable_offset(talk, group, topic) == (-1, NONE)


def test_a_group_exists_while_it_has_nothing_but_a_pending_offset(
    talk: Talk, group: str, topic: Topic
) -> None:
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)

    assert group_state(talk, group) == "Empty"
    producer.end(committed=True)


def test_a_group_whose_only_transaction_was_aborted(
    broker: Subject, talk: Talk, group: str, topic: Topic
) -> None:
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)

    producer.end(committed=False)
    until((-1, NONE), lambda: stable_offset(talk, group, topic))

    assert group_state(talk, group) == broker.expected("group of an aborted transaction")


def test_deleting_a_group_takes_its_pending_offsets_along(
    talk: Talk, group: str, topic: Topic
) -> None:
    commit(talk, group, topic, {0: (2, -1, "")})
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)

    (deleted,) = talk.ask(messages.DeleteGroupsRequest([group]), 2).results
    assert code(deleted) is NONE
    assert stable_offset(talk, group, topic) == (-1, NONE)
    producer.end(committed=True)
    producer.commit_one(other := unique("group"), topic, 7)
    producer.end(committed=True)
    until((7, NONE), lambda: stable_offset(talk, other, topic))

    assert offset_of(talk, group, topic) == -1
    assert group_state(talk, group) == "Dead"


def test_a_marker_that_a_tool_writes_ends_it_too(talk: Talk, group: str, topic: Topic) -> None:
    producer = Transactional(talk, 4)
    producer.add(group)
    producer.commit_one(group, topic, 5)
    write = messages.WriteTxnMarkersRequest
    everywhere = write.WritableTxnMarkerTopic(OFFSETS_TOPIC, [0, 1, 2, 3])
    marker = write.WritableTxnMarker(
        producer.producer_id, producer.producer_epoch, True, [everywhere], 0
    )

    (answer,) = talk.ask(write([marker]), 1).markers

    assert {code(each) for each in answer.topics[0].partitions} == {NONE}
    until((5, NONE), lambda: stable_offset(talk, group, topic))
    producer.end(committed=False)
    # Markers for partitions without a transaction change nothing.
    assert offset_of(talk, group, topic) == 5


def test_joining_does_not_touch_a_pending_offset(talk: Talk, group: str, topic: Topic) -> None:
    producer = Transactional(talk)
    producer.commit_one(group, topic, 5)

    answer = talk.ask(join_request(group), 3)

    assert code(answer) is NONE
    assert stable_offset(talk, group, topic) == (-1, UNSTABLE)
    producer.end(committed=True)
    until((5, NONE), lambda: stable_offset(talk, group, topic))
