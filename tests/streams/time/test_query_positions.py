"""How far a query has read: asked over a real socket, of a driver whose JVM is made up."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Listener
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.streams.options import Choice
from headwater.streams.source.offsets import make_offsets
from headwater.streams.time import query_positions
from headwater.streams.time.errors import QueryUnknownError
from headwater.streams.time.fold import Place
from headwater.streams.time.query_positions import (
    PositionsClient,
    QueryPositions,
    Stand,
    clocks_in,
    positions_in,
    serve_positions,
)
from headwater.streams.time.reader_options import Read, read_of, time_reader_options
from headwater.streams.time.resuming import ClockAt, Identity
from headwater.streams.time.time_offset import TimeOffset, parse_time_offset

OURS = make_offsets({("a", 0): 7, ("a", 1): 9, ("2", 0): 1}, {"a": "id", "2": "id"}, group="g")
SPARKS = {"a": {"1": 8, "2": 3}}


HERE, ELSEWHERE = "here:1", "elsewhere:1"


class Offsets(dict[int, dict[str, Any]]):
    """Offsets of a query's sources, as far as Scala's map of them is used."""

    def size(self) -> int:
        return len(self)

    def values(self) -> Any:  # noqa: ANN401 - as Scala's
        texts = list(map(json.dumps, super().values()))
        return SimpleNamespace(mkString=lambda between: between.join(texts))

    def get(self, stream: int) -> Any:  # type: ignore[override]  # noqa: ANN401 - as Scala's
        offset = super().get(stream)
        return SimpleNamespace(
            isDefined=lambda: offset is not None,
            get=lambda: SimpleNamespace(json=lambda: json.dumps(offset)),
        )


def leaf(number: int, given: dict[str, str] | None) -> Any:  # noqa: ANN401 - of the JVM
    """Return what stands in a plan for a source; Spark's older kind does not tell its options."""
    kind = "StreamingExecutionRelation" if given is None else "StreamingDataSourceV2ScanRelation"
    options = SimpleNamespace(asCaseSensitiveMap=lambda: given)
    return SimpleNamespace(
        getClass=lambda: SimpleNamespace(getSimpleName=lambda: kind),
        relation=lambda: SimpleNamespace(options=lambda: options),
        stream=lambda: number,
        source=lambda: number,
    )


class Leaves(list[Any]):
    """Leaves of a plan, as far as Scala's list of them is used."""

    def size(self) -> int:
        return len(self)

    def apply(self, number: int) -> Any:  # noqa: ANN401 - of the JVM
        return self[number]


Options = dict[str, str]
Source = dict[str, Any] | tuple[str | Options | None, dict[str, Any] | None]


def session(**queries: list[Source]) -> Any:  # noqa: ANN401 - a session, as far as it is used
    """Return one with these queries: their offsets, with a source's options or its cluster."""

    def query(name: str, given: list[Source]) -> Any:  # noqa: ANN401 - of the JVM
        sources = [each if isinstance(each, tuple) else (HERE, each) for each in given]
        offsets = {number: each for number, (_, each) in enumerate(sources) if each is not None}
        options = [
            {"kafka.bootstrap.servers": given} if isinstance(given, str) else given
            for given, _ in sources
        ]
        leaves = [leaf(number, each) for number, each in enumerate(options)]
        table = SimpleNamespace(getClass=lambda: SimpleNamespace(getSimpleName=lambda: "Local"))
        plan = SimpleNamespace(collectLeaves=lambda: Leaves([table, *leaves]))
        return SimpleNamespace(
            id=lambda: SimpleNamespace(toString=lambda: name),
            committedOffsets=lambda: Offsets(offsets),
            logicalPlan=lambda: plan,
        )

    made = {name: query(name, given) for name, given in queries.items()}
    state = SimpleNamespace(activeStreamingQueries=lambda: made)
    return SimpleNamespace(_jsparkSession=SimpleNamespace(sharedState=lambda: state))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[PositionsClient]:
    monkeypatch.setattr(query_positions, "_servers", [])
    made = PositionsClient(serve_positions(session()), HERE)
    yield made
    made.close()


def clock(name: str) -> dict[str, Any]:
    return TimeOffset(name, 1, "at/any/p0").as_json()


