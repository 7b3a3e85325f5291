"""`headwater demo` with its pipeline: every order is priced, once."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.processes import command
from tests.streams.needs import require_spark


@pytest.mark.timeout(600)
def test_the_pipeline_of_the_demo(tmp_path: Path) -> None:
    require_spark()
    done = subprocess.run(
        command("demo", "--for", "6s", "--rate", "100", "--spark", "--json"),
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["good"]
    assert result["pipeline"] == {"found": result["written"], "missing": 0, "doubled": 0}
    assert result["pipeline_missing"] is None
