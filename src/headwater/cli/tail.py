"""`headwater tail`: records on standard output.

This file alone decides what of a topic is shown and when it ends, and always says on standard
error how much was looked at: output that stops at a limit is never taken for all there is.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Protocol

import click

from headwater.base.errors import KafkaError
from headwater.cli import formats, output, positions
from headwater.cli.errors import Exit
from headwater.cli.options import Number, Session, examples, with_session
from headwater.cli.positions import Kind
from headwater.cli.ranges import Predicate, RangeReader, condition
from headwater.delivery.client.cluster import Place
from headwater.delivery.client.consumer import Message
from headwater.delivery.client.group import REJOIN, GroupConsumer

_PLAIN = "%s\\n"
_VERBOSE = "%D  %t-%p@%o  %k  %s\\n"

Render = Callable[[Message], bytes]


@click.command(
    epilog=examples(
        "headwater tail orders                          # what comes from now on",
        "headwater tail orders --from -10m              # the last ten minutes, then on",
        "headwater tail orders --from -100 -e           # the last 100 of each partition",
        "headwater tail orders --from 2026-11-15T10:00 --to 2026-11-15T11:00 --json",
        "headwater tail orders -e --where \"value.qty > 1 and key like 'order-%'\"",
        "headwater tail orders -e -f '%p %o %k %s\\n'",
        "headwater tail orders --group billing          # as a member, offsets committed",
        "headwater tail orders -e --uncommitted         # with open and aborted transactions",
    )
)
@click.argument("topics", metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    help=f"{positions.FORMS}.  [default: end; with -e or --to: beginning]",
)
@click.option("--to", "end", metavar="WHERE", help="Stop there; the same forms.")
@click.option("-e", "--exit", "exit_at_end", is_flag=True, help="Stop at the end, as --to end.")
@click.option("-n", "--count", "limit", metavar="N", type=Number(1), help="Stop after so many.")
@click.option("-p", "--partition", metavar="N", type=Number(0), help="Only this partition.")
@click.option(
    "--where",
    metavar="SQL",
    help="Show only what this is true for: key, value, value.a.b, headers.x, topic, partition, "
    "offset, timestamp.",
)
@click.option("-f", "--format", "text_format", metavar="TEXT", help=formats.DIRECTIVES)
@click.option("-v", "--verbose", is_flag=True, help=f"Short for -f '{_VERBOSE}'.")
@click.option("-g", "--group", metavar="NAME", help="Read as a member of a consumer group.")
@click.option(
    "--uncommitted",
    is_flag=True,
    help="Show what open and aborted transactions wrote, too.",
)
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@with_session
def tail(  # noqa: PLR0913 - one argument per option
    *,
    session: Session,
    topics: tuple[str, ...],
    start: str | None,
    end: str | None,
    exit_at_end: bool,
    limit: int | None,
    partition: int | None,
    where: str | None,
    text_format: str | None,
    verbose: bool,
    group: str | None,
    uncommitted: bool,
    quiet: bool,
) -> int:
    """Read records of TOPIC, old ones or as they come.

    Of transactions only what was committed is shown, once all before it has ended.
    """
    if exit_at_end and end is not None:
        raise click.UsageError("-e and --to exclude each other")
    if sum([session.as_json, text_format is not None, verbose]) > 1:
        raise click.UsageError("--json, -f and -v exclude each other")
    bound = "end" if exit_at_end else end
    begin = start or ("end" if bound is None else "beginning")
    shown = _Shown(_renderer(session, text_format, verbose=verbose), condition(where), limit)
    if group is not None:
        if partition is not None:
            raise click.UsageError("a group decides itself which partitions it reads: no -p")
        source: _Source = _GroupSource(
            session, group, topics, begin, bound, read_committed=not uncommitted
        )
    else:
        source = _RangeSource(
            session, topics, partition, begin, bound, read_committed=not uncommitted
        )
    interrupted = False
    try:
        _show_all(source, shown)
    except KeyboardInterrupt:
        interrupted = True
        shown.flush()
    finally:
        source.close()
    if not quiet:
        output.summary(
            {
                "topics": topics,
                "records": shown.count,
                "scanned": source.scanned,
                "stopped_at_limit": shown.full,
                "lost": source.lost,
            },
            _summary(topics, source, shown, filtered=where is not None),
            as_json=session.as_json,
        )
    return Exit.INTERRUPTED if interrupted else Exit.DONE


def _renderer(session: Session, text_format: str | None, *, verbose: bool) -> Render:
    if not session.as_json:
        return formats.compile_format(text_format or (_VERBOSE if verbose else _PLAIN))
    cluster = session.cluster

    def render(message: Message) -> bytes:
        return formats.to_json(message, cluster.leader(message.topic, message.partition))

    return render


class _Shown:
    """What has been written to standard output."""

    def __init__(self, render: Render, predicate: Predicate | None, limit: int | None) -> None:
        self._render = render
        self._predicate = predicate
        self._limit = limit
        self._waiting: list[bytes] = []
        self._written = 0

    @property
    def count(self) -> int:
        return self._written + len(self._waiting)

    @property
    def full(self) -> bool:
        return self._limit is not None and self.count >= self._limit

    def add(self, message: Message) -> bool:
        """Write a record that fits the condition; return False when no more are wanted."""
        if self.full:
            return False
        if self._predicate is None or self._predicate(message):
            self._waiting.append(self._render(message))
        return True

    def flush(self) -> None:
        """Write what waits, in one piece even where Python does not buffer."""
        rest = memoryview(b"".join(self._waiting))
        self._written += len(self._waiting)
        self._waiting.clear()
        while rest:
            rest = rest[sys.stdout.buffer.write(rest) :]
        sys.stdout.buffer.flush()


class _Source(Protocol):
    """Where records come from."""

    scanned: int
    lost: int

    @property
    def done(self) -> bool: ...

    def read(self) -> list[Message]: ...

    def shown(self, unshown: Mapping[Place, int]) -> None: ...

    def close(self) -> None: ...


def _ends(
    session: Session, places: list[Place], bound: str | None, *, read_committed: bool
) -> dict[Place, int] | None:
    """Return where to stop, and say what is left out because it is still open."""
    if bound is None:
        return None
    to = positions.resolve_end(
        session.cluster, places, positions.parse(bound), read_committed=read_committed
    )
    for held_back in to.moved:
        output.remark("note", held_back, as_json=session.as_json)
    return to.offsets


class _RangeSource:
    """Partitions read by ourselves."""

    def __init__(
        self,
        session: Session,
        topics: tuple[str, ...],
        partition: int | None,
        begin: str,
        bound: str | None,
        *,
        read_committed: bool,
    ) -> None:
        places = [
            place
            for name in dict.fromkeys(topics)
            for place in positions.places_of(session.topic(name), partition)
        ]
        cluster = session.cluster
        # The end is looked up first: what is written in between belongs to those who follow.
        ends = _ends(session, places, bound, read_committed=read_committed)
        starts = positions.resolve(
            cluster, places, positions.parse(begin), read_committed=read_committed
        )
        for moved in starts.moved:
            output.remark("note", moved, as_json=session.as_json)
        self.scanned = self.lost = 0
        self._reader = RangeReader(
            cluster,
            starts.offsets,
            ends,
            on_loss=lambda text: output.remark("warning", text, as_json=session.as_json),
            read_committed=read_committed,
        )

    @property
    def done(self) -> bool:
        return self._reader.done

    def read(self) -> list[Message]:
        messages = self._reader.read()
        self.scanned = self._reader.scanned
        self.lost = self._reader.lost
        return messages

    def shown(self, unshown: Mapping[Place, int]) -> None:
        """Nobody keeps our place but we."""

    def close(self) -> None:
        """The session closes the connections."""


class _GroupSource:
    """Partitions that a group gives us; what has been shown is committed."""

    def __init__(
        self,
        session: Session,
        group: str,
        topics: tuple[str, ...],
        begin: str,
        bound: str | None,
        *,
        read_committed: bool,
    ) -> None:
        position = positions.parse(begin)
        if position.kind not in {Kind.EARLIEST, Kind.LATEST}:
            raise click.UsageError(
                "a group goes on where it was: --from can only be beginning or end, for "
                "partitions that it has never read (to move it: headwater group seek)"
            )
        places = [
            place for name in topics for place in positions.places_of(session.topic(name), None)
        ]
        self._ends = _ends(session, places, bound, read_committed=read_committed)
        self._member = GroupConsumer(
            session.cluster,
            group,
            topics,
            from_start=position.kind is Kind.EARLIEST,
            read_committed=read_committed,
        )
        self._joined = False
        self._as_json = session.as_json
        self.scanned = self.lost = 0

    @property
    def done(self) -> bool:
        if self._ends is None or not self._joined:
            return False
        return all(offset >= self._ends[place] for place, offset in self._member.positions.items())

    def read(self) -> list[Message]:
        messages = self._member.poll()
        self._joined = True
        self.scanned += len(messages)
        return messages

    def shown(self, unshown: Mapping[Place, int]) -> None:
        """Commit all that was read, but of what was left over only what lies before it."""
        if not self._member.has_moved:
            return
        try:
            self._member.commit({**self._member.positions, **unshown})
        except KafkaError as error:
            if error.code not in REJOIN:
                raise
            again = "the group rebalances; what was shown last may be shown again"
            output.remark("note", again, as_json=self._as_json)

    def close(self) -> None:
        self._member.close()


def _show_all(source: _Source, shown: _Shown) -> None:
    while not (source.done or shown.full):
        messages = source.read()
        unshown: dict[Place, int] = {}
        for message in messages:
            if not shown.add(message):
                unshown.setdefault((message.topic, message.partition), message.offset)
        shown.flush()
        # Without messages, too: a place may have moved over markers and what was aborted.
        source.shown(unshown)


def _summary(topics: tuple[str, ...], source: _Source, shown: _Shown, *, filtered: bool) -> str:
    text = f"{output.count(shown.count, 'record')} of {', '.join(topics)}"
    if filtered:
        text += f"; {source.scanned:,} scanned"
    if shown.full:
        text += "; stopped at -n, there may be more"
    if source.lost:
        text += f"; {source.lost:,} offsets were gone before they could be read"
    return text
