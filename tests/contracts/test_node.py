"""ApiVersions, FindCoordinator, DescribeCluster, DescribeLogDirs: what the node is and serves."""

import struct
from typing import Any

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.dialects.kafka import registry
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, batch_of, code, create_topic, produce, unique

NODE_ID = 1
NOT_ASKED = -(2**31)
CLUSTER_OPERATIONS = 8096

# Every API that both serve, in Apache Kafka 4.3's own versions.
RANGES = {
    0: (0, 13),
    1: (4, 18),
    2: (1, 11),
    3: (0, 13),
    8: (2, 10),
    9: (1, 10),
    10: (0, 6),
    11: (0, 9),
    12: (0, 4),
    13: (0, 5),
    14: (0, 5),
    15: (0, 6),
    16: (0, 5),
    17: (0, 1),
    18: (0, 4),
    19: (2, 7),
    20: (1, 6),
    21: (0, 2),
    22: (0, 5),
    23: (2, 4),
    24: (0, 5),
    25: (0, 4),
    26: (0, 5),
    27: (1, 2),
    28: (0, 5),
    29: (1, 3),
    30: (1, 3),
    31: (1, 3),
    32: (1, 4),
    33: (0, 2),
    34: (1, 2),
    35: (1, 5),
    36: (0, 2),
    37: (0, 3),
    42: (0, 2),
    43: (0, 2),
    44: (0, 1),
    45: (0, 1),
    46: (0, 0),
    47: (0, 0),
    48: (0, 1),
    49: (0, 1),
    50: (0, 0),
    55: (0, 2),
    57: (0, 2),
    60: (0, 2),
    61: (0, 0),
    65: (0, 0),
    66: (0, 2),
    74: (0, 1),
    75: (0, 0),
}


# ApiVersions


def api_versions(talk: Talk, version: int, name: str = "contract", number: str = "1.0") -> Any:  # noqa: ANN401 - the response
    return talk.ask(messages.ApiVersionsRequest(name, number), version)


def test_the_table_is_about_what_we_serve() -> None:
    assert RANGES.keys() == registry.APIS.keys()


@pytest.mark.parametrize("version", range(5))
def test_the_ranges_of_every_api(talk: Talk, version: int) -> None:
    answer = api_versions(talk, version)

    told = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert {key: told.get(key) for key in RANGES} == RANGES
    assert (code(answer), answer.throttle_time_ms) == (ErrorCode.NONE, 0)
    assert not answer.zk_migration_ready


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_is_answered_in_the_oldest_form(talk: Talk, version: int) -> None:
    talk.tell_raw(struct.pack(">hhih", 18, version, 7, -1) + b"\0")

    answer = talk.receive_raw()

    unsupported = ErrorCode.UNSUPPORTED_VERSION
    assert answer == struct.pack(">ihihhh", 7, unsupported, 1, 18, *RANGES[18])
    assert code(api_versions(talk, 4)) is ErrorCode.NONE, "the connection goes on"


@pytest.mark.parametrize(
    "name, number, legal",
    [
        ("a.b-c", "1.0-x", True),
        ("a", "1", True),
        ("", "", False),
        ("a", "", False),
        ("a b", "1", False),
        ("a-", "1", False),
        ("-a", "1", False),
        ("é", "1", False),
        ("a", "1 ", False),
    ],
)
@pytest.mark.parametrize("version", [3, 4])
def test_names_of_client_software(
    talk: Talk, name: str, number: str, legal: bool, version: int
) -> None:
    answer = api_versions(talk, version, name, number)

    assert code(answer) is (ErrorCode.NONE if legal else ErrorCode.INVALID_REQUEST)
    assert bool(answer.api_keys) is legal


@pytest.mark.parametrize(
    "key, version", [(999, 0), (-1, 0), (3, 99), (3, -1), (1, 3), (2, 0), (19, 1), (8, 1)]
)
def test_other_unknown_apis_and_versions_close_the_connection(
    talk: Talk, key: int, version: int
) -> None:
    talk.tell_raw(struct.pack(">hhih", key, version, 7, -1) + bytes(20))

    talk.assert_closed()


# Frames


@pytest.mark.parametrize("size", [100 * 1024 * 1024 + 1, 2**31 - 1, 0, -1])
def test_sizes_of_frames_that_close_the_connection(talk: Talk, size: int) -> None:
    talk._socket.sendall(struct.pack(">i", size))

    talk.assert_closed()


@pytest.mark.parametrize(
    "body",
    [
        struct.pack(">hh", 3, 1),
        struct.pack(">hhih", 3, 1, 9, 50) + b"short",
        struct.pack(">hhih", 3, 1, 9, -1) + struct.pack(">i", 5),
        struct.pack(">hhih", 3, 1, 9, -1) + struct.pack(">i", 2**30),
    ],
    ids=["half a header", "a name cut short", "topics that do not come", "a billion topics"],
)
def test_requests_that_cannot_be_read_close_the_connection(talk: Talk, body: bytes) -> None:
    talk.tell_raw(body)

    talk.assert_closed()


def test_bytes_behind_a_request_are_ignored(talk: Talk) -> None:
    talk.tell_raw(struct.pack(">hhih", 18, 0, 9, -1) + b"junk")

    assert talk.receive_raw()[:6] == struct.pack(">ih", 9, ErrorCode.NONE)


