"""The topics of this node, by name and by id.

This file alone decides which topics exist for clients and keeps the broker's partitions in step
with the store's. It does not judge names or configs (``topic_rules``, ``configs``) and speaks no
protocol.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings import TopicConfig
from headwater.delivery.broker.partition import Commits, Partition
from headwater.log.store import LogStore, Topic

PartitionKey = tuple[str, int]
"""Topic and partition."""


class NewTopic(NamedTuple):
    """A topic that passed all checks and is to be created."""

    name: str
    partitions: int
    configs: Mapping[str, str]


class BrokerTopic:
    """A topic with the partitions that requests reach."""

    __slots__ = ("partitions", "stored")

    def __init__(self, stored: Topic, partitions: list[Partition]) -> None:
        self.stored = stored
        self.partitions = partitions

    @property
    def name(self) -> str:
        """The name, unique on this node."""
        return self.stored.name

    @property
    def topic_id(self) -> bytes:
        """The id, unique for ever: a topic created again has another."""
        return self.stored.topic_id

    @property
    def config(self) -> TopicConfig:
        """The configuration in force."""
        return self.stored.config

    @property
    def internal(self) -> bool:
        """Whether the topic is the broker's own."""
        return self.stored.internal

    def partition(self, index: int) -> Partition | None:
        """Return one partition, or None where there is none with that number."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None


class Topics:
    """All topics."""

    def __init__(self, store: LogStore, commits: Commits) -> None:
        self._store = store
        self._commits = commits
        self._by_name: dict[str, BrokerTopic] = {}
        self._by_id: dict[bytes, BrokerTopic] = {}
        self._when_deleted: list[Callable[[str], None]] = []
        # Grows with every change that clients can see, so that answers can be cached.
        self.version = 0
        for stored in store.topics.values():
            self._add(stored)

    def get(self, name: str) -> BrokerTopic | None:
        """Return a topic by name."""
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> BrokerTopic | None:
        """Return a topic by id."""
        return self._by_id.get(topic_id)

    def __iter__(self) -> Iterator[BrokerTopic]:
        """Go through all topics in order of their names."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def __len__(self) -> int:
        """Count the topics."""
        return len(self._by_name)

    def partition(self, topic: str, index: int) -> Partition | None:
        """Return a partition by topic name and number."""
        found = self._by_name.get(topic)
        return found.partition(index) if found is not None else None

    def partition_count(self) -> int:
        """Count the partitions of all topics."""
        return sum(len(topic.partitions) for topic in self._by_name.values())

    def create(self, new_topics: Sequence[NewTopic]) -> list[BrokerTopic]:
        """Create topics; all are durable when this returns."""
        stored = self._store.create_topics(
            [(new.name, new.partitions, dict(new.configs)) for new in new_topics]
        )
        return [self._add(topic) for topic in stored]

    def delete(self, name: str) -> None:
        """Delete a topic; whoever waits on it is woken and finds it gone."""
        topic = self._existing(name)
        self._store.delete_topic(name)
        del self._by_name[name]
        del self._by_id[topic.topic_id]
        self.version += 1
        for partition in topic.partitions:
            partition.end()
        for action in self._when_deleted:
            action(name)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions."""
        topic = self._existing(name)
        self._store.add_partitions(name, total)
        stored = self._store.topics[name]
        topic.stored = stored
        for log in stored.partitions[len(topic.partitions) :]:
            topic.partitions.append(Partition(log, self._commits))
        self.version += 1

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's config overrides."""
        topic = self._existing(name)
        self._store.set_configs(name, dict(configs))
        topic.stored = self._store.topics[name]
        self.version += 1

    def between_rounds(self, action: Callable[[], None]) -> None:
        """Run the action as soon as no commit round is under way; configs are to change there."""
        self._commits.between_rounds(action)

    def when_deleted(self, action: Callable[[str], None]) -> None:
        """Run the action with the name of every topic that is deleted from now on."""
        self._when_deleted.append(action)

    def request_due_commits(self) -> None:
        """Let what has waited for `flush.ms` join the next commit round, without a next append."""
        for topic in self._by_name.values():
            for partition in topic.partitions:
                if partition.log.commit_due():
                    partition.request_commit()

    def fail(self, reason: str) -> None:
        """The disk failed: every partition refuses what comes and answers what waits."""
        for topic in self._by_name.values():
            for partition in topic.partitions:
                partition.fail(reason)

    def _existing(self, name: str) -> BrokerTopic:
        topic = self._by_name.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic."
            )
        return topic

    def _add(self, stored: Topic) -> BrokerTopic:
        topic = BrokerTopic(stored, [Partition(log, self._commits) for log in stored.partitions])
        self._by_name[stored.name] = topic
        self._by_id[stored.topic_id] = topic
        self.version += 1
        return topic
