"""What is there when all is quiet.

This file alone decides how that is read: whoever asks a broker, in whatever way, reads it so.
"""

from collections.abc import Callable
from typing import Any

from headwater.base.errors import ErrorCode, KafkaError
from tests.crash.txn.filtering import take
from tests.crash.txn.history import UNSTABLE, Entry, Final, FinalOffset, Place
from tests.crash.txn.scripts import Asked, fetch, fetch_offset

Ask = Callable[[Asked], Any]
"""Sends a request and returns its answer."""


def read_final(ask: Ask, place: Place, *, compacted: bool = False) -> Final:
    """Read a whole partition with either isolation."""
    committed, _, _ = _read(ask, place, committed=True)
    uncommitted, stable, end = _read(ask, place, committed=False)
    return Final(place, committed, uncommitted, stable, end, compacted)


def read_final_offset(ask: Ask, group: str, place: Place) -> FinalOffset:
    """Read where a group stands."""
    (topic,) = ask(fetch_offset(group, place)).topics
    (partition,) = topic.partitions
    if partition.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return FinalOffset(group, place, UNSTABLE)
    if partition.error_code:
        raise KafkaError(ErrorCode(partition.error_code), f"{group} at {place}")
    return FinalOffset(group, place, partition.committed_offset)


def is_quiet(ask: Ask, places: list[Place]) -> bool:
    """Tell whether no transaction is open in any of the partitions."""
    answer = ask(fetch(dict.fromkeys(places, 0), committed=True, wait_ms=0))
    return all(
        data.last_stable_offset == data.high_watermark
        for topic in answer.responses
        for data in topic.partitions
    )


def _read(ask: Ask, place: Place, *, committed: bool) -> tuple[tuple[Entry, ...], int, int]:
    entries: list[Entry] = []
    position = 0
    while True:
        (topic,) = ask(fetch({place: position}, committed=committed, wait_ms=0)).responses
        (data,) = topic.partitions
        if data.error_code:
            raise KafkaError(ErrorCode(data.error_code), f"{place} at {position}")
        aborted = [
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ]
        more, behind = take(bytes(data.records or b""), position, aborted if committed else None)
        entries += more
        if behind == position:
            return tuple(entries), data.last_stable_offset, data.high_watermark
        position = behind
