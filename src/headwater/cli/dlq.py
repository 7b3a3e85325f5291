"""`headwater dlq`: what pipelines could not use, why, and the way back.

This file alone decides what people see of dead letters and what they can ask for. How letters are
found stands in `dlq_letters`, how they are sent back in `dlq_redrive`.
"""

from collections.abc import Iterator
from typing import Any

import click

from headwater.cli import formats, output
from headwater.cli.dlq_letters import Letter, Letters, Selection, dead_letter_topics
from headwater.cli.dlq_progress import Redriven
from headwater.cli.dlq_redrive import Redrive
from headwater.cli.errors import Exit
from headwater.cli.options import Number, Session, examples, leave_internal_alone, with_session
from headwater.cli.progress import Progress

_SHOWN_CHARACTERS_MAX = 200
_REASON_HELP = "Only letters of this reason: NOT_JSON, WRONG_TYPE ... as in dlq ls."
_WHERE_HELP = "Only what this is true for, as in headwater tail."


@click.group()
def dlq() -> None:
    """Show what pipelines could not use; send it back.

    Records that a pipeline cannot decode go to a dead-letter topic, with the reason and where they
    were. Once the cause is mended, they can be sent back.
    """


@dlq.command(
    "ls",
    epilog=examples("headwater dlq ls", "headwater dlq ls orders.dlq --json"),
)
@click.argument("topics", metavar="[TOPIC]...", nargs=-1)
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@with_session
def ls(*, session: Session, topics: tuple[str, ...], quiet: bool) -> None:
    """Count dead letters by reason; of all topics whose first record is one.

    All letters are read. WAITING are those that have not been sent back.
    """
    names = [session.topic(name).name for name in topics]
    counts = [
        _counted(session, name, quiet=quiet)
        for name in names or dead_letter_topics(session.cluster)
    ]
    if session.as_json:
        output.document(counts)
        return
    if not counts:
        output.note("no dead letters")
        return
    rows = [
        (
            each["topic"],
            kind,
            numbers["letters"],
            numbers["waiting"],
            ", ".join(numbers["from"]) or None,
            output.time_text(numbers["last_ms"]),
        )
        for each in counts
        for kind, numbers in each["reasons"].items() or {"(empty)": _nothing()}.items()
    ]
    output.table(("TOPIC", "REASON", "LETTERS", "WAITING", "FROM", "LAST"), rows)


@dlq.command(
    epilog=examples(
        "headwater dlq show orders.dlq",
        "headwater dlq show orders.dlq --reason NOT_JSON -n 5",
        "headwater dlq show orders.dlq 0:17 0:20-25 --json",
        "headwater dlq show orders.dlq --waiting --where \"headers['x-pipeline'] = 'revenue'\"",
    )
)
@click.argument("topic", metavar="TOPIC")
@click.argument("places", metavar="[PARTITION:OFFSET]...", nargs=-1)
@click.option("--reason", metavar="KIND", help=_REASON_HELP)
@click.option("--where", metavar="SQL", help=_WHERE_HELP)
@click.option("--waiting", is_flag=True, help="Only letters that have not been sent back.")
@click.option("-n", "--count", "limit", metavar="N", type=Number(1), help="Stop after so many.")
@click.option("-q", "--quiet", is_flag=True, help="No summary.")
@with_session
def show(
    *,
    session: Session,
    topic: str,
    places: tuple[str, ...],
    reason: str | None,
    where: str | None,
    waiting: bool,
    limit: int | None,
    quiet: bool,
) -> None:
    """Show dead letters of TOPIC with reason, origin and content."""
    selection = Selection(places, reason=reason, where=where)
    shown = 0
    stopped = False
    for letter in _letters(session, topic, quiet=quiet).read(selection):
        if waiting and not letter.is_waiting:
            continue
        if shown == limit:
            stopped = True
            break
        _show(session, letter)
        shown += 1
    if not quiet:
        more = "; stopped at -n, there are more" if stopped else ""
        output.summary(
            {"topic": topic, "letters": shown, "stopped_at_limit": stopped},
            f"{output.count(shown, 'letter')} of {topic}{more}",
            as_json=session.as_json,
        )


