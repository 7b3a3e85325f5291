"""Every runnable block of the README and the pages under docs/ runs."""

from pathlib import Path

import pytest

from tests.docs import snippets

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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    text = page.read_text()
    if snippets.WITH_BROKER in text:
        broker = request.getfixturevalue("headwater_fresh_broker")
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.bootstrap_servers)
    monkeypatch.chdir(tmp_path)  # Python blocks run where shell blocks run
    names: dict[str, object] = {"__name__": "__main__"}
    for snippet in snippets.find(page, text):
        snippets.run(snippet, tmp_path, names, {})


def test_blocks_are_found_with_their_lines() -> None:
    found = snippets.find(Path("page.md"), PAGE)
    assert [(each.line, each.language, each.code) for each in found] == [
        (4, "python", "x = 1\n"),
        (16, "sh", 'echo "$GREETING" > said.txt\n'),
        (24, "python", "assert x == 2\n"),
    ]


def test_blocks_share_a_namespace_and_a_failing_one_is_seen(tmp_path: Path) -> None:
    first, shell, last = snippets.find(Path("page.md"), PAGE)
    names: dict[str, object] = {}
    snippets.run(first, tmp_path, names, {})
    snippets.run(shell, tmp_path, names, {"GREETING": "hello"})
    assert (tmp_path / "said.txt").read_text() == "hello\n"
    with pytest.raises(AssertionError) as caught:
        snippets.run(last, tmp_path, names, {})
    assert caught.traceback[-1].lineno == 24 - 1
    names["x"] = 2
    snippets.run(last, tmp_path, names, {})


@pytest.mark.parametrize("code", ["false\ntrue\n", "echo $UNSET_NAME\n"])
def test_a_failing_shell_block_is_seen(tmp_path: Path, code: str) -> None:
    snippet = snippets.Snippet(Path("page.md"), 7, "sh", code)
    with pytest.raises(AssertionError, match=r"page\.md:7 ended with"):
        snippets.run(snippet, tmp_path, {}, {})
