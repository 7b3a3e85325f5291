"""The settings of a broker.

This file alone decides which settings a broker has, their defaults and ranges, and how they become
the defaults of topics. Names are Kafka's; settings that start with ``headwater.`` are our own. The
defaults are those of Kafka 4.3 except:

- ``log.flush.interval.messages`` is 1: durable by default (see ``flush.messages`` of a topic);
- ``listeners`` is the loopback address: another one is asked for, not met by accident;
- ``queued.max.request.bytes`` has a bound, so that clients cannot fill the memory;
- ``offsets.topic.num.partitions`` is 4: each partition that groups commit to is one more file to
  sync in a commit round, and one node has nothing to spread them over;
- ``socket.listen.backlog.size`` is 1024: one loop accepts for everyone, so bursts wait in the
  kernel.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final, Self

from headwater.base.errors import ErrorCode, KafkaError
from headwater.base.settings.addresses import split_address, split_overrides
from headwater.base.settings.places import DEFAULT_DATA
from headwater.base.settings.setting import (
    INT_MAX,
    LONG_MAX,
    Kind,
    Setting,
    Value,
    parse_all,
    setting,
    settings_of,
)
from headwater.base.settings.topic import TOPIC_SETTINGS, TopicConfig
from headwater.base.spelling import suggestion

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Every setting of one broker; field names are Kafka's with ``_`` for dots."""

    node_id: int = setting(1, "The id of this broker.", kind=Kind.INT, low=0)
    listeners: str = setting(
        "PLAINTEXT://127.0.0.1:9092",
        "Where to listen; port 0 lets the system choose.",
        kind=Kind.STRING,
    )
    advertised_listeners: str | None = setting(
        None,
        "Where clients are told to connect, if that differs from listeners.",
        kind=Kind.STRING,
        optional=True,
    )
    log_dirs: str = setting(
        f"./{DEFAULT_DATA}",
        "The data directory; everything the broker keeps lies under it.",
        kind=Kind.STRING,
    )
    headwater_insecure: bool = setting(
        default=False,
        documentation="Allow an address that other machines can reach, without authentication.",
        kind=Kind.BOOLEAN,
    )

    # What a new topic is like.
    auto_create_topics_enable: bool = setting(
        default=True,
        documentation="Whether asking for a topic that does not exist creates it.",
        kind=Kind.BOOLEAN,
    )
    num_partitions: int = setting(
        1, "Partitions of a topic that is created without a number.", kind=Kind.INT, low=1
    )
    default_replication_factor: int = setting(
        1, "Replicas of a topic; one node can hold one.", kind=Kind.INT, low=1, high=1
    )
    delete_topic_enable: bool = setting(
        default=True, documentation="Whether topics can be deleted.", kind=Kind.BOOLEAN
    )
    headwater_max_partitions: int = setting(
        20_000,
        "The most partitions all topics may have together. One costs nothing on disk until its "
        "first record, and about 3 kB of memory.",
        kind=Kind.INT,
        low=1,
    )

    headwater_max_open_files: int | None = setting(
        None,
        "The most files of the log that are open at once; idle ones are closed to open others. "
        "At most half of them are sent to readers at a time. "
        "Without it a third of what the process may open (ulimit -n).",
        kind=Kind.INT,
        low=16,
        optional=True,
    )

    # What clients may ask of the server.
    socket_request_max_bytes: int = setting(
        100 << 20,
        "The largest request that is read; a larger one ends its connection.",
        kind=Kind.INT,
        low=1,
    )
    queued_max_request_bytes: int = setting(
        256 << 20,
        "The most memory that requests in work may hold together; beyond it sockets wait.",
        kind=Kind.LONG,
        also_allowed=-1,
        low=1,
    )
    fetch_max_bytes: int = setting(
        55 << 20, "The most bytes one fetch returns.", kind=Kind.INT, low=1024
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        1_000,
        "How many consumers may have a fetch session, which spares them naming every partition "
        "in every fetch (KIP-227).",
        kind=Kind.INT,
        low=0,
    )
    max_request_partition_size_limit: int = setting(
        2000, "The most partitions one DescribeTopicPartitions returns.", kind=Kind.INT, low=1
    )
    connections_max_idle_ms: int = setting(
        600_000, "After this time without a request a connection is closed.", kind=Kind.LONG
    )
    max_connections: int = setting(
        INT_MAX,
        "The most connections that are held at once; others are let in when one has closed.",
        kind=Kind.INT,
        low=1,
        dynamic=True,
    )
    max_connections_per_ip: int = setting(
        INT_MAX,
        "The most connections from one address; more are closed at once.",
        kind=Kind.INT,
        low=0,
        dynamic=True,
    )
    max_connections_per_ip_overrides: str = setting(
        "",
        "Other bounds for some addresses: 127.0.0.1:100,10.0.0.7:5.",
        kind=Kind.STRING,
        dynamic=True,
    )
    max_connection_creation_rate: int = setting(
        INT_MAX,
        "The most connections that are accepted each second; others wait.",
        kind=Kind.INT,
        low=1,
        dynamic=True,
    )
    quota_window_num: int = setting(
        11, "How many windows the rate of a client is measured over.", kind=Kind.INT, low=1
    )
    quota_window_size_seconds: int = setting(
        1, "How long a window is in which bytes and time are counted.", kind=Kind.INT, low=1
    )
    controller_quota_window_num: int = setting(
        11,
        "How many windows of created and deleted partitions may come at once.",
        kind=Kind.INT,
        low=1,
    )
    controller_quota_window_size_seconds: int = setting(
        1, "How long a window is in which changed partitions are counted.", kind=Kind.INT, low=1
    )
    socket_listen_backlog_size: int = setting(
        1024, "Connections the kernel holds until they are accepted.", kind=Kind.INT, low=1
    )

    # Groups and their offsets.
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "How long a new group waits for more members.", kind=Kind.INT, low=0
    )
    group_min_session_timeout_ms: int = setting(
        6_000, "The shortest session time-out a member may ask for.", kind=Kind.INT
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000, "The longest session time-out a member may ask for.", kind=Kind.INT
    )
    group_max_size: int = setting(
        INT_MAX, "The most members a group may have.", kind=Kind.INT, low=1
    )
    offset_metadata_max_bytes: int = setting(
        4096, "The longest note that may come with a committed offset.", kind=Kind.INT
    )
    offsets_retention_minutes: int = setting(
        10_080, "How long the offsets of an empty group are kept.", kind=Kind.INT, low=1
    )
    offsets_retention_check_interval_ms: int = setting(
        600_000, "How often expired offsets are looked for.", kind=Kind.LONG, low=1
    )
    offsets_topic_num_partitions: int = setting(
        4, "Partitions of __consumer_offsets; fixed once it exists.", kind=Kind.INT, low=1
    )
    offsets_topic_replication_factor: int = setting(
        1, "Replicas of __consumer_offsets; one node can hold one.", kind=Kind.SHORT, low=1, high=1
    )
    offsets_topic_segment_bytes: int = setting(
        100 << 20, "The segment size of __consumer_offsets.", kind=Kind.INT, low=1
    )

    # Transactions.
    transaction_max_timeout_ms: int = setting(
        900_000,
        "The longest time-out that a transactional producer may ask for; a transaction that is "
        "open for longer than its time-out is aborted.",
        kind=Kind.INT,
        low=1,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        10_000,
        "How often transactions that have outlived their time-out are looked for.",
        kind=Kind.INT,
        low=1,
    )
    transactional_id_expiration_ms: int = setting(
        604_800_000,
        "How long a transactional id without a transaction is remembered.",
        kind=Kind.INT,
        low=1,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        3_600_000,
        "How often expired transactional ids are looked for.",
        kind=Kind.INT,
        low=1,
    )
    transaction_partition_verification_enable: bool = setting(
        default=True,
        documentation="Whether a transactional batch is refused unless its partition was added "
        "to the transaction; only what clients older than KIP-890 send needs the check.",
        kind=Kind.BOOLEAN,
        dynamic=True,
    )
    transaction_state_log_num_partitions: int = setting(
        1,
        "Partitions of __transaction_state; fixed once it exists. More of them mean more syncs.",
        kind=Kind.INT,
        low=1,
    )
    transaction_state_log_replication_factor: int = setting(
        1, "Replicas of __transaction_state; one node can hold one.", kind=Kind.SHORT, low=1, high=1
    )
    transaction_state_log_min_isr: int = setting(
        1, "The min.insync.replicas of __transaction_state.", kind=Kind.INT, low=1, high=1
    )
    transaction_state_log_segment_bytes: int = setting(
        100 << 20, "The segment size of __transaction_state.", kind=Kind.INT, low=1
    )

    # Work the broker does by itself.
    log_retention_check_interval_ms: int = setting(
        300_000, "How often data past its retention is looked for.", kind=Kind.LONG, low=1
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        60_000,
        "How often the recovery points are recorded; recovery after a crash reads what is newer.",
        kind=Kind.INT,
        low=0,
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        60_000,
        "How often the log start offsets are recorded; kept for tools, without effect: each is "
        "recorded before anybody is told of it.",
        kind=Kind.INT,
        low=0,
    )
    log_cleaner_enable: bool = setting(
        default=True,
        documentation="Whether topics with cleanup.policy=compact are compacted.",
        kind=Kind.BOOLEAN,
    )
    log_cleaner_threads: int = setting(
        1,
        "How many logs are compacted at the same time, each in a process of its own.",
        kind=Kind.INT,
        low=1,
        dynamic=True,
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        128 << 20,
        "The memory for the keys of a pass of compaction, over all processes; about 150 bytes a "
        "key. Keys that do not fit are left to the next pass.",
        kind=Kind.LONG,
        low=1 << 20,
        dynamic=True,
    )
    log_cleaner_backoff_ms: int = setting(
        15_000,
        "How long compaction waits before it looks for work again when there was none.",
        kind=Kind.LONG,
        low=0,
        dynamic=True,
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        "After this time without a batch a partition forgets an idempotent producer.",
        kind=Kind.INT,
        low=1,
        dynamic=True,
    )

    # Defaults of topics: changed on a running broker, they reach every topic without its own value.
    compression_gzip_level: int = setting(
        -1,
        "The default of compression.gzip.level.",
        kind=Kind.INT,
        low=1,
        high=9,
        also_allowed=-1,
        dynamic=True,
    )
    compression_lz4_level: int = setting(
        9, "The default of compression.lz4.level.", kind=Kind.INT, low=1, high=17, dynamic=True
    )
    compression_type: str = setting(
        "producer",
        "The default of compression.type.",
        kind=Kind.STRING,
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        dynamic=True,
    )
    compression_zstd_level: int = setting(
        3,
        "The default of compression.zstd.level.",
        kind=Kind.INT,
        low=-131_072,
        high=22,
        dynamic=True,
    )
    log_cleaner_delete_retention_ms: int = setting(
        86_400_000, "The default of delete.retention.ms.", kind=Kind.LONG, low=0, dynamic=True
    )
    log_cleaner_max_compaction_lag_ms: int = setting(
        LONG_MAX, "The default of max.compaction.lag.ms.", kind=Kind.LONG, low=1, dynamic=True
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        0.5,
        "The default of min.cleanable.dirty.ratio.",
        kind=Kind.DOUBLE,
        low=0,
        high=1,
        dynamic=True,
    )
    log_cleaner_min_compaction_lag_ms: int = setting(
        0, "The default of min.compaction.lag.ms.", kind=Kind.LONG, low=0, dynamic=True
    )
    log_cleanup_policy: str = setting(
        "delete",
        "The default of cleanup.policy.",
        kind=Kind.LIST,
        choices=("compact", "delete"),
        dynamic=True,
    )
    log_flush_interval_messages: int = setting(
        1,
        "The default of flush.messages: 1 syncs before it acknowledges.",
        kind=Kind.LONG,
        low=1,
        dynamic=True,
    )
    log_flush_interval_ms: int | None = setting(
        None, "The default of flush.ms.", kind=Kind.LONG, optional=True, dynamic=True
    )
    log_index_interval_bytes: int = setting(
        4096, "The default of index.interval.bytes.", kind=Kind.INT, low=0, dynamic=True
    )
    log_index_size_max_bytes: int = setting(
        10 << 20, "The default of segment.index.bytes.", kind=Kind.INT, low=4, dynamic=True
    )
    log_local_retention_bytes: int = setting(
        -2, "The default of local.retention.bytes.", kind=Kind.LONG, low=-2, dynamic=True
    )
    log_local_retention_ms: int = setting(
        -2, "The default of local.retention.ms.", kind=Kind.LONG, low=-2, dynamic=True
    )
    log_message_timestamp_after_max_ms: int = setting(
        3_600_000,
        "The default of message.timestamp.after.max.ms.",
        kind=Kind.LONG,
        low=0,
        dynamic=True,
    )
    log_message_timestamp_before_max_ms: int = setting(
        LONG_MAX,
        "The default of message.timestamp.before.max.ms.",
        kind=Kind.LONG,
        low=0,
        dynamic=True,
    )
    log_message_timestamp_type: str = setting(
        "CreateTime",
        "The default of message.timestamp.type.",
        kind=Kind.STRING,
        choices=("CreateTime", "LogAppendTime"),
        dynamic=True,
    )
    log_preallocate: bool = setting(
        default=False,
        documentation="The default of preallocate.",
        kind=Kind.BOOLEAN,
        dynamic=True,
    )
    log_retention_bytes: int = setting(
        -1, "The default of retention.bytes.", kind=Kind.LONG, dynamic=True
    )
    log_retention_ms: int | None = setting(
        None,
        "The default of retention.ms, 1 or more, or below 0 for no limit; without it "
        "log.retention.minutes counts.",
        kind=Kind.LONG,
        optional=True,
        dynamic=True,
    )
    log_retention_minutes: int | None = setting(
        None,
        "The default of retention.ms in minutes; without it log.retention.hours counts.",
        kind=Kind.INT,
        optional=True,
    )
    log_retention_hours: int = setting(168, "The default of retention.ms in hours.", kind=Kind.INT)
    log_roll_ms: int | None = setting(
        None,
        "The default of segment.ms; without it log.roll.hours counts.",
        kind=Kind.LONG,
        low=1,
        optional=True,
        dynamic=True,
    )
    log_roll_hours: int = setting(168, "The default of segment.ms in hours.", kind=Kind.INT, low=1)
    log_roll_jitter_ms: int | None = setting(
        None,
        "The default of segment.jitter.ms; without it log.roll.jitter.hours counts.",
        kind=Kind.LONG,
        low=0,
        optional=True,
        dynamic=True,
    )
    log_roll_jitter_hours: int = setting(
        0, "The default of segment.jitter.ms in hours.", kind=Kind.INT, low=0
    )
    log_segment_bytes: int = setting(
        1 << 30, "The default of segment.bytes.", kind=Kind.INT, low=1 << 20, dynamic=True
    )
    log_segment_delete_delay_ms: int = setting(
        60_000, "The default of file.delete.delay.ms.", kind=Kind.LONG, low=0, dynamic=True
    )
    message_max_bytes: int = setting(
        1_048_588, "The default of max.message.bytes.", kind=Kind.INT, low=0, dynamic=True
    )
    min_insync_replicas: int = setting(
        1, "The default of min.insync.replicas.", kind=Kind.INT, low=1, dynamic=True
    )
    unclean_leader_election_enable: bool = setting(
        default=False,
        documentation="The default of unclean.leader.election.enable.",
        kind=Kind.BOOLEAN,
        dynamic=True,
    )
    headwater_overflow: str = setting(
        "buffer",
        "The default of headwater.overflow.",
        kind=Kind.STRING,
        choices=("buffer", "drop", "backpressure"),
        dynamic=True,
    )
    headwater_overflow_bytes: int = setting(
        -1,
        "The default of headwater.overflow.bytes.",
        kind=Kind.LONG,
        low=1,
        also_allowed=-1,
        dynamic=True,
    )

    @classmethod
    def parse(cls, configs: Mapping[str, str | None]) -> Self:
        """Lay values, in Kafka's form, over the defaults."""
        return cls().with_overrides(configs)

    def with_overrides(self, configs: Mapping[str, str | None]) -> Self:
        """Return these settings with some replaced, in Kafka's form.

        Raises:
            KafkaError: INVALID_CONFIG, naming the key, the value and what is allowed.
        """
        values: dict[str, Value] = parse_all(BROKER_SETTINGS, configs, unknown_broker_config)
        changed = dataclasses.replace(self, **values)  # type: ignore[arg-type]
        changed.check_together()
        return changed

    def render(self, name: str) -> str | None:
        """Return one value, by Kafka's name, in Kafka's form."""
        known = BROKER_SETTINGS[name]
        return known.render(getattr(self, known.field))

    def check_together(self) -> None:
        """Raise when two values contradict each other or an address cannot be read."""
        overrides = split_overrides(self.max_connections_per_ip_overrides)
        contradictions = {
            "queued.max.request.bytes must not be below socket.request.max.bytes, "
            "or the largest request could never be read": (
                0 <= self.queued_max_request_bytes < self.socket_request_max_bytes
            ),
            "group.min.session.timeout.ms must not be above group.max.session.timeout.ms": (
                self.group_min_session_timeout_ms > self.group_max_session_timeout_ms
            ),
            "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides "
            "property is set.": not self.max_connections_per_ip and not overrides,
            "log.retention.ms must be 1 or more, or below 0 for no limit": not self._retention_ms,
            "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.": (
                self.log_cleaner_dedupe_buffer_size < self.log_cleaner_threads << 20
            ),
        }
        for message, holds in contradictions.items():
            if holds:
                raise KafkaError(ErrorCode.INVALID_CONFIG, message)
        split_address(self.listeners)
        if self.advertised_listeners:
            split_address(self.advertised_listeners)
        defaults = self.topic_defaults()
        defaults.check_together()
        defaults.check_bounded()

    def topic_defaults(self) -> TopicConfig:
        """Return what a topic has where it says nothing itself."""
        values: dict[str, Value] = {}
        for known in TOPIC_SETTINGS.values():
            if known.server_default is not None:
                value = getattr(self, known.server_default.replace(".", "_"))
                if value is not None:
                    values[known.field] = value
        values["retention_ms"] = self._retention_ms
        if self.log_roll_ms is None:
            values["segment_ms"] = self.log_roll_hours * _HOUR_MS
        if self.log_roll_jitter_ms is None:
            values["segment_jitter_ms"] = self.log_roll_jitter_hours * _HOUR_MS
        return TopicConfig(**values)  # type: ignore[arg-type]

    @property
    def _retention_ms(self) -> int:
        given = self.log_retention_ms
        if given is None:
            minutes = self.log_retention_minutes
            given = self.log_retention_hours * _HOUR_MS if minutes is None else minutes * _MINUTE_MS
        return max(given, -1)

    @property
    def listen_address(self) -> tuple[str, int]:
        """Host and port to bind; the host may be empty, the port 0."""
        return split_address(self.listeners)

    @property
    def advertised_address(self) -> tuple[str, int] | None:
        """Host and port that clients are told, if somebody set them."""
        return split_address(self.advertised_listeners) if self.advertised_listeners else None


BROKER_SETTINGS: Final[Mapping[str, Setting]] = settings_of(BrokerSettings)
"""Every broker setting by Kafka's name, in the order they are told to people."""


def unknown_broker_config(name: str) -> KafkaError:
    """Return the error for a broker setting that does not exist."""
    hint = suggestion(name, BROKER_SETTINGS)
    return KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown broker config name: {name}{hint}")
