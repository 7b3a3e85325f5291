"""The protocol between the tests and a program that holds one client library.

This file alone decides how a Python program is spoken to: one JSON object per line, in and out.
The programs in `tests/interop/java` and `tests/interop/js` speak the same. A call is
`{"op": name, ...}`; its answer `{"result": ...}` or `{"error": name, "code": Kafka's number,
"message": text}`. A member of a group answers with `{"event": name, ...}` lines until it is told
`{"op": "close"}`; its last event is `closed`.
"""

import base64
import json
import select
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

# Longer than any wait of the broker, shorter than the patience of the test.
PATIENCE_S = 40.0
# How often members of a group look for new partitions; some clients look every five minutes.
METADATA_MS = 2_000

Fields = dict[str, Any]


def serve(
    operations: Mapping[str, Callable[..., object]],
    code_of: Callable[[BaseException], int | None],
) -> None:
    """Answer calls until the input ends, or until told to close."""
    while line := sys.stdin.readline():
        call = json.loads(line)
        operation = call.pop("op")
        if operation == "close":
            return
        try:
            say({"result": operations[operation](**call)})
        except Exception as error:  # noqa: BLE001 - whatever the client raises is the answer
            name = type(error).__name__
            say({"error": name, "code": code_of(error), "message": str(error)})


def say(answer: Fields) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def event(name: str, **fields: object) -> None:
    """Write what has happened to a member."""
    say({"event": name, **fields})


def told_to_close() -> bool:
    """Say whether the test has sent a line, or is gone."""
    return bool(select.select([sys.stdin], [], [], 0)[0])


def packed(content: bytes | None) -> str | None:
    """Make bytes fit into JSON."""
    return None if content is None else base64.b64encode(content).decode()


def unpacked(text: str | None) -> bytes | None:
    """Undo `packed`."""
    return None if text is None else base64.b64decode(text)


def unpacked_headers(record: Fields) -> list[tuple[str, bytes | None]]:
    """Give a record's headers as most clients want them."""
    return [(name, unpacked(value)) for name, value in record["headers"]]


def described(
    partition: int,
    offset: int,
    timestamp_ms: int,
    pair: tuple[bytes | None, bytes | None],
    headers: Iterable[tuple[str, bytes | None]] | None,
) -> Fields:
    """Describe a record that came."""
    return {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp_ms,
        "key": packed(pair[0]),
        "value": packed(pair[1]),
        "headers": [[name, packed(value)] for name, value in headers or ()],
    }


class Report(Fields):
    """What a tour of calls has found, step by step."""

    def refusal(
        self, step: str, code_of: Callable[[BaseException], int | None], call: Callable[[], object]
    ) -> None:
        """Note Kafka's error code of a call that must fail, or else the exception's name."""
        try:
            self[step] = ["not refused", repr(call())]
        except Exception as error:  # noqa: BLE001 - the code is what is looked at
            code = code_of(error)
            self[step] = type(error).__name__ if code is None else code
