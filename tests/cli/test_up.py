"""`headwater up`, `down` and `status`, with real processes and signals."""

import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headwater.cli import run_file
from headwater.cli.errors import Exit
from headwater.cli.run_file import RUN_FILE, find
from headwater.log import layout
from tests.cli.processes import command, running
from tests.cli.runner import Runner

DATA = "headwater-data"


def write(address: str, topic: str, count: int) -> None:
    """Write records with librdkafka, all of them acknowledged."""
    producer = Producer({"bootstrap.servers": address})
    for number in range(count):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(30) == 0


def test_one_line_says_ready_and_the_port_answers(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        facts = up.ready()
        assert facts["pid"] == up.process.pid
        assert facts["topics"] == 0
        host, _, port = facts["address"].rpartition(":")
        assert int(port) > 0
        with socket.create_connection((host, int(port)), timeout=10):
            pass
        up.send(signal.SIGTERM)
        assert up.end() == 0
    assert len(up.lines) == 1


def test_for_people_it_is_one_line_too(tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("up", "--listen", "127.0.0.1:0"), cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert re.match(r"ready on 127\.0\.0\.1:\d+: 0 topics, data in \./headwater-data, ", line)
    finally:
        process.terminate()
        _, rest = process.communicate(timeout=30)
    assert rest == b""


def test_only_the_owner_can_read_what_a_broker_writes(tmp_path: Path) -> None:
    data = tmp_path / DATA
    (data / "log").mkdir(parents=True)
    data.chmod(0o755)
    umask = os.umask(0o022)
    try:
        with running(tmp_path) as up:
            assert f"other users could open {DATA} (mode 755)" in up.read_line()
            write(up.ready()["address"], "kept", 10)
            up.send(signal.SIGTERM)
            assert up.end() == 0
    finally:
        os.umask(umask)

    paths = [data, *data.rglob("*")]
    assert len(up.lines) == 2
    assert len(paths) > 10
    for path in paths:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600) or path == data / "log", path


def test_a_second_process_on_the_directory_is_refused(tmp_path: Path) -> None:
    with running(tmp_path) as first:
        pid = first.ready()["pid"]
        with running(tmp_path) as second:
            assert second.end() == Exit.IN_THE_WAY
            error = json.loads(second.lines[-1])["error"]
        assert error["code"] == "DATA_DIRECTORY_IN_USE"
        assert f"process {pid}" in error["message"]
        assert "headwater down" in error["hint"]


def test_a_graceful_stop_leaves_nothing_to_scan(tmp_path: Path) -> None:
    marker = tmp_path / DATA / "log" / ".kafka_cleanshutdown"
    with running(tmp_path) as up:
        write(up.ready()["address"], "kept", 1000)
        assert not marker.exists()
        up.send(signal.SIGTERM)
        assert up.end() == 0
    assert marker.exists()
    assert not (tmp_path / DATA / RUN_FILE).exists()
    with running(tmp_path) as again:
        facts = again.ready()
        assert (facts["topics"], facts["recovered"]) == (1, False)


def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, lone_cli: Runner) -> None:
    with running(tmp_path) as up:
        write(up.ready()["address"], "kept", 500)
        up.process.kill()
        up.process.wait()
    assert (tmp_path / DATA / RUN_FILE).exists()
    with running(tmp_path) as again:
        facts = again.ready()
        assert facts["recovered"]
        shown = lone_cli.ok("tail", "kept", "-e", "-b", facts["address"])
        assert shown.lines == [str(number) for number in range(500)]


