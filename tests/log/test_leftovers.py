"""Files on their way in or out, as a crash leaves them."""

from headwater.base.record.batch import scan
from headwater.testing.memory_disk import MemoryDisk
from tests.log.helpers import append_value, commit, open_log, read_values

FIRST = "00000000000000000000"


def filled() -> tuple[MemoryDisk, list[int]]:
    disk = MemoryDisk()
    log = open_log(disk)
    for number in range(60):
        append_value(log, b"value %02d" % number)
    commit(log)
    bases = [segment.base_offset for segment in log._segments]
    log.close()
    return disk, bases


def create(disk: MemoryDisk, name: str, content: bytes = b"something") -> None:
    disk.open(f"/t-0/{name}", create=True).append([content])


def log_names(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list_directory("/t-0") if name.endswith(".log")]


def compacted(disk: MemoryDisk, bases: list[int]) -> bytes:
    """Return what compaction could make of the first two segments: every other batch of them."""
    content = b""
    for base in bases[:2]:
        file = disk.open_for_reading(f"/t-0/{base:020d}.log")
        whole = file.read(file.size(), 0)
        for position, header in scan(whole):
            if header.base_offset % 2:
                content += whole[position : position + header.size_bytes]
    return content


def test_what_was_going_or_never_complete_is_removed() -> None:
    disk, _ = filled()
    before = disk.list_directory("/t-0")
    for name in (
        f"{FIRST}.log.deleted",
        f"{FIRST}.timeindex.deleted",
        "leader-epoch-checkpoint.tmp",
        f"{60:020d}.log.cleaned",
    ):
        create(disk, name)
    log = open_log(disk, clean=True)

    assert disk.list_directory("/t-0") == before
    assert len(read_values(log)) == 60


def test_an_index_without_a_segment_is_removed() -> None:
    disk, _ = filled()
    before = disk.list_directory("/t-0")
    for suffix in ("index", "timeindex", "txnindex"):
        create(disk, f"{1000:020d}.{suffix}")
    open_log(disk, clean=True)

    assert disk.list_directory("/t-0") == before


def test_a_complete_swap_takes_the_place_of_its_segments() -> None:
    for renamed in (False, True):
        disk, bases = filled()
        name = f"{FIRST}.log" if renamed else f"{FIRST}.log.swap"
        content = compacted(disk, bases)
        if renamed:
            # The crash came between the renames of the log and of its indexes.
            disk.remove(f"/t-0/{FIRST}.log")
            for suffix in ("log", "index", "timeindex"):
                disk.remove(f"/t-0/{bases[1]:020d}.{suffix}")
        create(disk, name, content)
        create(disk, f"{FIRST}.index.swap")
        create(disk, f"{FIRST}.timeindex.swap")
        log = open_log(disk, clean=True)

        assert [segment.base_offset for segment in log._segments] == [0, *bases[2:]]
        expected = [n for n in range(60) if n >= bases[2] or n % 2]
        assert [offset for offset, _ in read_values(log)] == expected
        assert not [name for name in disk.list_directory("/t-0") if name.endswith("swap")]
        assert [offset for offset, _ in read_values(log, 4)][:2] == [5, 7]


def test_a_swap_beside_what_is_still_being_cleaned_is_discarded() -> None:
    disk, bases = filled()
    before = log_names(disk)
    create(disk, f"{FIRST}.log.swap", compacted(disk, bases))
    create(disk, f"{FIRST}.log.cleaned")
    log = open_log(disk, clean=True)

    assert log_names(disk) == before
    assert len(read_values(log)) == 60
    assert not [name for name in disk.list_directory("/t-0") if name.endswith(("swap", "cleaned"))]


def test_foreign_files_are_left_alone() -> None:
    disk, _ = filled()
    create(disk, "notes.txt")
    create(disk, "123.log")
    log = open_log(disk)

    assert len(read_values(log)) == 60
    assert {"notes.txt", "123.log"} <= set(disk.list_directory("/t-0"))