C1, C2 = (Stand(HERE, json.dumps(clock(name))) for name in ("c1", "c2"))


def test_positions_are_those_of_all_sources_and_where_two_read_one_partition_of_the_slower() -> (
    None
):
    texts = [json.dumps(each) for each in (OURS.as_json(), clock("c"), SPARKS, [1], 7)]
    odd = ["no JSON", '{"rate": 7, "x": {"y": 3}}', '{"version": {"0": 4}, "clock": {"0": 5}}']
    assert positions_in([Stand(HERE, text) for text in (*texts, *odd)], HERE) == {
        ("version", 0): 4,
        ("clock", 0): 5,
        ("a", 0): 7,
        ("a", 1): 8,
        ("a", 2): 3,
        ("2", 0): 1,
    }


def test_a_sibling_that_reads_the_same_topic_in_other_parts_does_not_count(
    client: PositionsClient,
) -> None:
    options = {"kafka.bootstrap.servers": HERE, "subscribe": "a"}
    sources: list[Source] = [
        (HERE, clock("c1")),
        (options, {"a": {"0": 9}}),
        (options | {"subscribe": "b"}, {"b": {"0": 7}}),
        (options | {"minOffsetsPerTrigger": "100"}, {"a": {"0": 2}}),
        (options | {"maxOffsetsPerTrigger": "1"}, {"a": {"0": 3, "1": 5}}),
    ]
    serve_positions(session(one=sources))
    a, b = (read_of({"subscribe": topic}, read_committed=False) for topic in "ab")
    bounded = a._replace(bounded=True)

    def found(*reads: Read) -> dict[Place, int]:
        asker = PositionsClient(client.address, HERE, reads)
        try:
            return asker.ask("c1").positions
        finally:
            asker.close()

    assert found(a) == {("a", 0): 9}
    assert found(a, b) == {("a", 0): 9, ("b", 0): 7}
    assert found(a, bounded) == {("a", 0): 3, ("a", 1): 5}, "both are below the clock"
    everything = {("a", 0): 2, ("a", 1): 5, ("b", 0): 7}
    assert found() == everything
    assert found(a._replace(bounded=True, held=True)) == everything, "its source is not known"
    sources.append(({**options, "isolation": "read_uncommitted"}, {"a": {"0": 8}}))
    sources.append((None, {"a": {"0": 6}}))
    serve_positions(session(one=sources[:-1]))
    assert found(a) == {("a", 0): 8}, "it may be another source of the clock's"
    serve_positions(session(one=sources))
    assert found(a) == {("a", 0): 6}, "of whom it is not known, it counts"


def test_a_query_is_found_by_its_clock(client: PositionsClient) -> None:
    serve_positions(session(one=[clock("c1"), {"a": {"0": 5}}], two=[{"a": {"0": 6}}, clock("c2")]))
    other = PositionsClient(client.address, HERE)
    for _ in range(2):
        assert client.ask("c1") == QueryPositions("one", {("a", 0): 5}, clocks_in([C1]))
        assert other.ask("c2") == QueryPositions("two", {("a", 0): 6}, clocks_in([C2]))
    other.close()


def test_topics_of_two_clusters_may_have_one_name(client: PositionsClient) -> None:
    sources: list[Source] = [
        (HERE, clock("c1")),
        (ELSEWHERE, clock("c2")),
        (HERE, {"a": {"0": 200}}),
        (ELSEWHERE, {"a": {"0": 5}}),
    ]
    serve_positions(session(one=sources))
    there = PositionsClient(client.address, ELSEWHERE)
    assert client.ask("c1") == QueryPositions("one", {("a", 0): 200}, clocks_in([C1, C2]))
    assert there.ask("c2").positions == {("a", 0): 5}
    there.close()
    unknown: list[Source] = [*sources, (None, {"a": {"0": 7}}), (HERE, None)]
    serve_positions(session(one=unknown))
    again = PositionsClient(client.address, HERE)
    assert again.ask("c1").positions == {("a", 0): 7}, "of whom it is not known, it counts"
    again.close()


