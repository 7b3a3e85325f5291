"""Deadlines against a plain dictionary."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.delivery.broker.transactions.deadlines import Deadlines

_NAMES = st.sampled_from("abcd")
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _NAMES, st.integers(0, 20)),
        st.tuples(st.just("clear"), _NAMES, st.just(0)),
        st.tuples(st.just("look"), st.just(""), st.integers(0, 25)),
    ),
    max_size=40,
)


@given(_STEPS)
def test_who_is_late(steps: list[tuple[str, str, int]]) -> None:
    deadlines = Deadlines()
    model: dict[str, int] = {}
    for what, name, at_ms in steps:
        if what == "set":
            deadlines.set(name, at_ms)
            model[name] = at_ms
        elif what == "clear":
            deadlines.clear(name)
            model.pop(name, None)
        else:
            late = deadlines.overdue(at_ms, count_max=10)
            assert sorted(late) == sorted(each for each, end_ms in model.items() if end_ms < at_ms)
            assert late == sorted(late, key=model.__getitem__), "the latest first"
        assert len(deadlines) == len(model)


def test_what_has_ended_takes_no_room() -> None:
    deadlines = Deadlines()
    for number in range(10_000):
        deadlines.set("a", number)
        deadlines.clear("a")

    assert len(deadlines._heap) < 2_000
    assert deadlines.overdue(10**9, count_max=1) == []


def test_some_at_a_time_and_those_that_stay_open_again() -> None:
    deadlines = Deadlines()
    for number, name in enumerate("abcd"):
        deadlines.set(name, number)

    assert deadlines.overdue(9, count_max=2) == ["a", "b"]
    deadlines.clear("a")
    assert deadlines.overdue(9, count_max=2) == ["b", "c"]
