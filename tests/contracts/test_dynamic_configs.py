"""Settings of a running broker: which can be changed, to what, for one node and for all.

Each change is only tried (`validate_only`): other tests share the broker.
"""

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.contracts.kit import Subject, Talk, code

BROKER, SET = 4, 0
INVALID = ErrorCode.INVALID_REQUEST
NODE, EVERY_NODE = "1", ""


def attempt(talk: Talk, resource: str, name: str, value: str) -> tuple[ErrorCode, str]:
    request = messages.IncrementalAlterConfigsRequest
    config = request.AlterableConfig(name, SET, value)
    asked = request([request.AlterConfigsResource(BROKER, resource, [config])], validate_only=True)
    (answer,) = talk.ask(asked, 1).responses
    return code(answer), answer.error_message or ""


@pytest.mark.parametrize("resource", [NODE, EVERY_NODE])
@pytest.mark.parametrize(
    "name, value",
    [
        ("compression.type", "gzip"),
        ("log.cleaner.backoff.ms", "5"),
        ("log.cleaner.dedupe.buffer.size", "268435456"),
        ("log.cleaner.delete.retention.ms", "5"),
        ("log.cleaner.threads", "2"),
        ("log.flush.interval.messages", "5"),
        ("log.retention.ms", "5"),
        ("log.segment.bytes", "2097152"),
        ("max.connection.creation.rate", "10"),
        ("max.connections", "100"),
        ("max.connections.per.ip", "10"),
        ("max.connections.per.ip.overrides", "127.0.0.1:5"),
        ("message.max.bytes", "5"),
        ("producer.id.expiration.ms", "1000"),
        ("transaction.partition.verification.enable", "false"),
    ],
)
def test_what_a_running_broker_takes(talk: Talk, resource: str, name: str, value: str) -> None:
    assert attempt(talk, resource, name, value) == (ErrorCode.NONE, "")


@pytest.mark.parametrize("resource", [NODE, EVERY_NODE])
@pytest.mark.parametrize(
    "name, value, words",
    [
        ("log.cleaner.backoff.ms", "-1", "log.cleaner.backoff.ms"),
        ("log.cleaner.dedupe.buffer.size", "1000000", "log.cleaner.dedupe.buffer.size"),
        ("log.cleaner.threads", "3", "cannot be increased to more than double the current value 1"),
        ("max.connection.creation.rate", "0", "max.connection.creation.rate"),
        ("max.connections", "0", "max.connections"),
        ("max.connections.per.ip", "0", "max.connections.per.ip can be set to zero only if"),
        ("max.connections.per.ip.overrides", "nonsense", "max.connections.per.ip.overrides"),
        ("producer.id.expiration.ms", "0", "producer.id.expiration.ms"),
        ("transaction.partition.verification.enable", "x", "Expected value to be either true or"),
        ("auto.create.topics.enable", "false", "Cannot update these configs dynamically"),
        ("log.cleaner.enable", "false", "Cannot update these configs dynamically"),
        ("log.retention.hours", "5", "Cannot update these configs dynamically"),
        ("log.retention.ms", "0", "log.retention.ms must be "),
        ("num.partitions", "3", "Cannot update these configs dynamically"),
    ],
)
def test_what_it_does_not_take(
    talk: Talk, resource: str, name: str, value: str, words: str
) -> None:
    error, message = attempt(talk, resource, name, value)

    assert error is INVALID
    assert words in message


@pytest.mark.parametrize(
    "name, value",
    [
        ("background.threads", "5"),
        ("log.cleaner.io.max.bytes.per.second", "1000"),
        ("num.io.threads", "4"),
        ("num.network.threads", "2"),
        ("num.replica.fetchers", "2"),
        ("remote.log.reader.threads", "11"),
    ],
)
def test_settings_of_what_is_not_there(broker: Subject, talk: Talk, name: str, value: str) -> None:
    error, _ = attempt(talk, NODE, name, value)

    assert error is broker.expected("alter configs: settings of what is not there")