def test_ctrl_c_is_graceful(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        up.ready()
        up.send(signal.SIGINT)
        assert up.end() == 0
    assert (tmp_path / DATA / "log" / ".kafka_cleanshutdown").exists()


def test_a_second_ctrl_c_ends_it_at_once(tmp_path: Path) -> None:
    """Whatever the graceful end is waiting for, the second signal does not."""
    # The broker stops in the middle of its graceful end: its last sync hangs.
    program = (
        "import sys, time\n"
        "from headwater.log.store import LogStore\n"
        "def close(self):\n"
        "    print('closing', file=sys.stderr, flush=True)\n"
        "    time.sleep(600)\n"
        "LogStore.close = close\n"
        "from headwater.cli import main\n"
        "sys.exit(main())\n"
    )
    arguments = command("up", "--json", "--listen", "127.0.0.1:0")
    arguments[2] = program
    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert b"ready" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == b"closing\n"
        process.send_signal(signal.SIGINT)
        # The kernel itself ends the process, so it has no exit code of its own; a shell says 130.
        assert process.wait(timeout=10) == -signal.SIGINT
    finally:
        process.kill()
        process.communicate()


def test_a_disk_that_fails_ends_the_broker_without_calling_it_clean(tmp_path: Path) -> None:
    # Every sync fails as soon as the file exists.
    program = (
        "import errno, os, sys\n"
        "from headwater.delivery.server.committer import Committer\n"
        "original = Committer._on_synced\n"
        "def on_synced(self, failure):\n"
        "    if os.path.exists('broken'):\n"
        "        failure = OSError(errno.EIO, 'Input/output error')\n"
        "    original(self, failure)\n"
        "Committer._on_synced = on_synced\n"
        "from headwater.cli import main\n"
        "sys.exit(main())\n"
    )
    arguments = command("up", "--json", "--listen", "127.0.0.1:0")
    arguments[2] = program
    process = subprocess.Popen(arguments, cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        address = json.loads(process.stderr.readline())["ready"]["address"]
        write(address, "kept", 10)
        (tmp_path / "broken").touch()
        producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 2000})
        producer.produce("kept", "lost")
        producer.flush(30)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == Exit.ENVIRONMENT
    error = json.loads(errors.splitlines()[-1])["error"]
    assert error["code"] == "DISK_FAILED"
    assert not (tmp_path / DATA / "log" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / DATA / RUN_FILE).exists()
    (tmp_path / "broken").unlink()
    with running(tmp_path) as again:
        assert again.ready()["recovered"]


