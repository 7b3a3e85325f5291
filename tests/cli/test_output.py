"""How things look, and how failures leave the program."""

import pytest

from headwater.base.errors import (
    CorruptRecordError,
    ErrorCode,
    HeadwaterError,
    KafkaError,
    MalformedMessageError,
    StorageError,
)
from headwater.cli import output
from headwater.cli.errors import CommandError, Exit, judge
from headwater.delivery.client.errors import (
    BrokerTimeoutError,
    BrokerUnreachableError,
    UnsupportedByBrokerError,
)


@pytest.mark.parametrize(
    "size, expected",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 40, "2.0 TiB"),
        (9000 << 40, "9000.0 TiB"),
        (None, None),
    ],
)
def test_sizes(size: int | None, expected: str | None) -> None:
    assert output.bytes_text(size) == expected


@pytest.mark.parametrize(
    "duration_ms, expected",
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1000, "1.0 s"),
        (59_949, "59.9 s"),
        (60_000, "1 m 0 s"),
        (3_599_999, "59 m 59 s"),
        (3_600_000, "1 h 0 m"),
        (86_399_999, "23 h 59 m"),
        (86_400_000, "1 d 0 h"),
        (604_799_999, "6 d 23 h"),
        (-1500, "-1.5 s"),
        (None, None),
    ],
)
def test_durations(duration_ms: int | None, expected: str | None) -> None:
    assert output.duration_text(duration_ms) == expected


@pytest.mark.parametrize(
    "timestamp_ms, expected",
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_794_736_800_123, "2026-11-15T10:00:00.123Z"),
        (-1, None),
        (None, None),
        (10**18, str(10**18)),
    ],
)
def test_moments(timestamp_ms: int | None, expected: str | None) -> None:
    assert output.time_text(timestamp_ms) == expected


def test_counts() -> None:
    assert output.count(1, "record") == "1 record"
    assert output.count(0, "record") == "0 records"
    assert output.count(1_234_567, "record") == "1,234,567 records"


def test_a_table_lines_up(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(
        ["NAME", "COUNT", "SIZE", "WHO"],
        [["a", 5, "10 B", None], ["long name", 1_234_567, "1.0 KiB", "x"]],
    )
    assert capsys.readouterr().out == (
        "NAME           COUNT     SIZE  WHO\n"
        "a                  5     10 B  -\n"
        "long name  1,234,567  1.0 KiB  x\n"
    )


def test_facts_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    output.facts({"a": 1, "longer": None})
    assert capsys.readouterr().out == "a       1\nlonger  -\n"


@pytest.mark.parametrize(
    "error, expected, name",
    [
        (CommandError(Exit.BAD_DATA, "X", "x"), Exit.BAD_DATA, "X"),
        (KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), Exit.NOT_FOUND, "TOPIC_NOT_FOUND"),
        (KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), Exit.NOT_FOUND, "GROUP_NOT_FOUND"),
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS), Exit.IN_THE_WAY, "TOPIC_ALREADY_EXISTS"),
        (KafkaError(ErrorCode.INVALID_CONFIG), Exit.USAGE, "INVALID_CONFIG"),
        (
            KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            Exit.NOT_ALLOWED,
            "TOPIC_AUTHORIZATION_FAILED",
        ),
        (KafkaError(ErrorCode.REQUEST_TIMED_OUT), Exit.UNREACHABLE, "REQUEST_TIMED_OUT"),
        (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), Exit.FAILED, "UNKNOWN_SERVER_ERROR"),
        (CorruptRecordError("x"), Exit.BAD_DATA, "CORRUPT_MESSAGE"),
        (StorageError("x"), Exit.ENVIRONMENT, "KAFKA_STORAGE_ERROR"),
        (BrokerUnreachableError("x"), Exit.UNREACHABLE, "BROKER_UNREACHABLE"),
        (BrokerTimeoutError("x"), Exit.UNREACHABLE, "BROKER_UNREACHABLE"),
        (UnsupportedByBrokerError("x"), Exit.FAILED, "UNSUPPORTED_BY_BROKER"),
        (MalformedMessageError("x"), Exit.BAD_DATA, "MALFORMED_MESSAGE"),
        (HeadwaterError("x"), Exit.FAILED, "FAILED"),
    ],
)
def test_exit_codes(error: HeadwaterError, expected: Exit, name: str) -> None:
    assert judge(error) == (expected, name)


def test_the_exit_codes_are_as_promised() -> None:
    """Scripts rely on the numbers."""
    assert {each.name: each.value for each in Exit} == {
        "DONE": 0,
        "FAILED": 1,
        "USAGE": 2,
        "NOT_FOUND": 3,
        "IN_THE_WAY": 4,
        "NOT_ALLOWED": 5,
        "UNREACHABLE": 6,
        "BAD_DATA": 7,
        "ENVIRONMENT": 8,
        "INTERRUPTED": 130,
        "OUTPUT_CLOSED": 141,
    }
