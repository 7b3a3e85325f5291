"""Frames of both ends of a connection."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer
from kio.static.primitive import i16, i32

from headwater.base.errors import ErrorCode, MalformedMessageError
from headwater.delivery.wire.kafka.apis import APIS, UnsupportedApiError
from headwater.delivery.wire.kafka.framing import (
    RequestHeader,
    correlation_id_of,
    decode_header,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from headwater.delivery.wire.kafka.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    ProduceRequest,
)

PRODUCE, FETCH, HEARTBEAT, API_VERSIONS = 0, 1, 12, 18


def frame_of(parts: list[Any]) -> bytes:
    """Join parts and take off the size, which must be right."""
    whole = b"".join(parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return whole[4:]


# Bytes seen on the wire: kcat 1.7.1 asks for versions.
KCAT_API_VERSIONS = bytes.fromhex(
    "0012000300000001000772646b61666b61000b6c696272646b61666b6106322e302e3200"
)


def test_a_request_of_librdkafka() -> None:
    header, message = decode_request(KCAT_API_VERSIONS)
    assert header == RequestHeader(API_VERSIONS, 3, 1, "rdkafka")
    assert message == ApiVersionsRequest("librdkafka", "2.0.2")
    assert frame_of(encode_request(API_VERSIONS, 3, 1, "rdkafka", message)) == KCAT_API_VERSIONS


def test_bytes_of_a_request_in_an_old_version() -> None:
    message = HeartbeatRequest(group_id="g", generation_id=2, member_id="m")
    assert frame_of(encode_request(HEARTBEAT, 0, 5, None, message)) == (
        b"\x00\x0c\x00\x00\x00\x00\x00\x05\xff\xff" + b"\x00\x01g\x00\x00\x00\x02\x00\x01m"
    )


def test_bytes_of_responses() -> None:
    message = HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    old = encode_response(RequestHeader(HEARTBEAT, 0, 5, None), message)
    assert old == [b"\x00\x00\x00\x06" + b"\x00\x00\x00\x05" + b"\x00\x1b"]
    new = encode_response(RequestHeader(HEARTBEAT, 4, 5, None), message)
    assert new == [b"\x00\x00\x00\x0c" + b"\x00\x00\x00\x05\x00" + b"\x00\x00\x00\x00\x00\x1b\x00"]


def test_the_answer_to_api_versions_has_no_tagged_fields_in_its_header() -> None:
    header = RequestHeader(API_VERSIONS, 3, 9, None)
    frame = frame_of(encode_response(header, ApiVersionsResponse()))
    assert frame.startswith(b"\x00\x00\x00\x09" + b"\x00\x00" + b"\x01")
    assert decode_response(API_VERSIONS, 3, frame) == (9, ApiVersionsResponse())


@given(
    key=st.sampled_from(sorted(APIS)),
    newest=st.booleans(),
    correlation_id=st.integers(-(2**31), 2**31 - 1),
    client_id=st.none() | st.text(max_size=20),
)
def test_headers_agree_with_kio(
    key: int, newest: bool, correlation_id: int, client_id: str | None
) -> None:
    api = APIS[key]
    version = api.max_version if newest else api.min_version
    theirs: Any = {1: HeaderV1, 2: HeaderV2}[api.request_header_version(version)]
    buffer = io.BytesIO()
    entity_writer(theirs)(
        buffer,
        theirs(
            request_api_key=i16(key),
            request_api_version=i16(version),
            correlation_id=i32(correlation_id),
            client_id=client_id,
        ),
    )
    frame = frame_of(encode_request(key, version, correlation_id, client_id, api.request()))
    assert frame.startswith(buffer.getvalue())
    header, pos = decode_header(frame)
    assert header == RequestHeader(key, version, correlation_id, client_id)
    assert pos == len(buffer.getvalue())
    assert decode_request(frame) == (header, api.request())


@given(key=st.sampled_from(sorted(APIS)), newest=st.booleans())
def test_responses_come_back(key: int, newest: bool) -> None:
    api = APIS[key]
    version = api.max_version if newest else api.min_version
    frame = frame_of(encode_response(RequestHeader(key, version, 7, "c"), api.response()))
    assert correlation_id_of(frame) == 7
    assert decode_response(key, version, frame) == (7, api.response())


def test_tagged_fields_of_headers_are_skipped() -> None:
    frame = frame_of(encode_request(HEARTBEAT, 4, 1, "c", HeartbeatRequest()))
    header, pos = decode_header(frame)
    tagged = frame[: pos - 1] + b"\x01\x63\x03???" + frame[pos:]
    assert decode_request(tagged) == (header, HeartbeatRequest())
    response = frame_of(encode_response(header, HeartbeatResponse()))
    tagged = response[:4] + b"\x01\x63\x03???" + response[5:]
    assert decode_response(HEARTBEAT, 4, tagged) == (1, HeartbeatResponse())


class Extent:
    """A range of a file: bytes that never enter the process."""

    def __len__(self) -> int:
        return 1_000_000


def test_the_size_counts_what_is_passed_through() -> None:
    extent = Extent()
    partition = FetchResponse.PartitionData(records=extent, aborted_transactions=None)
    topic = FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])
    parts = encode_response(RequestHeader(FETCH, 12, 1, None), FetchResponse(responses=[topic]))
    assert [type(part) for part in parts] == [bytes, Extent, bytes]
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4


def test_records_of_a_request_are_views_of_its_frame() -> None:
    data = ProduceRequest.PartitionProduceData(index=0, records=b"batch")
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    frame = bytearray(
        frame_of(encode_request(PRODUCE, 9, 1, None, ProduceRequest(topic_data=[topic])))
    )
    _, message = decode_request(frame)
    records = message.topic_data[0].partition_data[0].records
    assert not records.readonly
    records[0:1] = b"B"
    assert b"Batch" in frame


@pytest.mark.parametrize("key, version", [(API_VERSIONS, 99), (4, 0), (PRODUCE, 2), (FETCH, -1)])
def test_an_unknown_request_can_still_be_answered(key: int, version: int) -> None:
    frame = b"".join(
        [
            key.to_bytes(2, "big"),
            version.to_bytes(2, "big", signed=True),
            b"\x00\x00\x00\x2a",
            b"\x00\x01c" + b"whatever follows",
        ]
    )
    with pytest.raises(UnsupportedApiError) as caught:
        decode_header(frame)
    assert (caught.value.api_key, caught.value.version) == (key, version)
    assert caught.value.correlation_id == 42


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x12\x00\x03\x00\x00\x00\x01",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\xff\xfe",
        b"\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01\xff\x00",
        b"\x00\x12\x00\x00\x00\x00\x00\x01\x00\x05abc",
    ],
)
def test_frames_that_are_no_header(frame: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_header(frame)


@pytest.mark.parametrize("frame", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x01"])
def test_frames_that_are_no_response(frame: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_response(HEARTBEAT, 4, frame)
