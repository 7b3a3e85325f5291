"""The README's two commands on a bare machine: `make test-newcomer`.

This file alone decides what a newcomer is assumed to have: Python, pip, make, sh and coreutils, an
empty home, and a fresh copy of the committed files. No Java, compiler, Maven, node or git. It runs
with the standard library of any Python 3.11, before anything is installed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = (
    ["make", "demo", "DEMO_ARGS=--for 20s"],
    ["make", "test"],
)
PROGRAMS = ("make", "sh")
COREUTILS = """
basename cat chmod chown cp cut date dd df dirname echo env expr false head id install ln ls mkdir
mkfifo mktemp mv nproc od printf pwd readlink realpath rm rmdir seq sha256sum sleep sort stat tail
tee test timeout touch tr true tty uname uniq wc yes
"""
# What tells Python tools about proxies and certificates is the network's, not the newcomer's.
KEPT = ("_proxy", "_PROXY", "_CERT_FILE", "_CERT_DIR", "_CA_BUNDLE", "PIP_")


def bare_path(folder: Path) -> str:
    """Fill a folder with links to the few programs a newcomer has."""
    folder.mkdir()
    for name in (*PROGRAMS, *COREUTILS.split()):
        found = shutil.which(name)
        if found is None:
            sys.exit(f"this machine has no {name}")
        (folder / name).symlink_to(found)
    # A link to the interpreter itself: a launcher script would look for its own companions.
    for name in ("python3", f"python3.{sys.version_info.minor}"):
        (folder / name).symlink_to(Path(sys.executable).resolve())
    pip = folder / "pip"
    pip.write_text('#!/bin/sh\nexec python3 -m pip "$@"\n')
    pip.chmod(0o755)
    return str(folder)


def environment(home: Path, path: str) -> dict[str, str]:
    """Build the environment: nothing of the caller's but the way to the network."""
    kept = {name: value for name, value in os.environ.items() if _is_kept(name)}
    return {**kept, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8"}


def _is_kept(name: str) -> bool:
    return any(name.startswith(mark) or name.endswith(mark) for mark in KEPT)


def main() -> int:
    """Run the commands in a fresh clone; 0 when all succeed."""
    place = Path(tempfile.mkdtemp(prefix="newcomer-"))
    try:
        clone, home = place / "headwater", place / "home"
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        shutil.rmtree(clone / ".git")
        env = environment(home, bare_path(place / "bin"))
        for command in COMMANDS:
            print(f"==> {' '.join(command)}", flush=True)
            begun_s = time.monotonic()
            code = subprocess.run(
                command, cwd=clone, env=env, stdin=subprocess.DEVNULL, check=False
            ).returncode
            print(f"==> ended with {code} in {time.monotonic() - begun_s:.0f} s", flush=True)
            if code != 0:
                return code
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
