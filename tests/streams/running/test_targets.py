"""Where the rows of a pipeline go, and in which mode, without Spark."""

from typing import Any, Self, cast
from unittest.mock import Mock

import pytest

from headwater.streams.running.errors import DefinitionError
from headwater.streams.running.pipeline import Pipeline, Topic, pipeline


class Frame:
    """A DataFrame as far as a writer asks for it; it keeps the options."""

    isStreaming = True  # noqa: N815 - the name is Spark's
    columns = ("key", "value", "topic", "partition", "offset")
    # It has settings, which do not matter here.
    sparkSession = Mock()  # noqa: N815

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    @property
    def writeStream(self) -> Self:  # noqa: N802 - the name is Spark's
        return self

    def explain(self, *, extended: bool = True, mode: str = "") -> None:
        """There is no plan to be printed."""

    def format(self, name: str) -> Self:
        self.given["format"] = name
        return self

    def queryName(self, name: str) -> Self:  # noqa: N802 - the name is Spark's
        self.given["name"] = name
        return self

    def outputMode(self, mode: str) -> Self:  # noqa: N802 - the name is Spark's
        self.given["mode"] = mode
        return self

    def option(self, name: str, value: str) -> Self:
        self.given[name] = value
        return self

    def options(self, **options: str) -> Self:
        self.given |= options
        return self


def test_the_topic_that_rows_were_read_from_is_not_where_they_go() -> None:
    frame = Frame()
    copy = Pipeline("copy", cast("Any", frame))
    copy.target = Topic("out", options={"compression": "zstd"})
    copy.writer(cast("Any", frame), "checkpoint")
    assert frame.given == {
        "format": "headwater",
        "name": "copy",
        "mode": "append",
        "checkpointLocation": "checkpoint",
        "compression": "zstd",
        "topic": "out",
    }


@pytest.mark.parametrize("columns", [("key", "value"), ("name", "qty")])
def test_a_key_that_is_no_column_is_refused_however_rows_are_written(
    columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Frame, "columns", columns)
    keyed = Pipeline("keyed", cast("Any", Frame()))
    keyed.target = Topic("out", key="id")
    with pytest.raises(DefinitionError, match="no column 'id' for the key") as raised:
        keyed.rows()
    assert raised.value.hint == f"it has: {', '.join(columns)}"


@pytest.mark.parametrize(
    "mode, message, hint",
    [
        ("complete", "cannot run in complete mode", 'use mode="update"'),
        ("Update", "there is no mode 'Update'", 'mode="append" or mode="update"'),
    ],
)
def test_other_modes_are_refused_by_name(mode: str, message: str, hint: str) -> None:
    with pytest.raises(DefinitionError, match=message) as raised:
        pipeline("all", cast("Any", Frame()), mode=mode)
    assert hint in raised.value.hint


def test_the_newest_row_of_nobody_knows_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Frame, "columns", ("name", "n"))
    unknown = pipeline("counts", cast("Any", Frame()), mode="update").to(Topic("out"))
    with pytest.raises(DefinitionError, match="which columns tell groups apart: name, n") as raised:
        unknown.rows()
    assert 'hw.topic("out", key="COLUMN")' in raised.value.hint
