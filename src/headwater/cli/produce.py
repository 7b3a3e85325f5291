"""`headwater produce`: standard input becomes records.

This file alone decides how lines become keys, values and headers, and when what was read is sent:
at once when nothing more is coming just now, in large batches when it is.
"""

import os
import select
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator

import click

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.record.codecs import Codec
from headwater.cli import formats, output
from headwater.cli.errors import CommandError, Exit
from headwater.cli.formats import Entry
from headwater.cli.options import (
    Number,
    Session,
    examples,
    leave_internal_alone,
    parse_pairs,
    with_session,
)
from headwater.cli.progress import Progress
from headwater.delivery.client import admin
from headwater.delivery.client.errors import BrokerUnreachableError
from headwater.delivery.client.producer import Delivered, Producer

_READ_BYTES = 1 << 18
# So long nothing may come before what waits is sent: a person does not notice it.
_IDLE_S = 0.02
_ACKS = {"all": -1, "1": 1, "0": 0}
_LINE_BYTES_MAX = 64 << 20


@click.command(
    epilog=examples(
        "seq 10 | headwater produce orders",
        "echo 'paid' | headwater produce orders -k order-17 -H source=shop",
        "headwater produce orders --key-separator : < lines.txt",
        "headwater tail orders --json -e | headwater produce copy --json --create",
    )
)
@click.argument("topic")
@click.option("-k", "--key", help="The key of every record.")
@click.option(
    "-H",
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="A header of every record; can be repeated.",
)
@click.option("--key-separator", metavar="TEXT", help="A line is a key, this, and a value.")
@click.option("-p", "--partition", metavar="N", type=Number(0), help="[default: by the key]")
@click.option(
    "--keep-partitions", is_flag=True, help="With --json: into the partitions that it names."
)
@click.option("-Z", "--empty-is-null", is_flag=True, help="An empty value is a null (tombstone).")
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
)
@click.option("--acks", type=click.Choice(list(_ACKS)), default="all", show_default=True)
@click.option("--create", is_flag=True, help="Create the topic if it does not exist.")
@click.option("-q", "--quiet", is_flag=True, help="No progress and no summary.")
@with_session
def produce(  # noqa: PLR0913 - one argument per option
    *,
    session: Session,
    topic: str,
    key: str | None,
    headers: tuple[str, ...],
    key_separator: str | None,
    partition: int | None,
    keep_partitions: bool,
    empty_is_null: bool,
    compression: str,
    acks: str,
    create: bool,
    quiet: bool,
) -> None:
    """Write the lines of standard input to TOPIC, one record each.

    With --json each line is a record as `headwater tail --json` writes it: key, payload, headers
    and ts are kept.
    """
    leave_internal_alone(topic)
    _check_topic(session, topic, create=create)
    if session.as_json:
        if key is not None or key_separator is not None or headers:
            raise click.UsageError("with --json, keys and headers come from the lines")
        read: Callable[[bytes], Entry] = formats.parse_json
    else:
        read = _line_reader(key, key_separator, headers, empty_is_null=empty_is_null)
    producer = Producer(session.cluster, acks=_ACKS[acks], codec=Codec.by_name(compression))
    writing = _Writing(producer, topic, partition, keep_partitions=keep_partitions)
    _copy(writing, read, quiet=quiet)
    if session.as_json:
        output.document(
            {"topic": topic, "records": writing.count, "partitions": dict(writing.partitions)}
        )
    elif not quiet:
        output.note(f"wrote {output.count(writing.count, 'record')} to {topic}")


def _check_topic(session: Session, topic: str, *, create: bool) -> None:
    try:
        session.topic(topic)
    except CommandError:
        if not create:
            raise
        admin.create_topic(session.cluster, topic)


def _line_reader(
    key: str | None, separator: str | None, headers: tuple[str, ...], *, empty_is_null: bool
) -> Callable[[bytes], Entry]:
    fixed_key = None if key is None else key.encode()
    fixed_headers: list[formats.Header] = [
        (name, value.encode()) for name, value in parse_pairs(headers, "--header").items()
    ]
    if separator == "":
        raise click.UsageError("--key-separator must not be empty")
    mark = None if separator is None else separator.encode()

    def read(line: bytes) -> Entry:
        found_key, value = fixed_key, line
        if mark is not None:
            found_key, found, value = line.partition(mark)
            if not found:
                raise ValueError(f"no {separator!r} between key and value")
        return Entry(
            found_key, None if empty_is_null and not value else value, fixed_headers, None, None
        )

    return read


