"""How a failure leaves the program: exit code, name, sentence, next step.

This file alone decides which exit code a failure has and how it is told. The codes are a promise
to scripts:

    0  done                              5  not allowed (authentication, authorisation)
    1  failed while running              6  broker unreachable or too slow
    2  wrong usage                       7  data or schema invalid
    3  not found                         8  environment: port, disk, limits, Java
    4  exists already, or is in the way  130 interrupted; 141 the reader of our output went away
"""

import json
import sys
from enum import IntEnum

import click

from headwater.base.directory_lock import AlreadyLockedError
from headwater.base.errors import ErrorCode, HeadwaterError, KafkaError, MalformedMessageError
from headwater.cli.output import paint
from headwater.delivery.client.errors import BrokerUnreachableError, UnsupportedByBrokerError
from headwater.streams.gateway import SparkStartError
from headwater.streams.java import JavaMissingError
from headwater.streams.running.errors import (
    BackfillUnfinishedError,
    DefinitionError,
    DiskFullError,
    PipelineBusyError,
    PipelineChangedError,
    PipelineFailedError,
    PipelineNotFoundError,
)
from headwater.streams.session import SparkMissingError


class Exit(IntEnum):
    """The exit codes; the module's docstring says what each means."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    IN_THE_WAY = 4
    NOT_ALLOWED = 5
    UNREACHABLE = 6
    BAD_DATA = 7
    ENVIRONMENT = 8
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141


class CommandError(HeadwaterError):
    """A failure that a command has named itself.

    Attributes:
        exit: The exit code.
        name: The name in ``--json``.
    """

    def __init__(self, exit_code: Exit, name: str, message: str, *, hint: str = "") -> None:
        """Take the exit code and the name beside the sentence and the next step."""
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
        self.name = name


_NAMES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "TOPIC_NOT_FOUND",
    ErrorCode.GROUP_ID_NOT_FOUND: "GROUP_NOT_FOUND",
}

_EXITS = {
    Exit.USAGE: {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    },
    Exit.NOT_FOUND: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
    },
    Exit.IN_THE_WAY: {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.TOPIC_DELETION_DISABLED,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.OFFSET_OUT_OF_RANGE,
    },
    Exit.NOT_ALLOWED: {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.ILLEGAL_SASL_STATE,
    },
    Exit.UNREACHABLE: {
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    },
    Exit.BAD_DATA: {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    },
    Exit.ENVIRONMENT: {ErrorCode.KAFKA_STORAGE_ERROR},
}
# The next step after what a broker refused, where whoever asked knows no better one.
_HINTS = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a name has letters, digits, '.', '_' and '-', at most 249 of them"
    ),
    ErrorCode.INVALID_CONFIG: (
        "all configs with their values, of a topic that exists: headwater topic config TOPIC --all"
    ),
    ErrorCode.INVALID_PARTITIONS: "see how many there are: headwater topic describe TOPIC",
    ErrorCode.INVALID_REPLICATION_FACTOR: (
        "leave --replicas out, or ask for no more than there are brokers: headwater status"
    ),
    ErrorCode.INVALID_GROUP_ID: "all groups: headwater group ls",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "all topics: headwater topic ls",
    ErrorCode.UNKNOWN_TOPIC_ID: "all topics: headwater topic ls",
    ErrorCode.GROUP_ID_NOT_FOUND: "all groups: headwater group ls",
    ErrorCode.TOPIC_ALREADY_EXISTS: "see it with: headwater topic describe TOPIC",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first: headwater group describe GROUP",
    ErrorCode.UNKNOWN_MEMBER_ID: "somebody is in the group: headwater group describe GROUP",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "see who reads it: headwater group describe GROUP",
    ErrorCode.OFFSET_OUT_OF_RANGE: "see which offsets there are: headwater topic describe TOPIC",
    ErrorCode.MESSAGE_TOO_LARGE: (
        "raise the topic's limit: headwater topic config TOPIC max.message.bytes=10MiB"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: (
        "raise the topic's limit: headwater topic config TOPIC max.message.bytes=10MiB"
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: "look at the disk and the limits there: headwater doctor",
}
_PIPELINES: dict[type[HeadwaterError], tuple[Exit, str]] = {
    PipelineNotFoundError: (Exit.NOT_FOUND, "PIPELINE_NOT_FOUND"),
    BackfillUnfinishedError: (Exit.IN_THE_WAY, "BACKFILL_UNFINISHED"),
    PipelineBusyError: (Exit.IN_THE_WAY, "PIPELINE_RUNNING"),
    PipelineChangedError: (Exit.IN_THE_WAY, "PIPELINE_CHANGED"),
    DefinitionError: (Exit.BAD_DATA, "BAD_DEFINITION"),
    PipelineFailedError: (Exit.FAILED, "PIPELINE_FAILED"),
    DiskFullError: (Exit.ENVIRONMENT, "DISK_FULL"),
    SparkMissingError: (Exit.ENVIRONMENT, "NO_SPARK"),
    JavaMissingError: (Exit.ENVIRONMENT, "NO_JAVA"),
    SparkStartError: (Exit.ENVIRONMENT, "SPARK_DOES_NOT_START"),
}
_HINT_FOR_THE_REST = "the broker's log may tell more; what runs here: headwater doctor"
_EXIT_OF_CODE = {code: exit_code for exit_code, codes in _EXITS.items() for code in codes}


def judge(error: HeadwaterError) -> tuple[Exit, str]:
    """Return the exit code and the name of a failure."""
    if isinstance(error, CommandError):
        return error.exit_code, error.name
    if isinstance(error, KafkaError):
        return _EXIT_OF_CODE.get(error.code, Exit.FAILED), _NAMES.get(error.code, error.code.name)
    if isinstance(error, BrokerUnreachableError):
        return Exit.UNREACHABLE, "BROKER_UNREACHABLE"
    if isinstance(error, UnsupportedByBrokerError):
        return Exit.FAILED, "UNSUPPORTED_BY_BROKER"
    if isinstance(error, AlreadyLockedError):
        return Exit.IN_THE_WAY, "DATA_DIRECTORY_IN_USE"
    if isinstance(error, MalformedMessageError):
        return Exit.BAD_DATA, "MALFORMED_MESSAGE"
    for kind, judged in _PIPELINES.items():
        if isinstance(error, kind):
            return judged
    return Exit.FAILED, "FAILED"


def tell(error: HeadwaterError, *, as_json: bool) -> Exit:
    """Say on standard error what failed and what to do; return the exit code."""
    exit_code, name = judge(error)
    _write(name, error.message, error.hint or _hint(error), as_json=as_json)
    return exit_code


def _hint(error: HeadwaterError) -> str:
    if isinstance(error, KafkaError):
        return _HINTS.get(error.code, _HINT_FOR_THE_REST)
    return _HINT_FOR_THE_REST if isinstance(error, BrokerUnreachableError) else ""


def tell_usage(error: click.ClickException, *, as_json: bool) -> Exit:
    """Say which argument was wrong and where help is."""
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f"see: {error.ctx.command_path} --help"
    _write("USAGE", error.format_message().rstrip("."), hint, as_json=as_json)
    return Exit.USAGE


def _write(name: str, message: str, hint: str, *, as_json: bool) -> None:
    if as_json:
        document = {"error": {"code": name, "message": message, "hint": hint}}
        text = json.dumps(document, ensure_ascii=False)
    else:
        text = f"{paint('error:', 'red', sys.stderr)} {message}"
        if hint:
            text += f"\n{paint('hint:', 'cyan', sys.stderr)}  {hint}"
    print(text, file=sys.stderr, flush=True)  # noqa: T201 - the terminal is where it belongs
