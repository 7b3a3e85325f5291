"""Every message in every version, beside kio."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.schema import Message, codec
from headwater.delivery.wire.kafka import messages
from tests.delivery.wire.kio_oracle import oracle
from tests.delivery.wire.message_strategies import messages as any_message

# Few examples for each of many hundred versions; neighbouring versions share most of their code.
EXAMPLES = settings().max_examples // 10

EVERY_VERSION = [
    pytest.param(message, version, id=f"{name}-{version}")
    for name in messages.CATALOGUE.table.names()
    for message in [messages.CATALOGUE.message(name)]
    for version in message.__schema__.versions
]


@pytest.mark.parametrize("message, version", EVERY_VERSION)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_agrees_with_kio(message: type[Message], version: int, data: st.DataObject) -> None:
    kio = oracle(message, version)
    ours = codec(message, version)
    value = data.draw(any_message(message, version, kio.narrow))
    theirs = kio.convert(value)
    encoded = kio.encode(theirs)
    assert ours.encode(value) == encoded
    assert ours.decode(encoded) == (value, len(encoded))
    assert kio.decode(encoded) == theirs
