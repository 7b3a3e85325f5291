"""Where Headwater answers otherwise than Apache Kafka, on purpose.

This file alone decides which differences are kept. Each has the value that Apache Kafka 4.3
answers, ours, the reason, and the words of the row in `skipped.md` that tells users of it. A test
asks for the value by the name of the difference, so that both sides stay pinned.
"""

from typing import Any, NamedTuple

from headwater.base.errors import ErrorCode


class Difference(NamedTuple):
    """One difference that is kept.

    Attributes:
        kafkas: What Apache Kafka answers.
        ours: What Headwater answers.
        reason: Why.
        told: Words of the row in `skipped.md`.
    """

    kafkas: Any
    ours: Any
    reason: str
    told: str


_OPAQUE = "Records inside a batch are not looked at"

DIFFERENCES: dict[str, Difference] = {
    # Produce
    "produce an unknown compression": Difference(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        "It is the client's mistake, and this code says which one.",
        "An unknown compression is UNSUPPORTED_COMPRESSION_TYPE",
    ),
    "produce an impossible length": Difference(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_RECORD,
        "A batch longer than the request is cut short, however long it claims to be.",
        "a batch length close to 2 GiB is INVALID_RECORD",
    ),
    "produce bytes behind a batch": Difference(
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
        "What follows a batch is no part of it; Kafka drops it without a word.",
        "Bytes behind a batch are INVALID_RECORD",
    ),
    "produce again what has ended": Difference(
        [(ErrorCode.NONE, 0), (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)],
        [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (ErrorCode.NONE, 2)],
        "It is new, of a client that has lost count; answered as repeated it would be lost.",
        "A transactional batch with the sequence number of one whose transaction has ended",
    ),
    "produce malformed records": Difference(
        ErrorCode.INVALID_RECORD,
        ErrorCode.NONE,
        "Unpacking every record would cost more than all the rest of an append.",
        _OPAQUE,
    ),
    "produce a wrong largest timestamp": Difference(
        1_000, 5, "Kafka unpacks every batch and counts again.", _OPAQUE
    ),
    "produce a bad timestamp in the middle": Difference(
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.NONE,
        "Only the first and the largest timestamp stand in the header.",
        _OPAQUE,
    ),
    "produce names records with bad timestamps": Difference(
        [0], [], "Only the first and the largest timestamp stand in the header.", _OPAQUE
    ),
    "produce a delete horizon": Difference(
        ErrorCode.NONE,
        ErrorCode.INVALID_RECORD,
        "Compaction would take it for its own, and drop the tombstones of the batch at once.",
        "A batch that claims a delete horizon is INVALID_RECORD",
    ),
    "produce more than a million records": Difference(
        ErrorCode.NONE,
        ErrorCode.MESSAGE_TOO_LARGE,
        "Records are not counted, so the header's word has a bound.",
        "A batch of more than 1,048,576 records is MESSAGE_TOO_LARGE",
    ),
    "produce log append time": Difference(
        ErrorCode.NONE,
        ErrorCode.INVALID_TIMESTAMP,
        "Only the broker can know it; Kafka refuses it on topics with log append time only.",
        "A batch that claims log append time is INVALID_TIMESTAMP",
    ),
    "produce null instead of a batch": Difference(
        None,
        ErrorCode.INVALID_RECORD,
        "An answer is better than silence.",
        "null instead of a batch is INVALID_RECORD",
    ),
    "produce to a partition twice in a request": Difference(
        [0],
        [0, 1],
        "Kafka loses one of the two batches; ours keeps both.",
        "A partition that stands twice in a request gets both batches",
    ),
    "produce refusal's log start": Difference(
        0,
        -1,
        "Clients read it with UNKNOWN_PRODUCER_ID only, which is never answered here.",
        "Refusals carry a sentence and no log start",
    ),
    "produce refusal without a sentence": Difference(
        kafkas=True,
        ours=False,
        reason="Whoever reads it should know what to mend.",
        told="Refusals carry a sentence and no log start",
    ),
    "produce the append time of a repeated batch": Difference(
        kafkas=True,
        ours=False,
        reason="The topic has no append times; the client's own time is right.",
        told="A repeated batch is answered without a time",
    ),
    # Fetch
    "fetch cuts the last batch": Difference(
        80,
        0,
        "Clients throw the part away; sending it wastes what it costs.",
        "Batches are never cut",
    ),
    "fetch less than nothing": Difference(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NONE,
        "Less than nothing is nothing: one batch comes.",
        "A negative limit counts as 0",
    ),
    "fetch as a replica": Difference(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
        "There are no replicas, so whoever asks is a consumer.",
        "A fetch in the name of a replica is a consumer's",
    ),
    "fetch at an unknown isolation level": Difference(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.NONE,
        "Every level but read_committed sees all that is durable.",
        "An unknown isolation level is read_uncommitted",
    ),
    "fetch a partition twice": Difference(
        [[5, 6, 7, 8]],
        [list(range(9)), [5, 6, 7, 8]],
        "No client does it; both questions are answered.",
        "A partition that stands twice in a request is answered twice",
    ),
    # ListOffsets
    "list offsets: the largest of no timestamps": Difference(
        (0, -1, 0),
        (-1, -1, -1),
        "No record has a timestamp, so none has the largest.",
        "Where no record has a timestamp, none has the largest",
    ),
    # Metadata
    "metadata of nothing": Difference(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        "It is the client's mistake: no topic has the null id.",
        "Neither a name nor an id is UNKNOWN_TOPIC_ID",
    ),
    # ApiVersions
    "api versions: finalized features": Difference(
        {
            "group.version": 1,
            "streams.version": 1,
            "transaction.version": 2,
            "eligible.leader.replicas.version": 1,
            "share.version": 1,
            "metadata.version": 30,
        },
        {"transaction.version": 2, "metadata.version": 30},
        "A feature is told when it exists.",
        "Only the features `metadata.version` and `transaction.version`",
    ),
    "api versions: supported features": Difference(
        {
            "group.version": (0, 1),
            "kraft.version": (0, 1),
            "metadata.version": (7, 30),
            "share.version": (0, 1),
            "streams.version": (0, 1),
            "transaction.version": (0, 2),
            "eligible.leader.replicas.version": (0, 1),
        },
        {"metadata.version": (30, 30), "transaction.version": (0, 2)},
        "A feature is told when it exists, and metadata has no older form here.",
        "Only the features `metadata.version` and `transaction.version`",
    ),
    "update features: levels of metadata": Difference(
        "7-30",
        "30-30",
        "Metadata has no older form here that one could go back to.",
        "`metadata.version` is always 30",
    ),
    # DescribeTopicPartitions, DescribeQuorum
    "describe topic partitions: no name": Difference(
        [("", ErrorCode.UNKNOWN_SERVER_ERROR), ("a", ErrorCode.UNKNOWN_SERVER_ERROR)],
        [("", ErrorCode.INVALID_TOPIC_EXCEPTION), ("a", [0, 1, 2])],
        "It is the client's mistake, and the other topics are not to blame.",
        "A topic without a name is INVALID_TOPIC_EXCEPTION",
    ),
    "describe quorum: the voter's listener": Difference(
        "CONTROLLER",
        "PLAINTEXT",
        "Clients and tools reach the node by the one listener that it has.",
        "The voter is reached by the listener of clients",
    ),
    # Groups
    "join as a static member under a dynamic member's id": Difference(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_MEMBER_ID,
        "There is no static member with this id.",
        "An id that was given to a dynamic member is unknown to static ones",
    ),
    "join: how much of a client's name is in a member id": Difference(
        300,
        255,
        "A name of 32,767 bytes would make an id that no message can hold.",
        "A member id begins with at most 255 characters of the client's name",
    ),
    "join: what a refused founder leaves behind": Difference(
        "Empty",
        "Dead",
        "Stray requests should cost no memory.",
        "A client that may not found a group leaves none behind",
    ),
    "join: the first of two requests of a member that waits": Difference(
        None,
        ErrorCode.REBALANCE_IN_PROGRESS,
        "On one connection the second answer could not be sent before the first.",
        "A request that waits is answered with REBALANCE_IN_PROGRESS",
    ),
    "leave: the answer that the member waited for": Difference(
        None,
        ErrorCode.UNKNOWN_MEMBER_ID,
        "A client that gave up should not wait for ever.",
        "a member that waits for its assignment is told UNKNOWN_MEMBER_ID",
    ),
    "leave: what an announced member makes of the group": Difference(
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.NONE,
        "Who never was a member is missed by nobody.",
        "An id that was given out and never used leaves without a rebalance",
    ),
    "group of an aborted transaction": Difference(
        "Empty",
        "Dead",
        "Nothing ever came of it.",
        "A group whose only transaction was aborted is forgotten",
    ),
    # Topics and configs
    "create topics: an id from validate_only": Difference(
        kafkas=True,
        ours=False,
        reason="An id that leads nowhere helps nobody.",
        told="`validate_only` answers the null topic id",
    ),
    "create topics: a hint at the right name": Difference(
        kafkas=False,
        ours=True,
        reason="People make typing errors.",
        told="A misspelt config is refused with the nearest name",
    ),
    "describe configs: settings of brokers and groups": Difference(
        (True, True),
        (False, False),
        "Each value told is the one in force; for the others there would be none to tell.",
        "The broker tells the settings that it has",
    ),
    "describe configs: configs of ours alone": Difference(
        {},
        {"headwater.overflow": 2, "headwater.overflow.bytes": 5},
        "How a topic answers a producer that is too fast.",
        "there are `headwater.*` configs",
    ),
    "describe configs: flush.messages": Difference(
        str(2**63 - 1),
        "1",
        "Durable by default.",
        "`flush.messages` is 1 by default",
    ),
    "alter configs: an unknown operation": Difference(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_REQUEST,
        "It is the client's mistake.",
        "An unknown operation is INVALID_REQUEST",
    ),
    "alter configs: settings of what is not there": Difference(
        ErrorCode.NONE,
        ErrorCode.INVALID_CONFIG,
        "A value that changes nothing would be a lie.",
        "Settings of threads, of replication, of tiered storage",
    ),
    "alter configs: the broker's own state": Difference(
        ErrorCode.NONE,
        ErrorCode.INVALID_CONFIG,
        "One command would lose all groups, or all transactions.",
        "`__consumer_offsets` and `__transaction_state` stay compacted",
    ),
    "create partitions: the broker's own state": Difference(
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "Groups and transactional ids would be looked for where they are not.",
        "`__consumer_offsets` and `__transaction_state` never grow",
    ),
    "delete topics: the broker's own state": Difference(
        ErrorCode.NONE,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        "One command would lose all groups, or all transactions.",
        "`__consumer_offsets` and `__transaction_state` are not deleted",
    ),
    "alter configs: a resource twice": Difference(
        None,
        [ErrorCode.INVALID_REQUEST] * 2,
        "An answer is better than silence.",
        "A resource named twice is refused",
    ),
}
