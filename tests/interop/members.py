"""Members of consumer groups, each a process of its own that can leave or be killed.

This file alone decides what a test sees of a group: who owns which partition, what each member has
read, and when the group has settled. Each member checks its own stream: within one assignment
offsets follow each other without a gap.
"""

import itertools
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import IO, Any, Protocol, Self

from tests import peers
from tests.interop.clients import WITNESS, Clients, Program, eventually
from tests.interop.commit_history import committed_before_takeover
from tests.interop.programs.lines import unpacked
from tests.interop.records import plain

# A member that is only slow must not be taken for dead on a busy machine.
LONG_SESSION_MS = 45_000
SHORT_SESSION_MS = 4_000
HEARTBEAT_MS = 400
PATIENCE_S = 60.0


class Source(Protocol):
    """Where a member's events come from."""

    def events(self) -> list[dict[str, Any]]:
        """Give what has happened since the last look."""

    def leave(self) -> None:
        """Have it leave the group and end."""

    def kill(self) -> None:
        """End it as a crash does."""

    def errors(self) -> str:
        """Give what it wrote to its standard error."""


class Member:
    """One member, as far as the test has looked."""

    def __init__(self, name: str, source: Source, *, cooperative: bool = False) -> None:
        self.name = name
        self.owned: set[int] = set()
        self.left_with: set[int] = set()
        self.read: list[tuple[int, int, str]] = []
        self.history: list[tuple[str, set[int]]] = []
        self.member_id = ""
        self.commits_refused = 0
        self.failure: dict[str, Any] | None = None
        self._source = source
        self._cooperative = cooperative
        self._next: dict[int, int] = {}

    def look(self) -> None:
        """Take in what has happened."""
        for event in self._source.events():
            if "error" in event:
                self.failure = event
            self.member_id = event.get("member_id", self.member_id)
            match event.get("event"):
                case "assigned":
                    self._assigned(set(event["partitions"]))
                case "revoked" | "lost":
                    self._revoked(event["event"], set(event["partitions"]))
                case "records":
                    for partition, offset, value in event["records"]:
                        self._take(partition, offset, value)
                case "commit refused":
                    self.commits_refused += 1

    def leave(self) -> None:
        """Leave the group in peace."""
        self.left_with = set(self.owned)
        self._source.leave()
        self.look()
        assert self.failure is None, f"{self.name}: {self.failure}\n{self._source.errors()}"
        self.owned = set()

    def kill(self) -> None:
        """Crash."""
        self.left_with = set(self.owned)
        self._source.kill()
        self.look()
        self.owned = set()

    def errors(self) -> str:
        """Give what it wrote to its standard error."""
        return self._source.errors()

    def _assigned(self, partitions: set[int]) -> None:
        self.history.append(("assigned", partitions))
        self.owned = self.owned | partitions if self._cooperative else partitions
        for partition in partitions:
            self._next.pop(partition, None)

    def _revoked(self, event: str, partitions: set[int]) -> None:
        if partitions:
            self.history.append((event, partitions))
        self.owned = self.owned - partitions

    def _take(self, partition: int, offset: int, value: str) -> None:
        expected = self._next.get(partition, offset)
        assert offset == expected, f"{self.name} read {offset} of {partition}, not {expected}"
        self._next[partition] = offset + 1
        self.read.append((partition, offset, value))