def test_unknown_tagged_fields_are_skipped(talk: Talk) -> None:
    def tagged(tag: int, value: bytes) -> bytes:
        return bytes([1, tag, len(value)]) + value

    head = struct.pack(">hhih", 18, 3, 9, 2) + b"me" + tagged(99, b"xyz")
    talk.tell_raw(head + b"\x02a" + b"\x021" + tagged(77, b"qq"))

    assert talk.receive_raw()[:6] == struct.pack(">ih", 9, ErrorCode.NONE)


def test_a_client_need_not_have_a_name(talk: Talk) -> None:
    talk.tell_raw(struct.pack(">hhih", 3, 1, 9, -1) + struct.pack(">i", 0))

    assert talk.receive_raw()[:4] == struct.pack(">i", 9)


# FindCoordinator


def coordinators(talk: Talk, version: int, *keys: str, key_type: int = 0) -> list[Any]:
    """Ask for keys, in the form that the version has; gives one answer per key."""
    if version >= 4:
        request = messages.FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        answer = talk.ask(request, version)
        assert [found.key for found in answer.coordinators] == list(keys)
        return list(answer.coordinators)
    return [
        talk.ask(messages.FindCoordinatorRequest(key=key, key_type=key_type), version)
        for key in keys
    ]


@pytest.mark.parametrize("version", range(7))
def test_the_coordinator_of_every_group(broker: Subject, talk: Talk, version: int) -> None:
    for found in coordinators(talk, version, unique("group"), "other", ""):
        assert code(found) is ErrorCode.NONE
        assert (found.node_id, found.host, found.port) == (NODE_ID, broker.host, broker.port)
        # Kafka repeats the code's name in v1-3.
        assert found.error_message == ("NONE" if 1 <= version <= 3 else "")


def test_no_keys(talk: Talk) -> None:
    assert coordinators(talk, 4) == []


@pytest.mark.parametrize("version", [1, 3, 4, 6])
def test_a_kind_of_key_that_does_not_exist(talk: Talk, version: int) -> None:
    (found,) = coordinators(talk, version, "key", key_type=9)

    assert code(found) is ErrorCode.INVALID_REQUEST
    assert (found.node_id, found.host, found.port) == (-1, "", -1)
    assert found.error_message


@pytest.mark.parametrize("version", [3, 4, 5, 6])
def test_a_share_key_without_a_partition(talk: Talk, version: int) -> None:
    (found,) = coordinators(talk, version, "group", key_type=2)

    assert code(found) is ErrorCode.INVALID_REQUEST


# DescribeCluster


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("operations", [True, False])
def test_the_cluster(broker: Subject, talk: Talk, version: int, operations: bool) -> None:
    request = messages.DescribeClusterRequest(include_cluster_authorized_operations=operations)

    answer = talk.ask(request, version)

    assert (code(answer), answer.error_message) == (ErrorCode.NONE, None)
    assert (answer.endpoint_type, answer.controller_id) == (1, NODE_ID)
    assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if operations else NOT_ASKED)
    (node,) = answer.brokers
    assert (node.broker_id, node.host, node.port) == (NODE_ID, broker.host, broker.port)
    assert (node.rack, node.is_fenced) == (None, False)
    metadata = talk.ask(messages.MetadataRequest([]), 12)
    assert answer.cluster_id == metadata.cluster_id


@pytest.mark.parametrize("version", [1, 2])
def test_only_brokers_can_be_asked_for(talk: Talk, version: int) -> None:
    for endpoint_type, expected in (
        (2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (0, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ):
        request = messages.DescribeClusterRequest(endpoint_type=endpoint_type)
        answer = talk.ask(request, version)

        assert code(answer) is expected
        assert answer.error_message
        assert (answer.cluster_id, answer.controller_id, answer.brokers) == ("", -1, [])


# DescribeLogDirs


@pytest.mark.parametrize("version", range(1, 6))
def test_log_directories(talk: Talk, version: int) -> None:
    topic = create_topic(talk, partitions=2)
    batch = batch_of(b"a")
    produce(talk, topic, batch, partition=1)
    wanted = messages.DescribeLogDirsRequest.DescribableLogDirTopic
    filters = [wanted(topic.name, [0, 1, 5]), wanted(unique("missing"), [0])]

    answer = talk.ask(messages.DescribeLogDirsRequest(filters), version)

    assert code(answer) is ErrorCode.NONE
    (directory,) = answer.results
    assert (code(directory), bool(directory.log_dir)) == (ErrorCode.NONE, True)
    # What the volume has is told since v4.
    told = (directory.total_bytes > 0, directory.usable_bytes > 0)
    assert told == ((True, True) if version >= 4 else (False, False))
    (described,) = directory.topics
    assert described.name == topic.name
    sizes = {
        each.partition_index: (each.partition_size, each.offset_lag, each.is_future_key)
        for each in described.partitions
    }
    assert sizes == {0: (0, 0, False), 1: (len(batch), 0, False)}


def test_which_topics_of_a_log_directory(talk: Talk) -> None:
    topic = create_topic(talk, partitions=2)
    wanted = messages.DescribeLogDirsRequest.DescribableLogDirTopic

    def ask(filters: list[Any] | None) -> dict[str, int]:
        (directory,) = talk.ask(messages.DescribeLogDirsRequest(filters), 4).results
        assert code(directory) is ErrorCode.NONE
        return {each.name: len(each.partitions) for each in directory.topics}

    assert ask([]) == {}
    assert ask([wanted(topic.name, [])]) == {}
    assert ask(None)[topic.name] == 2
