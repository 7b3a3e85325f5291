"""Every example runs to its end, as a user would run it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.streams.needs import require_spark

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """An example finds its broker in HEADWATER_BOOTSTRAP, as the command line does."""
    if "hw.session" in example.read_text():
        require_spark()
    broker = request.getfixturevalue("headwater_fresh_broker")
    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env={**os.environ, "HEADWATER_BOOTSTRAP": broker.bootstrap_servers},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout, "an example shows something"
