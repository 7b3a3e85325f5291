"""Which plan a batch follows: told from others, and durable before the batch is committed."""

import errno
import json
from pathlib import Path

import pytest

from headwater.base.disk import read_file
from headwater.streams.errors import CheckpointError
from headwater.streams.sink.marker import Marker, decode_marker, encode_marker
from headwater.streams.sink.plan import Matched, Plan, Plans, make_plan
from headwater.testing.memory_disk import MemoryDisk

QUERY = "2c8291ea-8e72-4bf9-8cc9-8b782b01cd6a"
OURS = (
    '{"version":1,"group":"g","topics":{"orders":{"id":"x","partitions":{"0":7,"1":9},'
    '"began":{"0":0}}}}'
)
SPARKS = '{"orders":{"0":7}}'


def offsets(*sources: str, at_ms: int = 1) -> bytes:
    """Return a file of offsets as Spark writes it."""
    metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": at_ms, "conf": {}})
    return "\n".join(("v1", metadata, *sources)).encode()


def write(disk: MemoryDisk, path: str, content: bytes) -> None:
    """Write a file as Spark does: under another name first, and without syncing."""
    folder = ""
    for name in path.split("/")[1:-1]:
        folder += f"/{name}"
        disk.make_directory(folder)
    file = disk.open(f"{path}.tmp", create=True)
    file.append([content])
    file.close()
    disk.rename(f"{path}.tmp", path)


def begin_checkpoint(disk: MemoryDisk, path: str) -> None:
    write(disk, f"{path}/metadata", json.dumps({"id": QUERY}).encode())


def plan_batch(disk: MemoryDisk, path: str, batch: int) -> None:
    write(disk, f"{path}/offsets/.{batch}.crc", b"crc")
    write(disk, f"{path}/offsets/{batch}", offsets(SPARKS, at_ms=batch))


def test_another_plan_of_the_same_offsets_is_another_plan() -> None:
    assert make_plan(offsets(SPARKS, at_ms=1)) == make_plan(offsets(SPARKS, at_ms=1))
    assert make_plan(offsets(SPARKS, at_ms=1)).digest != make_plan(offsets(SPARKS, at_ms=2)).digest


def test_a_plan_says_where_a_new_query_would_go_on() -> None:
    plan = make_plan(offsets(OURS, SPARKS, '{"logOffset":3}', "42", "-", '{"version":1}'))

    assert plan.starting_offsets() == ['{"orders":{"0":7,"1":9}}', '{"orders":{"0":7}}']


def test_of_very_many_partitions_the_plan_is_known_and_the_offsets_are_not_kept() -> None:
    many = json.dumps({"orders": {str(number): 10**9 for number in range(5_000)}})

    plan = make_plan(offsets(many))

    kept = decode_marker(encode_marker(Marker(1, "run", (1, 1), plan=plan))).plan
    assert kept == Plan(plan.digest)
    assert plan.digest != make_plan(offsets(many, at_ms=2)).digest


def test_a_plan_says_which_topics_a_pattern_has_chosen() -> None:
    by_pattern = json.loads(OURS) | {"pattern": "or.*"}

    plan = make_plan(offsets(json.dumps(by_pattern), OURS.replace("orders", "named"), SPARKS, "-"))

    assert plan.matched_topics() == [Matched("orders", "or.*", "x")]


def test_a_format_of_offsets_that_is_not_known_has_a_digest_all_the_same() -> None:
    plan = make_plan(b"v2\n{}\n" + OURS.encode())

    assert (plan.sources, plan.starting_offsets()) == ((), [])
    assert plan.digest


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_plan_is_found_in_a_checkpoint_of_this_machine(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    (tmp_path / "offsets" / "3").write_bytes(offsets(SPARKS))

    assert Plans().maybe_plan(f"{scheme}{tmp_path}", QUERY, 3) == make_plan(offsets(SPARKS))


def test_a_plan_is_found_under_a_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here" / "offsets").mkdir(parents=True)
    (tmp_path / "here" / "metadata").write_text(json.dumps({"id": QUERY}))
    (tmp_path / "here" / "offsets" / "0").write_bytes(offsets(SPARKS))
    monkeypatch.chdir(tmp_path)

    assert Plans().maybe_plan("here", QUERY, 0) == make_plan(offsets(SPARKS))


@pytest.mark.parametrize("location", [None, "hdfs://name/checkpoint", "s3a://b/c", "/nowhere"])
def test_a_checkpoint_elsewhere_cannot_be_looked_at(location: str | None) -> None:
    assert Plans(MemoryDisk()).maybe_plan(location, QUERY, 0) is None


def test_a_folder_that_holds_another_query_is_not_the_checkpoint() -> None:
    disk = MemoryDisk()
    begin_checkpoint(disk, "/data/checkpoint")
    plan_batch(disk, "/data/checkpoint", 0)

    assert Plans(disk).maybe_plan("/data/checkpoint", "another query", 0) is None


def test_after_a_power_cut_the_plan_of_a_committed_batch_is_there() -> None:
    disk, path = MemoryDisk(), "/data/pipelines/checkpoint"
    begin_checkpoint(disk, path)
    plans = Plans(disk)
    for batch in range(5):
        plan_batch(disk, path, batch)
        if batch == 2:  # one without rows is not committed
            continue
        plan = plans.maybe_plan(path, QUERY, batch)
        found = disk.after_power_cut(0, keep="nothing")

        assert plan is not None
        assert Plans(found).maybe_plan(path, QUERY, batch) == plan
        # The batch before says where this one begins.
        for each in range(max(0, batch - 1), batch + 1):
            assert read_file(found, f"{path}/offsets/{each}") == offsets(SPARKS, at_ms=each)
            assert read_file(found, f"{path}/offsets/.{each}.crc") == b"crc"


def test_a_process_that_goes_on_syncs_the_new_plan_alone() -> None:
    disk, path = MemoryDisk(), "/data/checkpoint"
    plans = Plans(disk)
    begin_checkpoint(disk, path)
    plan_batch(disk, path, 0)
    plan_batch(disk, path, 1)
    plans.maybe_plan(path, QUERY, 0)
    before = disk.operations

    plans.maybe_plan(path, QUERY, 1)

    assert disk.operations - before == 3  # the file, its checksum, and their names


def test_a_disk_that_fails_to_sync_is_named_before_anything_is_written() -> None:
    disk, path = MemoryDisk(), "/data/checkpoint"
    begin_checkpoint(disk, path)
    plan_batch(disk, path, 0)
    disk.fail_at(disk.operations + 1, OSError(errno.EIO, "broken"))

    with pytest.raises(CheckpointError, match="batch 0 in /data/checkpoint cannot be") as caught:
        Plans(disk).maybe_plan(path, QUERY, 0)

    assert "has not been written" in caught.value.hint


def test_a_file_system_that_cannot_sync_is_taken_as_it_is() -> None:
    disk, path = MemoryDisk(), "/data/checkpoint"
    begin_checkpoint(disk, path)
    plan_batch(disk, path, 0)
    for number in range(1, 12):
        disk.fail_at(disk.operations + number, OSError(errno.EINVAL, "not here"))

    assert isinstance(Plans(disk).maybe_plan(path, QUERY, 0), Plan)
