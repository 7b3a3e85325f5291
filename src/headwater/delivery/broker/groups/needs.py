"""What the groups need from the rest of the broker.

This file alone states these needs; everything here can be doubled in a test.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from headwater.delivery.broker.state_replay import Standing
from headwater.delivery.broker.state_topic import Entry, ProducerKey


class GroupSettings(Protocol):
    """The settings that decide about groups, by Kafka's names."""

    @property
    def group_initial_rebalance_delay_ms(self) -> int: ...  # noqa: D102
    @property
    def group_min_session_timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def group_max_session_timeout_ms(self) -> int: ...  # noqa: D102
    @property
    def group_max_size(self) -> int: ...  # noqa: D102
    @property
    def offset_metadata_max_bytes(self) -> int: ...  # noqa: D102
    @property
    def offsets_retention_minutes(self) -> int: ...  # noqa: D102
    @property
    def offsets_retention_check_interval_ms(self) -> int: ...  # noqa: D102
    @property
    def offsets_topic_num_partitions(self) -> int: ...  # noqa: D102


class OffsetsLog(Protocol):
    """Where groups and offsets are written down."""

    def append(
        self,
        group_id: str,
        entries: Sequence[Entry],
        when_durable: Callable[[], None] | None = None,
        *,
        transaction: ProducerKey | None = None,
    ) -> Standing:
        """Write records of one group, all or none; run the action when they are durable.

        What was appended earlier for the same group becomes durable, and has its action run,
        earlier or at the same time. The action may run before this returns. Records of a
        transaction count only when its marker says so.

        Returns:
            Where the first record stands.

        Raises:
            KafkaError: Nothing was written, and the action will not run.
        """
        ...

    def partition_of(self, group_id: str) -> int:
        """Return the number of the partition that holds a group's records."""
        ...

    def when_settled(self, group_id: str, action: Callable[[], None]) -> None:
        """Run the action when all that was appended for the group so far is durable."""
        ...


class KnownTopics(Protocol):
    """Which topics exist at this moment."""

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of a topic, None if there is no such topic."""
        ...

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether the partition exists."""
        ...
