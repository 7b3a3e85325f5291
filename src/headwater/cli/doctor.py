"""`headwater doctor`: is this a good place for a broker, and is there one?

This file alone decides what is checked and where a finding becomes a problem. Each check says what
it saw and, if that is bad, what to do; none changes anything that stays.
"""

import contextlib
import os
import platform
import resource
import shutil
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from headwater.base.disk import File, RealDisk
from headwater.base.errors import HeadwaterError
from headwater.cli import output, run_file
from headwater.cli.errors import Exit
from headwater.cli.options import (
    BOOTSTRAP_VARIABLE,
    broker_address,
    check_bootstrap,
    examples,
    json_option,
)
from headwater.cli.settings import CONFIG_HELP, read_settings
from headwater.delivery.client import admin
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.open_transactions import OpenTransaction, list_open_transactions
from headwater.log.layout import check_layout
from headwater.streams.java import JavaMissingError, find_java
from headwater.streams.session import SparkMissingError, check_spark

_PYTHON_MIN = (3, 11)
_SPARK_MIN = (4, 2)
# Below this much a busy broker fills the disk before anybody looks.
_FREE_BYTES_MIN = 1 << 30
# Each connection takes a descriptor, each partition in use one or two, and the log gets a third:
# with fewer, a node of a thousand busy partitions closes and opens files all the time.
_FILES_MIN = 4096
_SYNCS = 20
# A sync that takes longer makes every durable request as slow: a disk of its own is needed.
_SYNC_MS_MAX = 50.0
_CONNECT_S = 3.0
# Transactions last for as long as a batch takes: milliseconds, seconds at most. Kafka Streams, the
# slowest in use, commits every 100 ms.
_OPEN_S_MAX = 60.0
_DETAILS_MAX = 10
# Headwater's first release is younger than this; a clock before it is wrong.
_CLOCK_MIN_S = 1_760_000_000
_CLOCK_STEP_S_MAX = 0.5

OK = "ok"
WARNING = "warning"
PROBLEM = "problem"
_STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "red"}


class Finding(NamedTuple):
    """What one check saw."""

    check: str
    state: str
    seen: str
    hint: str = ""
    details: Sequence[Mapping[str, object]] = ()


@click.command(
    epilog=examples("headwater doctor", "headwater doctor --data /srv/log -b kafka:9092 --json")
)
@click.option("--data", metavar="DIR", help="[default: as headwater up would choose]")
@click.option("--listen", metavar="HOST:PORT", help="[default: as headwater up would choose]")
@click.option("--config", metavar="FILE", help=CONFIG_HELP)
@click.option(
    "-b",
    "--bootstrap",
    metavar="HOST:PORT",
    envvar=BOOTSTRAP_VARIABLE,
    callback=check_bootstrap,
)
@json_option
def doctor(
    *,
    data: str | None,
    listen: str | None,
    config: str | None,
    bootstrap: str | None,
    as_json: bool,
) -> int:
    """Check this machine, the data directory, the port and the broker.

    Ends with exit code 8 if there is a problem; warnings alone end with 0.
    """
    flags = {"log.dirs": data, "listeners": listen}
    settings = read_settings(flags, config, as_json=as_json).settings
    findings = []
    for finding in _examine(settings.log_dirs, settings.listen_address, bootstrap):
        findings.append(finding)
        if not as_json:
            _print(finding)
    problems = sum(each.state == PROBLEM for each in findings)
    if as_json:
        output.document(
            {"healthy": problems == 0, "findings": [each._asdict() for each in findings]}
        )
    elif problems:
        output.note(f"{output.count(problems, 'problem')} found")
    return Exit.ENVIRONMENT if problems else Exit.DONE


def _print(finding: Finding) -> None:
    state = output.paint(finding.state.ljust(len(WARNING)), _STYLES[finding.state], sys.stdout)
    output.say(f"{state}  {finding.check.ljust(14)}  {finding.seen}")
    indent = f"{' ' * len(WARNING)}  {' ' * 14}  "
    for detail in finding.details[:_DETAILS_MAX]:
        output.say(f"{indent}- {detail['text']}")
    if len(finding.details) > _DETAILS_MAX:
        output.say(f"{indent}- and {len(finding.details) - _DETAILS_MAX:,} more; all with --json")
    if finding.hint:
        output.say(f"{indent}-> {finding.hint}")


