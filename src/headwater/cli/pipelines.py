"""`headwater pipeline`: pipelines that run or have run here.

This file alone decides what people can ask of and do to pipelines by name. All but a backfill goes
by what lies in the data directory: neither a broker nor Spark is needed. A reset tells the broker,
if one is there.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from headwater.base.errors import HeadwaterError
from headwater.base.spelling import nearest
from headwater.cli import output, positions, run_file
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import Number, Session, examples, json_option, want_yes, with_session
from headwater.cli.run import (
    DATA_OPTION,
    MASTER_OPTION,
    batch_text,
    end_spark,
    maybe_watermark_text,
    prepare,
    stop_at,
)
from headwater.cli.supervisor import read_supervised
from headwater.streams.running.checkpoints import (
    Checkpoint,
    all_checkpoints,
    data_directory,
    find_checkpoint,
)
from headwater.streams.running.errors import PipelineNotFoundError
from headwater.streams.running.logs import last_lines

_LOOK_AGAIN_S = 0.1


@click.group(
    epilog=examples(
        "headwater pipeline ls",
        "headwater pipeline logs revenue -f",
        "headwater pipeline reset revenue --yes",
    )
)
def pipeline() -> None:
    """Show pipelines; stop them, start them anew, repeat them."""


def _find(data: str, name: str) -> Checkpoint:
    folder = data_directory(data)
    try:
        return find_checkpoint(folder, name)
    except PipelineNotFoundError as error:
        close = nearest(name, [each.name for each in all_checkpoints(folder)])
        message = error.message + (f" - did you mean {close!r}?" if close else "")
        raise PipelineNotFoundError(message, hint=error.hint) from error


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return what is known of a pipeline."""
    note = checkpoint.note()
    return {
        "pipeline": checkpoint.name,
        "state": checkpoint.state(),
        "pid": checkpoint.pid(),
        "file": note.file,
        "to": note.to,
        "started_ms": note.started_ms or None,
        "ended_ms": note.ended_ms,
        "error": note.error,
        "last_batch": checkpoint.progress(),
    }


# --- looking ------------------------------------------------------------------------------------


@pipeline.command("ls", epilog=examples("headwater pipeline ls", "headwater pipeline ls --json"))
@DATA_OPTION
@json_option
def list_pipelines(*, data: str, as_json: bool) -> None:
    """List pipelines that have run here."""
    found = [describe(each) for each in all_checkpoints(data_directory(data))]
    if as_json:
        output.document({"pipelines": found})
        return
    if not found:
        output.note("no pipelines yet; run one with: headwater run FILE")
        return
    rows: list[list[output.Cell]] = []
    for each in found:
        batch = each["last_batch"] or {}
        pid = None if each["pid"] is None else str(each["pid"])
        shown = [each["pipeline"], each["state"], pid, each["to"]]
        of_batch = [batch.get(name) for name in ("batch", "at", "rows_per_second", "lag")]
        rows.append([*shown, *of_batch])
    # What one that does not run lags behind by now, its last batch cannot say.
    head = ["PIPELINE", "STATE", "PID", "TO", "LAST BATCH", "BEGUN AT", "ROWS/S", "LAG THEN"]
    output.table(head, rows)


@pipeline.command(
    "status",
    epilog=examples(
        "headwater pipeline status revenue", "headwater pipeline status revenue --json"
    ),
)
@click.argument("name", metavar="PIPELINE")
@DATA_OPTION
@json_option
def show_status(*, name: str, data: str, as_json: bool) -> None:
    """Show one pipeline: whether it runs, its last batch, its last error."""
    facts = describe(_find(data, name))
    if as_json:
        output.document(facts)
        return
    batch = facts["last_batch"]
    shown: dict[str, output.Cell] = {
        "pipeline": name,
        "state": facts["state"] + (f", pid {facts['pid']}" if facts["pid"] else ""),
        "file": facts["file"],
        "to": facts["to"],
        "started": output.time_text(facts["started_ms"]),
        "ended": output.time_text(facts["ended_ms"]),
        "last batch": batch_text(batch) if batch else None,
    }
    now_ms = None if facts["pid"] is None else time.time_ns() // 1_000_000
    if batch and (watermark := maybe_watermark_text(batch, now_ms)) is not None:
        shown["watermark"] = watermark
    if batch and batch.get("state_rows"):
        size = output.bytes_text(batch.get("state_bytes"))
        shown["state kept"] = f"{output.count(batch['state_rows'], 'row')}, {size}"
    if facts["error"]:
        shown["error"] = facts["error"]
    output.facts(shown)


