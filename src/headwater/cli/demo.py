"""`headwater demo`: the main job, to watch.

This file alone decides what is shown and what is claimed about it: a broker, a producer, two
consumers of a group and, where Spark is installed, a pipeline, each a process of its own; one
consumer is killed and the other takes over. Every claim at the end is counted, from the log and
from what the consumers have reported.
"""

import contextlib
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from headwater.base.errors import HeadwaterError
from headwater.cli import demo_orders, output, positions, run_file
from headwater.cli.demo_view import make_view
from headwater.cli.demo_worker import TOPIC
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import Number, examples, json_option
from headwater.cli.ranges import RangeReader
from headwater.delivery.client import admin
from headwater.delivery.client.admin import LATEST
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Message
from headwater.streams.java import find_java
from headwater.streams.session import check_spark

_WORKER = "headwater.cli.demo_worker"
_PARTITIONS = 4
_NEWEST = 2
_START_S = 20.0
_STOP_S = 30.0
_LOOK_S = 0.1
# Spark starts within seconds on an idle machine; then code is compiled for its first batch.
_PIPELINE_S = 240.0
_SHORTEST_S = 6.0
# Without an end the consumer is killed after this time.
_KILL_AFTER_S = 10.0
# So long the survivor is watched alone, before another one joins.
_PAUSE_S = 3.0


@click.command(
    epilog=examples("headwater demo", "headwater demo --for 20s", "headwater demo --for 10s --json")
)
@click.option("--for", "duration", metavar="TIME", help="End by itself, as 20s.  [default: Ctrl-C]")
@click.option(
    "--rate",
    metavar="N",
    type=Number(1, most=100_000),
    default=2000,
    show_default=True,
    help="Records a second to write.",
)
@click.option("--spark/--no-spark", default=None, help="A pipeline too.  [default: if it can run]")
@json_option
def demo(*, duration: str | None, rate: int, spark: bool | None, as_json: bool) -> int:
    """Watch a broker, a producer and two consumers of a group; one is killed, one takes over.

    Where Spark and Java are there, a pipeline computes a price for every order, exactly once; the
    demo then ends when it has seen all orders. Everything lies in a temporary directory and is
    gone afterwards.
    """
    seconds = None if duration is None else positions.duration_ms(duration) / 1000
    if seconds is not None and seconds < _SHORTEST_S:
        raise click.UsageError(f"a takeover takes its time: --for at least {_SHORTEST_S:g}s")
    with tempfile.TemporaryDirectory(prefix="headwater-demo-") as folder:
        play = Play(folder, seconds=seconds, rate=rate, quiet=as_json)
        play.pipeline_missing = _pipeline_missing(wanted=spark)
        with contextlib.ExitStack() as stack:
            stack.callback(play.end_all)
            play.run()
        result = play.result()
    if as_json:
        output.document(result)
    else:
        output.say(_tell(result))
    return Exit.DONE if result["good"] else Exit.FAILED


def _pipeline_missing(*, wanted: bool | None) -> str | None:
    """Say why there is no pipeline in the play; None if there is to be one."""
    if wanted is False:
        return "not asked for"
    try:
        check_spark()
        find_java()
    except HeadwaterError as error:
        if wanted:
            raise
        return f"{error.message}; {error.hint}"
    return None


class Child:
    """One process of the play, and what it has reported."""

    def __init__(self, name: str, arguments: list[str], log: Path) -> None:
        """Start it, in a session of its own: Ctrl-C is for us, and we tell the others."""
        self.name = name
        self.state = "starting"
        self.partitions: list[int] = []
        self.records = 0
        self._rest = b""
        with log.open("ab") as errors:
            self.process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", _WORKER, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        self.reports = self.process.stdout
        os.set_blocking(self.reports.fileno(), False)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process.poll() is None

    def take_reports(self) -> Iterator[dict[str, Any]]:
        """Yield what has come since the last time."""
        data = b""
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self.reports.fileno(), 1 << 16):
                data += more
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)

    def stop(self) -> None:
        """Ask it to end."""
        if self.alive:
            self.process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """See to it that it has ended: by itself if it can, at once if that takes long."""
        try:
            self.process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def close(self) -> None:
        """End it, and hear of it no more."""
        self.end()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


