"""kcat, one process per operation.

This file alone decides how the tests' calls become kcat's flags. kcat has no protocol to speak
with, so its operations are fewer: it sends keys and values, and reads everything but null headers.
"""

import re
import subprocess
import tempfile
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.interop.programs.lines import Fields, described, unpacked

PATIENCE_S = 60.0
# Neither occurs in what is sent through kcat.
_BETWEEN_RECORDS = b"\x1e"
_BETWEEN_KEY_AND_VALUE = b"\x1f"
# Topic, partition, offset, timestamp, key length, value length, then key and value themselves.
_FORMAT = r"%t %p %o %T %K %S %h\n%k%s\n"
_HEAD = re.compile(rb"(\S+) (\d+) (\d+) (-?\d+) (-?\d+) (-?\d+) ([^\n]*)\n")


class KcatError(RuntimeError):
    """kcat ended with something else than 0."""


class Kcat:
    """Speaks for kcat as the programs do for their clients."""

    def call(self, operation: str, /, **arguments: Any) -> Any:  # noqa: ANN401 - as JSON would be
        """Have one operation done."""
        match operation:
            case "produce":
                return produce(**arguments)
            case "consume":
                return consume(**arguments)
        raise AssertionError(f"kcat cannot {operation}")


def run(*flags: str, stdin: bytes = b"") -> bytes:
    """Run kcat to its end."""
    done = subprocess.run(
        ["kcat", *flags], input=stdin, capture_output=True, timeout=PATIENCE_S, check=False
    )
    if done.returncode != 0:
        raise KcatError(f"kcat {' '.join(flags)} ended with {done.returncode}: {done.stderr!r}")
    return done.stdout


def produce(
    bootstrap: str,
    topic: str,
    records: list[Fields],
    codec: str = "none",
    acks: str = "all",
    settings: Fields | None = None,
) -> None:
    """Send records partition by partition: kcat takes one partition per run."""
    flags = ["-P", "-b", bootstrap, "-t", topic, "-z", codec, "-X", f"acks={acks}"]
    for name, value in {"message.max.bytes": 1_048_576, **(settings or {})}.items():
        flags += ["-X", f"{name}={value}"]
    by_partition: defaultdict[int, list[Fields]] = defaultdict(list)
    for record in records:
        by_partition[record["partition"]].append(record)
    for partition, group in by_partition.items():
        pairs = [(unpacked(each["key"]) or b"", unpacked(each["value"]) or b"") for each in group]
        lines = [key + _BETWEEN_KEY_AND_VALUE + value for key, value in pairs]
        between = ["-D", _BETWEEN_RECORDS.decode(), "-K", _BETWEEN_KEY_AND_VALUE.decode()]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "records")
            path.write_bytes(_BETWEEN_RECORDS.join(lines))
            run(*flags, "-p", str(partition), *between, "-l", str(path))


def consume(
    bootstrap: str,
    topics: list[str],
    isolation: str = "read_uncommitted",
    fetch_max_bytes: int | None = None,
    settings: Fields | None = None,
) -> dict[str, list[Fields]]:
    """Read every partition of every topic to its end, in one run, as a group of one."""
    flags = ["-G", uuid.uuid4().hex, "-b", bootstrap, "-e", "-q", "-f", _FORMAT]
    chosen: Fields = {"auto.offset.reset": "earliest", "isolation.level": isolation}
    if fetch_max_bytes is not None:
        chosen |= {
            "fetch.max.bytes": fetch_max_bytes,
            "max.partition.fetch.bytes": fetch_max_bytes,
            "message.max.bytes": fetch_max_bytes,
        }
    for name, value in {**chosen, **(settings or {})}.items():
        flags += ["-X", f"{name}={value}"]
    return _parsed(run(*flags, *topics), topics)


def _parsed(output: bytes, topics: list[str]) -> dict[str, list[Fields]]:
    found: dict[str, list[Fields]] = {topic: [] for topic in topics}
    position = 0
    while position < len(output):
        head = _HEAD.match(output, position)
        assert head, output[position : position + 200]
        position = head.end()
        partition, offset, timestamp_ms, key_length, value_length = map(int, head.groups()[1:6])
        parts: list[bytes | None] = []
        for length in (key_length, value_length):
            parts.append(None if length < 0 else output[position : position + length])
            position += max(length, 0)
        position += 1
        found[head[1].decode()].append(
            described(partition, offset, timestamp_ms, (parts[0], parts[1]), _headers(head[7]))
        )
    return found


def _headers(text: bytes) -> list[tuple[str, bytes | None]]:
    if not text:
        return []
    pairs = [part.partition(b"=") for part in text.split(b",")]
    return [(name.decode(), value) for name, _, value in pairs]
