"""Write the pages of the reference that only repeat what the code says.

    python -m codegen.reference_pages [--check]

This file alone decides how commands, exit codes, settings and served APIs look on paper. The facts
are the code's own: click's commands, the tables of settings, the registry of handlers, and
`skipped.md` beside it.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import click

from codegen.functions_page import functions_page
from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import (
    BROKER_SETTINGS,
    TOPIC_SETTINGS,
    BrokerSettings,
    Setting,
    TopicConfig,
    Value,
    variable_for,
)
from headwater.base.settings.setting import INT_MAX, LONG_MAX
from headwater.cli.errors import Exit, judge
from headwater.cli.program import COMMON_SETTINGS, program
from headwater.delivery.broker.fixed_configs import FIXED_CONFIGS
from headwater.delivery.dialects.kafka import registry
from headwater.delivery.wire.kafka.apis import APIS

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs" / "reference"
_NOTE = "<!-- Written by codegen/reference_pages.py; `make docs` writes it anew. Do not edit. -->"

_EXITS = {
    Exit.DONE: "Done.",
    Exit.FAILED: "Failed while running, for a reason that has no code of its own.",
    Exit.USAGE: "Wrong usage: an option, an argument or a value that is not allowed.",
    Exit.NOT_FOUND: "Not found: a topic, a group, a file, a pipeline, a broker to stop.",
    Exit.IN_THE_WAY: "Exists already, or something is in the way: a group with members, a data "
    "directory in use, a deletion that nobody confirmed, a pipeline that runs already or whose "
    "checkpoint is of another plan.",
    Exit.NOT_ALLOWED: "Not allowed: authentication or authorisation, or a process of another user.",
    Exit.UNREACHABLE: "The broker cannot be reached, or is too slow.",
    Exit.BAD_DATA: "Data is invalid: an input line, a record, a damaged file, a definition file.",
    Exit.ENVIRONMENT: "The environment: a port in use, the disk, a limit of the system, the "
    "platform, no Java or Spark for a pipeline; `headwater doctor` found a problem.",
    Exit.INTERRUPTED: "Interrupted by Ctrl-C.",
    Exit.OUTPUT_CLOSED: "Whoever read our output went away, as `head` does. Nothing is said.",
}


def main() -> int:
    """Write the pages, or say which of them differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 on a difference"
    )
    options = parser.parse_args()
    stale = [path for path, text in pages().items() if not _is_there(path, text)]
    for path in stale:
        print(f"{'differs' if options.check else 'writes'}: {path.relative_to(ROOT)}")
        if not options.check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(pages()[path], encoding="utf-8")
    return int(options.check and bool(stale))


