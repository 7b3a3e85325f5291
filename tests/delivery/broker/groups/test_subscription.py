"""What the broker reads of a consumer's own metadata."""

import contextlib

import pytest
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.errors import MalformedMessageError
from headwater.delivery.broker.groups.subscription import subscribed_topics

topics = st.lists(st.text("abc._-é", max_size=20), max_size=10)


@given(topics, st.binary(max_size=20))
def test_topics_of_a_foreign_clients_metadata(names: list[str], user_data: bytes) -> None:
    metadata = ConsumerProtocolMemberMetadata(0, names, user_data).encode()

    assert subscribed_topics(metadata) == set(names)
    # Later versions put more behind it.
    assert subscribed_topics(b"\x00\x03" + metadata[2:] + b"\xff\xff") == set(names)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(MalformedMessageError):
        subscribed_topics(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0\0",
        b"\0\0\0\0\0\x02\0\x01a",
        b"\0\0\0\0\0\x01\0\x05a",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\x01\xff\xff",
        b"\0\0\0\0\0\x01\0\x01\xff",
        b"\xff\xff\0\0\0\0",
    ],
)
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError):
        subscribed_topics(data)