class ProgramSource:
    """A member in a program that speaks JSON lines."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def events(self) -> list[dict[str, Any]]:
        found = []
        try:
            while True:
                found.append(self._program.next_line(0))
        except (TimeoutError, EOFError):
            return found

    def leave(self) -> None:
        self._program.tell("close")
        self._program.close()

    def kill(self) -> None:
        self._program.kill()

    def errors(self) -> str:
        return self._program.errors()


class KcatSource:
    """kcat as a member: records on its standard output, rebalances on its standard error."""

    _REBALANCE = re.compile(r"% Group \S+ rebalanced \(memberid (\S+)\): (assigned|revoked): ?(.*)")

    def __init__(self, bootstrap: str, group: str, topic: str, session_ms: int) -> None:
        settings = {
            "session.timeout.ms": session_ms,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "range",
            "fetch.wait.max.ms": 200,
            "auto.commit.interval.ms": 200,
        }
        flags = [part for name, value in settings.items() for part in ("-X", f"{name}={value}")]
        self._process = subprocess.Popen(
            ["kcat", "-G", group, "-b", bootstrap, *flags, "-u", "-f", r"%p %o %s\n", topic],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._found: list[dict[str, Any]] = []
        self._errors: list[str] = []
        self._guard = threading.Lock()
        self._threads = [
            threading.Thread(target=self._follow, args=(stream, take))
            for stream, take in (
                (self._process.stdout, self._record),
                (self._process.stderr, self._rebalance),
            )
        ]
        for thread in self._threads:
            thread.start()

    def events(self) -> list[dict[str, Any]]:
        with self._guard:
            found, self._found = self._found, []
        return found

    def leave(self) -> None:
        self._process.send_signal(signal.SIGINT)
        self._end()

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def errors(self) -> str:
        return "".join(self._errors)

    def _end(self) -> None:
        self._process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()

    def _follow(self, stream: IO[str], take: Callable[[str], dict[str, Any] | None]) -> None:
        for line in stream:
            event = take(line)
            if event is not None:
                with self._guard:
                    self._found.append(event)

    def _record(self, line: str) -> dict[str, Any]:
        partition, offset, value = line.rstrip("\n").split(" ", 2)
        return {"event": "records", "records": [[int(partition), int(offset), value]]}

    def _rebalance(self, line: str) -> dict[str, Any] | None:
        self._errors.append(line)
        told = self._REBALANCE.match(line)
        if told is None:
            return None
        member_id, event, places = told.groups()
        partitions = [int(number) for number in re.findall(r"\[(\d+)\]", places)]
        return {"event": event, "partitions": partitions, "member_id": member_id}


class Group:
    """A group under a stream of records that does not stop while members come and go."""

    def __init__(self, clients: Clients, bootstrap: str, name: str, partitions: int) -> None:
        self.partitions = set(range(partitions))
        self._clients = clients
        self._bootstrap = bootstrap
        self._name = name
        self._members: list[Member] = []
        self._present: list[Member] = []
        self._replaced: list[Member] = []
        self._sent: list[str] = []
        self._stop = threading.Event()
        self._traffic = threading.Thread(target=self._send)

    def join(
        self,
        client: str,
        *,
        session_ms: int = LONG_SESSION_MS,
        assignor: str = "range",
        instance_id: str | None = None,
    ) -> Member:
        """Start a member; it has joined when the group has settled."""
        source: Source
        if client == "kcat":
            peers.require("kcat")
            source = KcatSource(self._bootstrap, self._name, self._name, session_ms)
        else:
            program = self._clients.start(client)
            options = {"assignor": assignor, "instance_id": instance_id}
            program.tell(
                "member",
                bootstrap=self._bootstrap,
                group=self._name,
                topic=self._name,
                session_ms=session_ms,
                heartbeat_ms=HEARTBEAT_MS,
                **{name: value for name, value in options.items() if value is not None},
            )
            source = ProgramSource(program)
        member = Member(client, source, cooperative=assignor == "cooperative-sticky")
        self._members.append(member)
        self._present.append(member)
        return member

    def leave(self, member: Member) -> None:
        """Have a member leave in peace."""
        self._present.remove(member)
        member.leave()

    def kill(self, member: Member) -> None:
        """Have a member crash."""
        self._present.remove(member)
        member.kill()

    def replace(self, member: Member) -> None:
        """Expect nothing more of a member that goes on running."""
        self._present.remove(member)
        self._replaced.append(member)

    def failure_of(self, member: Member) -> dict[str, Any]:
        """Wait for the error that a member ends with."""
        for _ in eventually(PATIENCE_S):
            member.look()
            if member.failure is not None:
                return member.failure
        raise AssertionError(f"{member.name} goes on: {member.history}")

    def settle(self, patience_s: float = PATIENCE_S) -> float:
        """Wait until every partition has one owner and every member one partition.

        Returns:
            The seconds it took.
        """
        for gone_s in eventually(patience_s):
            self.look()
            shares = [member.owned for member in self._present]
            if all(shares) and sorted(itertools.chain(*shares)) == sorted(self.partitions):
                return gone_s
        raise AssertionError(f"not settled in {patience_s} s:\n{self._described()}")

    def look(self) -> None:
        """Take in what has happened to every member."""
        for member in self._present:
            member.look()
            assert member.failure is None, f"{member.name}: {member.failure}\n{member.errors()}"

    def check_that_nothing_is_lost(self, *, unprinted_by: Iterable[Member] = ()) -> None:
        """End the stream and wait until the members have read all of it.

        Args:
            unprinted_by: Members that are gone and may have committed one record more than they
                have printed. The log must have that record, and must have had the commit before
                anybody else got the partition.
        """
        self._stop.set()
        self._traffic.join()
        sent = set(self._sent)
        assert sent, "nothing was sent"
        excused = [self._last_committed(member) for member in unprinted_by]
        for _ in eventually(PATIENCE_S):
            self.look()
            read = {value for member in self._members for _, _, value in member.read}
            assert read <= sent
            missing = sent - read
            if not missing - set().union(*excused) and all(
                len(missing & share) <= 1 for share in excused
            ):
                return
        raise AssertionError(
            f"never read: {sorted(missing)[:20]}, excused: {excused}\n{self._described()}"
        )

    def _last_committed(self, member: Member) -> set[str]:
        """Give the last record before each offset that a member left behind, from the log."""
        committed = committed_before_takeover(self._bootstrap, self._name, member.member_id)
        program = self._clients.start(WITNESS)
        try:
            found = program.call("consume", bootstrap=self._bootstrap, topics=[self._name])
        finally:
            program.close()
        in_log = {
            (record["partition"], record["offset"]): (unpacked(record["value"]) or b"").decode()
            for record in found[self._name]
        }
        return {
            in_log[partition, committed[partition] - 1]
            for partition in member.left_with
            if committed.get(partition, 0) > 0
        }

    def __enter__(self) -> Self:
        """Begin the stream."""
        self._traffic.start()
        return self

    def end(self) -> None:
        """End the stream and have every member leave."""
        self._stop.set()
        self._traffic.join()
        for member in list(self._present):
            self.leave(member)

    def __exit__(self, *_: object) -> None:
        """End the stream and every member."""
        self._stop.set()
        self._traffic.join()
        for member in (*self._present, *self._replaced):
            member.kill()

    def _send(self) -> None:
        program = self._clients.start(WITNESS)
        records = plain(len(self.partitions) * 2, partitions=len(self.partitions))
        try:
            while not self._stop.wait(0.15):
                values = [f"{len(self._sent) + number}" for number in range(len(records))]
                packed = [
                    replace(record, value=value.encode()).packed()
                    for record, value in zip(records, values, strict=True)
                ]
                program.call("produce", bootstrap=self._bootstrap, topic=self._name, records=packed)
                self._sent += values
        finally:
            program.close()

    def _described(self) -> str:
        return "\n".join(
            f"{member.name}: owns {sorted(member.owned)}, history {member.history}, "
            f"read {len(member.read)}\n{member.errors()}"
            for member in self._present
        )


def read_by(members: Iterable[Member]) -> set[tuple[int, int]]:
    """Give partition and offset of all that some members have read."""
    return {(partition, offset) for each in members for partition, offset, _ in each.read}
