"""A topic, as the store holds it.

This file alone decides what a topic consists of and which topics are the broker's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from headwater.base.errors import HeadwaterError, KafkaError
from headwater.base.settings import TopicConfig
from headwater.log.partition import PartitionLog

INTERNAL_TOPICS: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state"}
)
"""The names that Kafka's clients know as internal and hide from subscriptions by pattern."""


@dataclass(slots=True)
class Topic:
    """A topic and its partitions.

    Attributes:
        name: Unique among those that exist.
        topic_id: Unique for ever: a topic created again has another.
        configs: What differs from the defaults, in Kafka's words.
        config: What holds.
        partitions: In order of their numbers.
        was_durable: False where a crash before this start may have taken acknowledged records of
            this topic, although its present config says that they were synced.
    """

    name: str
    topic_id: bytes
    configs: dict[str, str]
    config: TopicConfig
    partitions: list[PartitionLog] = field(default_factory=list)
    was_durable: bool = True

    @property
    def internal(self) -> bool:
        """Whether the broker keeps its own state in it."""
        return self.name in INTERNAL_TOPICS

    def configure(self, config: TopicConfig) -> None:
        """Let a config hold for every partition."""
        self.config = config
        for log in self.partitions:
            log.config = config


def parse_stored_config(
    name: str, configs: Mapping[str, str], defaults: TopicConfig
) -> TopicConfig:
    """Return the config of a topic that was created earlier.

    Raises:
        HeadwaterError: This program cannot use it. The defaults could delete what the topic keeps.
    """
    try:
        return TopicConfig.parse(configs, defaults)
    except KafkaError as error:
        raise HeadwaterError(
            f"the configs of topic {name} cannot be used: {error.message}",
            hint="use the program that set them, or settings that agree with them",
        ) from error
