"""Records of internal topics, beside Kafka's own classes."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.errors import MalformedMessageError
from headwater.base.schema import Message, codec
from headwater.delivery.broker.formats import records
from headwater.delivery.broker.formats.envelope import (
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_number,
)
from headwater.delivery.broker.formats.records import (
    ConsumerGroupMemberMetadataValue,
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogValue,
)
from tests.delivery.wire.java_oracle import JavaOracle, running_java_oracle
from tests.delivery.wire.message_strategies import filled
from tests.delivery.wire.message_strategies import messages as any_message

EXAMPLES = settings().max_examples // 10

EVERY_MESSAGE = [records.CATALOGUE.message(name) for name in records.CATALOGUE.table.names()]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaOracle]:
    with running_java_oracle(tmp_path_factory.mktemp("echo")) as oracle:
        yield oracle


@pytest.mark.peer
@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda m: m.__name__)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_kafka_reads_and_writes_the_same_bytes(
    message: type[Message], java: JavaOracle, data: st.DataObject
) -> None:
    version = data.draw(st.sampled_from(message.__schema__.versions))
    written = codec(message, version).encode(data.draw(any_message(message, version)))
    assert java.echo(message, version, written) == written


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda m: m.__name__)
@given(data=st.data())
@settings(max_examples=EXAMPLES)
def test_what_is_written_is_read(message: type[Message], data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(message.__schema__.versions))
    value = data.draw(any_message(message, version))
    written = codec(message, version).encode(value)
    assert codec(message, version).decode(written) == (value, len(written))


@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda m: m.__name__)
def test_every_prefix_is_refused(message: type[Message]) -> None:
    for version in message.__schema__.versions:
        written = codec(message, version).encode(filled(message, version))
        for size in range(len(written)):
            with pytest.raises(MalformedMessageError):
                codec(message, version).decode(written[:size])


def test_bytes_of_an_offset_commit() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert encode_key(key) == b"\x00\x01" + b"\x00\x01g\x00\x01t\x00\x00\x00\x03"
    value = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=9)
    assert encode_value(value, 3) == (
        b"\x00\x03"
        b"\x00\x00\x00\x00\x00\x00\x00\x05"
        b"\x00\x00\x00\x01"
        b"\x00\x01m"
        b"\x00\x00\x00\x00\x00\x00\x00\x09"
    )


def test_keys_tell_their_kind() -> None:
    data = encode_key(GroupMetadataKey(group="g"))
    assert key_number(data) == GroupMetadataKey.__schema__.api_key == 2
    assert decode_key(GroupMetadataKey, data) == GroupMetadataKey(group="g")


@pytest.mark.parametrize("version", range(5))
def test_values_tell_their_version(version: int) -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9)
    assert decode_value(OffsetCommitValue, encode_value(value, version)).offset == 5


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x05", b"\xff\xff", b"\x00\x03\x00"])
def test_values_that_cannot_be_read(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        decode_value(OffsetCommitValue, data)


def test_a_null_struct_in_a_tagged_field() -> None:
    # Kafka marks it with a zero, where a null struct in the body is marked with -1.
    value = ConsumerGroupMemberMetadataValue(subscribed_topic_names=["t"])
    value.classic_member_metadata = None
    written = codec(ConsumerGroupMemberMetadataValue, 0).encode(value)
    assert written == bytes.fromhex("0101010102027401ffffffff0101000100")
    assert codec(ConsumerGroupMemberMetadataValue, 0).decode(written)[0] == value


def test_tagged_fields_are_written_by_rising_tag() -> None:
    value = TransactionLogValue(next_producer_epoch=7, client_transaction_version=2)
    written = codec(TransactionLogValue, 1).encode(value)
    assert written.endswith(b"\x02" + b"\x02\x02\x00\x02" + b"\x03\x02\x00\x07")
