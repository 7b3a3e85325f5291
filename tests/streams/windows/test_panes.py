"""Where panes are cut and which windows have them, against windows that are tried one by one."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.kernel.keys import encode_keys
from headwater.streams.windows.panes import Windows, by_number, group_by_pane

TIMES = range(-60, 61)


@st.composite
def all_windows(draw: st.DrawFn) -> Windows:
    length = draw(st.integers(1, 40))
    slide = draw(st.integers(1, length))
    return Windows(length, slide, draw(st.integers(-100, 100)))


def starts_having(time: int, over: Windows) -> list[int]:
    """Try every time at which a window that has this one may begin."""
    tried = range(time - over.length_us + 1, time + 1)
    return [start for start in tried if (start - over.offset_us) % over.slide_us == 0]


def panes_of(over: Windows) -> list[int]:
    found: list[int] = over.panes(np.array(TIMES)).tolist()
    return found


@given(all_windows())
def test_two_times_share_a_pane_if_they_are_in_the_same_windows_and_next_to_each_other(
    over: Windows,
) -> None:
    panes = panes_of(over)

    for time, pane, following in zip(TIMES, panes, panes[1:], strict=False):
        is_same = starts_having(time, over) == starts_having(time + 1, over)
        assert following - pane == (0 if is_same else 1)


@given(all_windows())
def test_a_window_has_the_panes_of_its_times(over: Windows) -> None:
    for time, pane in zip(TIMES, panes_of(over), strict=True):
        having = over.having(range(pane, pane + 1))
        assert [over.start(window) for window in having] == starts_having(time, over)
        assert all(pane in over.panes_of(window) for window in having)
        assert pane not in over.panes_of(having.start - 1)
        assert pane not in over.panes_of(having.stop)
    assert over.pane_count == len(over.panes_of(0)) <= 2 * -(-over.length_us // over.slide_us)


@given(all_windows())
def test_a_pane_begins_at_its_first_time(over: Windows) -> None:
    panes = panes_of(over)
    starts = over.pane_starts(np.array(panes))

    assert over.panes(starts).tolist() == panes
    assert (over.panes(starts - 1) == np.array(panes) - 1).all()
    assert (starts <= np.array(TIMES)).all()


@given(all_windows())
def test_the_last_window_of_a_time_ends_when_trying_says_so(over: Windows) -> None:
    wanted = [max(starts_having(time, over)) + over.length_us for time in TIMES]

    assert over.last_ends(np.array(TIMES)).tolist() == wanted
    assert over.last_ends(over.pane_starts(np.array(panes_of(over)))).tolist() == wanted


@given(all_windows(), st.integers(-200, 200))
def test_windows_before_the_first_open_one_have_ended(over: Windows, time: int) -> None:
    first = over.first_open(time)

    assert over.start(first - 1) + over.length_us <= time < over.start(first) + over.length_us


@given(
    all_windows(),
    st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 6)), max_size=6),
    st.none() | st.integers(-80, 80),
    st.integers(-80, 80),
)
def test_windows_of_several_spans_come_once_and_in_order(
    over: Windows, drawn: list[tuple[int, int]], first: int | None, stop: int
) -> None:
    spans, behind = [], -(10**6)
    for start, length in sorted(drawn):
        spans.append(range(max(start, behind), max(start, behind) + length))
        behind = spans[-1].stop

    found = list(over.having_any(spans, first=first, stop=stop))

    panes = {pane for span in spans for pane in span}
    tried = range(-200 if first is None else first, stop)
    assert found == [window for window in tried if panes & set(over.panes_of(window))]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9) | st.integers(-(2**50), 0))))
def test_rows_of_a_group_share_pane_and_key(listed: list[tuple[str, int]]) -> None:
    keys = encode_keys([pa.array([key for key, _ in listed], pa.string())], len(listed))
    panes = np.array([pane for _, pane in listed], np.int64)

    codes, firsts = group_by_pane(keys, panes, 1)

    groups: dict[tuple[str, int], int] = {}
    for row, code in zip(listed, codes.tolist(), strict=True):
        assert groups.setdefault(row, code) == code
    assert sorted(groups.values()) == list(range(len(groups)))
    assert {code: listed.index(row) for row, code in groups.items()} == dict(enumerate(firsts))


@given(st.lists(st.integers(-5, 5)))
def test_rows_by_number_keep_their_order(numbers: list[int]) -> None:
    table = pa.table({"place": pa.array(range(len(numbers)), pa.int64())})

    found = [
        (number, part.column("place").to_pylist())
        for number, part in by_number(table, np.array(numbers, np.int64))
    ]

    assert found == [
        (number, [place for place, each in enumerate(numbers) if each == number])
        for number in sorted(set(numbers))
    ]