@pipeline.command(
    epilog=examples("headwater pipeline logs revenue -n 50", "headwater pipeline logs revenue -f")
)
@click.argument("name", metavar="PIPELINE")
@click.option(
    "-n", "count", metavar="N", type=Number(0), default=100, help="Last lines.  [default: 100]"
)
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come, until Ctrl-C.")
@DATA_OPTION
@json_option
def logs(*, name: str, count: int, follow: bool, data: str, as_json: bool) -> None:
    """Show the log of a pipeline, of all its runs."""
    path = _find(data, name).log
    position = 0
    if path.exists():
        # Who follows gets the line that is being written when it is whole.
        lines, position = last_lines(path, count, whole=follow)
        _print_lines(lines, as_json=as_json)
    while follow:
        sys.stdout.flush()
        time.sleep(_LOOK_AGAIN_S)
        if path.exists() and path.stat().st_size > position:
            position = _print_from(path, position, as_json=as_json)


def _print_from(path: Path, position: int, *, as_json: bool) -> int:
    """Print the whole lines behind a position; gives the next one."""
    with path.open("rb") as file:
        file.seek(position)
        whole, newline, _ = file.read().rpartition(b"\n")
    _print_lines(whole.decode(errors="replace").splitlines(), as_json=as_json)
    return position + len(whole) + len(newline)


def _print_lines(lines: list[str], *, as_json: bool) -> None:
    for line in lines:
        if as_json:
            output.json_line({"line": line})
        else:
            output.say(line)


# --- doing --------------------------------------------------------------------------------------


@pipeline.command(
    epilog=examples(
        "headwater pipeline stop revenue", "headwater pipeline stop revenue --timeout 120"
    )
)
@click.argument("name", metavar="PIPELINE")
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Number(fraction=True),
    default=60.0,
    help="How long to wait for its end.  [default: 60]",
)
@DATA_OPTION
@json_option
def stop(*, name: str, timeout_s: float, data: str, as_json: bool) -> None:
    """Stop a running pipeline after what it is doing, and wait until it has stopped.

    A process that runs several pipelines stops them all.
    """
    _refuse_if_about_to_start(data, name)
    checkpoint = _find(data, name)
    pid = checkpoint.pid()
    if pid is None:
        raise CommandError(
            Exit.NOT_FOUND,
            "NOT_RUNNING",
            f"pipeline {name!r} is not running",
            hint=f"how it ended: headwater pipeline status {name}",
        )
    _terminate(name, pid)
    end_s = time.monotonic() + timeout_s
    while checkpoint.pid() == pid:
        if time.monotonic() > end_s:
            raise CommandError(
                Exit.UNREACHABLE,
                "STILL_RUNNING",
                f"pipeline {name!r} (pid {pid}) has not stopped within {timeout_s:.0f} s",
                hint=f"wait longer with --timeout, or end it at once: kill -9 {pid}",
            )
        time.sleep(_LOOK_AGAIN_S)
    if as_json:
        output.document({"pipeline": name, "pid": pid, "stopped": True})
    else:
        output.say(f"{name}: stopped")


def _refuse_if_about_to_start(data: str, name: str) -> None:
    """Refuse to call a pipeline stopped that `headwater up` is about to start."""
    folder = data_directory(data)
    if run_file.find(str(folder)) is None:
        return  # one that was killed leaves word of its pipelines behind
    for each in read_supervised(str(folder)):
        if each["name"] != name or each["state"] == "stopped":
            continue
        if Checkpoint(folder, name).pid() is None:
            raise CommandError(
                Exit.IN_THE_WAY,
                "STARTING",
                f"pipeline {name!r} is not running now, but headwater up will start it",
                hint="stop it when it runs, or take it out of headwater.toml and start headwater "
                "up again",
            )


