"""The headers of dead letters: what a pipeline writes, the command line reads."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.formats import letters
from headwater.streams.formats.letters import Origin

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    topic=NAMES,
    partition=st.integers(0, 1 << 31),
    offset=st.integers(0, 1 << 63),
    timestamp_ms=st.none() | st.integers(-1, 1 << 50),
    error=NAMES,
    pipeline=st.just("") | NAMES,
    before=st.lists(st.tuples(NAMES, st.none() | st.binary())),
)
def test_an_origin_is_read_back_and_the_record_is_restored(
    topic: str,
    partition: int,
    offset: int,
    timestamp_ms: int | None,
    error: str,
    pipeline: str,
    before: list[letters.Header],
) -> None:
    added = letters.headers_of((topic, partition, offset), timestamp_ms, error, pipeline)
    origin = letters.maybe_origin([*before, *added])
    assert origin == Origin(topic, partition, offset, timestamp_ms, error, pipeline, 0)
    back = letters.redriven_headers([*before, *added], 1)
    assert back == [*before, ("x-redriven", b"1")]


def test_the_last_death_counts_and_so_do_earlier_returns() -> None:
    first = letters.headers_of(("a", 0, 1), 5, "NOT_JSON: x", "p")
    once_more = [("x-redriven", b"1"), *letters.headers_of(("b", 2, 3), 7, "NOT_AVRO", "q")]
    origin = letters.maybe_origin([*first, *once_more])
    assert origin == Origin("b", 2, 3, 7, "NOT_AVRO", "q", 1)


def test_other_records_are_no_dead_letters() -> None:
    whole = dict(letters.headers_of(("a", 0, 1), 5, "NOT_JSON", ""))
    assert letters.maybe_origin(whole.items()) is not None
    for missing in ("x-original-topic", "x-original-partition", "x-original-offset", "x-error"):
        rest = [(name, value) for name, value in whole.items() if name != missing]
        assert letters.maybe_origin(rest) is None
    assert letters.maybe_origin([*whole.items(), ("x-original-offset", b"many")]) is None
    assert letters.maybe_origin([]) is None


def test_reasons_have_one_line_and_a_kind() -> None:
    assert letters.reason("NOT_JSON", "a\n  b\tc") == "NOT_JSON: a b c"
    assert letters.reason("NOT_JSON", "") == "NOT_JSON"
    assert len(letters.reason("K", "x" * 10_000)) < 600
    assert letters.kind_of("NOT_JSON: a: b") == "NOT_JSON"
    assert letters.kind_of("NOT_JSON") == "NOT_JSON"
    assert letters.kind_of("java.lang.Error: no") == "java.lang.Error: no"
