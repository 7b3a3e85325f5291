"""Reading a range of a topic, or a topic from somewhere on.

This file alone decides when a range has been read to its end, and what happens to a reader whose
place falls off the log or whose broker goes away for a moment. Ends are offsets that were there
when reading began, so a range ends even while somebody keeps writing.
"""

import time
from collections.abc import Callable, Mapping

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client import admin
from headwater.delivery.client.admin import EARLIEST
from headwater.delivery.client.cluster import Cluster, Place
from headwater.delivery.client.consumer import Consumer, Message
from headwater.delivery.client.errors import BrokerUnreachableError

Predicate = Callable[[Message], bool]

_RETRY_PAUSE_S = 0.2


def condition(where: str | None) -> Predicate | None:
    """Return what ``--where`` asks of a record, or None where it asks nothing."""
    if where is None:
        return None
    # The SQL parser takes its time to load: only those who filter wait for it.
    from headwater.cli.where import compile_where  # noqa: PLC0415

    return compile_where(where)


class RangeReader:
    """Reads partitions from their starts to their ends, or for ever.

    Attributes:
        scanned: How many records were read so far.
        lost: How many offsets fell off the log before they were read.
    """

    def __init__(
        self,
        cluster: Cluster,
        starts: Mapping[Place, int],
        ends: Mapping[Place, int] | None,
        *,
        on_loss: Callable[[str], None],
        read_committed: bool = True,
    ) -> None:
        """Take the first offset of each partition and, if there is an end, those behind the last.

        Args:
            cluster: Where from.
            starts: What to read, from which offset on.
            ends: Where to stop, or None to wait for more.
            on_loss: Is told when records were removed before they were read.
            read_committed: Whether records of open and aborted transactions are left out; then
                no end may lie behind the last stable offset (`positions.resolve_end`).
        """
        self._cluster = cluster
        self._ends = ends
        self._on_loss = on_loss
        self._consumer = Consumer(cluster, read_committed=read_committed)
        self._consumer.assign(starts)
        self._drop_finished()
        self.scanned = 0
        self.lost = 0

    @property
    def done(self) -> bool:
        """Whether every partition has been read to its end."""
        return self._ends is not None and not self._consumer.positions

    @property
    def offsets_left(self) -> int:
        """How many offsets lie before the ends, whether or not there are records at them."""
        if self._ends is None:
            return 0
        return sum(self._ends[at] - offset for at, offset in self._consumer.positions.items())

    def read(self, timeout_s: float = 1.0) -> list[Message]:
        """Return the next records; none when nothing came in time.

        Raises:
            BrokerUnreachableError: Nobody has answered for as long as the cluster's time-out.
        """
        deadline_s = time.monotonic() + self._cluster.timeout_s
        while True:
            try:
                messages = self._consumer.poll(timeout_s)
                break
            except KafkaError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                self._skip_what_is_gone()
            except BrokerUnreachableError:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_RETRY_PAUSE_S)
        if self._ends is not None:
            ends = self._ends
            messages = [each for each in messages if each.offset < ends[each.topic, each.partition]]
            self._drop_finished()
        self.scanned += len(messages)
        return messages

    def _drop_finished(self) -> None:
        if self._ends is None:
            return
        left = {
            place: offset
            for place, offset in self._consumer.positions.items()
            if offset < self._ends[place]
        }
        self._consumer.assign(left)

    def _skip_what_is_gone(self) -> None:
        positions = self._consumer.positions
        first = admin.list_offsets(self._cluster, dict.fromkeys(positions, EARLIEST))
        for (topic, partition), offset in positions.items():
            begins = first[topic, partition]
            if self._ends is not None:
                begins = min(begins, self._ends[topic, partition])
            if begins > offset:
                self.lost += begins - offset
                self._on_loss(
                    f"{topic}-{partition} begins at offset {first[topic, partition]} by now: "
                    f"{offset} to {begins - 1} are gone"
                )
        self._consumer.assign({at: max(offset, first[at]) for at, offset in positions.items()})
        self._drop_finished()
