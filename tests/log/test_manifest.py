"""The journal of metadata: what was recorded is there, whatever happened since."""

import errno
import json
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.disk import Disk, read_file
from headwater.base.errors import StorageError
from headwater.base.record.crc import crc32c
from headwater.log import manifest
from headwater.log.manifest import Image, Manifest, ManifestDamagedError, TopicEntry
from headwater.testing.memory_disk import MemoryDisk, PowerCut
from headwater.testing.seeded_chance import SeededChance

PATH = "/journal"


def open_manifest(disk: Disk) -> Manifest:
    return Manifest(disk, PATH, SeededChance(1))


def topic(number: int, partitions: int = 1, **configs: str) -> TopicEntry:
    return TopicEntry(f"topic{number}", number.to_bytes(16, "big"), partitions, configs)


def shown(image: Image) -> str:
    return json.dumps(manifest._whole(image), sort_keys=True)


ANYBODY = (("client-id", None), ("user", None))
JOE = (("user", "j\u00f6"),)
CHANGES: list[Callable[[Manifest], None]] = [
    lambda m: m.record(manifest.started(m.image.node_epoch + 1)),
    lambda m: m.record(manifest.topics_created([topic(1), topic(2, 3, **{"retention.ms": "5"})])),
    lambda m: m.record(manifest.partitions_added("topic1", 7)),
    lambda m: m.record(manifest.topic_configured("topic1", {"segment.bytes": "99"})),
    lambda m: m.record(manifest.broker_configured({"log.retention.ms": "1"}, {"n": "2"})),
    lambda m: m.record(manifest.producer_ids_reserved(1000)),
    lambda m: m.record(manifest.features_changed({"transaction.version": 1})),
    lambda m: m.record(manifest.topic_deleted("topic2", directories=True)),
    lambda m: m.record(manifest.topics_created([topic(3)])),
    lambda m: m.record(manifest.topic_deleted("topic3", directories=False)),
    lambda m: m.record(manifest.quotas_changed({ANYBODY: {"producer_byte_rate": 0.5}})),
    lambda m: m.record(manifest.quotas_changed({JOE: {"request_percentage": 1e18}, ANYBODY: {}})),
    lambda m: m.record(manifest.deletions_finished([topic(2).topic_id])),
]


def fill(journal: Manifest) -> None:
    """Bring the journal to one byte before its fold."""
    empty = len(manifest._encode(9, manifest.broker_configured({"a": ""}, {})))
    behind = journal._file.size() - journal._image_bytes
    value = "x" * (journal._image_bytes - behind - empty)
    journal.record(manifest.broker_configured({"a": value}, {}))


def frame(payload: bytes, version: int = manifest.VERSION) -> bytes:
    checked = struct.pack(">H", version) + payload
    return struct.pack(">II", len(payload), crc32c(checked)) + checked