class Counted:
    """What the group has counted.

    Reports of two consumers may reach us in another order than they were written in, so ranges
    are kept apart until they touch.

    Attributes:
        again: How many records were reported more than once.
    """

    def __init__(self) -> None:
        """Start with nothing."""
        self._ranges: dict[int, list[tuple[int, int]]] = {}
        self.again = 0

    def add(self, partition: int, first: int, last: int) -> int:
        """Take a range; return how many of it are new."""
        begin, end = first, last + 1
        fresh = end - begin
        apart: list[tuple[int, int]] = []
        for known_begin, known_end in self._ranges.get(partition, ()):
            if known_end < begin or end < known_begin:
                apart.append((known_begin, known_end))
                continue
            fresh -= max(0, min(known_end, last + 1) - max(known_begin, first))
            begin, end = min(begin, known_begin), max(end, known_end)
        self._ranges[partition] = sorted([*apart, (begin, end)])
        self.again += last + 1 - first - fresh
        return fresh

    def upto(self, partition: int) -> int:
        """Return the offset up to which nothing is missing."""
        begin, end = next(iter(self._ranges.get(partition, ())), (0, 0))
        return end if begin == 0 else 0

    @property
    def total(self) -> int:
        """How many records were counted, each once."""
        return sum(end - begin for ranges in self._ranges.values() for begin, end in ranges)


