"""Every message in every version, beside Kafka's own classes."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.base.schema import Message, codec
from headwater.delivery.wire.kafka import messages
from tests.delivery.wire.java_oracle import JavaOracle, running_java_oracle
from tests.delivery.wire.message_strategies import filled
from tests.delivery.wire.message_strategies import messages as any_message

EXAMPLES = settings().max_examples // 20

EVERY_MESSAGE = [messages.CATALOGUE.message(name) for name in messages.CATALOGUE.table.names()]


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


@pytest.mark.peer
@pytest.mark.parametrize("message", EVERY_MESSAGE, ids=lambda m: m.__name__)
def test_kafka_reads_all_fields_of_every_version(message: type[Message], java: JavaOracle) -> None:
    for version in message.__schema__.versions:
        written = codec(message, version).encode(filled(message, version))
        assert java.echo(message, version, written) == written
