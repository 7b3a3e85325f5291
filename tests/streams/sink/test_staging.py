"""Whose the folder is in which tasks leave files, where nobody has named one."""

import os
import stat
import time
from pathlib import Path

import pytest

from headwater.streams.sink.commit import Attempt
from headwater.streams.sink.errors import StagingError
from headwater.streams.sink.staging import new_file, own_root, remove_upto


def test_it_is_for_this_user_alone(tmp_path: Path) -> None:
    root = own_root(str(tmp_path))

    assert root == tmp_path / f"headwater-sink-{os.getuid()}"
    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert own_root(str(tmp_path)) == root


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o707, 0o701])
def test_one_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    root = own_root(str(tmp_path))
    root.chmod(mode)

    with pytest.raises(StagingError, match="not this user's alone") as caught:
        own_root(str(tmp_path))

    assert f"chmod 700 {root}" in caught.value.hint


def test_one_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    (tmp_path / f"headwater-sink-{os.getuid()}").symlink_to(elsewhere)

    with pytest.raises(StagingError, match="not this user's alone"):
        own_root(str(tmp_path))


def test_one_of_somebody_else_is_refused(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(own_root(str(tmp_path)), 65_534, -1)

    with pytest.raises(StagingError, match="owner 65534"):
        own_root(str(tmp_path))


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(StagingError, match="cannot be made"):
        own_root(str(tmp_path / "file"))


def test_what_nobody_came_back_for_goes_in_time(tmp_path: Path) -> None:
    forgotten, recent, own = (
        new_file(tmp_path, Attempt(query, "run", 3)) for query in ("forgotten", "recent", "own")
    )
    for each in (forgotten, recent, own):
        each.write_bytes(b"rows")
    long_ago_s = time.time() - 8 * 86_400
    for each in (forgotten, *forgotten.parents):
        if each != tmp_path and tmp_path in each.parents:
            os.utime(each, (long_ago_s, long_ago_s))

    remove_upto(own, 3)

    assert [each.name for each in tmp_path.iterdir()] == ["recent"]
    assert recent.exists()