class Play:
    """The processes, and what has happened so far.

    Attributes:
        events: What is worth telling, with the time at which it happened.
        children: Everybody, by name.
        recent: The newest records of each partition.
        pipeline_missing: Why there is no pipeline, if there is none.
    """

    def __init__(self, folder: str, *, seconds: float | None, rate: int, quiet: bool) -> None:
        """Only remember; ``run`` does it all."""
        self._data = f"{folder}/data"
        self._log = Path(folder, "children.log")
        self._seconds = seconds
        self._rate = rate
        self._session_ms = int(max(1.0, min(3.0, (seconds or 60.0) / 8)) * 1000)
        self._view = make_view(quiet=quiet)
        self._begun_s = 0.0
        self._counted = Counted()
        self._cluster: Cluster | None = None
        self._killed_s: float | None = None
        self._taken_over_s: float | None = None
        self._stopping = False
        self._next_due_s = math.inf
        self._orphans: set[int] = set()
        self._log_check: dict[str, int] = {}
        self._priced: dict[str, Any] | None = None
        self.pipeline_missing: str | None = None
        self.start_s = 0.0
        self.address = ""
        self.acked = 0
        self.children: dict[str, Child] = {}
        self.events: list[tuple[float, str]] = []
        self.recent: dict[int, list[Message]] = {number: [] for number in range(_PARTITIONS)}

    @property
    def age_s(self) -> float:
        """How long the play has gone on."""
        return time.monotonic() - self._begun_s

    # --- the story ------------------------------------------------------------------------------

    def run(self) -> None:
        """Play until the time is up or somebody has seen enough."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._stop)
        self._start_broker()
        self._start_pipeline()
        self._start("producer", ["producer", self.address, str(self._rate)])
        for name in ("consumer-a", "consumer-b"):
            self._start_consumer(name)
        tail = self._tail()
        with self._view:
            while not self._stopping and (self._seconds is None or self.age_s < self._seconds):
                self._look(tail)
                self._direct()
                self._view.draw(self)
            self._say("the producer stops; the consumers read the rest")
            self._finish()
            self._view.draw(self)

    def _stop(self, *_: object) -> None:
        """Let it end well at the first signal; the second one is not waited for."""
        self._stopping = True
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)

    def _start_broker(self) -> None:
        begun_s = time.monotonic()
        broker = self._start(
            "broker",
            [
                *("broker", "--data", self._data, "--listen", "127.0.0.1:0"),
                *("--set", "group.initial.rebalance.delay.ms=0"),
                *("--set", "group.min.session.timeout.ms=500"),
            ],
        )
        while (running := run_file.find(self._data)) is None:
            if not broker.alive or time.monotonic() - begun_s > _START_S:
                raise self._broken("the broker does not start")
            time.sleep(_LOOK_S / 10)
        self._begun_s = time.monotonic()
        self.start_s = self._begun_s - begun_s
        self.address = running.address
        broker.state = f"on {self.address}"
        self._cluster = Cluster(self.address, client_id="demo", timeout_s=_STOP_S)
        admin.create_topic(self._cluster, TOPIC, partitions=_PARTITIONS)
        self._say(f"a broker on {self.address}, ready after {self.start_s:.2f} s")

    def _start(self, name: str, arguments: list[str]) -> Child:
        child = self.children[name] = Child(name, arguments, self._log)
        return child

    def _start_consumer(self, name: str) -> None:
        self._start(name, ["consumer", self.address, name, str(self._session_ms)])

    def _start_pipeline(self) -> None:
        if self.pipeline_missing is not None:
            self._say(f"no Spark pipeline: {self.pipeline_missing}")
            return
        assert self._cluster is not None
        admin.create_topic(self._cluster, demo_orders.PRICED, partitions=_PARTITIONS)
        where = ["--master", "local[2]", "--data", self._data, "-b", self.address]
        self._start(demo_orders.PIPELINE, ["pipeline", demo_orders.__file__, *where])
        self._say(f"Spark starts; its pipeline {demo_orders.PIPELINE} gives each order a price")

    def _tail(self) -> RangeReader:
        assert self._cluster is not None
        starts = {(TOPIC, number): 0 for number in range(_PARTITIONS)}
        return RangeReader(self._cluster, starts, None, on_loss=self._say)

    def _direct(self) -> None:
        """Kill a consumer halfway, note the takeover, and send another one in."""
        kill_at_s = self._seconds / 2 if self._seconds else _KILL_AFTER_S
        victim = self.children["consumer-b"]
        if self._killed_s is None and self.age_s >= kill_at_s and victim.partitions:
            self._orphans = set(victim.partitions)
            victim.process.kill()
            victim.process.wait()
            victim.state = "killed"
            self._killed_s = self.age_s
            self._say(f"consumer-b is killed (SIGKILL); it had partitions {_list(self._orphans)}")
        self._note_takeover()
        time_is_left = self._seconds is None or self.age_s < self._seconds - _PAUSE_S
        if self.age_s >= self._next_due_s and time_is_left:
            self._next_due_s = math.inf
            self._say("consumer-c joins the group")
            self._start_consumer("consumer-c")

    def _note_takeover(self) -> None:
        survivor = self.children["consumer-a"]
        if (
            self._killed_s is not None
            and self._taken_over_s is None
            and self._orphans <= set(survivor.partitions)
        ):
            self._taken_over_s = self.age_s - self._killed_s
            self._say(f"consumer-a has taken them over, {self._taken_over_s:.1f} s later")
            self._next_due_s = self.age_s + _PAUSE_S

    def _look(self, tail: RangeReader) -> None:
        """Take in what has happened in the last moment."""
        with selectors.DefaultSelector() as selector:
            for child in self.children.values():
                if child.alive and child.name != "broker":
                    selector.register(child.reports, selectors.EVENT_READ)
            selector.select(_LOOK_S)
        self._take_reports()
        for message in tail.read(0.0):
            newest = self.recent.setdefault(message.partition, [])
            newest.append(message)
            del newest[:-_NEWEST]
        time.sleep(_LOOK_S)

    def _take_reports(self) -> None:
        for child in self.children.values():
            for report in child.take_reports():
                self._take(child, report)
            if child.state not in {"killed", "stopped"} and not child.alive:
                raise self._broken(f"{child.name} has ended unexpectedly")

    def _take(self, child: Child, report: dict[str, Any]) -> None:
        if child.state == "starting":
            child.state = "running"
        if "batch" in report:
            if not child.records:
                self._say(f"the pipeline's first batch: {report['rows']:,} orders")
            child.records += report["rows"]
        if "acked" in report:
            self.acked = child.records = report["acked"]
        if "assigned" in report and child.state != "killed":
            child.partitions = report["assigned"]
            self._say(f"{child.name} has partitions {_list(child.partitions)}")
        for partition, first, last in report.get("counted", ()):
            child.records += self._counted.add(partition, first, last)

    def _finish(self) -> None:
        """Let the producer end, the consumers catch up, and count what the log holds."""
        assert self._cluster is not None
        producer = self.children["producer"]
        producer.state = "stopped"
        producer.stop()
        producer.process.wait(_STOP_S)
        self._take_reports()
        places = [(TOPIC, number) for number in range(_PARTITIONS)]
        ends = admin.list_offsets(self._cluster, dict.fromkeys(places, LATEST))
        deadline_s = time.monotonic() + _STOP_S
        while time.monotonic() < deadline_s and any(
            self._counted.upto(number) < end for (_, number), end in ends.items()
        ):
            time.sleep(_LOOK_S)
            self._take_reports()
            self._note_takeover()
        found = self._count_numbers(TOPIC)
        self._log_check = found
        if demo_orders.PIPELINE in self.children:
            self._finish_pipeline(found["found"])

    def _finish_pipeline(self, orders: int) -> None:
        """Let the pipeline catch up, end it, and count what it has written."""
        child = self.children[demo_orders.PIPELINE]
        if self._stopping and not child.records:
            # Whoever has seen enough does not want to wait for what has not even begun.
            self.pipeline_missing = "it was ended before its first batch"
            child.state = "stopped"
            return
        if child.records < orders:
            self._say(f"{child.records:,} of {orders:,} orders have a price; the pipeline goes on")
        deadline_s = time.monotonic() + _PIPELINE_S
        while child.records < orders and time.monotonic() < deadline_s:
            time.sleep(_LOOK_S)
            self._take_reports()
            if output.is_interactive(sys.stdout):
                self._view.draw(self)
        child.state = "stopped"
        child.stop()
        child.end()
        if child.records < orders:
            # A slow machine has lost nothing.
            told = f"{child.records:,} of {orders:,} orders had a price after {_PIPELINE_S:.0f} s"
            self.pipeline_missing = f"it was too slow to tell: {told}"
            return
        self._priced = self._count_numbers(demo_orders.PRICED)

    def _count_numbers(self, topic: str) -> dict[str, int]:
        """Count how often each order is in a topic."""
        assert self._cluster is not None
        places = [(topic, number) for number in range(_PARTITIONS)]
        ends = admin.list_offsets(self._cluster, dict.fromkeys(places, LATEST))
        times_found = bytearray(self.acked)
        reader = RangeReader(self._cluster, dict.fromkeys(places, 0), ends, on_loss=self._say)
        found = 0
        while not reader.done:
            for message in reader.read():
                times_found[json.loads(message.value or b"")["number"]] += 1
                found += 1
        return {
            "found": found,
            "missing": times_found.count(0),
            "doubled": len(times_found) - times_found.count(0) - times_found.count(1),
        }

    # --- afterwards -----------------------------------------------------------------------------

    def end_all(self) -> None:
        """End every process: those who read and write first, the broker last."""
        if self._cluster is not None:
            self._cluster.close()
        for child in reversed(self.children.values()):
            child.state = "stopped"
            child.stop()
            child.close()

    def result(self) -> dict[str, Any]:
        """Return what was counted."""
        lost = self._log_check["found"] - self._counted.total
        good = (
            self.acked == self._log_check["found"]
            and not self._log_check["missing"]
            and not self._log_check["doubled"]
            and lost == 0
            and (self._killed_s is None or self._taken_over_s is not None)
            and (self._priced is None or self._priced == self._log_check)
        )
        return {
            "good": good,
            "broker_start_s": round(self.start_s, 3),
            "written": self.acked,
            "in_log": self._log_check["found"],
            "log_missing": self._log_check["missing"],
            "log_doubled": self._log_check["doubled"],
            "counted": self._counted.total,
            "lost": lost,
            "delivered_again": self._counted.again,
            "killed_after_s": None if self._killed_s is None else round(self._killed_s, 1),
            "taken_over_after_s": (
                None if self._taken_over_s is None else round(self._taken_over_s, 1)
            ),
            "pipeline": self._priced,
            "pipeline_missing": self.pipeline_missing,
        }

    def _say(self, text: str) -> None:
        self.events.append((self.age_s, text))
        self._view.event(self.age_s, text)

    def _broken(self, message: str) -> CommandError:
        log = self._log.read_text(encoding="utf-8", errors="replace").strip()
        return CommandError(
            Exit.FAILED, "DEMO_FAILED", message, hint=f"its last words: {log[-500:] or 'none'}"
        )


def _list(partitions: set[int] | list[int]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


def _tell(result: dict[str, Any]) -> str:
    lines = [
        "",
        "What you saw:",
        f"  a broker without a JVM, ready after {result['broker_start_s']:.2f} s",
        f"  {result['written']:,} records acknowledged, each after it was synced to disk",
        (
            f"  {result['in_log']:,} in the log: "
            f"{result['log_missing']:,} missing, {result['log_doubled']:,} doubled"
        ),
        (f"  {result['counted']:,} counted by the group: {result['lost']:,} lost, 0 counted twice"),
    ]
    if result["delivered_again"]:
        lines.append(
            f"    ({result['delivered_again']:,} came again, as they were not committed when their "
            "reader was killed or the group rebalanced; offsets tell them apart)"
        )
    if result["killed_after_s"] is not None:
        taken = result["taken_over_after_s"]
        lines.append(
            f"  one consumer was killed after {result['killed_after_s']:.0f} s; "
            + ("nobody took over in time" if taken is None else f"taken over {taken:.1f} s later")
        )
    priced = result["pipeline"]
    if priced is not None:
        lines.append(
            f"  {priced['found']:,} priced by Spark, in transactions: "
            f"{priced['missing']:,} missing, {priced['doubled']:,} doubled"
        )
    else:
        lines.append(f"  no result of a Spark pipeline: {result['pipeline_missing']}")
    # From a clone the program is not on the PATH: say it the way that works.
    called = Path(sys.argv[0])
    on_path = called.name != "headwater" or shutil.which("headwater")
    program = "headwater" if on_path else os.path.relpath(called)
    lines += ["", f"Now yours:  {program} up", f"            {program} topic create orders -p 3"]
    if not result["good"]:
        lines.append("\nThis is not what should have happened: please report it.")
    return "\n".join(lines)