def _examine(
    data_directory: str, listen: tuple[str, int], bootstrap: str | None
) -> Iterator[Finding]:
    yield check_python()
    yield check_platform()
    yield check_file_limit()
    yield check_clock()
    yield from check_pipelines()
    yield check_data_directory(data_directory)
    yield check_free_space(data_directory)
    yield check_sync(data_directory)
    running = run_file.find(data_directory)
    yield check_port(*listen, running)
    if bootstrap is None and running is not None:
        bootstrap = running.address
    address = broker_address(bootstrap)
    broker = check_broker(address, asked_for=bootstrap is not None)
    yield broker
    if broker.state == OK:
        yield check_transactions(address)


def check_python() -> Finding:
    """Check the interpreter's version."""
    seen = f"Python {platform.python_version()} ({platform.python_implementation()})"
    if sys.version_info[:2] < _PYTHON_MIN:
        return Finding("python", PROBLEM, seen, "install Python 3.11 or newer")
    return Finding("python", OK, seen)


def check_platform() -> Finding:
    """Check that the system can make writes durable the way we need it."""
    seen = f"{platform.system()} {platform.release()} on {platform.machine()}"
    if sys.platform not in {"linux", "darwin"}:
        return Finding("system", PROBLEM, seen, "use Linux, macOS, or WSL on Windows")
    return Finding("system", OK, seen)


def check_file_limit() -> Finding:
    """Check how many files and connections a process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "any number of" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    seen = (
        f"{most} open files allowed (a broker raises its limit from {soft:,} by itself), "
        "a third of them for the log"
    )
    if hard != resource.RLIM_INFINITY and hard < _FILES_MIN:
        return Finding("file limit", WARNING, seen, f"allow at least {_FILES_MIN:,}: ulimit -Hn")
    return Finding("file limit", OK, seen)


def check_clock() -> Finding:
    """Check that the clock is plausible and does not jump."""
    wall_s, steady_s = time.time(), time.monotonic()
    time.sleep(0.05)
    drift_s = (time.time() - wall_s) - (time.monotonic() - steady_s)
    seen = str(output.time_text(int(wall_s * 1000)))
    if wall_s < _CLOCK_MIN_S:
        return Finding("clock", PROBLEM, seen, "set the clock: retention goes by it")
    if abs(drift_s) > _CLOCK_STEP_S_MAX:
        return Finding("clock", WARNING, f"{seen}, just jumped by {drift_s:.1f} s", "check NTP")
    return Finding("clock", OK, seen)


def check_pipelines() -> Iterator[Finding]:
    """Check what only pipelines need: Spark, the interpreter of its workers, and Java."""
    try:
        version = check_spark()
    except SparkMissingError as error:
        seen = f"{error.message}; only pipelines need it"
        yield Finding("spark", OK, seen, error.hint)
        return
    minor = tuple(int(part) for part in version.split(".")[:2])
    if minor < _SPARK_MIN:
        hint = "pip install 'headwater[spark]'"
        yield Finding("spark", PROBLEM, f"PySpark {version} is too old for pipelines", hint)
    else:
        yield Finding("spark", OK, f"PySpark {version}")
    yield check_workers()
    yield check_java()


def check_workers() -> Finding:
    """Check that Spark's workers run on this interpreter, which has what they need."""
    named = os.environ.get("PYSPARK_PYTHON")
    if named is None:
        return Finding("workers", OK, f"Spark's workers run on {sys.executable}")
    found = shutil.which(named)
    if found is None:
        hint = "unset PYSPARK_PYTHON, or let it name an interpreter that has headwater"
        return Finding("workers", PROBLEM, f"PYSPARK_PYTHON={named} does not exist", hint)
    if Path(found).absolute() != Path(sys.executable).absolute():
        seen = f"PYSPARK_PYTHON={named}, and this is {sys.executable}"
        hint = "unset PYSPARK_PYTHON, unless that interpreter has headwater[spark] too"
        return Finding("workers", WARNING, seen, hint)
    return Finding("workers", OK, f"PYSPARK_PYTHON={named}")


