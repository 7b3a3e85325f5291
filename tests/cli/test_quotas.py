"""`headwater quota`, against both brokers."""

import time
from collections.abc import Callable

import pytest

from headwater.cli.errors import Exit
from tests.cli.runner import Runner

PATIENCE_S = 60.0


def own(cli: Runner, name: str) -> list[dict[str, object]]:
    """Return the quotas of entities that the test has made."""
    quotas = cli.ok("quota", "ls", "--json").json()["quotas"]
    return [each for each in quotas if name in str(each["entity"])]


def wait_for(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s


def test_set_list_and_clear(cli: Runner, name: str) -> None:
    values = ("producer_byte_rate=1.5MiB", "request_percentage=20")
    said = cli.ok("quota", "set", *values, "--client", name).text
    assert f"client-id {name}: set: producer_byte_rate 1.5 MiB/s, request_percentage 20 %" in said
    kept = {"producer_byte_rate": 1.5 * (1 << 20), "request_percentage": 20.0}
    wait_for(lambda: own(cli, name) == [{"entity": {"client-id": name}, "values": kept}])
    table = cli.ok("quota", "ls").text
    assert table.split("\n")[0].split() == ["USER", "CLIENT", "ADDRESS", "QUOTA", "VALUE"]
    assert "1.5 MiB/s" in next(line for line in table.split("\n") if name in line)
    cli.ok("quota", "clear", "request_percentage", "--client", name)
    wait_for(lambda: "request_percentage" not in str(own(cli, name)))
    cleared = cli.ok("quota", "clear", "--client", name, "--json").json()
    assert cleared["cleared"] == ["producer_byte_rate"]
    wait_for(lambda: own(cli, name) == [])
    assert cli.run("quota", "clear", "--client", name).code == Exit.NOT_FOUND


def test_a_user_with_any_client(cli: Runner, name: str) -> None:
    cli.ok("quota", "set", "consumer_byte_rate=1000", "--user", name, "--any-client")
    entity = {"user": name, "client-id": None}
    wait_for(lambda: bool(own(cli, name)))
    assert own(cli, name) == [{"entity": entity, "values": {"consumer_byte_rate": 1000.0}}]
    row = next(line for line in cli.ok("quota", "ls").text.split("\n") if name in line)
    assert row.split() == [name, "(any)", "consumer_byte_rate", "1000", "B/s"]
    cli.ok("quota", "clear", "--user", name, "--any-client")


def test_a_dry_run_sets_nothing(cli: Runner, name: str) -> None:
    call = ("quota", "set", "producer_byte_rate=1", "--client", name, "--dry-run")
    assert "could be set" in cli.ok(*call).text
    assert own(cli, name) == []


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["producer_byte_rate=1"], "--client"),
        (["producer_byte_rate=soon", "--client", "c"], "10MiB"),
        (["request_percentage=inf", "--client", "c"], "request_percentage=5"),
        (["producer_rate=1", "--client", "c"], "producer_byte_rate"),
        (["nonsense=1", "--client", "c"], "request_percentage"),
        (["producer_byte_rate=1", "--client", "c", "--any-client"], "either"),
        (["connection_creation_rate=1", "--client", "c"], "goes with --ip ADDRESS or --any-ip"),
        (["producer_byte_rate=1", "--ip", "10.0.0.7"], "goes with --client or --user"),
        (["connection_creation_rate=1", "--ip", "10.0.0.777"], "such as --ip 10.0.0.7"),
        (["request_percentage=0", "--client", "c"], "more than 0"),
        (["producer_byte_rate=0", "--client", "c"], "more than 0"),
        (["producer_byte_rate=-5", "--client", "c"], "more than 0"),
        (["consumer_byte_rate=0KiB", "--client", "c"], "more than 0"),
    ],
)
def test_what_cannot_be_set(cli: Runner, arguments: list[str], told: str) -> None:
    refused = cli.run("quota", "set", *arguments)
    assert refused.code == Exit.USAGE
    assert told in refused.stderr
