"""How a batch is written that Spark hands over as a DataFrame, without Spark."""

import pickle
from typing import Any, Self

import pytest

from headwater.streams.sink.foreach_batch import each_batch


class Frame:
    """A batch whose tasks have left two messages."""

    def mapInArrow(self, *_: object) -> Self:  # noqa: N802 - the name is Spark's
        return self

    def collect(self) -> list[dict[str, bytes]]:
        return [{"message": pickle.dumps(message)} for message in ("one", "two")]


class Writer:
    """A writer whose commit fails, or not."""

    def __init__(self, error: BaseException | None) -> None:
        self.calls: list[tuple[str, list[Any], int]] = []
        self._error = error

    def commit(self, messages: list[Any], batch_id: int) -> None:
        self.calls.append(("commit", messages, batch_id))
        if self._error is not None:
            raise self._error

    def abort(self, messages: list[Any], batch_id: int) -> None:
        self.calls.append(("abort", messages, batch_id))


def test_what_tasks_have_left_is_committed() -> None:
    writer: Any = Writer(None)
    frame: Any = Frame()
    each_batch(lambda _: writer)(frame, 7)
    assert writer.calls == [("commit", ["one", "two"], 7)]


@pytest.mark.parametrize("error", [OSError("the broker is away"), KeyboardInterrupt()])
def test_of_a_commit_that_fails_nothing_stays(error: BaseException) -> None:
    writer: Any = Writer(error)
    frame: Any = Frame()
    with pytest.raises(type(error)):
        each_batch(lambda _: writer)(frame, 7)
    assert [call[0] for call in writer.calls] == ["commit", "abort"]
    assert writer.calls[1][1] == ["one", "two"]
