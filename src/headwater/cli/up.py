"""`headwater up`: a broker in the foreground.

This file alone decides how a broker becomes a process: where its settings come from, who may reach
it, how it says that it is ready, and what signals do to it. What happens between the two lines it
prints is the server's.
"""

import asyncio
import contextlib
import errno
import ipaddress
import json
import logging
import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

import click

from headwater.base.chance import SystemChance
from headwater.base.clock import SystemClock
from headwater.base.directory_lock import AlreadyLockedError
from headwater.base.disk import RealDisk, is_full
from headwater.base.errors import HeadwaterError
from headwater.base.settings import Loaded
from headwater.base.settings.places import DEFAULT_DATA
from headwater.cli import output, run_file
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import examples, json_option, parse_pairs
from headwater.cli.progress import Progress
from headwater.cli.settings import CONFIG_HELP, config_file, read_settings
from headwater.cli.supervisor import Listed, Supervisor, listed_pipelines
from headwater.delivery.server.lifecycle import Node, start_node
from headwater.log.store import Recovery


@click.command(
    epilog=examples(
        "headwater up                                    # 127.0.0.1:9092, ./headwater-data",
        "headwater up --data /srv/log --listen 127.0.0.1:0    # any free port, told when ready",
        "headwater up --set log.retention.ms=3d --set num.partitions=4",
        "headwater up --listen 0.0.0.0:9092 --advertise box.lan:9092 --insecure",
    )
)
@click.option("--data", metavar="DIR", help="Where everything is kept.  [default: headwater-data]")
@click.option("--listen", metavar="HOST:PORT", help="Port 0: any.  [default: 127.0.0.1:9092]")
@click.option("--advertise", metavar="HOST:PORT", help="What clients are told to connect to.")
@click.option("--config", metavar="FILE", help=CONFIG_HELP)
@click.option("--set", "pairs", metavar="NAME=VALUE", multiple=True, help="Any broker setting.")
@click.option(
    "--insecure", is_flag=True, help="Allow an address that other machines can reach, unprotected."
)
@click.option("-v", "--verbose", is_flag=True, help="Log more than warnings.")
@json_option
def up(
    *,
    data: str | None,
    listen: str | None,
    advertise: str | None,
    config: str | None,
    pairs: tuple[str, ...],
    insecure: bool,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run a broker until SIGTERM or Ctrl-C; a second Ctrl-C ends it at once.

    One line on standard error says when it is ready. The port opens after recovery. Pipelines that
    headwater.toml lists are run too, and started again when they fail.
    """
    logging.basicConfig(
        format="%(asctime)s %(levelname)s %(message)s",
        level=logging.INFO if verbose else logging.WARNING,
    )
    flags = {
        **parse_pairs(pairs, "--set"),
        "log.dirs": data,
        "listeners": listen,
        "advertised.listeners": advertise,
        "headwater.insecure": True if insecure else None,
    }
    loaded = read_settings(flags, config, as_json=as_json)
    pipelines = listed_pipelines(config_file(config))
    _check_platform()
    _check_address(loaded)
    _check_directory(loaded.settings.log_dirs)
    _raise_file_limit()
    # Until it is ready there is nothing to end gracefully: recovery begins anew next time.
    signal.signal(signal.SIGINT, _interrupt)
    return asyncio.run(_run(loaded, pipelines, as_json=as_json))


def _check_platform() -> None:
    if sys.platform not in {"linux", "darwin"}:
        raise CommandError(
            Exit.ENVIRONMENT,
            "UNSUPPORTED_PLATFORM",
            f"a broker cannot promise durability on {sys.platform}",
            hint="use Linux, macOS, or WSL on Windows",
        )


def _check_address(loaded: Loaded) -> None:
    host, _ = loaded.settings.listen_address
    if loaded.settings.headwater_insecure or _is_loopback(host):
        return
    raise CommandError(
        Exit.USAGE,
        "INSECURE_ADDRESS",
        f"{host or 'every address'} can be reached by other machines, and nothing is protected yet",
        hint="add --insecure if the network is safe, or listen on 127.0.0.1",
    )


def _check_directory(data_directory: str) -> None:
    """Refuse a place where no directory can be, in words that need no knowledge of errno."""
    path = Path(data_directory)
    for each in (path, *path.parents):
        # Where we may not look, nothing is: the store will say what is wrong there.
        if os.path.exists(each):  # noqa: PTH110 - Path.exists raises for what cannot be looked at
            if not each.is_dir():
                raise CommandError(
                    Exit.ENVIRONMENT,
                    "NOT_A_DIRECTORY",
                    f"{each} is a file, and a broker keeps its data in a directory",
                    hint="name a directory, which need not exist yet: headwater up --data DIR",
                )
            return


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _raise_file_limit() -> None:
    """Allow as many descriptors as the system lets us: connections and segments need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as error:  # macOS names a limit that it does not grant
            logging.getLogger(__name__).info("the file limit stays at %d: %s", soft, error)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


async def _run(loaded: Loaded, pipelines: list[Listed], *, as_json: bool) -> int:
    data_directory = loaded.settings.log_dirs
    begun_s = time.monotonic()
    node, was_clean = await _start(loaded)
    stopping = _listen_to_signals()
    address = f"{node.host}:{node.port}"
    try:
        run_file.write(
            data_directory, run_file.Running(os.getpid(), address, time.time_ns() // 1_000_000)
        )
    except OSError as error:
        # A full disk does not even take the word that all is well; the first failure counts.
        with contextlib.suppress(HeadwaterError):
            await node.stop()
        raise _cannot_start(error, f"cannot write in {data_directory}: {error}") from error
    supervisor = Supervisor(pipelines, address=address, data_directory=data_directory)
    try:
        took_s = time.monotonic() - begun_s
        supervisor.start()
        _say_ready(node, data_directory, took_s, was_clean=was_clean, as_json=as_json)
        ends: list[asyncio.Future[Any]] = [stopping, node.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        # Pipelines first: they end well only while there is a broker.
        try:
            await supervisor.stop()
        finally:
            await node.stop()
    finally:
        run_file.remove(data_directory)
    if node.failed.done():
        raise CommandError(
            Exit.ENVIRONMENT,
            "DISK_FAILED",
            f"the disk under {data_directory} failed: {node.failed.result()}",
            hint="see the system's log; the next start recovers what was acknowledged",
        )
    return Exit.DONE


async def _start(loaded: Loaded) -> tuple[Node, bool]:
    """Start the broker; tell also whether the last stop was clean, so that nothing was scanned."""
    data_directory = loaded.settings.log_dirs
    bar = Progress("recovering", unit="partitions")
    was_clean = True

    def show(recovery: Recovery) -> None:
        nonlocal was_clean
        was_clean = recovery.clean
        bar.show(recovery.done, recovery.total)

    try:
        node = await start_node(
            disk=RealDisk(),
            data_directory=data_directory,
            settings=loaded.settings,
            clock=SystemClock(),
            chance=SystemChance(),
            listen=loaded.settings.listen_address,
            advertise=loaded.settings.advertised_address,
            progress=show,
        )
    except AlreadyLockedError as error:
        hint = error.hint
        if Path(data_directory) != Path(DEFAULT_DATA):
            hint = hint.replace("headwater down", f"headwater down --data {data_directory}")
        raise AlreadyLockedError(error.message, hint=hint) from error
    except HeadwaterError as error:
        raise _cannot_start(error, error.message, error.hint) from error
    except OSError as error:
        if error.errno == errno.EMFILE:
            hint = "raise the limit: ulimit -Hn"
            message = "too many open files"
            raise CommandError(Exit.ENVIRONMENT, "FILE_LIMIT", message, hint=hint) from error
        raise
    finally:
        bar.close()
    return node, was_clean


def _cannot_start(error: BaseException, message: str, hint: str = "") -> CommandError:
    """Name what is in the way of a start; a full disk can lie beneath any failure of the store."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and is_full(cause):
            hint = (
                "free some space there and start again, nothing is lost; how much there is: "
                "headwater doctor; more: docs/guides/troubleshooting.md, 'At the start'"
            )
            return CommandError(Exit.ENVIRONMENT, "DISK_FULL", message, hint=hint)
        cause = cause.__cause__
    return CommandError(Exit.ENVIRONMENT, "CANNOT_START", message, hint=hint)


def _listen_to_signals() -> asyncio.Future[str]:
    """Return what is done when somebody asks us to stop."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[str] = loop.create_future()

    def stop(name: str) -> None:
        if not stopping.done():
            stopping.set_result(name)
            # From now on the kernel itself ends us, even in the middle of a sync.
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            if name == "SIGINT" and output.is_interactive(sys.stderr):
                output.note("\nstopping; Ctrl-C again ends it at once")

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number.name)
    return stopping


def _say_ready(
    node: Node, data_directory: str, took_s: float, *, was_clean: bool, as_json: bool
) -> None:
    topics = node.broker.store.topics.values()
    address = f"{node.host}:{node.port}"
    if as_json:
        facts = {
            "address": address,
            "pid": os.getpid(),
            "data": data_directory,
            "topics": len(topics),
            "partitions": sum(len(topic.partitions) for topic in topics),
            "start_ms": round(took_s * 1000),
            "recovered": not was_clean,
        }
        output.note(json.dumps({"ready": facts}))
        return
    output.note(
        f"{output.paint('ready', 'green', sys.stderr)} on {address}: "
        f"{output.count(len(topics), 'topic')}, data in {data_directory}, "
        f"{'started' if was_clean else 'recovered'} in {took_s:.2f} s (pid {os.getpid()})"
    )