def test_a_source_that_names_no_brokers_is_found_after_the_environment_has_changed(
    client: PositionsClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    named, default = {"bootstrap": ELSEWHERE, "subscribe": "b"}, {"subscribe": "a"}
    sources: list[Source] = [
        (HERE, clock("c1")),
        (default, {"a": {"0": 9}}),
        (named, {"b": {"0": 4}}),
        (named | default, {"a": {"0": 5}}),
    ]
    serve_positions(session(one=sources))
    asker = PositionsClient(client.address, HERE, [read_of(default, read_committed=False)])
    for brokers in (HERE, ELSEWHERE, "third:9092"):
        monkeypatch.setenv("HEADWATER_BOOTSTRAP", brokers)
        assert asker.ask("c1").positions == {("a", 0): 9}
    asker.close()
    there = PositionsClient(client.address, ELSEWHERE, [read_of(default, read_committed=False)])
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", HERE)
    assert there.ask("c1").positions == {("a", 0): 5}, "it names its brokers"
    there.close()


def test_of_each_clock_it_is_told_which_one_the_query_has_there(client: PositionsClient) -> None:
    reads = [
        Read(choice, read_committed=True, bounded=False, held=False)
        for choice in (Choice(topics=("a",)), Choice(partitions={"b": (0, 2)}))
    ]
    options = time_reader_options(
        {"kafka.bootstrap.servers": HERE, "kafka.sasl.password": "secret"},
        name="at/any/p01",
        delay_us=7,
        idle_ms=None,
        reads=reads,
        driver="there",
    )
    serve_positions(session(one=[(options, clock("c1")), clock("c2")]))
    assert client.ask("c1").clocks == (
        ClockAt(parse_time_offset(clock("c1")), Identity.of("at/any/p01", reads)),
        ClockAt(parse_time_offset(clock("c2")), None),
    )


def test_a_query_that_is_started_again_is_looked_for_again(client: PositionsClient) -> None:
    serve_positions(session(one=[clock("c1"), {"a": {"0": 5}}]))
    assert client.ask("c1").positions == {("a", 0): 5}
    serve_positions(session(one=[clock("c1"), {"a": {"0": 2}}]))
    again = PositionsClient(client.address, HERE)
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


def test_a_plan_that_does_not_show_all_sources_is_named(client: PositionsClient) -> None:
    made = session(one=[clock("c1"), {"a": {"0": 5}}])
    query = made._jsparkSession.sharedState().activeStreamingQueries()["one"]
    hidden = query.committedOffsets() | {7: {"b": {"0": 1}}}
    query.committedOffsets = lambda: Offsets(hidden)
    serve_positions(made)
    with pytest.raises(QueryUnknownError, match="does not show all of its sources"):
        client.ask("c1")


def test_a_driver_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_positions, "_PATIENCE_S", 0.01)
    with Listener(family="AF_UNIX") as deaf:
        client = PositionsClient(str(deaf.address), HERE)
        with pytest.raises(QueryUnknownError, match="does not answer"):
            client.ask("c1")


@pytest.mark.parametrize("length", [10, 200])
def test_a_temporary_directory_with_a_long_name_is_no_obstacle(tmp_path: Path, length: int) -> None:
    long = tmp_path / ("x" * length)
    long.mkdir()
    script = """
import os
from pathlib import Path
from types import SimpleNamespace
from headwater.streams.time.errors import QueryUnknownError
from headwater.streams.time.query_positions import PositionsClient, serve_positions

state = SimpleNamespace(activeStreamingQueries=dict)
session = SimpleNamespace(_jsparkSession=SimpleNamespace(sharedState=lambda: state))
address = serve_positions(session)
try:
    PositionsClient(address, "here:1").ask("c1")
except QueryUnknownError as error:
    assert "no active query" in error.message, error
child = os.fork()
if child == 0:
    raise SystemExit
os.waitpid(child, 0)
print(address, oct(Path(address).parent.stat().st_mode & 0o777))
"""
    told = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"TMPDIR": str(long)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    address, mode = told.stdout.split()
    assert mode == "0o700"
    assert not Path(address).parent.exists(), "it goes with the process, not with its children"


def test_a_driver_that_is_gone_is_named(tmp_path: Any) -> None:  # noqa: ANN401 - pytest's own
    client = PositionsClient(str(tmp_path / "nothing"), HERE)
    with pytest.raises(QueryUnknownError, match="does not answer") as caught:
        client.ask("c1")
    assert caught.value.hint
