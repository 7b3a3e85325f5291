"""Fetches that find nothing new are answered as any other fetch would be.

A fetch that does not wait is never a quiet one: it is the oracle for the same fetch that waits.
"""

import random
from typing import Any

import pytest

from headwater.delivery.dialects.kafka import api_01_fetch
from headwater.delivery.dialects.kafka.call import Call
from headwater.delivery.dialects.kafka.quiet_fetch import QuietFetch, maybe_quiet_fetch
from headwater.delivery.wire.kafka import framing, messages
from tests.delivery.dialects.kafka.desk import Desk

STEPS = 40
PARTITIONS = 3
WAIT_MS = 500
TOPICS = ("a", "b")
VERSIONS = (7, 18)


class Room:
    """A broker, somebody who changes its topics at random, and somebody who reads their ends."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.desk = Desk()
        for name in TOPICS:
            self.create(name)

    def create(self, name: str) -> None:
        request = messages.CreateTopicsRequest
        self.desk.ask(request([request.CreatableTopic(name, PARTITIONS, 1, [], [])], 1_000), 7)

    def change(self, kinds: list[str]) -> None:
        name, index = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        match self.random.choice(kinds):
            case "append":
                self.desk.append(name, index)
            case "trim":
                partition = self.desk.broker.topics.partition(name, index)
                assert partition is not None
                start = self.random.randint(0, partition.log.high_watermark)
                trim = messages.DeleteRecordsRequest
                part = trim.DeleteRecordsPartition(index, start)
                self.desk.ask(trim([trim.DeleteRecordsTopic(name, [part])], 1_000))
            case "replace":
                delete = messages.DeleteTopicsRequest
                self.desk.ask(delete([delete.DeleteTopicState(name, bytes(16))], [], 1_000))
                self.create(name)

    def from_the_ends(self) -> messages.FetchRequest:
        fetch = messages.FetchRequest
        return fetch(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self.random.randint(0, 1),
            session_epoch=-1,
            topics=[
                fetch.FetchTopic(
                    topic.name,
                    topic.topic_id,
                    [
                        fetch.FetchPartition(
                            partition=index,
                            fetch_offset=partition.log.high_watermark,
                            partition_max_bytes=1 << 20,
                        )
                        for index, partition in enumerate(topic.partitions)
                    ],
                )
                for topic in self.desk.broker.topics
            ],
        )

    def answer(self, call: Call) -> bytes:
        (response,) = [answer for answered, answer in self.desk.line.answers if answered is call]
        parts = framing.encode_response(call.header, response)
        return b"".join(part if isinstance(part, bytes) else part.read() for part in parts)


@pytest.mark.parametrize("seed", range(10))
def test_a_quiet_answer_is_that_of_a_fetch_that_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    quiet: list[QuietFetch | None] = []

    def watched(*given: Any) -> QuietFetch | None:  # noqa: ANN401 - passed on
        quiet.append(maybe_quiet_fetch(*given))
        return quiet[-1]

    monkeypatch.setattr(api_01_fetch, "maybe_quiet_fetch", watched)
    room = Room(seed)
    for step in range(STEPS):
        room.change(["append", "append", "trim", "replace", "nothing", "nothing"])
        version, request = room.random.choice(VERSIONS), room.from_the_ends()
        waits = room.desk.begin(request, version)
        assert quiet[-1] is not None
        room.change(["append", "trim", "nothing", "nothing"])
        room.desk.clock.advance(WAIT_MS)
        request.max_wait_ms = 0
        assert room.answer(waits) == room.answer(room.desk.begin(request, version)), step
        assert quiet[-1] is None