class TestJournal:
    def test_every_change_is_found_again(self) -> None:
        disk = MemoryDisk()
        journal = open_manifest(disk)
        assert journal.image.node_epoch == -1
        for change in CHANGES:
            change(journal)
            again = open_manifest(disk.restart())
            disk = again._disk  # type: ignore[assignment]

            assert shown(again.image) == shown(journal.image)
            journal = again
        image = journal.image
        assert image.node_epoch == 0
        assert image.topics == {"topic1": topic(1, 7, **{"segment.bytes": "99"})}
        assert image.deletions == {}
        assert image.broker_configs == {"log.retention.ms": "1"}
        assert image.noted == {"n": "2"}
        assert image.next_producer_id == 1000
        assert (image.feature_levels, image.features_epoch) == ({"transaction.version": 1}, 1)
        assert image.quotas == {JOE: {"request_percentage": 1e18}}

    def test_a_deletion_is_remembered_until_it_is_finished(self) -> None:
        journal = open_manifest(MemoryDisk())
        for change in CHANGES[:8]:
            change(journal)

        assert list(journal.image.topics) == ["topic1"]
        assert [entry.name for entry in journal.image.deletions.values()] == ["topic2"]

    def test_ids_are_chosen_once(self) -> None:
        disk = MemoryDisk()
        first = Manifest(disk, PATH, SeededChance(1)).image
        second = Manifest(disk, PATH, SeededChance(2)).image

        assert first.cluster_id == second.cluster_id
        assert first.directory_id == second.directory_id
        assert first.cluster_id != first.directory_id
        assert len(first.cluster_id) == 22

    def test_a_synced_change_survives_and_the_others_are_all_or_nothing(self) -> None:
        for seed in range(30):
            disk = MemoryDisk()
            journal = open_manifest(disk)
            for change in CHANGES[:2]:
                change(journal)
            before = shown(journal.image)
            disk.cut_power_at(disk.operations + 2)
            with pytest.raises(PowerCut):
                CHANGES[2](journal)
            found = open_manifest(disk.crash(seed))

            if shown(found.image) != before:
                assert found.image.topics["topic1"].partitions == 7
            CHANGES[2](found)
            assert found.image.topics["topic1"].partitions == 7

    def test_topics_of_one_change_come_all_or_none(self) -> None:
        for seed in range(30):
            disk = MemoryDisk()
            journal = open_manifest(disk)
            disk.cut_power_at(disk.operations + 2)
            with pytest.raises(PowerCut):
                journal.record(manifest.topics_created([topic(i) for i in range(50)]))
            found = open_manifest(disk.crash(seed))

            assert len(found.image.topics) in {0, 50}

    @given(st.integers(0, 3000), st.integers(0, 3000))
    def test_any_cut_of_the_tail_is_a_prefix_of_history(self, at: int, seed: int) -> None:
        disk = MemoryDisk()
        journal = open_manifest(disk)
        history = [shown(journal.image)]
        ends = [len(read_file(disk, PATH))]
        for change in CHANGES:
            change(journal)
            history.append(shown(journal.image))
            ends.append(len(read_file(disk, PATH)))
        size = ends[0] + at % (ends[-1] - ends[0] + 1)
        disk.open(PATH).truncate(size)
        found = open_manifest(disk)

        whole = max(index for index, end in enumerate(ends) if end <= size)
        assert shown(found.image) == history[whole]
        assert read_file(disk, PATH) == read_file(disk, PATH)[: ends[whole]]


