"""What make says on a machine where it cannot do its work, and what its targets stand for."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
TARGETS = (
    *("setup", "demo", "test", "test-newcomer", "lint", "peers"),
    *("bench", "bench-broker", "crash-broker", "docs"),
)


def make(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    shutil.copy(ROOT / "Makefile", folder)
    # A make that started this test run must not hand its own flags to this one.
    inherited = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def without(folder: Path, *modules: str) -> str:
    """Give a PYTHONPATH on which these modules cannot be imported."""
    for name in modules:
        (folder / f"{name}.py").write_text("raise ImportError\n")
    return str(folder)


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    folder = tmp_path / "hidden"
    folder.mkdir()
    return folder


def test_a_python_without_venv_is_told_what_to_install(tmp_path: Path, hidden: Path) -> None:
    done = make(
        tmp_path,
        ".venv/bin/python",
        f"PYTHON={sys.executable}",
        PYTHONPATH=without(hidden, "ensurepip", "pip"),
    )
    assert done.returncode != 0
    assert "apt install python3-venv" in done.stderr
    assert not (tmp_path / ".venv").exists()


def test_an_old_python_is_told_which_is_needed(tmp_path: Path) -> None:
    old = tmp_path / "old-python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make(tmp_path, ".venv/bin/python", f"PYTHON={old}")
    assert done.returncode != 0
    assert "needs Python 3.11 or newer" in done.stderr


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_is_known(tmp_path: Path, target: str) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    done = make(tmp_path, "--dry-run", target)
    assert done.returncode == 0, done.stderr


def test_rounds_and_seed_reach_the_campaign(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    done = make(tmp_path, "--dry-run", "crash-broker", "ROUNDS=3", "SEED=42")
    assert "tests.crash.broker --rounds 3 --seed 42" in done.stdout
