"""Whoever puts the answers of a fetch session together knows what a full fetch tells."""

import random
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pytest

from headwater.base.errors import ErrorCode
from headwater.delivery.wire.kafka import messages
from tests.delivery.dialects.kafka.desk import Desk

STEPS = 60
PARTITIONS = 3
TOPICS = ("a", "b")
FIRST_WITH_TOPIC_IDS = 13
NO_SESSION, NO_EPOCH = 0, -1
NO_ID = bytes(16)
PLENTY_BYTES = 1 << 20


class Key(NamedTuple):
    """A partition as a version of Fetch names it."""

    topic: str
    topic_id: bytes
    partition: int


class Told(NamedTuple):
    """What an answer says of a partition, but for its records."""

    error_code: int
    high_watermark: int
    log_start_offset: int


def request_for(
    wanted: Mapping[Key, int], forgotten: Iterable[Key] = (), *, session: tuple[int, int]
) -> messages.FetchRequest:
    fetch = messages.FetchRequest
    return fetch(
        max_bytes=PLENTY_BYTES,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            fetch.FetchTopic(
                key.topic,
                key.topic_id,
                [
                    fetch.FetchPartition(
                        partition=key.partition,
                        fetch_offset=offset,
                        partition_max_bytes=PLENTY_BYTES,
                    )
                ],
            )
            for key, offset in wanted.items()
        ],
        forgotten_topics_data=[
            fetch.ForgottenTopic(key.topic, key.topic_id, [key.partition]) for key in forgotten
        ],
    )


class Reader:
    """A broker whose topics change at random, and a client that changes its mind as often."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.version = self.random.choice([7, 12, 13, 18])
        self.desk = Desk()
        self.wanted: dict[Key, int] = {}
        self.known: dict[Key, Told] = {}
        self.session = (NO_SESSION, 0)
        for name in TOPICS:
            self.create(name)

    def create(self, name: str) -> None:
        request = messages.CreateTopicsRequest
        self.desk.ask(request([request.CreatableTopic(name, PARTITIONS, 1, [], [])], 1_000), 7)

    def change_topics(self) -> None:
        name, index = self.random.choice(TOPICS), self.random.randrange(PARTITIONS)
        match self.random.choice(["append"] * 4 + ["trim", "nothing", "replace"]):
            case "append":
                self.desk.append(name, index)
            case "trim":
                trim = messages.DeleteRecordsRequest
                part = trim.DeleteRecordsPartition(index, self.random.randint(0, 2))
                self.desk.ask(trim([trim.DeleteRecordsTopic(name, [part])], 1_000))
            case "replace":
                delete = messages.DeleteTopicsRequest
                self.desk.ask(delete([delete.DeleteTopicState(name, NO_ID)], [], 1_000))
                self.create(name)

    def change_mind(self) -> tuple[dict[Key, int], list[Key]]:
        """Choose what is wanted from where, and what no more; one partition does not exist."""
        added: dict[Key, int] = {}
        forgotten = []
        for _ in range(self.random.randint(0, 3)):
            topic = self.desk.broker.topics.get(self.random.choice(TOPICS))
            assert topic is not None
            index = self.random.randint(0, PARTITIONS)
            by_id = self.version >= FIRST_WITH_TOPIC_IDS
            key = Key("", topic.topic_id, index) if by_id else Key(topic.name, NO_ID, index)
            partition = topic.partition(index)
            end = 0 if partition is None else partition.log.high_watermark
            if key in self.wanted and key not in added and self.random.random() < 0.3:
                forgotten.append(key)
                self.wanted.pop(key)
            else:
                added[key] = self.wanted[key] = self.random.choice([0, end, end, end + 1])
        return added, [key for key in forgotten if key not in added]

    def fetch(self, request: messages.FetchRequest) -> messages.FetchResponse:
        call = self.desk.begin(request, self.version)
        (answered, answer) = self.desk.line.answers.pop()
        assert answered is call
        assert isinstance(answer, messages.FetchResponse)
        assert answer.error_code == ErrorCode.NONE
        return answer

    def go_on(self) -> messages.FetchResponse:
        """Send the next request of the session, or the first one."""
        added, forgotten = self.change_mind()
        session_id, epoch = self.session
        if epoch == 0:
            added, forgotten = self.wanted, []
        request = request_for(added, forgotten, session=self.session)
        request.max_bytes = self.random.choice([1, PLENTY_BYTES])
        answer = self.fetch(request)
        assert (answer.session_id != NO_SESSION) == bool(self.wanted)
        assert epoch == 0 or not self.wanted or answer.session_id == session_id
        self.session = (answer.session_id, epoch + 1 if self.wanted else 0)
        return answer


def tell(answer: messages.FetchResponse) -> dict[Key, Told]:
    return {
        Key(topic.topic, topic.topic_id, part.partition_index): Told(
            part.error_code, part.high_watermark, part.log_start_offset
        )
        for topic in answer.responses
        for part in topic.partitions
    }


@pytest.mark.parametrize("seed", range(15))
def test_a_session_tells_what_a_full_fetch_tells(seed: int) -> None:
    reader = Reader(seed)
    for step in range(STEPS):
        reader.change_topics()
        news = tell(reader.go_on())
        reader.known = {
            key: told for key, told in (reader.known | news).items() if key in reader.wanted
        }
        full = reader.fetch(request_for(reader.wanted, session=(NO_SESSION, NO_EPOCH)))
        assert reader.known == tell(full), (step, reader.version)
