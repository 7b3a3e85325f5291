"""What a dry run prints, without Spark: each step on a line that fits the terminal."""

from typing import Any

import pytest

from headwater.cli import dry_run
from headwater.streams.running.plan_steps import Step
from headwater.streams.running.sampling import Sample

WIDE = "paid = " + " + ".join(f"column_{number}" for number in range(20))
SAMPLE = Sample(
    "shop",
    reads=["orders", "payments"],
    writes=["large", "orders.dlq"],
    written_as="rows as JSON, key id",
    operators=["Join", "source", "source"],
    steps=[
        Step(1, "read", "orders"),
        Step(1, "read", "payments"),
        Step(0, "join", f"inner on {WIDE}", keeps_state=True),
        Step(0, "select", "id, paid"),
    ],
    plan="~Join Inner",
    schema="id bigint",
    rows_read=7,
    rows=[
        {"key": b"1", "value": b"v" * 200, "headers": None, "topic": "large"},
        {"key": None, "value": b"junk", "headers": [("x-error", b"y" * 90)], "topic": "orders.dlq"},
    ],
)


def report(sample: Sample = SAMPLE) -> dict[str, Any]:
    ends = {("large", 0): 3}
    return dry_run._report(sample, ends, dict(ends))


def printed(
    capsys: pytest.CaptureFixture[str], told: dict[str, Any], *, with_plan: bool = False
) -> tuple[list[str], str]:
    dry_run._print(told, with_plan=with_plan, first=True)
    out, err = capsys.readouterr()
    return out.splitlines(), err


def test_steps_and_rows_fit_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines, beside = printed(capsys, report())
    assert max(len(line) for line in lines) <= 80
    begin = lines.index("") + 1
    cut = lines[begin + 2]
    assert cut.startswith("join       inner on paid = column_0")
    assert cut.endswith("...  (keeps state)")
    del lines[begin + 2]
    assert lines[begin : begin + 5] == [
        "  read       orders",
        "  read       payments",
        "select     id, paid",
        "write      large: rows as JSON, key id",
        "set aside  orders.dlq: what cannot be decoded",
    ]
    assert lines[begin + 6].split() == ["KEY", "VALUE", "TOPIC"]
    assert lines[begin + 8].split() == ["-", "junk", "orders.dlq"]
    assert "2 rows shown of a batch of 7 records" in beside
    assert "note: orders.dlq does not exist" in beside
    assert "nothing was written" in beside


def test_sparks_own_plan_is_shown_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert "~Join Inner" not in printed(capsys, report())[0]
    assert "~Join Inner" in printed(capsys, report(), with_plan=True)[0]


def test_programs_get_steps_and_plan() -> None:
    told = report()
    assert told["plan"] == "~Join Inner"
    assert told["steps"][0] == {"depth": 1, "verb": "read", "text": "orders", "keeps_state": False}
    assert [each["verb"] for each in told["steps"]][-2:] == ["write", "set aside"]


def test_a_batch_that_gives_nothing_yet_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert "when later records have come" in printed(capsys, report(SAMPLE._replace(rows=[])))[1]
    silent = SAMPLE._replace(rows=[], operators=["source"])
    assert "when later records have come" not in printed(capsys, report(silent))[1]
