"""The data directory: which partitions exist, and what is true of them after any crash.

This file alone decides how a data directory is laid out, opened, recovered and closed. It knows
nothing of the inside of a partition (``partition``) or of the journal (``manifest``), nothing of
what recurs while it is open (``upkeep``), and nothing of who asks.

    <data>/VERSION                                the layout; a newer one is refused
    <data>/log/.lock                              one process at a time
    <data>/log/headwater.journal                  the manifest: what exists
    <data>/log/meta.properties                    for Kafka's tools
    <data>/log/*-offset-checkpoint                recovery points, log starts, high watermarks
    <data>/log/.kafka_cleanshutdown               left by a clean stop
    <data>/log/<topic>-<partition>/               made by the first append

What holds whenever the power goes:

* VERSION is written when the journal is durable. Where it is there without the journal, something
  was lost, usually because a volume is not mounted, and nothing may be begun anew in its place.
* A topic exists as soon as its journal entry is synced; its directories come and go after it. So a
  directory of an unknown topic is nobody's, and one whose topic id differs belongs to a deleted
  topic of the same name.
* The clean-shutdown marker names the epoch of the run that wrote it, and every start journals a
  higher epoch before it writes anything else. A marker that came back to life, because its removal
  was not durable, is therefore not believed.
* Checkpoints name partitions, not topic ids. Before a name is used again, its old lines are gone.
* A log start is recorded before anybody is told of it, or before anything goes from which a start
  would find it: files, a bound (`dropping`). So it never goes back.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Self

from headwater.base.chance import Chance, random_uuid
from headwater.base.clock import Clock
from headwater.base.disk import DirectoryLock, Disk, parent_directory, sync_names
from headwater.base.errors import ErrorCode, KafkaError, StorageError
from headwater.base.settings import BrokerSettings, TopicConfig, held_at_start
from headwater.log import manifest
from headwater.log.checkpoints import (
    CLEAN_SHUTDOWN,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    OffsetFiles,
    read_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
)
from headwater.log.compaction.compaction import Compaction
from headwater.log.deletion import Deletions
from headwater.log.directories import parse_partition_directory, partition_directory
from headwater.log.dropping import drop_again
from headwater.log.layout import (
    check_layout,
    check_unshared,
    make_directory,
    name_layout,
    upgrade_layout,
)
from headwater.log.lost import JOURNAL, check_journal
from headwater.log.manifest import PRODUCER_ID_BLOCK, Manifest, TopicEntry
from headwater.log.noted import Note
from headwater.log.partition import PartitionLog
from headwater.log.progress import Recovery
from headwater.log.recovery import tell_missing
from headwater.log.settling import settle
from headwater.log.topic import Topic, parse_stored_config
from headwater.log.upkeep import Upkeep

__all__ = ["JOURNAL", "LogStore", "Recovery", "Topic"]

logger = logging.getLogger(__name__)


class LogStore:
    """An open data directory."""

    def __init__(
        self,
        disk: Disk,
        data_directory: str,
        *,
        settings: BrokerSettings,
        topic_defaults: TopicConfig,
        clock: Clock,
        chance: Chance,
    ) -> None:
        """Only remember what was given; ``open`` does the work."""
        self.directory = f"{data_directory}/log"
        self._disk = disk
        self._settings = settings
        self._topic_defaults = topic_defaults
        self._clock = clock
        self._chance = chance
        self._failed = False
        self._closed = False
        self.stopped_cleanly = False
        self._topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._producer_ids = iter(range(0))
        self._lock: DirectoryLock
        self._manifest: Manifest
        self._deletions: Deletions
        self.note: Note
        self._offsets: OffsetFiles
        self._upkeep: Upkeep
        self.compaction: Compaction

    @classmethod
    def open(
        cls,
        disk: Disk,
        data_directory: str,
        *,
        settings: BrokerSettings,
        topic_defaults: TopicConfig,
        clock: Clock,
        chance: Chance,
        progress: Callable[[Recovery], None] | None = None,
    ) -> Self:
        """Take the directory, make it if needed, and recover every partition.

        Returns:
            A store in which everything that can be read is durable.

        Raises:
            AlreadyLockedError: Another process has the directory; its pid is named.
            ManifestDamagedError: The metadata is damaged; nothing was changed.
            HeadwaterError: A newer program laid the directory out, or it is not ours alone.
            StorageError: The disk failed.
        """
        store = cls(
            disk,
            data_directory,
            settings=settings,
            topic_defaults=topic_defaults,
            clock=clock,
            chance=chance,
        )
        try:
            check_unshared(disk, data_directory)
            if check_layout(disk, data_directory) is not None:
                check_journal(disk, store.directory)
            else:
                make_directory(disk, data_directory)
                make_directory(disk, store.directory)
            store._lock = disk.lock(f"{store.directory}/.lock")
            try:
                if not disk.restrict(data_directory):
                    disk.restrict(store.directory)
                upgrade_layout(disk, data_directory)
                store._load(data_directory, progress)
            except BaseException:
                store._lock.release()
                raise
        except OSError as error:
            hint = "check that the directory can be written and that the disk is not full"
            raise StorageError(f"cannot open {data_directory}: {error}", hint=hint) from error
        return store

    # What exists.

    @property
    def cluster_id(self) -> str:
        """The id chosen when the directory was first used."""
        return self._manifest.image.cluster_id

    @property
    def directory_id(self) -> str:
        """The id of this data directory, as in ``meta.properties``."""
        return self._manifest.image.directory_id

    @property
    def node_epoch(self) -> int:
        """The number of this run: the leader epoch of everything appended in it."""
        return self._manifest.image.node_epoch

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Every topic by name."""
        return self._topics

    @property
    def broker_configs(self) -> Mapping[str, str]:
        """What was set on the running broker, in Kafka's words."""
        return self._manifest.image.broker_configs

    @property
    def journal_entries(self) -> int:
        """How many entries the journal of metadata has had in all; each of them is durable."""
        return self._manifest.number

    @property
    def feature_levels(self) -> Mapping[str, int]:
        """The levels of features that somebody chose."""
        return self._manifest.image.feature_levels

    @property
    def features_epoch(self) -> int:
        """How often levels of features were chosen."""
        return self._manifest.image.features_epoch

    @property
    def quotas(self) -> Mapping[manifest.QuotaEntity, Mapping[str, float]]:
        """The limits of clients, by whom they are for."""
        return self._manifest.image.quotas

    @property
    def failed(self) -> bool:
        """Whether the disk failed, so that nothing more can be promised and the broker must stop.

        A disk that is merely full does not count.
        """
        return (
            self._failed
            or self._manifest.failed
            or self._upkeep.failed
            or any(log.failure for log in self.logs())
        )

    def volume_bytes(self) -> tuple[int, int]:
        """Return how much the volume holds, and how much of it is free for us."""
        return self._disk.total_bytes(self.directory), self._disk.free_bytes(self.directory)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return a topic by its id."""
        return self._by_id.get(topic_id)

    def logs(self) -> Iterator[PartitionLog]:
        """Go through all partitions of all topics."""
        return (log for topic in self._topics.values() for log in topic.partitions)

    # What changes it; each is durable when it returns.

    def create_topics(
        self, new_topics: Sequence[tuple[str, int, Mapping[str, str]]]
    ) -> list[Topic]:
        """Create topics, all or none, with one sync whatever their number of partitions.

        Args:
            new_topics: Name, number of partitions and config overrides of each.

        Raises:
            KafkaError: A name is taken or cannot be a directory, or a config is not allowed.
            StorageError: The disk failed or is full; none exists.
        """
        configs = [
            self._check_new_topic(name, partitions, overrides)
            for name, partitions, overrides in new_topics
        ]
        self._upkeep.forget_topics({name for name, _, _ in new_topics})
        entries = [
            TopicEntry(name, random_uuid(self._chance), partitions, dict(overrides))
            for name, partitions, overrides in new_topics
        ]
        self._manifest.record(manifest.topics_created(entries))
        return [
            self._add_topic(entry, config) for entry, config in zip(entries, configs, strict=True)
        ]

    def delete_topic(self, name: str) -> None:
        """Delete a topic; its files go later, when nobody reads them any more.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
            StorageError: The disk failed or is full; the topic still exists.
        """
        topic = self._existing(name)
        with self._upkeep.writing("its own names"):
            present = set(self._disk.list_directory(self.directory))
        directories = [
            directory
            for log in topic.partitions
            if (directory := partition_directory(name, log.partition)) in present
        ]
        self._manifest.record(manifest.topic_deleted(name, directories=bool(directories)))
        del self._topics[name]
        del self._by_id[topic.topic_id]
        for log in topic.partitions:
            self._upkeep.recovery_points.pop((name, log.partition), None)
            log.abandon()
        delay_ms = topic.config.file_delete_delay_ms
        self._deletions.add(topic.topic_id, directories, delay_ms=delay_ms)

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions.

        Raises:
            KafkaError: The topic does not exist or has that many already.
            StorageError: The disk failed or is full; nothing was added.
        """
        topic = self._existing(name)
        if total <= len(topic.partitions):
            message = f"{name} has {len(topic.partitions)} partitions already"
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, message)
        self._manifest.record(manifest.partitions_added(name, total))
        for index in range(len(topic.partitions), total):
            topic.partitions.append(self._open_log(topic, index, clean=True))

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's overrides.

        Raises:
            KafkaError: The topic does not exist or a config is not allowed.
            StorageError: The disk failed or is full; nothing was changed.
        """
        topic = self._existing(name)
        config = TopicConfig.parse(configs, self._topic_defaults)
        self._keep_dropped(topic)
        for log in topic.partitions:
            settle(log, config)
        self._manifest.record(manifest.topic_configured(name, configs))
        topic.configs = dict(configs)
        topic.configure(config)

    def set_broker_configs(self, configs: Mapping[str, str], defaults: TopicConfig) -> None:
        """Replace the overrides of the running broker, from which these defaults of topics follow.

        What the overrides mean is the caller's affair. When this returns, letting the settings hold
        cannot fail any more (`configure`).

        Raises:
            KafkaError: A topic cannot bear the defaults.
            StorageError: The disk failed or is full; nothing was changed.
        """
        self._keep_dropped(*self._topics.values())
        for topic in self._topics.values():
            config = TopicConfig.parse(topic.configs, defaults)
            for log in topic.partitions:
                settle(log, config)
        self._manifest.record(manifest.broker_configured(configs, self.note.wanted(defaults)))

    def set_feature_levels(self, levels: Mapping[str, int]) -> None:
        """Replace the levels of features; what they mean is the caller's affair."""
        self._manifest.record(manifest.features_changed(levels))

    def set_quotas(self, quotas: Mapping[manifest.QuotaEntity, Mapping[str, float]]) -> None:
        """Replace the limits of some clients, all or none; no limits forget the entity."""
        self._manifest.record(manifest.quotas_changed(quotas))

    @property
    def topic_defaults(self) -> TopicConfig:
        """What holds for a topic that does not say otherwise."""
        return self._topic_defaults

    @topic_defaults.setter
    def topic_defaults(self, defaults: TopicConfig) -> None:
        """Change the defaults for every topic; none changes if one topic cannot bear them."""
        changed = [
            (topic, TopicConfig.parse(topic.configs, defaults)) for topic in self._topics.values()
        ]
        self.note.write(defaults, self.persist_log_starts)
        self._topic_defaults = defaults
        for topic, config in changed:
            topic.configure(config)

    def configure(self, settings: BrokerSettings) -> None:
        """Let settings hold that a running broker can change; all others stay as they were."""
        self.topic_defaults = settings.topic_defaults()
        self._settings = self.compaction.settings = settings
        for topic in self._topics.values():
            for log in topic.partitions:
                log.producer_id_expiration_ms = settings.producer_id_expiration_ms

    def next_producer_id(self) -> int:
        """Return an id that was never given out and never will be again.

        Raises:
            StorageError: A new block of ids could not be reserved.
        """
        for producer_id in self._producer_ids:
            return producer_id
        start = self._manifest.image.next_producer_id
        self._manifest.record(manifest.producer_ids_reserved(start + PRODUCER_ID_BLOCK))
        self._producer_ids = iter(range(start, start + PRODUCER_ID_BLOCK))
        return next(self._producer_ids)

    def trim(self, trims: Sequence[tuple[PartitionLog, int]]) -> None:
        """Let logs start at other offsets, with one sync for all, as DeleteRecords asks for.

        Raises:
            StorageError: The disk failed or is full; nobody sees a start that a crash could undo.
        """
        self._upkeep.trim(trims)

    def persist_log_starts(self) -> None:
        """Record every log start; what was trimmed before the call stays so.

        Raises:
            StorageError: The disk failed or is full; the trim may be undone by a crash.
        """
        self._upkeep.record_log_starts()

    # Upkeep.

    def checkpoint(self) -> None:
        """Record how far every partition is safe, so that a recovery need not read it again.

        Raises:
            StorageError: The disk failed or is full; the old recovery points hold.
        """
        for _ in self._upkeep.checkpoint_steps():
            pass

    def make_room(self) -> None:
        """Room is needed now: the next upkeep applies retention and frees it without delay."""
        self._upkeep.hurry()

    def reclaim(self, log: PartitionLog) -> None:
        """The start of a log was raised: the next upkeep removes what lies below."""
        self._upkeep.reclaim(log)

    def work_due(self, now_ms: int) -> bool:
        """Do what is due of retention, removal and checkpoints, for a few milliseconds at most.

        A full disk stops none of it for good: what could not be written is tried again later.

        Args:
            now_ms: The calendar's time, against which records age.

        Returns:
            Whether something is left that should be done soon.

        Raises:
            StorageError: The disk failed; the broker must stop.
        """
        try:
            return self._upkeep.work_due(now_ms)
        except StorageError as error:
            if self.failed:
                raise StorageError(f"upkeep failed: {error}") from error
            logger.warning("upkeep is put off: %s", error)
            return False

    def abandon(self) -> None:
        """Close without the marker of a clean stop, after a failed sync or a failed start.

        Nothing more is written, and the next start scans.
        """
        self._failed = True
        self.close()

    def close(self) -> None:
        """Make everything durable and leave the marker of a clean stop.

        Raises:
            StorageError: The disk failed or is full: no marker is left, and the next start scans.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not self.failed:
                for log in self.logs():
                    log.close()
                    key = (log.topic, log.partition)
                    self._upkeep.recovery_points[key] = log.log_end_offset
                self._upkeep.record_offsets()
                with self._upkeep.writing(CLEAN_SHUTDOWN):
                    path = f"{self.directory}/{CLEAN_SHUTDOWN}"
                    write_clean_shutdown(self._disk, path, self.node_epoch)
        finally:
            for log in self.logs():
                log.abandon()
            self._manifest.close()
            self._lock.release()

    # Opening.

    def _load(self, data_directory: str, progress: Callable[[Recovery], None] | None) -> None:
        disk, directory = self._disk, self.directory
        found = [name for name in disk.list_directory(directory) if self._is_directory(name)]
        if any(map(parse_partition_directory, found)):
            check_journal(disk, directory)
        self._manifest = Manifest(disk, f"{directory}/{JOURNAL}", self._chance)
        name_layout(disk, data_directory)
        image = self._manifest.image
        held = held_at_start(self._settings, image.broker_configs)
        if held != self._settings:
            self._settings, self._topic_defaults = held, held.topic_defaults()
        marker = f"{directory}/{CLEAN_SHUTDOWN}"
        self.stopped_cleanly = read_clean_shutdown(disk, marker) == image.node_epoch
        self.note = Note(self._manifest, clean=self.stopped_cleanly)
        self._manifest.record(manifest.started(image.node_epoch + 1))
        if disk.exists(marker):
            disk.remove(marker)
        write_meta_properties(
            disk,
            f"{directory}/{META_PROPERTIES}",
            cluster_id=image.cluster_id,
            node_id=self._settings.node_id,
            directory_id=image.directory_id,
        )
        self._offsets = OffsetFiles(disk, directory)
        self._deletions = Deletions(disk, directory, self._manifest, self._clock)
        self._deletions.sort_out(found, self._chance)
        self._upkeep = Upkeep(
            directory,
            self._topics,
            offsets=self._offsets,
            deletions=self._deletions,
            settings=self._settings,
            clock=self._clock,
        )
        self.compaction = Compaction(
            disk,
            self._topics,
            upkeep=self._upkeep,
            settings=self._settings,
            clock=self._clock,
        )
        self._open_topics(progress, clean=self.stopped_cleanly)
        if not self.stopped_cleanly:
            if self.note.found:
                drop_again(self.note.found, self._topics.values(), self._topic_defaults)
            # The last process may have ended between a new name and the sync of it.
            for path in (parent_directory(directory), directory):
                sync_names(disk, path)

    def _is_directory(self, name: str) -> bool:
        return self._disk.is_directory(f"{self.directory}/{name}")

    def _open_topics(self, progress: Callable[[Recovery], None] | None, *, clean: bool) -> None:
        entries = self._manifest.image.topics.values()
        total = sum(entry.partitions for entry in entries)
        done = 0
        for entry in entries:
            config = parse_stored_config(entry.name, entry.configs, self._topic_defaults)
            topic = self._topic(entry, config)
            topic.was_durable = self.note.was_durable(entry.configs)
            for index in range(entry.partitions):
                key = (entry.name, index)
                log = self._open_log(topic, index, clean=clean)
                topic.partitions.append(log)
                point = self._offsets.recorded(RECOVERY_POINTS, key)
                self._upkeep.recovery_points[key] = min(point, log.log_end_offset)
                done += 1
                if progress is not None:
                    progress(Recovery(entry.name, index, done, total, clean))

    def _topic(self, entry: TopicEntry, config: TopicConfig) -> Topic:
        topic = Topic(entry.name, entry.topic_id, dict(entry.configs), config)
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        return topic

    def _open_log(self, topic: Topic, index: int, *, clean: bool) -> PartitionLog:
        key = (topic.name, index)
        recovery_point = self._offsets.recovery_point(key, compacted=topic.config.is_compacted)
        log_start_offset = self._offsets.recorded(LOG_STARTS, key)
        log = PartitionLog.open(
            self._disk,
            f"{self.directory}/{partition_directory(*key)}",
            topic=topic.name,
            partition=index,
            topic_id=topic.topic_id,
            config=topic.config,
            clock=self._clock,
            leader_epoch=self.node_epoch,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            producer_id_expiration_ms=self._settings.producer_id_expiration_ms,
        )
        found = range(log.log_start_offset, log.log_end_offset)
        tell_missing(log.directory, range(log_start_offset, recovery_point), found, clean=clean)
        return log

    # Changing.

    def _keep_dropped(self, *topics: Topic) -> None:
        """Write log starts down that follow from a config, before it changes."""
        if any(topic.config.headwater_overflow == "drop" for topic in topics):
            self.persist_log_starts()

    def _existing(self, name: str) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name}")
        return topic

    def _check_new_topic(
        self, name: str, partitions: int, overrides: Mapping[str, str]
    ) -> TopicConfig:
        assert partitions > 0
        if name in self._topics:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if parse_partition_directory(partition_directory(name, 0)) != (name, 0):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name!r} cannot be a directory")
        if self._deletions.in_the_way(name):
            raise StorageError(f"the files of the deleted topic {name} could not be moved yet")
        return TopicConfig.parse(overrides, self._topic_defaults)

    def _add_topic(self, entry: TopicEntry, config: TopicConfig) -> Topic:
        topic = self._topic(entry, config)
        for index in range(entry.partitions):
            topic.partitions.append(self._open_log(topic, index, clean=True))
        return topic
