"""Somebody who looks at everything, request by request.

This file alone decides what is asked of a broker besides what clients do: they hide the last stable
offset, and how the list of aborted transactions is used.
"""

import random
import threading
import time

from headwater.base.errors import ErrorCode, KafkaError
from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import BrokerUnreachableError
from tests.crash.broker.wire import connect
from tests.crash.txn.actors import Moment, read_offset, read_records
from tests.crash.txn.client import GROUP, TIMEOUT_MS, TOPICS
from tests.crash.txn.filtering import take
from tests.crash.txn.history import Ask, Final, FinalOffset, Notes, Place
from tests.crash.txn.scripts import fetch, fetch_offset

PLACES: list[Place] = [(topic, number) for topic in TOPICS for number in range(TOPICS[topic])]
INPUTS = [place for place in PLACES if place[0] == "in"]


class Observer:
    """Reads with either isolation, and asks where the group stands."""

    def __init__(self, notes: Notes, refusals: list[str]) -> None:
        self._moment = Moment(random.Random(), notes, 0, refusals)
        self._positions = {committed: dict.fromkeys(PLACES, 0) for committed in (True, False)}

    def look(self, connection: Connection) -> None:
        """Read everything, from the start."""
        for committed, positions in self._positions.items():
            positions.update(dict.fromkeys(PLACES, 0))
            while self._read(connection, committed=committed):
                pass
        self._ask_offsets(connection)

    def follow(self, address: tuple[str, int], stop: threading.Event) -> None:
        """Read what comes, until it is time to stop or the broker is gone."""
        try:
            with connect(address, "observer") as connection:
                while not stop.wait(0.01):
                    self._read(connection, committed=True)
                    self._ask_offsets(connection)
        except BrokerUnreachableError:
            pass

    def _read(self, connection: Connection, *, committed: bool) -> bool:
        """Read on; tell whether there was anything."""
        positions = self._positions[committed]
        reader = "observer" if committed else "peeper"
        self._moment.history.append(Ask(reader))
        request, version = fetch(positions, committed=committed, wait_ms=0)
        answer = connection.call(request, version_max=version)
        found = read_records(self._moment, reader, answer, positions, committed=committed)
        moved = any(position > positions[place] for place, _, position in found)
        positions.update({place: position for place, _, position in found})
        return moved

    def _ask_offsets(self, connection: Connection) -> None:
        for place in INPUTS:
            self._moment.history.append(Ask("observer"))
            request, version = fetch_offset(GROUP, place)
            answer = connection.call(request, version_max=version)
            read_offset(self._moment, "observer", answer, GROUP, place)

    def conclude(self, address: tuple[str, int]) -> None:
        """Wait until nothing is open any more, and note all that is there."""
        end_s = time.monotonic() + 8 * TIMEOUT_MS / 1000
        with connect(address, "observer") as connection:
            while not self._quiet(connection) and time.monotonic() < end_s:
                time.sleep(0.05)
            self.look(connection)
            for place in PLACES:
                self._moment.history.append(_final(connection, place))
            for place in INPUTS:
                request, version = fetch_offset(GROUP, place)
                (topic,) = connection.call(request, version_max=version).topics
                (partition,) = topic.partitions
                if partition.error_code:
                    raise KafkaError(ErrorCode(partition.error_code), f"{GROUP} at {place}")
                offset = partition.committed_offset
                self._moment.history.append(FinalOffset(GROUP, place, offset))

    def _quiet(self, connection: Connection) -> bool:
        request, version = fetch(dict.fromkeys(PLACES, 0), committed=True, wait_ms=0)
        answer = connection.call(request, version_max=version)
        return all(
            data.last_stable_offset == data.high_watermark
            for topic in answer.responses
            for data in topic.partitions
        )


def _final(connection: Connection, place: Place) -> Final:
    found = {}
    bounds = (0, 0)
    for committed in (True, False):
        entries: list[tuple[int, str]] = []
        position = 0
        while True:
            request, version = fetch({place: position}, committed=committed, wait_ms=0)
            (topic,) = connection.call(request, version_max=version).responses
            (data,) = topic.partitions
            if data.error_code:
                raise KafkaError(ErrorCode(data.error_code), f"{place} at {position}")
            aborted = [
                (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
            ]
            bounds = (data.last_stable_offset, data.high_watermark)
            more, behind = take(
                bytes(data.records or b""), position, aborted if committed else None
            )
            entries += more
            if behind == position:
                break
            position = behind
        found[committed] = tuple(entries)
    return Final(place, found[True], found[False], *bounds)
