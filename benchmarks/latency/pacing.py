"""Records at a steady rate, and how long each was on its way.

This file alone decides what counts as latency: from the call that hands a record to its producer to
the moment a consumer that reads committed data has it. Both ends are in this process and share its
clock. Neither knows what is between the two topics.
"""

import struct
import threading
import time
import uuid
from bisect import bisect_left
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

# Fine enough beside a trigger of 100 ms, and coarse enough for a sleeping thread to keep.
_STEP_S = 0.005
_STAMP = struct.Struct(">q")
_PADDING = bytes(92)
_WITHIN_S = 60.0


class Window(NamedTuple):
    """Which records are counted: those sent in so many seconds, so long after the first came."""

    settle_s: float
    seconds: float


class PacedProducer:
    """A thread that sends records of 100 bytes, each with the time it was sent at."""

    def __init__(self, bootstrap: str, topic: str, per_s: int) -> None:
        # Its own waiting would be part of every figure.
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": "0"})
        self._topic = topic
        self._per_s = per_s
        self._sent_ns: list[int] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paced-producer")

    def __enter__(self) -> Self:
        """Begin to send."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Send no more."""
        self._end.set()
        self._thread.join()
        self._producer.flush(_WITHIN_S)

    def sent_between(self, begin_ns: int, end_ns: int) -> int:
        """Count what was sent in this time."""
        return bisect_left(self._sent_ns, end_ns) - bisect_left(self._sent_ns, begin_ns)

    def _run(self) -> None:
        began = time.monotonic()
        while not self._end.wait(_STEP_S):
            owed = int((time.monotonic() - began) * self._per_s) - len(self._sent_ns)
            for _ in range(owed):
                sent_ns = time.monotonic_ns()
                self._sent_ns.append(sent_ns)
                key = b"%08d" % len(self._sent_ns)
                self._producer.produce(self._topic, _STAMP.pack(sent_ns) + _PADDING, key)
            self._producer.poll(0)


def latencies_ms(
    producer: PacedProducer,
    arrivals: "Arrivals",
    window: Window,
    check: Callable[[], None],
) -> list[float]:
    """Wait until the pipeline has settled, and return the latencies of the records that count.

    Args:
        producer: Who sends, and goes on.
        arrivals: Who receives, from the first record on.
        window: Which records count.
        check: Raises what the pipeline has died of; called now and then.
    """
    arrivals.next(check)
    begin_ns = time.monotonic_ns() + int(window.settle_s * 1e9)
    end_ns = begin_ns + int(window.seconds * 1e9)
    found: list[float] = []
    # The count is complete only when the window is over.
    while time.monotonic_ns() < end_ns or len(found) < producer.sent_between(begin_ns, end_ns):
        sent_ns, took_ms = arrivals.next(check)
        if begin_ns <= sent_ns < end_ns:
            found.append(took_ms)
    return found


class Arrivals:
    """The records of a topic as a consumer of committed data gets them."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"latency-{uuid.uuid4().hex}",
                "enable.auto.commit": "false",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)]
        )

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave."""
        self._consumer.close()

    def next(self, check: Callable[[], None]) -> tuple[int, float]:
        """Wait for a record; gives when it was sent, and how many milliseconds it took."""
        deadline = time.monotonic() + _WITHIN_S
        while time.monotonic() < deadline:
            message = self._consumer.poll(1.0)
            now_ns = time.monotonic_ns()
            if message is None or message.error() is not None:
                check()
                continue
            (sent_ns,) = _STAMP.unpack_from(message.value() or b"")
            return sent_ns, (now_ns - sent_ns) / 1e6
        raise TimeoutError("no record comes out of the pipeline")
