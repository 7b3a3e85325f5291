"""`headwater down`: end the broker of a data directory.

This file alone decides how a broker on this machine is stopped from outside, and when it counts as
stopped: when the directory's lock is free, not when its process has been told.
"""

import os
import signal
import time

import click

from headwater.base.settings.places import DEFAULT_DATA
from headwater.cli import output, run_file
from headwater.cli.errors import CommandError, Exit
from headwater.cli.options import Number, examples, json_option

_LOOK_AGAIN_S = 0.05


@click.command(epilog=examples("headwater down", "headwater down --data /srv/log"))
@click.option("--data", metavar="DIR", default=DEFAULT_DATA, show_default=True)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=Number(fraction=True),
    default=30.0,
    help="How long to wait for its end.  [default: 30]",
)
@json_option
def down(*, data: str, timeout_s: float, as_json: bool) -> None:
    """Stop the broker that runs on a data directory, and wait until it has stopped."""
    pid = run_file.lock_holder(data)
    if pid is None:
        raise CommandError(
            Exit.NOT_FOUND,
            "NOT_RUNNING",
            f"no broker runs on {data}",
            hint="name its directory: headwater down --data DIR",
        )
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        pass  # it has just ended by itself
    except PermissionError as error:
        raise CommandError(
            Exit.NOT_ALLOWED,
            "NOT_OURS",
            f"process {pid} belongs to another user",
            hint=f"stop it as that user: kill {pid}",
        ) from error
    deadline_s = time.monotonic() + timeout_s
    while run_file.lock_holder(data) == pid:
        if time.monotonic() > deadline_s:
            raise CommandError(
                Exit.UNREACHABLE,
                "STILL_RUNNING",
                f"process {pid} has not stopped within {timeout_s:g} s",
                hint=f"wait on, or end it the hard way (the next start recovers): kill -9 {pid}",
            )
        time.sleep(_LOOK_AGAIN_S)
    if as_json:
        output.document({"stopped": {"pid": pid, "data": data}})
    else:
        output.say(f"stopped the broker on {data} (pid {pid})")