class _Writing:
    """What has been handed over, and what is known to be safe."""

    def __init__(
        self, producer: Producer, topic: str, partition: int | None, *, keep_partitions: bool
    ) -> None:
        self._producer = producer
        self.topic = topic
        self._partition = partition
        self._keep_partitions = keep_partitions
        self.count = 0
        self.waiting = 0
        self.partitions: Counter[int] = Counter()

    def add(self, entry: Entry) -> None:
        partition = self._partition
        if partition is None and self._keep_partitions:
            partition = entry.partition
        self._producer.send(
            self.topic,
            entry.value,
            key=entry.key,
            headers=entry.headers,
            partition=partition,
            timestamp_ms=entry.timestamp_ms,
        )
        self.waiting += 1

    def flush(self) -> None:
        delivered: list[Delivered] = self._producer.flush()
        for batch in delivered:
            self.partitions[batch.partition] += batch.record_count
        self.count += self.waiting
        self.waiting = 0

    def settle(self) -> None:
        """After an error: count what the broker had acknowledged before it."""
        self.count += sum(batch.record_count for batch in self._producer.take_delivered())
        self.waiting = 0


def _copy(writing: _Writing, read: Callable[[bytes], Entry], *, quiet: bool) -> None:
    descriptor = sys.stdin.fileno()
    mode = os.fstat(descriptor)
    total = mode.st_size if stat.S_ISREG(mode.st_mode) else None
    if sys.stdin.isatty() and not quiet:
        output.note("one record per line; Ctrl-D ends")
    bar = Progress("writing", unit="bytes", quiet=quiet or total is None)
    number = 0
    done = 0
    try:
        for lines in _line_groups(descriptor):
            for line in lines:
                number += 1
                done += len(line) + 1
                try:
                    _check_length(line)
                    entry = read(line)
                except ValueError as error:
                    raise _bad_line(writing, number, error) from error
                writing.add(entry)
            if not lines:
                writing.flush()
            bar.show(done, total)
        writing.flush()
    except (KafkaError, BrokerUnreachableError) as error:
        writing.settle()
        known = output.count(writing.count, "record")
        error.message += f" (after line {number}; {known} acknowledged)"
        error.hint = error.hint or _next_step(error, writing.topic)
        raise
    finally:
        bar.close()


def _next_step(error: KafkaError | BrokerUnreachableError, topic: str) -> str:
    stays = f"what was written stays; see it with: headwater tail {topic} -e"
    if isinstance(error, KafkaError) and error.code == ErrorCode.MESSAGE_TOO_LARGE:
        return f"headwater topic config {topic} max.message.bytes=10MiB raises the limit; {stays}"
    return stays


def _check_length(line: bytes) -> None:
    if len(line) > _LINE_BYTES_MAX:
        raise ValueError(f"more than {_LINE_BYTES_MAX:,} bytes without an end")


def _bad_line(writing: _Writing, number: int, error: ValueError) -> CommandError:
    writing.flush()
    return CommandError(
        Exit.BAD_DATA,
        "BAD_LINE",
        f"line {number}: {error}",
        hint=f"the {writing.count} before it are written; mend it and send from line {number} on",
    )


def _line_groups(descriptor: int) -> Iterator[list[bytes]]:
    """Yield lines as they come, and an empty list whenever no more are coming just now.

    A line that is too long is the last: nothing behind it is looked at.
    """
    begun = _BegunLine()
    idle = True
    while True:
        if not idle and not select.select([descriptor], [], [], _IDLE_S)[0]:
            idle = True
            yield []
        data = os.read(descriptor, _READ_BYTES)
        if not data:
            break
        idle = False
        lines = begun.add(data)
        if begun.size_bytes > _LINE_BYTES_MAX:
            yield [*lines, begun.take()]
            return
        if lines:
            yield lines
    if begun.size_bytes:
        yield [begun.take()]


class _BegunLine:
    """The part of a line that has come; in pieces, so that a long one is joined only once."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self.size_bytes = 0

    def add(self, data: bytes) -> list[bytes]:
        """Take what has come; return the lines that are whole by now."""
        *lines, rest = data.split(b"\n")
        if lines:
            lines[0] = self.take() + lines[0]
        self._pieces.append(rest)
        self.size_bytes += len(rest)
        return lines

    def take(self) -> bytes:
        """Return the part and begin anew."""
        line = b"".join(self._pieces)
        self._pieces.clear()
        self.size_bytes = 0
        return line