@dlq.command(
    epilog=examples(
        "headwater dlq redrive orders.dlq --all --dry-run      # what would go where",
        "headwater dlq redrive orders.dlq --all --rate 100     # at most 100 a second",
        "headwater dlq redrive orders.dlq 0:17 0:20-25",
        "headwater dlq redrive orders.dlq --reason WRONG_TYPE",
        "headwater dlq redrive orders.dlq --all --to orders.mended",
    )
)
@click.argument("topic", metavar="TOPIC")
@click.argument("places", metavar="[PARTITION:OFFSET]...", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All letters.")
@click.option("--reason", metavar="KIND", help=_REASON_HELP)
@click.option("--where", metavar="SQL", help=_WHERE_HELP)
@click.option("--to", "target", metavar="TOPIC", help="To this topic, not where they came from.")
@click.option(
    "--rate", metavar="N", type=Number(0.01, fraction=True), help="At most so many a second."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be sent; write nothing.")
@click.option("-q", "--quiet", is_flag=True, help="No progress.")
@with_session
def redrive(  # noqa: PLR0913 - one argument per option
    *,
    session: Session,
    topic: str,
    places: tuple[str, ...],
    everything: bool,
    reason: str | None,
    where: str | None,
    target: str | None,
    rate: float | None,
    dry_run: bool,
    quiet: bool,
) -> int:
    """Send letters of TOPIC back to where they came from, each once.

    What has been sent back before is left out, so a run that was interrupted or killed is simply
    repeated. Letters stay in TOPIC until its retention removes them. What a pipeline could not
    write (OVERSIZED) was never in a topic, and is left out.
    """
    leave_internal_alone(topic, *([] if target is None else [target]))
    selection = Selection(places, reason=reason, where=where)
    if everything != selection.is_everything:
        raise click.UsageError(
            "either --all, or which letters: PARTITION:OFFSET, --reason or --where"
        )
    if target == topic:
        raise click.UsageError("letters cannot be sent back to where they are: another --to")
    info = session.topic(topic)
    redriven = Redriven(info)
    work = Redrive(session.cluster, topic, redriven, target=target, rate=rate)
    if dry_run:
        redriven.read(session.cluster, settled=False)
    else:
        work.begin()
    chosen = _Chosen(Letters(session, info, redriven, quiet=quiet).read(selection))
    interrupted = False
    if dry_run:
        for letter in chosen:
            to = work.where_to(letter).place[0]
            work.sent[to] = work.sent.get(to, 0) + 1
    else:
        bar = Progress(f"{topic} redriven", unit="letters", quiet=quiet)
        try:
            work.send(chosen, lambda count: bar.show(count, None))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            bar.close()
    _report(session, topic, work, chosen, dry_run=dry_run)
    return Exit.INTERRUPTED if interrupted else Exit.DONE


class _Chosen:
    """Goes through letters and counts those that are left out."""

    def __init__(self, letters: Iterator[Letter]) -> None:
        self._letters = letters
        self.already = 0
        self.others = 0
        self.homeless = 0

    def __iter__(self) -> Iterator[Letter]:
        for letter in self._letters:
            if letter.origin is None:
                self.others += 1
            elif not letter.came_from_a_topic:
                self.homeless += 1
            elif letter.is_redriven:
                self.already += 1
            else:
                yield letter


def _report(session: Session, topic: str, work: Redrive, chosen: _Chosen, *, dry_run: bool) -> None:
    count = sum(work.sent.values())
    verb = "would be sent" if dry_run else "sent"
    to = ", ".join(f"{number:,} to {name}" for name, number in sorted(work.sent.items()))
    sentence = f"{output.count(count, 'letter')} of {topic} {verb} back" + (f": {to}" if to else "")
    if chosen.already:
        sentence += f"; {chosen.already:,} had been before"
    if chosen.homeless:
        sentence += f"; {chosen.homeless:,} left out that were never in a topic"
    if chosen.others:
        sentence += f"; {output.count(chosen.others, 'record')} left out that are no dead letters"
    session.tell(
        {
            "topic": topic,
            "redriven": count,
            "to": dict(sorted(work.sent.items())),
            "already": chosen.already,
            "never_in_a_topic": chosen.homeless,
            "no_dead_letters": chosen.others,
            "dry_run": dry_run,
        },
        sentence,
    )


def _letters(session: Session, topic: str, *, quiet: bool) -> Letters:
    info = session.topic(topic)
    redriven = Redriven(info)
    redriven.read(session.cluster, settled=False)
    return Letters(session, info, redriven, quiet=quiet)


def _nothing() -> dict[str, Any]:
    return {"letters": 0, "waiting": 0, "from": [], "last_ms": None}


def _counted(session: Session, topic: str, *, quiet: bool) -> dict[str, Any]:
    reasons: dict[str, dict[str, Any]] = {}
    for letter in _letters(session, topic, quiet=quiet).read(Selection()):
        numbers = reasons.setdefault(letter.kind, _nothing())
        numbers["letters"] += 1
        numbers["waiting"] += letter.is_waiting
        numbers["last_ms"] = max(numbers["last_ms"] or -1, letter.message.timestamp_ms)
        if letter.origin is not None and letter.origin.topic not in numbers["from"]:
            numbers["from"].append(letter.origin.topic)
    ordered = dict(sorted(reasons.items(), key=lambda each: (-each[1]["letters"], each[0])))
    return {
        "topic": topic,
        "letters": sum(each["letters"] for each in reasons.values()),
        "waiting": sum(each["waiting"] for each in reasons.values()),
        "reasons": ordered,
    }


def _show(session: Session, letter: Letter) -> None:
    if session.as_json:
        output.json_line(_document(letter))
        return
    message, origin = letter.message, letter.origin
    head = f"{message.topic} {message.partition}:{message.offset}"
    if origin is None:
        output.say(f"{head}  no dead letter")
    else:
        when = output.time_text(origin.timestamp_ms) or "-"
        by = f"  by {origin.pipeline}" if origin.pipeline else ""
        sent = "  (sent back)" if letter.is_redriven else ""
        origin_text = f"{origin.topic}-{origin.partition}@{origin.offset}"
        output.say(f"{head}  from {origin_text}  {when}{by}{sent}")
        output.say(f"  {origin.error}")
    output.say(f"  key {_text(message.key)}  value {_text(message.value)}")


def _document(letter: Letter) -> dict[str, Any]:
    message, origin = letter.message, letter.origin
    document: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "ts": message.timestamp_ms,
        "kind": letter.kind,
        "error": None,
        "pipeline": None,
        "original": None,
        "sent_back": letter.is_redriven,
    }
    if origin is not None:
        document |= {
            "error": origin.error,
            "pipeline": origin.pipeline or None,
            "original": {
                "topic": origin.topic,
                "partition": origin.partition,
                "offset": origin.offset,
                "ts": origin.timestamp_ms,
            },
            "times_sent_back_before": origin.redriven,
        }
    formats.put_headers(document, message.headers)
    formats.put_bytes(document, "key", message.key)
    formats.put_bytes(document, "payload", message.value)
    return document


def _text(data: bytes | None) -> str:
    if data is None:
        return "null"
    shown = data[:_SHOWN_CHARACTERS_MAX].decode("utf-8", "backslashreplace")
    rest = f"... ({len(data):,} bytes)" if len(data) > _SHOWN_CHARACTERS_MAX else ""
    return repr(shown) + rest