def test_a_newer_layout_is_refused(tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    (tmp_path / DATA / "VERSION").write_text("99\n")
    with running(tmp_path) as up:
        assert up.end() == Exit.ENVIRONMENT
        assert "layout 99" in json.loads(up.lines[-1])["error"]["message"]


def test_a_place_that_cannot_be_looked_at(lone_cli: Runner) -> None:
    refused = lone_cli.run("up", "--data", "x" * 300, "--json")
    assert refused.code == Exit.ENVIRONMENT
    assert refused.error()["code"] == "CANNOT_START"
    assert "too long" in refused.error()["message"]


@pytest.mark.parametrize("place", ["afile", "afile/below/it"])
def test_a_file_is_no_data_directory(lone_cli: Runner, tmp_path: Path, place: str) -> None:
    (tmp_path / "afile").write_text("precious")
    refused = lone_cli.run("up", "--data", place, "--json")
    assert refused.code == Exit.ENVIRONMENT
    assert refused.error()["code"] == "NOT_A_DIRECTORY"
    assert refused.error()["message"].startswith("afile is a file")
    assert "headwater up --data DIR" in refused.error()["hint"]
    assert (tmp_path / "afile").read_text() == "precious"


@pytest.mark.parametrize("where", ["the store", "the note of who runs"])
def test_a_full_disk(lone_cli: Runner, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if where == "the store":
        monkeypatch.setattr(layout, "replace_file", fail)
    else:
        monkeypatch.setattr(run_file, "write", fail)
    result = lone_cli.run("up", "--listen", "127.0.0.1:0", "--json")
    assert result.code == Exit.ENVIRONMENT
    error = result.error()
    assert error["code"] == "DISK_FULL"
    assert "No space left on device" in error["message"]
    assert "free some space" in error["hint"]
    assert "troubleshooting" in error["hint"]


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with running(tmp_path, "--listen", f"127.0.0.1:{port}") as up:
            assert up.end() == Exit.ENVIRONMENT
            error = json.loads(up.lines[-1])["error"]
    assert f"port {port}" in error["message"]
    assert "--listen 127.0.0.1:0" in error["hint"]


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0"])
def test_an_open_address_needs_insecure(lone_cli: Runner, address: str) -> None:
    refused = lone_cli.run("up", "--listen", address)
    assert refused.code == Exit.USAGE
    assert "--insecure" in refused.stderr
    assert not Path(DATA).exists()


def test_an_open_address_with_insecure_tells_what_is_advertised(
    tmp_path: Path, lone_cli: Runner
) -> None:
    arguments = ["--listen", "0.0.0.0:0", "--advertise", "localhost:4711", "--insecure"]
    with running(tmp_path, *arguments) as up:
        port = up.ready()["address"].rpartition(":")[2]
        # The broker named there does not exist, so what needs it cannot succeed.
        status = lone_cli.run("status", "-b", f"127.0.0.1:{port}", "--timeout", "5", "--json")
        assert status.code == Exit.UNREACHABLE
        assert "localhost:4711" in status.error()["message"]


def test_the_soft_file_limit_is_raised(tmp_path: Path) -> None:
    limits = Path("/proc/self/limits")
    if not limits.exists():
        pytest.skip("only Linux shows the limits of another process")
    shell = "ulimit -Sn 256; exec " + " ".join(
        f"'{part}'" for part in command("up", "--json", "--listen", "127.0.0.1:0")
    )
    process = subprocess.Popen(["sh", "-c", shell], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert b"ready" in process.stderr.readline()
        text = Path(f"/proc/{process.pid}/limits").read_text()
        row = next(line for line in text.splitlines() if line.startswith("Max open files"))
        soft, hard = row.split()[3:5]
        assert soft == hard
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_settings_from_file_environment_and_flags(tmp_path: Path, lone_cli: Runner) -> None:
    (tmp_path / "headwater.toml").write_text("[broker]\nnum.partitions = 3\nnode.id = 7\n")
    with running(tmp_path, "--set", "node.id=9", env={"HEADWATER_NUM_PARTITIONS": "5"}) as up:
        address = up.ready()["address"]
        lone_cli.ok("topic", "create", "t", "-b", address)
        described = lone_cli.ok("topic", "describe", "t", "-b", address, "--json").json()
        assert len(described["partitions"]) == 5
        assert described["partitions"][0]["leader"] == 9


def test_a_wrong_setting_is_refused_with_its_source(tmp_path: Path, lone_cli: Runner) -> None:
    (tmp_path / "headwater.toml").write_text("[broker]\nnum.partitons = 3\n")
    refused = lone_cli.run("up")
    assert refused.code == Exit.USAGE
    assert "headwater.toml" in refused.stderr
    assert "num.partitions" in refused.stderr
    missing = lone_cli.run("up", "--config", "other.toml")
    assert missing.code == Exit.USAGE
    assert "other.toml" in missing.stderr


# --- down and status ----------------------------------------------------------------------------


def test_down_stops_the_broker_and_waits(tmp_path: Path, lone_cli: Runner) -> None:
    with running(tmp_path) as up:
        pid = up.ready()["pid"]
        stopped = lone_cli.ok("down", "--json").json()
        assert stopped == {"stopped": {"pid": pid, "data": DATA}}
        assert up.end(within_s=5) == 0
    assert (tmp_path / DATA / "log" / ".kafka_cleanshutdown").exists()


def test_down_without_a_broker(lone_cli: Runner) -> None:
    result = lone_cli.run("down", "--json")
    assert result.code == Exit.NOT_FOUND
    assert result.error()["code"] == "NOT_RUNNING"


def test_down_does_not_believe_the_note_of_a_dead_broker(tmp_path: Path, lone_cli: Runner) -> None:
    """The pid may long be somebody else's; here it is our own."""
    with running(tmp_path) as up:
        up.ready()
        up.process.kill()
        up.process.wait()
    note = tmp_path / DATA / RUN_FILE
    content = json.loads(note.read_text())
    note.write_text(json.dumps({**content, "pid": os.getpid()}))
    assert find(DATA) is None
    assert lone_cli.run("down").code == Exit.NOT_FOUND


def test_down_gives_up_on_a_broker_that_hangs(tmp_path: Path, lone_cli: Runner) -> None:
    with running(tmp_path) as up:
        pid = up.ready()["pid"]
        up.send(signal.SIGSTOP)
        result = lone_cli.run("down", "--timeout", "0.3")
        assert result.code == Exit.UNREACHABLE
        assert f"kill -9 {pid}" in result.stderr


def test_commands_find_the_broker_of_the_folder(tmp_path: Path, lone_cli: Runner) -> None:
    with running(tmp_path) as up:
        facts = up.ready()
        lone_cli.ok("topic", "create", "t", "-p", "3")
        lone_cli.ok("produce", "t", stdin=b"a\n")
        lone_cli.ok("tail", "t", "-e", "--group", "g")
        status = lone_cli.ok("status", "--json").json()
        assert status["pid"] == facts["pid"]
        assert status["brokers"] == [facts["address"]]
        assert (status["topics"], status["groups"]) == (1, 1)
        assert status["bytes"] > 0
        text = lone_cli.ok("status").text
        assert f"pid {facts['pid']}" in text
        assert "1 (and 1 internal)" in text


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="only Linux counts them for us")
def test_status_counts_connections(tmp_path: Path, lone_cli: Runner) -> None:
    with running(tmp_path) as up:
        host, _, port = up.ready()["address"].rpartition(":")
        assert lone_cli.ok("status", "--json").json()["connections"] == 0
        with (
            socket.create_connection((host, int(port))),
            socket.create_connection((host, int(port))),
        ):
            assert lone_cli.ok("status", "--json").json()["connections"] == 2


def test_status_of_apache_kafka_and_ours(cli: Runner, name: str) -> None:
    cli.ok("topic", "create", name, "-p", "2")
    status = cli.ok("status", "--json").json()
    assert status["topics"] >= 1
    assert status["partitions"] >= 2
    assert status["pid"] is None
    assert len(status["brokers"]) == 1


def test_status_tells_what_is_enabled(cli: Runner, bootstrap: str, name: str) -> None:
    status = cli.ok("status", "--json").json()
    assert status["features"]["transaction.version"] == 2
    assert status["features"]["metadata.version"] == 30
    assert isinstance(status["quotas"], int)
    before = status["transactions_by_state"].get("Empty", 0)

    Producer({"bootstrap.servers": bootstrap, "transactional.id": name}).init_transactions(30)
    status = cli.ok("status", "--json").json()
    assert status["transactions_by_state"]["Empty"] == before + 1
    compacted = status["compaction"]["topics"]
    assert status["compaction"]["enabled"]
    every = cli.ok("topic", "ls", "--json").json()["topics"]
    assert compacted <= len(every), "the state of transactions is the broker's own"
    cli.ok("topic", "create", name, "-c", "cleanup.policy=compact,delete")
    assert cli.ok("status", "--json").json()["compaction"]["topics"] == compacted + 1
    text = cli.ok("status").text
    assert re.search(rf"on, {compacted + 1} topics? asks? for it \(internal ones always do\)", text)
    assert "metadata.version 30" in text
    assert re.search(rf"transactional ids +\d+ \(.*{before + 1} Empty", text)


def test_status_does_not_count_the_brokers_own_as_compacted(
    tmp_path: Path, lone_cli: Runner
) -> None:
    with running(tmp_path) as up:
        address = up.ready()["address"]
        producer = Producer({"bootstrap.servers": address, "transactional.id": "t"})
        producer.init_transactions(30)
        del producer
        status = lone_cli.ok("status", "--json").json()
        assert (status["internal_topics"], status["compaction"]["topics"]) == (1, 0)
        assert "on, 0 topics ask for it" in lone_cli.ok("status").text


def test_recovery_is_shown_only_to_those_who_look(tmp_path: Path) -> None:
    """Standard error is no terminal here, so even a long recovery says nothing."""
    with running(tmp_path) as up:
        write(up.ready()["address"], "kept", 20_000)
        up.process.kill()
    begun_s = time.monotonic()
    with running(tmp_path) as again:
        assert again.ready()["topics"] == 1
        assert time.monotonic() - begun_s < 30
        assert len(again.lines) == 1


def test_a_second_sigterm_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as up:
        up.ready()
        up.send(signal.SIGTERM)
        up.send(signal.SIGTERM)
        assert up.end() == 0
    assert (tmp_path / DATA / "log" / ".kafka_cleanshutdown").exists()
