"""The import contracts of pyproject.toml are shown an offence each, in a copy of the source."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy the source and its contracts to where offences may be planted."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def broken(house: Path, *contracts: str) -> str:
    """Run the contracts over the copy; gives what the linter says, or nothing if all are kept."""
    chosen = [argument for name in contracts for argument in ("--contract", name)]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "lint-imports"), "--no-cache", *chosen],
        cwd=house,
        env={**os.environ, "PYTHONPATH": str(house / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr if done.returncode else ""


def test_the_source_keeps_its_contracts(house: Path) -> None:
    assert broken(house) == ""


@pytest.mark.parametrize(
    "contract,module,offence",
    [
        ("river", "log", "import headwater.delivery.broker"),
        ("river", "base", "import headwater.log"),
        ("delivery", "delivery/broker", "import headwater.delivery.server"),
        ("delivery", "delivery/client", "import headwater.delivery.broker"),
        ("core-speaks-no-dialect", "delivery/broker", "import headwater.delivery.wire"),
        ("remote-only", "delivery/client", "import headwater.log"),
        ("sans-io", "base/record", "import time"),
        ("sans-io", "delivery/broker", "import asyncio"),
        ("sans-io", "delivery/dialects", "import socket"),
        ("sans-io", "log", "import random"),
        ("no-spark-in-the-core", "delivery/server", "import pyspark"),
    ],
)
def test_an_offence_is_seen(house: Path, contract: str, module: str, offence: str) -> None:
    planted = house / "src" / "headwater" / module / "planted.py"
    planted.write_text(f"{offence}\n")
    try:
        assert "planted" in broken(house, contract)
    finally:
        planted.unlink()


@pytest.mark.parametrize("room", ["headwater/utils.py", "headwater/delivery/helpers.py"])
def test_a_room_nobody_declared_is_seen(house: Path, room: str) -> None:
    planted = house / "src" / room
    planted.write_text("")
    try:
        assert planted.stem in broken(house)
    finally:
        planted.unlink()
