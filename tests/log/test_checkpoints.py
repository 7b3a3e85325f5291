"""Kafka's text files: written as Kafka reads them, and never the reason why a start fails."""

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.disk import read_file, replace_file
from headwater.log.checkpoints import (
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    OffsetFiles,
    read_clean_shutdown,
    read_offsets,
    read_properties,
    write_clean_shutdown,
    write_meta_properties,
    write_offsets,
)
from headwater.testing.memory_disk import MemoryDisk

KEYS = st.tuples(st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True), st.integers(0, 1000))


class TestOffsets:
    def test_the_text_is_kafkas(self) -> None:
        disk = MemoryDisk()
        write_offsets(disk, "/a", {("orders", 0): 4711, ("orders", 1): 0})

        assert read_file(disk, "/a") == b"0\n2\norders 0 4711\norders 1 0\n"

    @given(st.dictionaries(KEYS, st.integers(0, 2**63 - 1)))
    def test_what_is_written_is_read(self, offsets: dict[tuple[str, int], int]) -> None:
        disk = MemoryDisk()
        write_offsets(disk, "/a", offsets)

        assert read_offsets(disk, "/a") == offsets

    def test_no_file_says_nothing(self) -> None:
        assert read_offsets(MemoryDisk(), "/a") == {}

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"0\n",
            b"1\n0\n",
            b"0\n2\norders 0 1\n",
            b"0\n1\norders 0\n",
            b"0\n1\norders 0 x\n",
            b"0\n1\norders 0 1 2\n",
            b"\xff\xfe\n",
            b"\0" * 40,
            b"nonsense",
        ],
    )
    def test_a_damaged_file_is_ignored_and_named(
        self, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = MemoryDisk()
        replace_file(disk, "/a", content)

        assert read_offsets(disk, "/a") == {}
        assert "damaged checkpoint /a" in caplog.text

    @given(st.binary(max_size=60))
    def test_any_bytes_are_survived(self, content: bytes) -> None:
        logging.disable(logging.CRITICAL)
        try:
            disk = MemoryDisk()
            replace_file(disk, "/a", content)
            read_offsets(disk, "/a")
            read_properties(disk, "/a")
            read_clean_shutdown(disk, "/a")
        finally:
            logging.disable(logging.NOTSET)

    def test_negative_offsets_are_not_believed(self) -> None:
        disk = MemoryDisk()
        replace_file(disk, "/a", b"0\n2\na 0 -5\nb 0 5\n")

        assert read_offsets(disk, "/a") == {("b", 0): 5}


class TestOffsetFiles:
    def test_what_a_file_says_is_not_written_again(self) -> None:
        disk = MemoryDisk()
        disk.make_directory("/d")
        files = OffsetFiles(disk, "/d")
        files.record(RECOVERY_POINTS, {("a", 0): 5})
        operations = disk.operations
        files.record(RECOVERY_POINTS, {("a", 0): 5})
        OffsetFiles(disk, "/d").record(RECOVERY_POINTS, {("a", 0): 5})

        assert disk.operations == operations
        assert files.recorded(RECOVERY_POINTS, ("a", 0)) == 5
        assert files.recorded(LOG_STARTS, ("a", 0)) == 0

    def test_topics_are_forgotten_in_every_file(self) -> None:
        disk = MemoryDisk()
        disk.make_directory("/d")
        files = OffsetFiles(disk, "/d")
        for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
            files.record(name, {("a", 0): 5, ("a", 1): 6, ("b", 0): 7})
        files.forget_topics({"a", "c"})

        for name in (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS):
            assert read_offsets(disk, f"/d/{name}") == {("b", 0): 7}


class TestMetaProperties:
    def test_what_kafkas_tools_read(self) -> None:
        disk = MemoryDisk()
        write_meta_properties(disk, "/m", cluster_id="c", node_id=1, directory_id="d")

        assert read_properties(disk, "/m") == {
            "version": "1",
            "cluster.id": "c",
            "node.id": "1",
            "directory.id": "d",
        }
        operations = disk.operations
        write_meta_properties(disk, "/m", cluster_id="c", node_id=1, directory_id="d")
        assert disk.operations == operations, "a file that is right is left alone"

    def test_comments_and_damage(self, caplog: pytest.LogCaptureFixture) -> None:
        disk = MemoryDisk()
        replace_file(disk, "/m", b"#\n#Tue Nov 03\nnode.id = 7\n\nversion=1\n")
        assert read_properties(disk, "/m") == {"node.id": "7", "version": "1"}
        replace_file(disk, "/m", b"\xff\xff")
        assert read_properties(disk, "/m") == {}
        assert "damaged file /m" in caplog.text
        write_meta_properties(disk, "/m", cluster_id="c", node_id=1, directory_id="d")
        assert read_properties(disk, "/m")["node.id"] == "1"


class TestCleanShutdown:
    def test_it_names_the_run(self) -> None:
        disk = MemoryDisk()
        assert read_clean_shutdown(disk, "/m") is None
        write_clean_shutdown(disk, "/m", 7)

        assert read_clean_shutdown(disk, "/m") == 7

    @pytest.mark.parametrize(
        "content", [b"", b"{}", b"[]", b'{"brokerEpoch":"7"}', b"\0\0", b"null"]
    )
    def test_a_damaged_marker_is_none(self, content: bytes) -> None:
        disk = MemoryDisk()
        replace_file(disk, "/m", content)

        assert read_clean_shutdown(disk, "/m") is None
