"""The configs of a topic.

This file alone decides which configs a topic can have, their defaults and ranges, and what one
rule ties two of them together. Names, types, ranges and defaults are those of Kafka 4.3, with one
deliberate exception: ``flush.messages`` is 1 here, so that what is acknowledged survives a crash of
the machine and not only of the process. Configs that start with ``headwater.`` are our own.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final, Self

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings.setting import (
    LONG_MAX,
    Kind,
    Setting,
    Value,
    parse_all,
    setting,
    settings_of,
)
from headwater.base.spelling import suggestion

_DAY_MS = 86_400_000
_REPLICAS = (
    r"\d+:\d+",
    (
        "a list of replicas in the following format: "
        "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
    ),
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """Every config of one topic, with a value each; field names are Kafka's with ``_`` for dots."""

    cleanup_policy: str = setting(
        "delete",
        "What happens to old data: delete whole segments by age and size, compact to the last "
        "value of each key, or both.",
        kind=Kind.LIST,
        choices=("compact", "delete"),
        server_default="log.cleanup.policy",
    )
    compression_gzip_level: int = setting(
        -1,
        "The gzip level used when compression.type is gzip; kept for tools, without effect.",
        kind=Kind.INT,
        low=1,
        high=9,
        also_allowed=-1,
        server_default="compression.gzip.level",
    )
    compression_lz4_level: int = setting(
        9,
        "The lz4 level used when compression.type is lz4; kept for tools, without effect.",
        kind=Kind.INT,
        low=1,
        high=17,
        server_default="compression.lz4.level",
    )
    compression_type: str = setting(
        "producer",
        "How batches are compressed on disk; producer keeps them as they were sent.",
        kind=Kind.STRING,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        server_default="compression.type",
    )
    compression_zstd_level: int = setting(
        3,
        "The zstd level used when compression.type is zstd; kept for tools, without effect.",
        kind=Kind.INT,
        low=-131_072,
        high=22,
        server_default="compression.zstd.level",
    )
    delete_retention_ms: int = setting(
        _DAY_MS,
        "How long tombstones of a compacted topic stay readable after compaction has seen them.",
        kind=Kind.LONG,
        low=0,
        server_default="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = setting(
        60_000,
        "How long a removed segment stays on disk under another name, for readers still in it.",
        kind=Kind.LONG,
        low=0,
        server_default="log.segment.delete.delay.ms",
    )
    flush_messages: int = setting(
        1,
        "1: every record is synced to the device before it is acknowledged and before anyone reads "
        "it. Any larger number: records are left to the page cache, visible at once, and those of "
        "the last moments are lost if the machine dies. Kafka's own default is the page cache.",
        kind=Kind.LONG,
        low=1,
        server_default="log.flush.interval.messages",
    )
    flush_ms: int = setting(
        LONG_MAX,
        "With flush.messages above 1: the longest time after which records are synced anyway.",
        kind=Kind.LONG,
        low=0,
        server_default="log.flush.interval.ms",
    )
    follower_replication_throttled_replicas: str = setting(
        "",
        "Replicas whose replication is throttled; kept for tools, without effect on one node.",
        kind=Kind.LIST,
        items_like=_REPLICAS,
    )
    index_interval_bytes: int = setting(
        4096,
        "How many bytes of a segment lie between two entries of its offset index.",
        kind=Kind.INT,
        low=0,
        server_default="log.index.interval.bytes",
    )
    leader_replication_throttled_replicas: str = setting(
        "",
        "Replicas whose replication is throttled; kept for tools, without effect on one node.",
        kind=Kind.LIST,
        items_like=_REPLICAS,
    )
    local_retention_bytes: int = setting(
        -2,
        "Bytes kept locally by tiered storage; kept for tools, without effect.",
        kind=Kind.LONG,
        low=-2,
        server_default="log.local.retention.bytes",
    )
    local_retention_ms: int = setting(
        -2,
        "Time kept locally by tiered storage; kept for tools, without effect.",
        kind=Kind.LONG,
        low=-2,
        server_default="log.local.retention.ms",
    )
    max_compaction_lag_ms: int = setting(
        LONG_MAX,
        "The longest time a record of a compacted topic may stay uncompacted, unless the last "
        "stable offset holds it back.",
        kind=Kind.LONG,
        low=1,
        server_default="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = setting(
        1_048_588,
        "The largest record batch that is accepted, as it is sent, compressed or not.",
        kind=Kind.INT,
        low=0,
        server_default="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = setting(
        3_600_000,
        "How far a record's CreateTime may lie ahead of the broker's clock.",
        kind=Kind.LONG,
        low=0,
        server_default="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = setting(
        LONG_MAX,
        "How far a record's CreateTime may lie behind the broker's clock.",
        kind=Kind.LONG,
        low=0,
        server_default="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = setting(
        "CreateTime",
        "Whether a record keeps its producer's timestamp or gets the time of its append.",
        kind=Kind.STRING,
        choices=("CreateTime", "LogAppendTime"),
        server_default="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = setting(
        0.5,
        "The share of uncompacted bytes above which a compacted log is worth cleaning.",
        kind=Kind.DOUBLE,
        low=0,
        high=1,
        server_default="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = setting(
        0,
        "The shortest time a record of a compacted topic stays uncompacted.",
        kind=Kind.LONG,
        low=0,
        server_default="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = setting(
        1,
        "Replicas that must have a record before acks=all is answered; kept for tools, without "
        "effect on one node.",
        kind=Kind.INT,
        low=1,
        server_default="min.insync.replicas",
    )
    preallocate: bool = setting(
        default=False,
        documentation="Whether segment files get their full size when created; kept for tools, "
        "without effect.",
        kind=Kind.BOOLEAN,
        server_default="log.preallocate",
    )
    remote_log_copy_disable: bool = setting(
        default=False,
        documentation="Stops tiered storage from copying; kept for tools, without effect.",
        kind=Kind.BOOLEAN,
    )
    remote_log_delete_on_disable: bool = setting(
        default=False,
        documentation="Deletes tiered data when tiering ends; kept for tools, without effect.",
        kind=Kind.BOOLEAN,
    )
    remote_storage_enable: bool = setting(
        default=False,
        documentation="Tiered storage, which this broker does not have: only false is accepted.",
        kind=Kind.BOOLEAN,
    )
    retention_bytes: int = setting(
        -1,
        "How large a partition may grow before its oldest segments are deleted; -1 is no limit.",
        kind=Kind.LONG,
        server_default="log.retention.bytes",
    )
    retention_ms: int = setting(
        7 * _DAY_MS,
        "How old a segment's newest record may grow before it is deleted; -1 is no limit.",
        kind=Kind.LONG,
        low=-1,
        server_default="log.retention.ms",
    )
    segment_bytes: int = setting(
        1 << 30,
        "The size at which a segment is closed and a new one begun.",
        kind=Kind.INT,
        low=1 << 20,
        server_default="log.segment.bytes",
    )
    segment_index_bytes: int = setting(
        10 << 20,
        "The size at which an offset index is full, which closes its segment.",
        kind=Kind.INT,
        low=4,
        server_default="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = setting(
        0,
        "The most that is taken off segment.ms at random, so that not all segments roll at once; "
        "kept for tools, without effect.",
        kind=Kind.LONG,
        low=0,
        server_default="log.roll.jitter.ms",
    )
    segment_ms: int = setting(
        7 * _DAY_MS,
        "The age at which a segment is closed even if it is not full.",
        kind=Kind.LONG,
        low=1,
        server_default="log.roll.ms",
    )
    unclean_leader_election_enable: bool = setting(
        default=False,
        documentation="Whether a replica that is behind may lead; kept for tools, without effect "
        "on one node.",
        kind=Kind.BOOLEAN,
        server_default="unclean.leader.election.enable",
    )
    headwater_overflow: str = setting(
        "buffer",
        "What happens when producers are faster than consumers: buffer lets the log grow until "
        "retention, drop removes the oldest records above headwater.overflow.bytes at once, "
        "backpressure slows producers and then refuses them until consumers have caught up.",
        kind=Kind.STRING,
        choices=("buffer", "drop", "backpressure"),
        server_default="headwater.overflow",
    )
    headwater_overflow_bytes: int = setting(
        -1,
        "The bound per partition for headwater.overflow; -1 is no bound.",
        kind=Kind.LONG,
        low=1,
        also_allowed=-1,
        server_default="headwater.overflow.bytes",
    )

    @classmethod
    def parse(cls, configs: Mapping[str, str | None], defaults: Self | None = None) -> Self:
        """Lay overrides, in Kafka's form, over the defaults.

        Args:
            configs: Values by Kafka's name.
            defaults: What the broker gives to every topic; Kafka's defaults if absent.

        Returns:
            A config whose every value is allowed, alone and beside the others.

        Raises:
            KafkaError: INVALID_CONFIG, naming the key, the value and what is allowed.
        """
        for name, text in configs.items():
            if text is None:
                message = f"Null value not supported for topic configs: {name}"
                raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        values: dict[str, Value] = parse_all(TOPIC_SETTINGS, configs, unknown_topic_config)
        parsed = dataclasses.replace(defaults or cls(), **values)  # type: ignore[arg-type]
        parsed.check_together()
        return parsed

    def render(self, name: str) -> str:
        """Return one value, by Kafka's name, in Kafka's form."""
        known = TOPIC_SETTINGS[name]
        return known.render(getattr(self, known.field)) or ""

    @property
    def is_compacted(self) -> bool:
        """Whether the last value of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether old segments are deleted by age and size."""
        return "delete" in self.cleanup_policy

    @property
    def is_durable(self) -> bool:
        """Whether records are synced before they are acknowledged or read."""
        return self.flush_messages == 1

    def check_together(self) -> None:
        """Raise INVALID_CONFIG when two values contradict each other."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "conflict topic config setting min.compaction.lag.ms "
                f"({self.min_compaction_lag_ms}) > max.compaction.lag.ms "
                f"({self.max_compaction_lag_ms})",
            )
        if self.remote_storage_enable:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage.",
            )

    def check_bounded(self) -> None:
        """Raise INVALID_CONFIG when an overflow policy has no bound to act at.

        Apart from ``check_together``, because it is a mistake to ask for and none to have: a topic
        whose bound came from the broker must not stop a broker that no longer gives one.
        """
        if self.headwater_overflow != "buffer" and self.headwater_overflow_bytes < 0:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"headwater.overflow={self.headwater_overflow} needs a bound: "
                "set headwater.overflow.bytes too",
            )


TOPIC_SETTINGS: Final[Mapping[str, Setting]] = settings_of(TopicConfig)
"""Every topic config by Kafka's name, in alphabetical order, ours last."""


def unknown_topic_config(name: str) -> KafkaError:
    """Return the error for a topic config that does not exist; its first words are Kafka's."""
    hint = suggestion(name, TOPIC_SETTINGS)
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}{hint}")