def _terminate(name: str, pid: int) -> None:
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has ended by itself
    except PermissionError as error:
        raise CommandError(
            Exit.NOT_ALLOWED,
            "NOT_ALLOWED",
            f"pipeline {name!r} (pid {pid}) is another user's, and cannot be stopped by you",
            hint=f"as that user, or as root: kill {pid}",
        ) from error


@pipeline.command(epilog=examples("headwater pipeline reset revenue --yes"))
@click.argument("name", metavar="PIPELINE")
@click.option("-y", "--yes", is_flag=True, help="Do it without being asked.")
@DATA_OPTION
@with_session
def reset(session: Session, *, name: str, yes: bool, data: str) -> None:
    """Forget how far a pipeline is and what it keeps; its next run begins anew.

    What it has written stays. Where its sources begin at the earliest record, its next run reads
    and writes all of it again. If the broker can be reached, it forgets what the pipeline wrote
    last, too; nobody would ask for it again.
    """
    checkpoint = _find(data, name)
    want_yes(given=yes, what=f"This deletes the checkpoint and all state of pipeline {name!r}.")
    query_id = checkpoint.query_id()
    checkpoint.remove()
    if query_id is not None:
        _forget(session, query_id)
    if session.as_json:
        output.document({"pipeline": name, "reset": True})
    else:
        output.say(f"{name}: begins anew with its next run")


def _forget(session: Session, query_id: str) -> None:
    # The other commands here read and write no topic.
    from headwater.streams.running.forgetting import forget_query  # noqa: PLC0415

    # A few bytes in topics of ours that stay are in nobody's way.
    with contextlib.suppress(HeadwaterError):
        forget_query(session.cluster, query_id)


@pipeline.command(
    epilog=examples(
        "headwater pipeline backfill revenue.py:hourly --from beginning --into revenue.again",
        "headwater pipeline backfill revenue.py:hourly --from -7d --into revenue.week",
    )
)
@click.argument("file", metavar="FILE[:NAME]")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    required=True,
    help="beginning, -10m (ago), 2026-11-15T10:00 or @MILLISECONDS.",
)
@click.option("--into", metavar="TOPIC", required=True, help="A topic of its own for the output.")
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    help="A topic of its own for records that cannot be decoded; without it they are counted.",
)
@MASTER_OPTION
@DATA_OPTION
@with_session
def backfill(
    *,
    session: Session,
    file: str,
    start: str,
    into: str,
    dead_letters: str | None,
    master: str | None,
    data: str,
) -> None:
    """Run a pipeline over old records up to now, into another topic, beside the one that runs.

    It has a checkpoint of its own, which goes when it is done. What was interrupted goes on where
    it was, with the same --from. Records that cannot be decoded are not written to the pipeline's
    own dead-letter topic, which has them already.
    """
    position = positions.parse(start)
    if position.kind not in {positions.Kind.EARLIEST, positions.Kind.TIME}:
        raise click.UsageError("--from takes beginning or a time: offsets differ by partition")
    prepare(session, master=master, data=data)
    session.topic(into)
    if dead_letters is not None:
        session.topic(dead_letters)
    # Spark and what it needs are loaded by those alone who run something.
    from headwater.streams.running import backfilling, definitions  # noqa: PLC0415

    path, name = definitions.split(file)
    from_ms = position.number if position.kind is positions.Kind.TIME else 0
    try:
        done = backfilling.backfill(
            path,
            name,
            from_ms=from_ms,
            into=into,
            dead_letters=dead_letters,
            data=data,
            on_driver=lambda driver: stop_at(driver, signal.SIGTERM),
        )
    finally:
        end_spark()
    session.tell(
        {"into": into, **done._asdict()},
        f"{done.pipeline}: {output.count(done.rows, 'row')} read, written to {into}"
        + (f"; {done.undecodable} could not be decoded" if done.undecodable else ""),
    )
