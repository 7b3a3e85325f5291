"""Run every benchmark, one after the other: `make bench`.

This file alone decides which benchmarks there are: each module or package beside it that can be
run. It knows nothing of what they measure. Its last line joins their rows in one JSON object.
"""

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Has to be told which tree to compare with.
_NEEDS_ARGUMENTS = {"before"}


def names() -> list[str]:
    """Give the benchmarks by name: packages with a `__main__`, and modules that can be run."""
    packages = [path.parent.name for path in HERE.glob("*/__main__.py")]
    modules = [path.stem for path in HERE.glob("[!_]*.py") if '"__main__"' in path.read_text()]
    return sorted({*packages, *modules} - _NEEDS_ARGUMENTS)


def run(name: str, arguments: list[str]) -> list[dict[str, object]] | None:
    """Run one benchmark and hand on what it prints; gives its rows, or None if it failed."""
    print(f"==> {name}", flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    last = ""
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line
    if process.returncode != 0:
        return None
    try:
        rows: list[dict[str, object]] = json.loads(last)["rows"]
    except (ValueError, KeyError, TypeError):
        return None
    return rows


def main() -> int:
    """Run them all; 1 when any failed or printed no rows."""
    rows: list[dict[str, object]] = []
    failed: list[str] = []
    for name in names():
        found = run(name, sys.argv[1:])
        if found is None:
            failed.append(name)
        else:
            rows += [{"benchmark": name, **row} for row in found]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    print(json.dumps({"rows": rows}))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
