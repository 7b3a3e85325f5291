"""Transactional ids of writes that happen once: few, and never shared by two writes at a time."""

import subprocess
import sys
from pathlib import Path

from headwater.streams.sink.batch_ids import lent_id


def test_an_id_is_used_again_when_it_is_free(tmp_path: Path) -> None:
    with lent_id(str(tmp_path)) as first:
        pass
    with lent_id(str(tmp_path)) as second, lent_id(str(tmp_path)) as third:
        pass

    assert first == second
    assert third != second
    assert first.startswith("hw.batch-")


def test_another_process_gets_another_id_until_the_first_has_died(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from headwater.streams.sink.batch_ids import lent_id\n"
        "with lent_id(sys.argv[1]) as name:\n"
        "    print(name, flush=True)\n"
        "    sys.stdin.read()\n"
        "    os._exit(1)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        used = other.stdout.readline().strip()
        with lent_id(str(tmp_path)) as own:
            assert own != used
        other.communicate("")

    with lent_id(str(tmp_path)) as now:
        assert now == used


def test_without_a_folder_of_its_own_each_write_has_an_id(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with lent_id(str(tmp_path / "file")) as first, lent_id(str(tmp_path / "file")) as second:
        assert first != second
        assert first.startswith("hw.batch-")