def _is_there(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def pages() -> dict[Path, str]:
    """Return the text of every page by its path."""
    writers = {
        "cli.md": _cli(),
        "exit-codes.md": _exit_codes(),
        "settings.md": _settings(),
        "kafka-apis.md": _kafka_apis(),
        "functions.md": functions_page(),
    }
    return {REFERENCE / name: "\n".join([*lines, "", _NOTE, ""]) for name, lines in writers.items()}


# --- commands -----------------------------------------------------------------------------------

_CLI_INTRODUCTION = """\
`headwater COMMAND --help` says the same in the terminal. Data goes to standard output, everything
else to standard error, so that pipes stay clean.

Commands that talk to a broker work against Apache Kafka as well. They find their broker in this
order: `--bootstrap`, the variable `HEADWATER_BOOTSTRAP`, the broker that runs on
`./headwater-data`, `localhost:9092`.

With `--json` a list is one document, and a stream is one document a line. Standard error is JSON
too, a document a line: `{"note": ...}` and `{"warning": ...}` on the way, `{"summary": ...}` behind
a stream (`--quiet` leaves it out), `{"error": ...}` after a failure. The
[exit codes](exit-codes.md) are a promise to scripts."""


def _cli() -> Iterator[str]:
    root = click.Context(program, info_name="headwater", **COMMON_SETTINGS)
    commands = list(_walk(program, root))
    by_name = {context.command_path: (command, context) for command, context in commands}
    common = dict(_options(*by_name["headwater tail"]))
    shared = {names: common[names] for names in common if _is_shared(names)}
    yield "# Commands"
    yield ""
    yield _CLI_INTRODUCTION
    yield ""
    yield "## Options that most commands share"
    yield ""
    yield from _table(["Option", "Meaning"], shared.items())
    for command, context in commands:
        yield from _command(command, context, shared)


def _is_shared(names: str) -> bool:
    return any(f"--{each}" in names for each in ("bootstrap", "timeout", "json", "help"))


def _walk(
    group: click.Group, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, parent=context, info_name=name)
        if isinstance(command, click.Group):
            yield from _walk(command, inner)
        else:
            yield command, inner


def _command(
    command: click.Command, context: click.Context, shared: Mapping[str, str]
) -> Iterator[str]:
    yield ""
    yield f"## {context.command_path}"
    yield ""
    yield "```text"
    yield " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield "```"
    yield ""
    yield from _paragraphs(command.help or "")
    options = dict(_options(command, context))
    own = {names: text for names, text in options.items() if shared.get(names) != text}
    if own:
        yield ""
        yield from _table(["Option", "Meaning"], own.items())
    also = [names for names in shared if options.get(names) == shared[names]]
    if also:
        yield ""
        yield f"Also: {', '.join(also)}."
    examples = _examples(command.epilog or "")
    if examples:
        yield ""
        yield "```text"
        yield from examples
        yield "```"


def _options(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        names, text = record or ("", "")
        if names.startswith("-"):  # an argument stands in the usage and in the text
            yield f"`{names}`", _cell(" ".join(text.split()))


def _paragraphs(text: str) -> Iterator[str]:
    for number, paragraph in enumerate(re.split(r"\n\s*\n", text.strip())):
        if number:
            yield ""
        yield " ".join(paragraph.split())


def _examples(epilog: str) -> list[str]:
    _, _, lines = epilog.partition("Examples:\n")
    return [line.removeprefix("  ") for line in lines.splitlines()]


# --- exit codes ---------------------------------------------------------------------------------


_EXIT_ERRORS = """\
A failure is told in two lines on standard error: what happened, and the next step. With `--json`
it is one document there, whose `code` is a name that scripts can rely on:

```json
{"error": {"code": "TOPIC_NOT_FOUND", "message": "topic 'ordrs' not found", "hint": "..."}}
```

## Errors of a broker

An error that a broker answers keeps Kafka's name, but for UNKNOWN_TOPIC_OR_PARTITION, which
becomes TOPIC_NOT_FOUND, and GROUP_ID_NOT_FOUND, which becomes GROUP_NOT_FOUND. These have exit
codes of their own; all others end with 1."""


def _exit_codes() -> Iterator[str]:
    yield "# Exit codes"
    yield ""
    yield "Every command ends with one of these. They do not change their meaning."
    yield ""
    yield from _table(["Code", "Meaning"], [(f"{int(each)}", _EXITS[each]) for each in Exit])
    yield ""
    yield _EXIT_ERRORS
    yield ""
    judged = {code: judge(KafkaError(code, ""))[0] for code in ErrorCode}
    rows = [
        (f"{int(each)}", ", ".join(f"`{code.name}`" for code in ErrorCode if judged[code] is each))
        for each in Exit
        if each is not Exit.FAILED and each in judged.values()
    ]
    yield from _table(["Code", "Errors"], rows)


# --- settings -----------------------------------------------------------------------------------

_BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES_MS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


_SETTINGS_INTRODUCTION = """\
Names and defaults are Kafka's wherever Kafka has them; those that begin with `headwater.` are our
own. A setting that does nothing says so.

## Where they come from

In rising order: the default, `headwater.toml` in the folder where the broker starts (or
`--config FILE`), the environment, `--set NAME=VALUE` and the flags of `headwater up`.
`headwater config show --origin` tells each value and its source.

What was set on a running broker with an admin client (`IncrementalAlterConfigs`) is kept in the
data directory and comes last: it holds after a restart, too, until it is deleted in the same way.
The broker warns at its start about each setting that gives way to such a value.

```toml
[broker]
log.retention.ms = "3d"
num.partitions = 4
"headwater.overflow" = "drop"
"headwater.overflow.bytes" = "1GiB"
```

A variable is the name in capitals, `_` for dots, behind `HEADWATER_`; of our own settings
`headwater.` becomes that prefix: `{retention}`, `{overflow}`. In files, variables and flags, times
may be written as `500ms`, `10s`, `5m`, `3h`, `7d` and sizes as `64KiB`, `10MB`, `1GiB`. Over the
Kafka protocol they are plain numbers, as Kafka wants them.

## Where we differ from Kafka

- `flush.messages` (`log.flush.interval.messages`) is 1: a record is on the disk before it is
  acknowledged or read. See [durability](../concepts/durability.md).
- `listeners` is the loopback address. Another one needs `--insecure`.
- `queued.max.request.bytes` has a bound, so that clients cannot fill the memory.
- `offsets.topic.num.partitions` is 4, not 50: each is one more file to sync, and one node has
  nothing to spread them over.
- `socket.listen.backlog.size` is 1024, not 50: one loop accepts for everyone.

## Of a topic

Set with `headwater topic create -c NAME=VALUE`, `headwater topic config`, or any Kafka tool, while
the topic is in use. The last column names the setting of the broker that gives the default to all
topics."""

_WHILE_RUNNING = """\
## Of the broker, while it runs

These can be changed on a running broker too, with any Kafka tool, and are in force at once."""
_FOR_TOPICS = """\
## Of the broker, as defaults for topics

These can be changed on a running broker too, with any Kafka tool, and then reach every topic that
has no value of its own."""
_FIXED = """\
## Fixed

Kafka's tools show these too. Each has one value here and cannot be set."""


def _settings() -> Iterator[str]:
    topic = TopicConfig()
    yield "# Settings"
    yield ""
    yield _SETTINGS_INTRODUCTION.format(
        retention=variable_for("log.retention.ms"), overflow=variable_for("headwater.overflow")
    )
    yield ""
    yield from _table(
        ["Config", "Default", "Allowed", "Meaning", "Broker's default"],
        [
            (
                f"`{name}`",
                _default(setting, getattr(topic, setting.field)),
                _cell(setting.allowed()),
                _cell(setting.documentation),
                f"`{setting.server_default}`" if setting.server_default else "",
            )
            for name, setting in TOPIC_SETTINGS.items()
        ],
    )
    yield ""
    yield "## Of the broker"
    yield ""
    yield "Read once, at the start."
    yield ""
    broker = BROKER_SETTINGS.values()
    defaults = {each.server_default for each in TOPIC_SETTINGS.values()}
    yield from _broker_table(each for each in broker if not each.dynamic)
    yield ""
    yield _WHILE_RUNNING
    yield ""
    yield from _broker_table(each for each in broker if each.dynamic and each.name not in defaults)
    yield ""
    yield _FOR_TOPICS
    yield ""
    yield from _broker_table(each for each in broker if each.dynamic and each.name in defaults)
    yield ""
    yield _FIXED
    yield ""
    yield from _table(
        ["Setting", "Value", "Meaning"],
        [
            (f"`{name}`", _default(setting, setting.default), _cell(setting.documentation))
            for name, setting in FIXED_CONFIGS.items()
        ],
    )


def _broker_table(settings: Iterable[Setting]) -> Iterator[str]:
    broker = BrokerSettings()
    yield from _table(
        ["Setting", "Default", "Allowed", "Meaning"],
        [
            (
                f"`{setting.name}`",
                _default(setting, getattr(broker, setting.field)),
                _cell(setting.allowed()),
                _cell(setting.documentation),
            )
            for setting in settings
        ],
    )


def _default(setting: Setting, value: Value) -> str:
    shown = setting.render(value)
    if not shown:
        return "none"
    return f"`{shown}`{_in_words(setting, value)}"


def _in_words(setting: Setting, value: Value) -> str:
    """Say a large number so that a person can read it."""
    if not isinstance(value, int) or isinstance(value, bool):
        return ""
    if value in {LONG_MAX, INT_MAX}:
        return " (no limit)"
    last = setting.name.rsplit(".", 1)[-1]
    units = {"ms": _TIMES_MS, "bytes": _BYTES}.get(last, ())
    for size, unit in units:
        if value >= size and value % size == 0:
            return f" ({value // size} {unit})"
    return ""


# --- Kafka's APIs -------------------------------------------------------------------------------


def _kafka_apis() -> Iterator[str]:
    skipped = (Path(registry.__file__).with_name("skipped.md")).read_text(encoding="utf-8")
    yield "# Kafka APIs and versions"
    yield ""
    yield "These APIs of Kafka 4.3 are served, each in every version that Kafka 4.3 serves. Clients"
    yield "are told the same list. Asking for anything else closes the connection, as in Kafka."
    yield ""
    yield from _table(
        ["Key", "API", "Versions"],
        [
            (f"{key}", APIS[key].name, _versions(*registry.APIS[key].VERSIONS))
            for key in sorted(registry.APIS)
        ],
    )
    for heading in re.findall(r"^## (.+)$", skipped, re.MULTILINE):
        body = skipped.partition(f"## {heading}\n")[2].partition("\n## ")[0]
        yield ""
        yield f"## {heading}"
        yield ""
        yield body.strip()


def _versions(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


# --- Markdown -----------------------------------------------------------------------------------


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    heads = list(heads)
    yield _row(heads)
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    sys.exit(main())
