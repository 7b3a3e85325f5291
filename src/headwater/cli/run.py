"""`headwater run`: the pipelines of a file, in the foreground.

This file alone decides what a person sees of running pipelines and what signals do to them. How
they run is the driver's.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from headwater.base.settings.places import DEFAULT_DATA
from headwater.cli import output
from headwater.cli.errors import Exit
from headwater.cli.options import Session, examples, topic_not_found, with_session
from headwater.streams.running.checkpoints import DATA_VARIABLE, data_directory
from headwater.streams.session import (
    BOOTSTRAP_VARIABLE,
    FRAMES_VARIABLE,
    HIDDEN,
    MASTER_VARIABLE,
    check_spark,
)

if TYPE_CHECKING:
    from headwater.streams.running.driver import Driver
    from headwater.streams.running.pipeline import Pipeline

DATA_OPTION = click.option(
    "--data",
    metavar="DIR",
    envvar=DATA_VARIABLE,
    default=DEFAULT_DATA,
    show_default=True,
    help="Where checkpoints and logs are kept.",
)
MASTER_OPTION = click.option(
    "--master", metavar="URL", help="Where Spark runs.  [default: local[*], all cores here]"
)


@click.command(
    epilog=examples(
        "headwater run revenue.py                  # every pipeline of the file",
        "headwater run revenue.py:hourly --once    # one of them, up to now",
        "headwater run revenue.py --master spark://cluster:7077 -b kafka:9092",
    )
)
@click.argument("file", metavar="FILE[:NAME]")
@MASTER_OPTION
@click.option("--once", is_flag=True, help="End when everything that is there has been read.")
@click.option("--every", metavar="INTERVAL", help='Time between batches, as "5 seconds".')
@click.option("--supervised", is_flag=True, hidden=True)
@DATA_OPTION
@with_session
def run(
    *,
    session: Session,
    file: str,
    master: str | None,
    once: bool,
    every: str | None,
    supervised: bool,
    data: str,
) -> int:
    """Run pipelines until SIGTERM or Ctrl-C, which end them after the batch that they are at.

    A batch that takes long is cut off, and done again, whole, at the next start; a second Ctrl-C
    does so at once.

    Checkpoints, names and restarts are managed: what was read and written before is known. With
    --json each batch is a line on standard output.
    """
    if once and every is not None:
        raise click.UsageError("--once and --every exclude each other: once is up to now")
    prepare(session, master=master, data=data)
    if not supervised:
        # Whoever reads along is told what went wrong, and where in Python; not where in Java.
        os.environ.setdefault(FRAMES_VARIABLE, HIDDEN)
    try:
        signal.signal(signal.SIGTERM, _stop_early)
        return _run(session, file, every=every, once=once, supervised=supervised, data=data)
    except _StoppedEarly:
        # Nothing runs yet that would have to be ended: to be stopped is no failure.
        return Exit.DONE


def _run(
    session: Session, file: str, *, every: str | None, once: bool, supervised: bool, data: str
) -> int:
    # Spark and what it needs are loaded by those alone who run something.
    from headwater.streams.running import definitions  # noqa: PLC0415
    from headwater.streams.running.driver import Driver  # noqa: PLC0415

    path, name = definitions.split(file)
    pipelines = definitions.load(path, name)
    _check_topics(pipelines)
    view = _View([each.name for each in pipelines], as_json=session.as_json)
    driver = Driver(pipelines, data=data, file=path, every=every, once=once, on_batch=view.hear)
    stop_at(driver, signal.SIGINT, signal.SIGTERM)
    driver.start()
    if supervised:
        threading.Thread(target=_stop_when_alone, args=(driver,), daemon=True).start()
    names = ", ".join(each.name for each in pipelines)
    view.say(f"running {names}; Ctrl-C stops", {"running": [each.name for each in pipelines]})
    try:
        driver.wait(tick=view.draw)
    finally:
        view.close()
        end_spark()
    view.say(f"stopped {names}", {"stopped": [each.name for each in pipelines]})
    return Exit.DONE


def stop_at(driver: "Driver", *numbers: signal.Signals) -> None:
    """Let these signals end what runs when its batch is done."""

    def stop(number: int, _: object) -> None:
        driver.ask_to_stop()
        # A second one ends us at once.
        signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        signal.signal(number, stop)


def _check_topics(pipelines: Sequence["Pipeline"]) -> None:
    """Refuse what could not be written: a batch would find out midway, in many more words.

    Raises:
        CommandError: A topic does not exist.
    """
    for each in pipelines:
        with each.wanted_target().connect() as cluster:
            known = cluster.topics()
        for topic in each.topics():
            if topic not in known:
                raise topic_not_found(topic, known)


class _StoppedEarly(BaseException):
    """SIGTERM has come before anything ran; no user's file catches this."""


