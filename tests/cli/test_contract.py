"""What holds for every command, found by walking through all of them."""

import json
import os
import pty
import re
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from headwater.base.errors import ErrorCode, KafkaError
from headwater.cli.errors import Exit, tell
from headwater.cli.program import COMMON_SETTINGS, program
from tests.cli.runner import Runner

# Commands that name a topic, with what else they want to hear.
NEED_A_TOPIC = {
    "topic describe": ["no-such-topic"],
    "topic config": ["no-such-topic"],
    "topic add-partitions": ["no-such-topic", "3"],
    "topic rm": ["no-such-topic", "--yes"],
    "topic trim": ["no-such-topic", "--before", "end", "--yes"],
    "produce": ["no-such-topic"],
    "tail": ["no-such-topic", "-e"],
    "replay": ["no-such-topic", "--into", "another"],
    "group seek": ["some-group", "--to", "end", "--topic", "no-such-topic"],
    "dlq show": ["no-such-topic"],
    "dlq redrive": ["no-such-topic", "--all"],
}
NEED_A_GROUP = {
    "group describe": ["no-such-group"],
    "group seek": ["no-such-group", "--to", "end"],
    "group rm": ["no-such-group", "--yes"],
}
NEED_A_BROKER = {
    "status": [],
    "topic ls": [],
    "topic create": ["t"],
    "group ls": [],
    "quota ls": [],
    "quota set": ["producer_byte_rate=1", "--client", "c"],
    "quota clear": ["--any-client"],
    "dlq ls": [],
    "run": ["pipelines.py"],
    "dry-run": ["pipelines.py"],
    "pipeline backfill": ["pipelines.py", "--from", "beginning", "--into", "t"],
    **NEED_A_TOPIC,
    **NEED_A_GROUP,
}


