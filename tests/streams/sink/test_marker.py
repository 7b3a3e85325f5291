"""Markers in a log: which one counts, and what is no marker."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.base.record.batch import stamp, stamp_transaction
from headwater.base.record.control import EndTransactionMarker, build_end_transaction
from headwater.base.record.records import Record, build_batch
from headwater.streams.sink.errors import MarkerError
from headwater.streams.sink.marker import (
    Marker,
    MarkerScan,
    decode_marker,
    encode_marker,
    marker_batch,
    marker_key,
)
from headwater.streams.sink.plan import Plan

KEY = marker_key("q", "sink")

_names = st.text("abc-0123", min_size=1, max_size=8)
_markers = st.builds(
    Marker,
    batch_id=st.integers(0, 2**62),
    run_id=_names,
    producer=st.tuples(st.integers(0, 2**62), st.integers(0, 32_767)),
    earlier=st.lists(_names, max_size=5).map(tuple),
    ends=st.dictionaries(st.tuples(_names, st.integers(0, 99)), st.integers(0, 2**62)),
    plan=st.none() | st.builds(Plan, digest=_names, sources=st.lists(_names).map(tuple)),
)


class Log:
    """Bytes of a partition, built batch by batch."""

    def __init__(self) -> None:
        self.content = bytearray()
        self.end = 0

    def add(self, batch: bytes | bytearray, producer: int | None = None) -> None:
        content = bytearray(batch)
        if producer is not None:
            stamp_transaction(content, 0, producer_id=producer, producer_epoch=0, base_sequence=0)
        stamp(content, 0, self.end, 0)
        self.content += content
        self.end += 1

    def write(self, producer: int, batch_id: int, key: bytes = KEY) -> None:
        marker = Marker(batch_id, "run", (producer, 0))
        self.add(marker_batch(key, marker, now_ms=1), producer)

    def close(self, producer: int, *, commit: bool) -> None:
        self.add(
            build_end_transaction(
                EndTransactionMarker(commit, 0), timestamp=1, producer_id=producer, producer_epoch=0
            )
        )


@given(marker=_markers)
def test_a_marker_is_read_as_it_was_written(marker: Marker) -> None:
    assert decode_marker(encode_marker(marker)) == marker


@pytest.mark.parametrize(
    "value", [b"", b"[]", b"{}", b'{"version":1}', b'{"version":1,"batch":"x"}', b"\xff"]
)
def test_what_is_no_marker_is_named(value: bytes) -> None:
    with pytest.raises(MarkerError, match="is no marker"):
        decode_marker(value)


def test_a_later_version_is_not_guessed_at() -> None:
    said = json.loads(encode_marker(Marker(1, "run", (1, 0)))) | {"version": 2}

    with pytest.raises(MarkerError, match="version 2"):
        decode_marker(json.dumps(said).encode())


def test_a_field_that_is_not_known_is_skipped() -> None:
    said = json.loads(encode_marker(Marker(1, "run", (1, 0)))) | {"more": True}

    assert decode_marker(json.dumps(said).encode()) == Marker(1, "run", (1, 0))


def test_a_marker_of_before_plans_were_kept_is_read() -> None:
    value = (
        b'{"version":1,"batch":7,"run":"r","earlier":[],"producer":{"id":1,"epoch":2},"ends":{}}'
    )

    assert decode_marker(value) == Marker(7, "r", (1, 2))


def test_the_last_committed_marker_counts() -> None:
    log = Log()
    log.write(1, 10)
    log.close(1, commit=True)
    log.write(1, 11)
    log.close(1, commit=False)

    seen = MarkerScan().take(log.content).seen(KEY)

    assert seen.committed is not None
    assert seen.committed.batch_id == 10
    assert seen.undecided is None


def test_an_open_transaction_of_somebody_else_hides_nothing() -> None:
    log = Log()
    log.write(2, 99, key=marker_key("another", "sink"))
    log.write(1, 10)
    log.close(1, commit=True)

    seen = MarkerScan().take(log.content).seen(KEY)

    assert seen.committed is not None
    assert seen.committed.batch_id == 10
    assert seen.undecided is None


def test_an_open_transaction_of_the_sink_is_not_settled() -> None:
    log = Log()
    log.write(1, 10)

    seen = MarkerScan().take(log.content).seen(KEY)

    assert seen.committed is None
    assert seen.undecided is not None
    assert seen.undecided.batch_id == 10


def test_a_log_may_come_in_pieces_that_are_cut_anywhere() -> None:
    log = Log()
    for batch_id in range(5):
        log.write(1, batch_id)
        log.close(1, commit=True)
    whole = bytes(log.content)
    starts = [0]
    while starts[-1] < len(whole):
        starts.append(starts[-1] + 12 + int.from_bytes(whole[starts[-1] + 8 : starts[-1] + 12]))
    scan = MarkerScan()

    for at, start in enumerate(starts[:-1]):
        assert scan.next_offset == at
        scan.take(whole[start : starts[at + 1] + 30])

    assert scan.next_offset == log.end
    seen = scan.seen(KEY)
    assert seen.committed is not None
    assert seen.committed.batch_id == 4


_steps = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("tombstone"), st.just(0), st.integers(0, 2)),
    st.tuples(st.sampled_from(["commit", "abort"]), st.integers(1, 3), st.just(0)),
)


@given(steps=st.lists(st.tuples(_steps, st.booleans()), max_size=30))
def test_a_scan_that_goes_on_knows_what_one_from_the_start_knows(
    steps: list[tuple[tuple[str, int, int], bool]],
) -> None:
    keys = [marker_key("q", f"sink-{number}") for number in range(3)]
    log, going_on, taken = Log(), MarkerScan(), 0
    for batch_id, ((what, producer, at), reads) in enumerate(steps):
        if what == "write":
            log.write(producer, batch_id, key=keys[at])
        elif what == "tombstone":
            log.add(build_batch([Record(0, 1, keys[at], None)]))
        else:
            log.close(producer, commit=what == "commit")
        if reads:
            going_on.take(bytes(log.content[taken:]))
            taken = len(log.content)
            from_the_start = MarkerScan().take(log.content)
            assert [going_on.seen(key) for key in keys] == [
                from_the_start.seen(key) for key in keys
            ]


def test_the_sinks_of_a_query_are_found() -> None:
    log = Log()
    log.write(1, 1, key=marker_key("q", "one"))
    log.close(1, commit=True)
    log.write(1, 1, key=marker_key("q", "given up"))
    log.close(1, commit=False)
    log.write(1, 1, key=marker_key("q", "open"))
    log.write(2, 1, key=marker_key("another", "one"))

    scan = MarkerScan().take(log.content)

    assert scan.keys("q") == {b"q/one", b"q/open"}


def test_a_tombstone_forgets_the_sink() -> None:
    log = Log()
    log.write(1, 10)
    log.close(1, commit=True)
    log.add(build_batch([Record(0, 1, KEY, None)]))

    assert MarkerScan().take(log.content).seen(KEY) == (None, None)


def test_runs_before_the_last_fifty_are_forgotten() -> None:
    marker = Marker(0, "run-0", (1, 0))
    for number in range(1, 70):
        marker = marker.taken_over(run_id=f"run-{number}", producer=(1, number))

    assert marker.earlier == tuple(f"run-{number}" for number in range(19, 69))