class TestFolding:
    def test_it_stays_small_and_says_the_same(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(manifest, "_FOLD_AT_LEAST_BYTES", 500)
        disk = MemoryDisk()
        journal = open_manifest(disk)
        journal.record(manifest.topics_created([topic(1)]))
        for number in range(200):
            journal.record(manifest.producer_ids_reserved(number * 1000))
            assert len(read_file(disk, PATH)) < 1500
        found = open_manifest(disk)

        assert shown(found.image) == shown(journal.image)
        assert found.image.next_producer_id == 199_000

    def test_a_crash_at_any_step_of_a_fold_loses_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(manifest, "_FOLD_AT_LEAST_BYTES", 0)

        def prepare() -> tuple[MemoryDisk, Manifest]:
            disk = MemoryDisk()
            journal = open_manifest(disk)
            journal.record(manifest.producer_ids_reserved(1000))
            fill(journal)
            return disk, journal

        disk, journal = prepare()
        start = disk.operations
        journal.record(manifest.producer_ids_reserved(2000))
        assert "rename" in [operation.kind for operation in disk.trace[start:]], "it folds here"
        for number in range(start + 3, disk.operations + 1):
            for seed in range(10):
                disk, journal = prepare()
                disk.cut_power_at(number, after=seed % 2 == 1)
                with pytest.raises(PowerCut):
                    journal.record(manifest.producer_ids_reserved(2000))
                found = open_manifest(disk.crash(seed))

                assert found.image.next_producer_id == 2000
                assert found.image.broker_configs == journal.image.broker_configs

    @pytest.mark.parametrize("step", range(3, 8))
    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
    def test_a_failure_of_a_fold(
        self, monkeypatch: pytest.MonkeyPatch, step: int, code: int
    ) -> None:
        monkeypatch.setattr(manifest, "_FOLD_AT_LEAST_BYTES", 0)
        disk = MemoryDisk()
        journal = open_manifest(disk)
        fill(journal)
        disk.fail_at(disk.operations + step, OSError(code, "fault"))
        try:
            journal.record(manifest.producer_ids_reserved(2000))
        except StorageError:
            assert journal.failed
        else:
            assert code == errno.ENOSPC
            journal.record(manifest.producer_ids_reserved(3000))
        assert disk.operations > 8
        found = open_manifest(disk.crash(1))

        assert found.image.next_producer_id == (2000 if journal.failed else 3000)


class TestFailures:
    def test_a_full_disk_passes(self) -> None:
        disk = MemoryDisk()
        journal = open_manifest(disk)
        disk.fail_at(disk.operations + 1, OSError(errno.ENOSPC, "full"))
        with pytest.raises(StorageError, match="full") as refused:
            journal.record(manifest.started(0))
        assert "room" in refused.value.hint
        assert journal.image.node_epoch == -1
        journal.record(manifest.started(5))

        assert not journal.failed
        assert open_manifest(disk.crash(0, keep="nothing")).image.node_epoch == 5

    @pytest.mark.parametrize("step", [1, 2])
    def test_a_broken_disk_does_not(self, step: int) -> None:
        disk = MemoryDisk()
        journal = open_manifest(disk)
        disk.fail_at(disk.operations + step, OSError(errno.EIO, "broken"))
        with pytest.raises(StorageError, match="broken"):
            journal.record(manifest.started(0))
        with pytest.raises(StorageError, match="earlier"):
            journal.record(manifest.started(0))

        assert journal.failed
        assert journal.image.node_epoch == -1

    def test_a_partial_entry_that_cannot_be_removed_is_final(self) -> None:
        disk = MemoryDisk()
        journal = open_manifest(disk)
        disk.fail_at(disk.operations + 1, OSError(errno.ENOSPC, "full"))
        disk.fail_at(disk.operations + 2, OSError(errno.EIO, "broken"))
        with pytest.raises(StorageError):
            journal.record(manifest.started(0))

        assert journal.failed
        assert open_manifest(disk.restart()).image.node_epoch == -1


class TestDamage:
    def damage(self, position: int, content: bytes) -> MemoryDisk:
        """Return a disk whose journal has these bytes at a place, and is intact elsewhere."""
        disk = MemoryDisk()
        journal = open_manifest(disk)
        for change in CHANGES:
            change(journal)
        whole = bytearray(read_file(disk, PATH))
        whole[position : position + len(content)] = content
        file = disk.open(PATH)
        file.truncate(0)
        file.append([whole])
        return disk

    def test_before_the_end_it_is_named_and_nothing_is_changed(self) -> None:
        disk = self.damage(0, b"")
        size = len(read_file(disk, PATH))
        last = read_file(disk, PATH).rindex(b'{"number":') - 10
        for position in range(0, last, 7):
            disk = self.damage(position, bytes([read_file(disk, PATH)[position] ^ 0xFF]))
            before = read_file(disk, PATH)
            with pytest.raises(ManifestDamagedError, match="damaged at byte") as refused:
                open_manifest(disk)

            assert "backup" in refused.value.hint
            assert read_file(disk, PATH) == before
        assert size == len(read_file(disk, PATH))

    def test_in_the_last_entry_it_looks_like_a_write_that_was_under_way(self) -> None:
        disk = self.damage(0, b"")
        content = read_file(disk, PATH)
        disk = self.damage(len(content) - 3, b"???")

        assert [entry.name for entry in open_manifest(disk).image.deletions.values()] == ["topic2"]

    def test_an_empty_file_is_no_fresh_start(self) -> None:
        disk = MemoryDisk()
        disk.open(PATH, create=True)
        with pytest.raises(ManifestDamagedError, match="byte 0"):
            open_manifest(disk)

    @pytest.mark.parametrize(
        "payload",
        [
            b'{"number":3,"change":"started","epoch":0}',
            b'{"number":2,"change":"unheard of"}',
            b'{"number":2,"change":"topic_deleted","name":"absent","directories":true}',
            b'{"number":2,"change":"deletions_finished","ids":["AAAAAAAAAAAAAAAAAAAAAA"]}',
            b'{"number":2}',
            b"{",
            b"[]",
        ],
    )
    def test_a_whole_entry_that_makes_no_sense(self, payload: bytes) -> None:
        disk = MemoryDisk()
        open_manifest(disk)
        disk.open(PATH).append([frame(payload)])
        with pytest.raises(ManifestDamagedError):
            open_manifest(disk)

    def test_the_first_entry_must_be_an_image(self) -> None:
        disk = MemoryDisk()
        disk.open(PATH, create=True).append([frame(b'{"number":1,"change":"started","epoch":0}')])
        with pytest.raises(ManifestDamagedError, match="no image"):
            open_manifest(disk)
        disk = MemoryDisk()
        disk.open(PATH, create=True).append([frame(b'{"number":1,"change":"image"}')])
        with pytest.raises(ManifestDamagedError):
            open_manifest(disk)


class TestVersions:
    def test_a_newer_one_is_refused(self) -> None:
        disk = MemoryDisk()
        open_manifest(disk)
        disk.open(PATH).append([frame(b"{}", version=manifest.VERSION + 1)])
        with pytest.raises(ManifestDamagedError, match="knows up to") as refused:
            open_manifest(disk)

        assert "newer" in refused.value.hint

    def test_one_that_is_too_old_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        disk = MemoryDisk()
        open_manifest(disk)
        monkeypatch.setattr(manifest, "VERSION", manifest.VERSION + 2)
        with pytest.raises(ManifestDamagedError, match="reads from") as refused:
            open_manifest(disk)

        assert "in between" in refused.value.hint

    def test_the_one_before_is_read_and_mixed_with_the_new(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = MemoryDisk()
        old = open_manifest(disk)
        old.record(manifest.broker_configured({"a": "1"}, {}))

        def upgrade(payload: manifest.Payload) -> manifest.Payload:
            if "broker_configs" in payload:
                payload["broker_configs"] = {"upgraded": "image"}
            if payload["change"] == "broker_configured":
                payload["configs"] = {
                    f"{key}.new": value for key, value in payload["configs"].items()
                }
            return payload

        monkeypatch.setattr(manifest, "_UPGRADES", {manifest.VERSION: upgrade})
        monkeypatch.setattr(manifest, "VERSION", manifest.VERSION + 1)
        new = open_manifest(disk)
        assert new.image.broker_configs == {"a.new": "1"}
        new.record(manifest.producer_ids_reserved(1000))
        found = open_manifest(disk)

        assert found.image.broker_configs == {"a.new": "1"}
        assert found.image.next_producer_id == 1000

    def test_a_start_leaves_no_entry_of_an_older_format(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        disk = MemoryDisk()
        old = open_manifest(disk)
        old.record(manifest.started(0))
        monkeypatch.setattr(manifest, "_UPGRADES", {manifest.VERSION: dict})
        monkeypatch.setattr(manifest, "VERSION", manifest.VERSION + 1)
        open_manifest(disk).record(manifest.started(1))
        monkeypatch.setattr(manifest, "_UPGRADES", {manifest.VERSION: dict})
        monkeypatch.setattr(manifest, "VERSION", manifest.VERSION + 1)
        found = open_manifest(disk)

        assert found.image.node_epoch == 1

    def test_the_format_of_version_2(self) -> None:
        """Bytes as version 2 was written; they must be readable as long as 2 is N or N-1."""
        image = (
            b'{"number":1,"change":"image","cluster_id":"c","directory_id":"d","node_epoch":3,'
            b'"topics":[{"name":"orders","id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":2,'
            b'"configs":{"retention.ms":"5"}}],"deletions":[],"broker_configs":{},'
            b'"next_producer_id":1000,"feature_levels":{"transaction.version":1},'
            b'"features_epoch":1,"quotas":[]}'
        )
        disk = MemoryDisk()
        disk.open(PATH, create=True).append(
            [
                frame(image, 2),
                frame(b'{"number":2,"change":"started","epoch":4}', 2),
                frame(b'{"number":3,"change":"broker_configured","configs":{"a":"1"}}', 2),
            ]
        )
        found = open_manifest(disk).image

        assert found.cluster_id == "c"
        assert found.node_epoch == 4
        assert found.next_producer_id == 1000
        assert found.topics["orders"].topic_id == (1).to_bytes(16, "big")
        assert found.topics["orders"].configs == {"retention.ms": "5"}
        assert (found.feature_levels, found.features_epoch) == ({"transaction.version": 1}, 1)
        assert found.broker_configs == {"a": "1"}
        assert found.noted == {"flush.messages": str(2**63 - 1)}, "not known, so the laxest"

    def test_version_2_goes_on_as_version_3(self) -> None:
        disk = MemoryDisk()
        image = (
            b'{"number":1,"change":"image","cluster_id":"c","directory_id":"d","node_epoch":3,'
            b'"topics":[],"deletions":[],"broker_configs":{},"next_producer_id":1000,'
            b'"feature_levels":{},"features_epoch":0,"quotas":[]}'
        )
        disk.open(PATH, create=True).append([frame(image, 2)])
        for value in ("1", "2"):
            open_manifest(disk).record(manifest.broker_configured({"a": value}, {"b": value}))
        found = open_manifest(disk).image

        assert (found.broker_configs, found.noted) == ({"a": "2"}, {"b": "2"})