def check_java() -> Finding:
    """Check that there is a Java for Spark."""
    try:
        java = find_java()
    except JavaMissingError as error:
        return Finding("java", PROBLEM, error.message, error.hint)
    return Finding("java", OK, f"Java {java.version} in {java.home} ({java.origin})")


def check_data_directory(data_directory: str) -> Finding:
    """Check that the directory, or the one it will be made in, can be written and is ours."""
    path = Path(data_directory)
    parent = _existing(path)
    if not parent.is_dir():
        hint = "name a directory, which need not exist yet: --data DIR"
        return Finding("data", PROBLEM, f"{parent} is a file, and no directory", hint)
    if not os.access(parent, os.W_OK | os.X_OK):
        hint = "choose another with --data, or ask whoever owns it for a directory in there"
        if os.path.exists(path / "VERSION"):  # noqa: PTH110 - as in `_existing`
            # Ours beyond doubt, so the advice can do no harm to anybody else's files.
            hint = f"run as its owner, or choose another with --data, or: chown -R $USER {path}"
        return Finding("data", PROBLEM, f"{parent} cannot be written", hint)
    try:
        if not path.exists():
            return Finding("data", OK, f"{path} will be made")
        check_layout(RealDisk(), data_directory)
    except HeadwaterError as error:
        return Finding("data", PROBLEM, error.message, error.hint)
    except OSError as error:
        return Finding("data", PROBLEM, str(error), "choose another with --data")
    holder = run_file.lock_holder(data_directory)
    used = f", in use by process {holder}" if holder else ""
    return Finding("data", OK, f"{path} can be written{used}")


def check_free_space(data_directory: str) -> Finding:
    """Check how much the disk still takes."""
    usage = shutil.disk_usage(_existing(Path(data_directory)))
    seen = f"{output.bytes_text(usage.free)} of {output.bytes_text(usage.total)} free"
    if usage.free < _FREE_BYTES_MIN:
        hint = "make room, or set log.retention.bytes: a full disk takes no writes"
        return Finding("disk space", PROBLEM, seen, hint)
    return Finding("disk space", OK, seen)