def walk(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with the words that call it."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from walk(found, (*path, name))


LEAVES = dict(walk(program, ()))


def test_the_walk_finds_what_the_documentation_names() -> None:
    assert set(LEAVES) == {
        *("up", "down", "status", "doctor", "demo", "version"),
        *("topic ls", "topic create", "topic describe", "topic config", "topic rm"),
        *("topic trim", "topic add-partitions", "produce", "tail", "replay"),
        *("group ls", "group describe", "group seek", "group rm", "log dump", "config show"),
        *("quota ls", "quota set", "quota clear"),
        *("dlq ls", "dlq show", "dlq redrive"),
        *("run", "dry-run", "pipeline ls", "pipeline status", "pipeline logs"),
        *("pipeline stop", "pipeline reset", "pipeline backfill"),
    }


@pytest.mark.parametrize("path", LEAVES)
def test_help_has_an_example(lone_cli: Runner, path: str) -> None:
    text = lone_cli.ok(*path.split(), "--help").text
    assert "Examples:" in text
    assert f"  headwater {path}" in text or f"| headwater {path}" in text
    assert "-h, --help" in text


def examples() -> list[str]:
    found = []
    for command in LEAVES.values():
        for line in (command.epilog or "").splitlines():
            call = re.search(r"headwater [^|#<]*", line)
            if call:
                found.append(call[0])
    return found


@pytest.mark.parametrize("example", examples())
def test_every_example_can_be_parsed(example: str) -> None:
    """Options exist and values have the right form; nothing is run."""
    context = click.Context(program, **COMMON_SETTINGS)
    arguments = shlex.split(example)[1:]
    command: click.Command = program
    while isinstance(command, click.Group):
        name, found, arguments = command.resolve_command(context, arguments)
        assert found is not None, name
        command = found
    command.make_context("example", arguments, parent=context)


@pytest.mark.parametrize("path", LEAVES)
def test_every_command_has_json(path: str) -> None:
    options = {name for each in LEAVES[path].params for name in each.opts}
    assert "--json" in options


@pytest.mark.parametrize("path", LEAVES)
def test_wrong_usage_is_2_and_says_where_help_is(lone_cli: Runner, path: str) -> None:
    wrong = lone_cli.run(*path.split(), "--no-such-option")
    assert wrong.code == Exit.USAGE
    assert wrong.stdout == b""
    assert f"headwater {path} --help" in wrong.stderr
    error = lone_cli.run(*path.split(), "--json", "--no-such-option").error()
    assert error["code"] == "USAGE"


@pytest.mark.parametrize("path", NEED_A_BROKER)
def test_an_unreachable_broker_is_6(lone_cli: Runner, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    address = f"127.0.0.1:{port}"
    arguments = [*path.split(), *NEED_A_BROKER[path], "--bootstrap", address]
    result = lone_cli.run(*arguments)
    assert result.code == Exit.UNREACHABLE
    assert result.stdout == b""
    assert address in result.stderr
    assert "headwater up" in result.stderr
    error = lone_cli.run(*arguments, "--json").error()
    assert error["code"] == "BROKER_UNREACHABLE"
    assert error["hint"]


@pytest.mark.parametrize("path", NEED_A_BROKER)
def test_a_silent_broker_is_6_within_the_time_out(lone_cli: Runner, path: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        result = lone_cli.run(
            *path.split(), *NEED_A_BROKER[path], "-b", f"127.0.0.1:{port}", "--timeout", "0.2"
        )
    assert result.code == Exit.UNREACHABLE
    assert "did not answer within 0.2 s" in result.stderr


@pytest.mark.parametrize("path", NEED_A_TOPIC)
def test_an_unknown_topic_is_3(cli: Runner, path: str) -> None:
    result = cli.run(*path.split(), *NEED_A_TOPIC[path])
    assert result.code == Exit.NOT_FOUND
    assert result.stdout == b""
    assert "headwater topic create no-such-topic" in result.stderr
    error = cli.run(*path.split(), *NEED_A_TOPIC[path], "--json").error()
    assert error["code"] == "TOPIC_NOT_FOUND"


@pytest.mark.parametrize("path", NEED_A_GROUP)
def test_an_unknown_group_is_3(cli: Runner, path: str) -> None:
    result = cli.run(*path.split(), *NEED_A_GROUP[path])
    assert result.code == Exit.NOT_FOUND
    error = cli.run(*path.split(), *NEED_A_GROUP[path], "--json").error()
    assert error["code"] == "GROUP_NOT_FOUND"
    assert "headwater group ls" in error["hint"]


def test_an_unknown_command_is_guessed(lone_cli: Runner) -> None:
    result = lone_cli.run("tpic", "ls")
    assert result.code == Exit.USAGE
    assert "Did you mean 'topic'?" in result.stderr


def test_no_arguments_show_help_as_an_error(lone_cli: Runner) -> None:
    result = lone_cli.run()
    assert result.code == Exit.USAGE
    assert result.stdout == b""
    assert "headwater up" in result.stderr


BAD_ADDRESSES = ("here:there", "foo:", ":9092", "foo:0", "foo:99999", "http://foo:9092", "::1")


@pytest.mark.parametrize("address", BAD_ADDRESSES)
@pytest.mark.parametrize("path", ["topic ls", "doctor"])
def test_a_bad_address_is_wrong_usage(lone_cli: Runner, path: str, address: str) -> None:
    result = lone_cli.run(*path.split(), "-b", address)
    assert result.code == Exit.USAGE
    assert result.stdout == b""
    assert repr(address) in result.stderr
    assert "HOST:PORT" in result.stderr


def test_a_bad_address_in_the_environment_is_wrong_usage(
    lone_cli: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", "foo:")
    assert lone_cli.run("topic", "ls", "--json").error()["code"] == "USAGE"


@pytest.mark.parametrize(
    "greeting",
    [b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x08ELF...OK", b""],
    ids=["ssh", "http", "garbage", "hangs up"],
)
def test_a_port_that_is_no_brokers_is_6_and_said_so(lone_cli: Runner, greeting: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(greeting)

        thread = threading.Thread(target=greet)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        error = lone_cli.run("topic", "ls", "--json", "-b", address).error()
        thread.join()
    assert error["code"] == "BROKER_UNREACHABLE"
    assert f"{address} does not answer as a Kafka broker does" in error["message"]
    assert "--bootstrap HOST:PORT" in error["hint"]


def test_version(lone_cli: Runner) -> None:
    shown = lone_cli.ok("version", "--json").json()
    assert shown["headwater"] in lone_cli.ok("version").text


# --- what is loaded for it ----------------------------------------------------------------------

HEAVY = ("rich", "sqlglot", "asyncio", "ssl", "headwater.delivery", "headwater.log")


def modules_after(*arguments: str) -> set[str]:
    program_text = (
        "import sys\n"
        "from headwater.cli import main\n"
        "main(sys.argv[1:])\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program_text, *arguments],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    return set(done.stderr.splitlines())


def test_help_loads_nothing_heavy() -> None:
    loaded = modules_after("--help")
    assert "click" in loaded
    assert not {name for name in loaded if name.startswith(HEAVY)}


@pytest.mark.parametrize("arguments", [["tail", "--help"], ["topic", "--help"], ["version"]])
def test_commands_load_only_what_they_need(arguments: list[str]) -> None:
    loaded = modules_after(*arguments)
    unwanted = ("rich", "sqlglot", "asyncio", "headwater.delivery.server", "headwater.log")
    assert not {name for name in loaded if name.startswith(unwanted)}


# --- colours ------------------------------------------------------------------------------------


def test_no_colour_where_nobody_looks(cli: Runner) -> None:
    for result in (cli.ok("topic", "ls"), cli.run("topic", "describe", "no-such-topic")):
        assert b"\x1b" not in result.stdout
        assert "\x1b" not in result.stderr


@pytest.mark.parametrize("variable", ["NO_COLOR", "CI", None])
def test_colours_at_a_terminal_unless_forbidden(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    if variable:
        monkeypatch.setenv(variable, "1")
    ours, theirs = pty.openpty()
    program_text = "import sys; from headwater.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program_text, "topic", "ls", "-b", "127.0.0.1:1"],
        stdout=theirs,
        stderr=theirs,
        cwd=tmp_path,
    )
    os.close(theirs)
    assert process.wait(timeout=60) == Exit.UNREACHABLE
    shown = os.read(ours, 10_000)
    os.close(ours)
    assert (b"\x1b[31m" in shown) == (variable is None)
    assert b"error:" in shown


def test_errors_are_one_json_object(lone_cli: Runner) -> None:
    result = lone_cli.run("topic", "ls", "-b", "127.0.0.1:1", "--json")
    assert set(json.loads(result.stderr)["error"]) == {"code", "message", "hint"}


@pytest.mark.parametrize("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_whatever_a_broker_refuses_has_a_next_step(
    code: ErrorCode, capsys: pytest.CaptureFixture[str]
) -> None:
    tell(KafkaError(code), as_json=True)
    told = json.loads(capsys.readouterr().err)["error"]
    assert "headwater " in told["hint"] or code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_bad_names_and_configs_say_what_is_allowed(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name)
    for arguments, hint in (
        (["topic", "create", "bad name!"], "letters, digits"),
        (["topic", "create", f"{name}-2", "-c", "retention.ms=banana"], "headwater topic config"),
        (["topic", "create", f"{name}-2", "-c", "no.such.config=1"], "headwater topic config"),
        (["topic", "config", name, "cleanup.policy=maybe"], "headwater topic config"),
    ):
        result = cli.run(*arguments, "--json")
        assert result.code == Exit.USAGE, result.stderr
        assert hint in result.error()["hint"]
