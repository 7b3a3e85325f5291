"""The child processes of `headwater demo`.

This file alone decides what each of them does: the broker is `headwater up`, the producer writes
numbered orders, a consumer reads them as a member of a group, the pipeline is `headwater run`. All
but the broker report on standard output, a JSON object a line. All end when their standard input
does, so that none is left behind by a parent that was killed.
"""

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from headwater.base.errors import KafkaError
from headwater.cli.program import main as run_headwater
from headwater.delivery.client.cluster import Cluster
from headwater.delivery.client.consumer import Message
from headwater.delivery.client.group import REJOIN, GroupConsumer
from headwater.delivery.client.producer import Producer

TOPIC = "orders"
GROUP = "demo"

_PRODUCTS = ("apple", "bread", "cheese", "date", "egg", "fig")
_COUNTRIES = ("DE", "FR", "IT", "PL", "SE")
_CUSTOMERS = 200
_ROUND_S = 0.02
_POLL_S = 0.1


class _Stopping:
    """Whether somebody wants us to end; looked at between two requests, never within one."""

    def __init__(self) -> None:
        self.now = False
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.now = True


def order(number: int) -> tuple[bytes, bytes]:
    """Return key and value of the order with a number."""
    value = {
        "number": number,
        "product": _PRODUCTS[number * 7 % len(_PRODUCTS)],
        "country": _COUNTRIES[number * 3 % len(_COUNTRIES)],
        "qty": number % 5 + 1,
    }
    return f"customer-{number * 31 % _CUSTOMERS}".encode(), json.dumps(value).encode()


def produce(bootstrap: str, rate: int) -> None:
    """Write orders at about a rate; every report counts what is acknowledged."""
    stopping = _Stopping()
    number = 0
    last_s = time.monotonic()
    with Cluster(bootstrap, client_id="demo-producer") as cluster:
        producer = Producer(cluster)
        while not stopping.now:
            now_s = time.monotonic()
            # What a stall has cost is not made up for in one burst.
            for _ in range(min(round((now_s - last_s) * rate), rate)):
                key, value = order(number)
                producer.send(TOPIC, value, key=key)
                number += 1
            last_s = now_s
            producer.flush()
            _report(acked=number)
            time.sleep(_ROUND_S)


def consume(bootstrap: str, name: str, session_timeout_ms: int) -> None:
    """Read orders as a member; each report is a range that was counted, before it is committed."""
    stopping = _Stopping()
    held: list[int] | None = None
    with (
        Cluster(bootstrap, client_id=name) as cluster,
        GroupConsumer(cluster, GROUP, [TOPIC], session_timeout_ms=session_timeout_ms) as member,
    ):
        while not stopping.now:
            messages = member.poll(_POLL_S)
            now_held = [number for _, number in member.assignment]
            if now_held != held:
                held = now_held
                _report(assigned=held)
            if not messages:
                continue
            _report(counted=_ranges(messages))
            try:
                member.commit()
            except KafkaError as error:
                # The group has moved on: whoever has the partition now will read this again.
                if error.code not in REJOIN:
                    raise


def _ranges(messages: list[Message]) -> list[tuple[int, int, int]]:
    """Return for each partition the first and the last offset; there are no gaps between."""
    found: dict[int, tuple[int, int]] = {}
    for message in messages:
        first = found.get(message.partition, (message.offset, 0))[0]
        found[message.partition] = (first, message.offset)
    return [(partition, *edges) for partition, edges in found.items()]


def _report(**facts: Any) -> None:  # noqa: ANN401 - whatever JSON can say
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _end_with_parent() -> None:
    """Wait for the end of standard input, then stop as if told to."""
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """Run one role."""
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    role, *rest = arguments
    if role == "broker":
        return run_headwater(["up", *rest])
    if role == "pipeline":
        return run_headwater(["run", *rest, "--json"])
    if role == "producer":
        produce(rest[0], int(rest[1]))
    else:
        consume(rest[0], rest[1], int(rest[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