def check_sync(data_directory: str) -> Finding:
    """Measure how long the disk takes to make 4 KiB durable."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(
                    prefix=".headwater-doctor-", dir=_existing(Path(data_directory))
                )
            )
            file = RealDisk().open(f"{folder}/sync", create=True)
            took_ms = [_sync_ms(file) for _ in range(_SYNCS)]
            file.close()
        except OSError as error:
            return Finding("sync", PROBLEM, f"cannot write: {error.strerror}", "choose --data")
    middle_ms, worst_ms = statistics.median(took_ms), max(took_ms)
    seen = f"{middle_ms:.2f} ms for 4 KiB, at most {worst_ms:.2f} ms in {_SYNCS}"
    if middle_ms > _SYNC_MS_MAX:
        hint = "use a faster disk, or flush.messages above 1 for topics that may lose their tail"
        return Finding("sync", WARNING, seen, hint)
    return Finding("sync", OK, seen)


def _sync_ms(file: File) -> float:
    begun_s = time.perf_counter()
    file.append([bytes(4096)])
    file.sync()
    return (time.perf_counter() - begun_s) * 1000


def check_port(host: str, port: int, running: run_file.Running | None) -> Finding:
    """Check that the port is free, or taken by the broker of this directory."""
    if running is not None:
        return Finding("port", OK, f"the broker of this directory listens on {running.address}")
    if port == 0:
        return Finding("port", OK, "any free one will be chosen")
    name = f"{host or '0.0.0.0'}:{port}"  # noqa: S104 - shown, not bound
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        hint = f"stop who has it, or take another: headwater up --listen {host}:0"
        return Finding("port", PROBLEM, f"{name} cannot be used: {error.strerror}", hint)
    return Finding("port", OK, f"{name} is free")


def check_broker(address: str, *, asked_for: bool) -> Finding:
    """Check that a broker answers; only a problem where somebody named it or one should run."""
    try:
        with Cluster(address, client_id="headwater-doctor", timeout_s=_CONNECT_S) as cluster:
            begun_s = time.perf_counter()
            topics = cluster.topics()
            took_ms = (time.perf_counter() - begun_s) * 1000
            groups = admin.list_groups(cluster)
    except HeadwaterError as error:
        state = PROBLEM if asked_for else WARNING
        return Finding("broker", state, error.message, "start one with: headwater up")
    seen = (
        f"{address} answers in {took_ms:.1f} ms: "
        f"{output.count(len(topics), 'topic')}, {output.count(len(groups), 'group')}"
    )
    return Finding("broker", OK, seen)


def check_transactions(address: str) -> Finding:
    """Check for transactions that keep readers of committed data waiting."""
    try:
        with Cluster(address, client_id="headwater-doctor", timeout_s=_CONNECT_S) as cluster:
            found = list_open_transactions(cluster)
    except HeadwaterError as error:
        return Finding("transactions", WARNING, f"unknown: {error.message}", error.hint)
    if not found:
        return Finding("transactions", OK, "none is open")
    now_ms = time.time_ns() // 1_000_000
    oldest = found[0]
    seen = (
        f"{len(found):,} open; the oldest, {_named(oldest)}, for "
        f"{max(0, now_ms - oldest.started_ms) / 1000:.0f} s "
        f"in {output.count(oldest.partitions, 'partition')}"
    )
    details = tuple(_transaction_detail(each, now_ms) for each in found)
    late = [each for each, detail in zip(found, details, strict=True) if detail["late"]]
    if not late:
        return Finding("transactions", OK, seen, details=details)
    hint = _way_out(late[0], now_ms, address)
    return Finding("transactions", WARNING, f"{seen}; {len(late):,} for too long", hint, details)


def _transaction_detail(each: OpenTransaction, now_ms: int) -> Mapping[str, object]:
    age_ms = max(0, now_ms - each.started_ms)
    most_ms = _OPEN_S_MAX * 1000
    if each.timeout_ms is not None:
        most_ms = min(most_ms, each.timeout_ms)
    place = each.hangs_in
    return {
        "transactional_id": each.transactional_id,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "age_ms": age_ms,
        "timeout_ms": each.timeout_ms,
        "partitions": each.partitions,
        "late": age_ms > most_ms,
        "hangs": None
        if place is None
        else {"topic": place[0], "partition": place[1], "offset": each.first_offset},
        "text": f"{_named(each)}, open for {output.duration_text(age_ms)}"
        + (
            f" of at most {output.duration_text(each.timeout_ms)}"
            if place is None
            else f" in {place[0]}-{place[1]}, and no coordinator knows of it"
        ),
    }


def _named(each: OpenTransaction) -> str:
    producer = f"producer {each.producer_id} epoch {each.producer_epoch}"
    return producer if each.transactional_id is None else f"{each.transactional_id!r} ({producer})"


def _way_out(each: OpenTransaction, now_ms: int, address: str) -> str:
    waiting = "readers of committed data wait behind it"
    if each.hangs_in is not None:
        topic, number = each.hangs_in
        return (
            f"{waiting}, and nobody will end it but you: "
            f"kafka-transactions.sh --bootstrap-server {address} abort --topic {topic} "
            f"--partition {number} --start-offset {each.first_offset}"
        )
    assert each.timeout_ms is not None, "whom a coordinator knows, it also ends"
    left_s = max(0.0, (each.started_ms + each.timeout_ms - now_ms) / 1000)
    return (
        f"{waiting}; it is aborted by its time-out in {left_s:.0f} s, "
        "or when its producer starts again"
    )


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    path = path.absolute()
    while not os.path.exists(path):  # noqa: PTH110 - Path.exists raises where we may not look
        path = path.parent
    return path
