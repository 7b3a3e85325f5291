"""The program `headwater`: its commands, and how it ends.

This file alone decides which commands exist and what becomes of whatever they raise. A command's
module is loaded when the command is called: `headwater --help` loads none.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click

from headwater import __version__

COMMON_SETTINGS: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "max_content_width": 100,
}


# Set by the shell that asks for completions: eval "$(_HEADWATER_COMPLETE=bash_source headwater)".
_COMPLETION = "_HEADWATER_COMPLETE"


class _Lazy(NamedTuple):
    """Where a command lives, and what the list of commands says of it."""

    module: str
    function: str
    summary: str


_SECTIONS: dict[str, dict[str, _Lazy]] = {
    "Begin": {
        "demo": _Lazy("headwater.cli.demo", "demo", "Watch a broker, a producer and a group work."),
    },
    "Broker": {
        "up": _Lazy("headwater.cli.up", "up", "Run a broker."),
        "down": _Lazy("headwater.cli.down", "down", "Stop the broker of a data directory."),
        "status": _Lazy("headwater.cli.status", "status", "Show what a broker holds."),
    },
    "Data": {
        "topic": _Lazy("headwater.cli.topics", "topic", "List, create, change and delete topics."),
        "produce": _Lazy("headwater.cli.produce", "produce", "Write lines as records."),
        "tail": _Lazy("headwater.cli.tail", "tail", "Read records, old ones or as they come."),
        "replay": _Lazy("headwater.cli.replay", "replay", "Copy a range into a new topic."),
        "group": _Lazy("headwater.cli.groups", "group", "Show consumer groups; move them."),
        "dlq": _Lazy("headwater.cli.dlq", "dlq", "Show what pipelines refused; send it back."),
        "quota": _Lazy("headwater.cli.quotas", "quota", "Show and set what clients may ask for."),
    },
    "Pipelines": {
        "run": _Lazy("headwater.cli.run", "run", "Run the pipelines of a file."),
        "dry-run": _Lazy("headwater.cli.dry_run", "dry_run", "Show what they would write."),
        "pipeline": _Lazy("headwater.cli.pipelines", "pipeline", "Show, stop and repeat them."),
    },
    "Inside": {
        "log": _Lazy("headwater.cli.log_files", "log", "Look into the files of a log."),
        "config": _Lazy("headwater.cli.config", "config", "Show settings and where they are from."),
        "doctor": _Lazy("headwater.cli.doctor", "doctor", "Check this machine and the broker."),
    },
    "Help": {
        "version": _Lazy("headwater.cli.version", "version", "Show the version."),
    },
}
_COMMANDS = {name: lazy for section in _SECTIONS.values() for name, lazy in section.items()}


class _Program(click.Group):
    """A group whose commands are loaded one at a time."""

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - the signature is click's
        cmd_name: str,
    ) -> click.Command | None:
        lazy = _COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        command = getattr(importlib.import_module(lazy.module), lazy.function)
        assert isinstance(command, click.Command)
        return command

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - as above
        return list(_COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.exceptions.NoSuchCommand(args[0], possibilities=_COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002 - as above
        formatter: click.HelpFormatter,
    ) -> None:
        for section, commands in _SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, lazy.summary) for name, lazy in commands.items()])


@click.version_option(__version__, prog_name="headwater", message="%(prog)s %(version)s")
@click.group(
    cls=_Program,
    context_settings=COMMON_SETTINGS,
    epilog="""\b
Examples:
  headwater up                                  run a broker on ./headwater-data
  headwater topic create orders -p 3
  seq 10 | headwater produce orders
  headwater tail orders --from beginning -e

All commands that talk to a broker work against Apache Kafka too: --bootstrap HOST:PORT.""",
)
def program() -> None:
    """A durable, partitioned log that speaks the Kafka protocol."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code."""
    if sys.platform == "win32":
        sys.stderr.write("Headwater needs Linux or macOS; on Windows, use it within WSL\n")
        return 8
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        result = _invoke(given)
        sys.stdout.flush()
    except click.exceptions.Exit as asked:
        return asked.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except BrokenPipeError:
        # Whoever read our output has seen enough. What is left must not be written at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (click.exceptions.Abort, KeyboardInterrupt):
        return 130
    except Exception as error:  # noqa: BLE001 - told below, or raised again
        return _tell(error, as_json=as_json)
    return result if isinstance(result, int) else 0


def _invoke(arguments: list[str]) -> object:
    if _COMPLETION in os.environ:
        return program.main(arguments, prog_name="headwater", complete_var=_COMPLETION)
    # Not by `program.main`, which has answers of its own to a closed pipe and to Ctrl-C.
    with program.make_context("headwater", arguments) as context:
        return program.invoke(context)


def _tell(error: Exception, *, as_json: bool) -> int:
    # Loaded only now: what failed has loaded most of it anyway.
    errors = importlib.import_module("headwater.cli.errors")
    base = importlib.import_module("headwater.base.errors")
    if isinstance(error, click.ClickException):
        return int(errors.tell_usage(error, as_json=as_json))
    if isinstance(error, base.HeadwaterError):
        return int(errors.tell(error, as_json=as_json))
    raise error