def _stop_early(*_: object) -> None:
    raise _StoppedEarly


def _stop_when_alone(driver: "Driver") -> None:
    """Stop when whoever started us is gone, however that came: its end of a pipe is closed."""
    # Not through `sys.stdin`: its lock, held by this thread, would make the interpreter's end a
    # crash, and whoever supervises us would take a stop for a failure.
    while os.read(sys.stdin.fileno(), 1024):
        pass
    driver.ask_to_stop()


def prepare(session: Session, *, master: str | None, data: str) -> None:
    """Make sure that there are a broker and Spark, and tell the file's own session of them."""
    session.cluster.topics()
    check_spark()
    os.environ[BOOTSTRAP_VARIABLE] = session.bootstrap
    os.environ[DATA_VARIABLE] = str(data_directory(data))
    if master is not None:
        os.environ[MASTER_VARIABLE] = master


def end_spark() -> None:
    """End Spark before this process: what it still has to say finds somebody who listens."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped] # noqa: PLC0415 - an extra
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above, and slow to load

    # A JVM that was killed has nothing more to say, and how it ended is told already.
    with contextlib.suppress(ConnectionError, Py4JError):
        running = SparkSession.getActiveSession()
        if running is not None:
            running.stop()


class _View:
    """Shows batches as they end; one line for each pipeline where somebody looks."""

    def __init__(self, names: list[str], *, as_json: bool) -> None:
        self._as_json = as_json
        self._moving = not as_json and output.is_interactive(sys.stderr)
        self._lines = dict.fromkeys(names, "waiting for the first batch")
        self._drawn = 0
        self._drawn_s = 0.0
        self._warned: set[str] = set()

    def say(self, text: str, facts: dict[str, object]) -> None:
        output.summary(facts, text, as_json=self._as_json)

    def hear(self, batch: dict[str, Any]) -> None:
        """Hear of a batch, in a thread of Spark's."""
        if self._as_json:
            output.json_line(batch)
            sys.stdout.flush()
            return
        line = batch_text(batch)
        name = str(batch["pipeline"])
        self._lines[name] = line
        if not self._moving and batch["rows"]:
            output.note(f"{name}: {line}")
        if batch.get("warnings") and name not in self._warned:
            # The driver has said so in lines of its own, which are not to be drawn over.
            self._warned.add(name)
            self._drawn = 0

    def draw(self) -> None:
        """Draw the newest lines over the old ones."""
        now_s = time.monotonic()
        if not self._moving or now_s - self._drawn_s < 0.5:
            return
        self._drawn_s = now_s
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        lines = "".join(f"\x1b[2K{name}: {line}\n" for name, line in self._lines.items())
        sys.stderr.write(up + lines)
        sys.stderr.flush()
        self._drawn = len(self._lines)

    def close(self) -> None:
        """Leave the last lines where they are."""
        self._drawn = 0


def batch_text(batch: dict[str, Any]) -> str:
    """Return a batch in a line."""
    lag = batch.get("lag")
    told = [
        f"batch {batch.get('batch')}",
        output.count(int(batch.get("rows") or 0), "row"),
        f"{float(batch.get('rows_per_second') or 0):,.0f} rows/s",
        f"lag {lag:,}" if isinstance(lag, int) else "lag unknown",
        f"{output.duration_text(batch.get('took_ms'))}",
    ]
    if batch.get("undecodable"):
        told.append(f"{batch['undecodable']:,} undecodable")
    if batch.get("late_rows"):
        told.append(f"{batch['late_rows']:,} late")
    if batch.get("no_time_rows"):
        told.append(f"{batch['no_time_rows']:,} without a time")
    if batch.get("future_rows"):
        told.append(f"{batch['future_rows']:,} from the future")
    return ", ".join(told)


def maybe_watermark_text(batch: dict[str, Any], now_ms: int | None) -> str | None:
    """Return up to when all events are believed to have come, or None where that is not known.

    Args:
        batch: The last batch.
        now_ms: What time it is, for a pipeline that runs; None: the batch's own time counts.
    """
    text = batch.get("watermark")
    behind_ms = batch.get("watermark_behind_ms")
    if not isinstance(text, str) or not isinstance(behind_ms, int):
        return None
    of_when = "the clock" if now_ms is not None else "the clock of the last batch"
    if now_ms is not None:
        behind_ms = now_ms - round(datetime.fromisoformat(text).timestamp() * 1000)
    where = "behind" if behind_ms >= 0 else "ahead of"
    moment = text.removesuffix("Z").partition(".")[0].replace("T", " ")
    return f"{moment}, {output.duration_text(abs(behind_ms))} {where} {of_when}"
