"""Somebody who looks at everything, request by request.

This file alone decides what is asked of a broker besides what clients do: they hide the last stable
offset, and how the list of aborted transactions is used.
"""

import random
import threading
import time
from functools import partial
from typing import Any

from headwater.delivery.client.connection import Connection
from headwater.delivery.client.errors import BrokerUnreachableError
from tests.crash.broker.wire import connect
from tests.crash.txn.actors import Moment, read_offset, read_records
from tests.crash.txn.client import GROUP, TIMEOUT_MS, TOPICS
from tests.crash.txn.ending import is_quiet, read_final, read_final_offset
from tests.crash.txn.history import Ask, Notes, Place
from tests.crash.txn.scripts import Asked, fetch, fetch_offset

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
        answer = _ask(connection, fetch(positions, committed=committed, wait_ms=0))
        found = read_records(self._moment, reader, answer, positions, committed=committed)
        moved = any(position > positions[place] for place, _, position in found)
        positions.update({place: position for place, _, position in found})
        return moved

    def _ask_offsets(self, connection: Connection) -> None:
        for place in INPUTS:
            self._moment.history.append(Ask("observer"))
            answer = _ask(connection, fetch_offset(GROUP, place))
            read_offset(self._moment, "observer", answer, GROUP, place)

    def conclude(self, address: tuple[str, int]) -> None:
        """Wait until nothing is open any more, and note all that is there."""
        end_s = time.monotonic() + 3 * TIMEOUT_MS / 1000
        with connect(address, "observer") as connection:
            ask = partial(_ask, connection)
            while not is_quiet(ask, PLACES) and time.monotonic() < end_s:
                time.sleep(0.05)
            self.look(connection)
            notes = self._moment.history
            notes.extend([read_final(ask, place) for place in PLACES])
            notes.extend([read_final_offset(ask, GROUP, place) for place in INPUTS])


def _ask(connection: Connection, asked: Asked) -> Any:  # noqa: ANN401 - any message class
    request, version = asked
    return connection.call(request, version_max=version)
