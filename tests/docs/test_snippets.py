"""Every runnable block of the README and the pages under docs/ runs."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.docs import snippets
from tests.newcomer.run import COREUTILS, PROGRAMS
from tests.streams.needs import require_spark

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

PAGE = """\
# Title

```python
x = 1
```

<!-- not run: it would wait for ever -->

```python
forever()
```

- in a list:

  ```sh
  echo "$GREETING" > said.txt
  ```

```text
not code
```

~~~python
assert x == 2
~~~
"""


@pytest.fixture(scope="session")
def plain_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with nothing but what a reader of the pages is assumed to have."""
    folder = tmp_path_factory.mktemp("programs")
    for name in (*PROGRAMS, *COREUTILS.split()):
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(found)
    return folder


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(
    page: Path,
    tmp_path: Path,
    plain_programs: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    text = page.read_text()
    if snippets.WITH_SPARK in text:
        require_spark()
    address = None
    monkeypatch.delenv("HEADWATER_BOOTSTRAP", raising=False)
    # As in an activated environment: `headwater` and `pytest` are those of this Python.
    programs = [str(Path(sys.executable).parent), str(plain_programs)]
    monkeypatch.setenv("PATH", os.pathsep.join(programs))
    if snippets.WITH_BROKER in text:
        address = request.getfixturevalue("headwater_fresh_broker").bootstrap_servers
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", address)
    monkeypatch.chdir(tmp_path)  # Python blocks run where shell blocks run
    with snippets.Stage(tmp_path, address) as stage:
        for snippet in snippets.find(page, text):
            stage.run(snippet)


def test_blocks_are_found_with_their_lines() -> None:
    found = snippets.find(Path("page.md"), PAGE)
    assert [(each.line, each.language, each.code) for each in found] == [
        (4, "python", "x = 1\n"),
        (16, "sh", 'echo "$GREETING" > said.txt\n'),
        (24, "python", "assert x == 2\n"),
    ]
    assert [each.stays for each in found] == [None] * 3


def test_blocks_share_a_namespace_and_a_failing_one_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, shell, last = snippets.find(Path("page.md"), PAGE)
    monkeypatch.setenv("GREETING", "hello")
    with snippets.Stage(tmp_path) as stage:
        stage.run(first)
        stage.run(shell)
        assert (tmp_path / "said.txt").read_text() == "hello\n"
        with pytest.raises(AssertionError) as caught:
            stage.run(last)
        assert caught.traceback[-1].lineno == 24 - 1
        stage.run(snippets.Snippet(Path("page.md"), 1, "python", "x = 2\n"))
        stage.run(last)


@pytest.mark.parametrize("code", ["false\ntrue\n", "echo $UNSET_NAME\n"])
def test_a_failing_shell_block_is_seen(tmp_path: Path, code: str) -> None:
    snippet = snippets.Snippet(Path("page.md"), 7, "sh", code)
    with (
        snippets.Stage(tmp_path) as stage,
        pytest.raises(AssertionError, match=r"page\.md:7 ended with"),
    ):
        stage.run(snippet)


BESIDE = """\
# Title

<!-- keeps running; says: here -->

```sh
echo "$$" > pid; echo here; exec sleep 1000
```

<!-- keeps running -->

```sh
exec sleep 1000
```

```sh
kill -0 "$(cat pid)"
```
"""


def test_a_block_that_keeps_running_ends_with_its_page(tmp_path: Path) -> None:
    found = snippets.find(Path("page.md"), BESIDE)
    assert [each.stays for each in found] == ["here", "", None]
    with snippets.Stage(tmp_path) as stage:
        for snippet in found:
            stage.run(snippet)
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_block_that_ends_before_it_was_ready_is_seen(tmp_path: Path) -> None:
    snippet = snippets.Snippet(Path("page.md"), 7, "sh", "echo no\n", "yes")
    with (
        snippets.Stage(tmp_path) as stage,
        pytest.raises(AssertionError, match=r"page\.md:7 never said 'yes'\nno"),
    ):
        stage.run(snippet)


def test_the_usual_address_stands_for_the_broker(tmp_path: Path) -> None:
    up = snippets.Snippet(Path("page.md"), 1, "sh", "echo ready on 127.0.0.1:7:; sleep 99\n", "on")
    with snippets.Stage(tmp_path, "127.0.0.1:5") as stage:
        stage.run(snippets.Snippet(Path("page.md"), 1, "sh", "echo localhost:9092 > a\n"))
        stage.run(up)
        stage.run(snippets.Snippet(Path("page.md"), 1, "python", 'address = "localhost:9092"\n'))
        stage.run(
            snippets.Snippet(Path("page.md"), 1, "python", 'assert address == "127.0.0.1:7"\n')
        )
    assert (tmp_path / "a").read_text() == "127.0.0.1:5\n"
