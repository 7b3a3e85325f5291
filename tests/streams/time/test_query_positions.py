"""How far a query has read: asked over a real socket, of a driver whose JVM is made up."""

import json
from collections.abc import Iterator
from multiprocessing.connection import Listener
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.streams.source.offsets import make_offsets
from headwater.streams.time import query_positions
from headwater.streams.time.errors import QueryUnknownError
from headwater.streams.time.query_positions import (
    PositionsClient,
    QueryPositions,
    clocks_in,
    positions_in,
    serve_positions,
)
from headwater.streams.time.time_offset import TimeOffset

OURS = make_offsets({("a", 0): 7, ("a", 1): 9, ("2", 0): 1}, {"a": "id", "2": "id"}, group="g")
SPARKS = {"a": {"1": 8, "2": 3}}


class Offsets(list[dict[str, Any]]):
    """Offsets of a query's sources, as far as Scala's map of them is used."""

    def values(self) -> "Offsets":
        return self

    def mkString(self, between: str) -> str:  # noqa: N802 - Scala's name
        return between.join(map(json.dumps, self))


def session(**queries: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - a session, as far as it is used
    made = {
        name: SimpleNamespace(
            id=lambda name=name: SimpleNamespace(toString=lambda: name),
            committedOffsets=lambda offsets=offsets: Offsets(offsets),
        )
        for name, offsets in queries.items()
    }
    state = SimpleNamespace(activeStreamingQueries=lambda: made)
    return SimpleNamespace(_jsparkSession=SimpleNamespace(sharedState=lambda: state))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[PositionsClient]:
    monkeypatch.setattr(query_positions, "_servers", [])
    made = PositionsClient(serve_positions(session()))
    yield made
    made.close()


def clock(name: str) -> dict[str, Any]:
    return TimeOffset(name, 1, "at/any/p0").as_json()


C1, C2 = (json.dumps(clock(name)) for name in ("c1", "c2"))


def test_positions_are_those_of_all_sources_and_where_two_read_one_partition_of_the_slower() -> (
    None
):
    texts = [json.dumps(each) for each in (OURS.as_json(), clock("c"), SPARKS, [1], 7)]
    odd = ["no JSON", '{"rate": 7, "x": {"y": 3}}', '{"version": {"0": 4}, "clock": {"0": 5}}']
    assert positions_in([*texts, *odd]) == {
        ("version", 0): 4,
        ("clock", 0): 5,
        ("a", 0): 7,
        ("a", 1): 8,
        ("a", 2): 3,
        ("2", 0): 1,
    }


def test_a_query_is_found_by_its_clock(client: PositionsClient) -> None:
    serve_positions(session(one=[clock("c1"), {"a": {"0": 5}}], two=[{"a": {"0": 6}}, clock("c2")]))
    other = PositionsClient(client.address)
    for _ in range(2):
        assert client.ask("c1") == QueryPositions("one", {("a", 0): 5}, clocks_in([C1]))
        assert other.ask("c2") == QueryPositions("two", {("a", 0): 6}, clocks_in([C2]))
    other.close()


def test_a_query_that_is_started_again_is_looked_for_again(client: PositionsClient) -> None:
    serve_positions(session(one=[clock("c1"), {"a": {"0": 5}}]))
    assert client.ask("c1").positions == {("a", 0): 5}
    serve_positions(session(one=[clock("c1"), {"a": {"0": 2}}]))
    again = PositionsClient(client.address)
    assert again.ask("c1").positions == {("a", 0): 2}, "its checkpoint was restored"
    again.close()


def test_a_query_that_is_not_there_is_no_guess(client: PositionsClient) -> None:
    with pytest.raises(QueryUnknownError, match="no active query") as caught:
        client.ask("c1")
    assert caught.value.hint


def test_a_spark_that_does_not_know_the_question_is_named(client: PositionsClient) -> None:
    serve_positions(SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(QueryUnknownError, match="does not tell how far") as caught:
        client.ask("c1")
    assert "4.3" in caught.value.hint


def test_a_driver_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_positions, "_PATIENCE_S", 0.01)
    with Listener(family="AF_UNIX") as deaf:
        client = PositionsClient(str(deaf.address))
        with pytest.raises(QueryUnknownError, match="does not answer"):
            client.ask("c1")


def test_a_driver_that_is_gone_is_named(tmp_path: Any) -> None:  # noqa: ANN401 - pytest's own
    client = PositionsClient(str(tmp_path / "nothing"))
    with pytest.raises(QueryUnknownError, match="does not answer") as caught:
        client.ask("c1")
    assert caught.value.hint
