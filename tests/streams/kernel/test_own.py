"""Operators that people write themselves, run without Spark."""

import itertools
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.streams.kernel.errors import BucketCountError, OwnOperatorError
from headwater.streams.kernel.own import Adapted
from headwater.testing.operators import OperatorLawError, check_operator, run_operator


class NewPlaces:
    """Tells when a card is used in a town where it was never used before."""

    state = pa.schema([("card", pa.int64()), ("town", pa.string())])
    output = pa.schema([("card", pa.int64()), ("town", pa.string()), ("seen", pa.int64())])

    def step(
        self, state: pa.Table, rows: pa.Table, watermark_us: int | None
    ) -> tuple[pa.Table, pa.Table]:
        known = {tuple(row.values()) for row in state.to_pylist()}
        fresh = []
        for row in rows.select(["card", "town"]).to_pylist():
            place = (row["card"], row["town"])
            if place not in known:
                known.add(place)
                fresh.append(row)
        seen = [sum(card == row["card"] for card, _ in known) for row in fresh]
        found = pa.Table.from_pylist(fresh, schema=self.state)
        return pa.concat_tables([state, found]), found.append_column(
            "seen", pa.array(seen, pa.int64())
        )


def used(*places: tuple[int, str]) -> pa.Table:
    cards, towns = zip(*places, strict=True)
    return pa.table({"card": pa.array(cards, pa.int64()), "town": pa.array(towns)})


BATCHES = [
    used((1, "Ulm"), (2, "Ulm"), (1, "Ulm")),
    used((1, "Bonn"), (2, "Ulm")),
    used((3, "Kiel"), (1, "Bonn"), (2, "Bonn")),
]


def test_state_goes_from_batch_to_batch() -> None:
    given = check_operator(NewPlaces(), BATCHES, by=["card"])

    assert [row["town"] for batch in given for row in batch.to_pylist()] == [
        "Ulm",
        "Ulm",
        "Bonn",
        "Kiel",
        "Bonn",
    ]
    assert given[1].to_pylist() == [{"card": 1, "town": "Bonn", "seen": 2}]


def test_an_operator_that_mixes_keys_is_found_out() -> None:
    class Counts(NewPlaces):
        def step(
            self, state: pa.Table, rows: pa.Table, watermark_us: int | None
        ) -> tuple[pa.Table, pa.Table]:
            state, found = super().step(state, rows, watermark_us)
            everything = pa.array([len(state)] * len(found), pa.int64())
            return state, found.set_column(2, "seen", everything)

    with pytest.raises(OperatorLawError, match="rows that differ in card"):
        check_operator(Counts(), BATCHES, by=["card"])


def test_an_operator_that_keeps_something_elsewhere_is_found_out() -> None:
    numbers = itertools.count()

    class Numbered(NewPlaces):
        def step(
            self, state: pa.Table, rows: pa.Table, watermark_us: int | None
        ) -> tuple[pa.Table, pa.Table]:
            state, found = super().step(state, rows, watermark_us)
            return state, found.set_column(
                2, "seen", pa.array([next(numbers) for _ in range(len(found))], pa.int64())
            )

    with pytest.raises(OperatorLawError, match="run again"):
        check_operator(Numbered(), BATCHES, by=["card"])


def test_time_is_given() -> None:
    class Waiting:
        """Gives rows when the watermark has passed them."""

        state = pa.schema([("us", pa.int64())])
        output = state

        def step(
            self, state: pa.Table, rows: pa.Table, watermark_us: int | None
        ) -> tuple[pa.Table, pa.Table]:
            held = pa.concat_tables([state, rows])
            if watermark_us is None:
                return held, self.state.empty_table()
            is_due = pc.less(held.column("us"), watermark_us)
            return held.filter(pc.invert(is_due)), held.filter(is_due)

    batches = [pa.table({"us": [5, 20]}), pa.table({"us": [7]}), pa.table({"us": [30]})]
    given = run_operator(Waiting(), batches, by=["us"], watermarks=[None, 10, 30])
    assert [batch.column("us").to_pylist() for batch in given] == [[], [5, 7], [20]]


@pytest.mark.parametrize(
    "given,message",
    [
        (lambda state: (state, state), "gave as its output ['card', 'town'], not"),
        (lambda state: (None, state), "gave as its state NoneType, not"),
        (
            lambda state: (
                state,
                pa.table({"card": ["x"], "town": ["y"], "seen": ["not a number"]}),
            ),
            "gave as its output other types",
        ),
    ],
)
def test_what_is_not_as_promised_is_named(given: object, message: str) -> None:
    class Broken(NewPlaces):
        def step(
            self, state: pa.Table, rows: pa.Table, watermark_us: int | None
        ) -> tuple[pa.Table, pa.Table]:
            return given(state)  # type: ignore[operator, no-any-return]

    with pytest.raises(OwnOperatorError, match=re.escape(message)):
        run_operator(Broken(), BATCHES, by=["card"])


@pytest.mark.parametrize(
    "given,message",
    [
        (lambda state: state, "gave a Table, not two tables"),
        (lambda state: (state,), "gave a tuple, not two tables"),
        (lambda _: None, "gave a NoneType, not two tables"),
    ],
)
def test_a_step_gives_two_tables(given: object, message: str) -> None:
    class Broken(NewPlaces):
        def step(
            self, state: pa.Table, rows: pa.Table, watermark_us: int | None
        ) -> tuple[pa.Table, pa.Table]:
            return given(state)  # type: ignore[operator, no-any-return]

    with pytest.raises(OwnOperatorError, match=message) as raised:
        run_operator(Broken(), BATCHES, by=["card"])
    assert "return state, rows" in raised.value.hint


class Stateless:
    output = NewPlaces.output


class Textual(NewPlaces):
    state = "card long"


@pytest.mark.parametrize(
    "changed,message,hint",
    [
        ({"operator": NewPlaces}, "is a class", "NewPlaces()"),
        ({"operator": Stateless()}, "Stateless has no `state`", "two Arrow schemas"),
        ({"operator": Textual()}, "Textual has 'card long' as its `state`", "two Arrow schemas"),
        ({"by": ["kard"]}, "no column 'kard' for the key; did you mean card?", "card, town"),
        ({"batches": []}, "there are no batches", "without rows"),
        ({"batches": [{"card": 1}]}, "batch 0 is a dict", "pa.table"),
        ({"batches": [*BATCHES, BATCHES[0].select(["card"])]}, "batch 3 has other", "town string"),
        ({"watermarks": [1, 2]}, "2 watermarks for 3 batches", "None"),
        ({"watermarks": [1, 3, 2]}, "of batch 2 is before that of batch 1", "never goes back"),
        ({"watermarks": [1, None, 2]}, "of batch 1 is before that of batch 0", "never goes back"),
    ],
)
def test_what_no_query_gives_is_refused(changed: dict[str, Any], message: str, hint: str) -> None:
    asked: dict[str, Any] = {"operator": NewPlaces(), "batches": BATCHES, "by": "card", **changed}
    for run in (run_operator, check_operator):
        with pytest.raises(OwnOperatorError, match=re.escape(message)) as raised:
            run(**asked)
        assert hint in raised.value.hint


@pytest.mark.parametrize("buckets", [0, -1, 1.5, True])
def test_there_is_a_bucket_for_each_key(buckets: Any) -> None:  # noqa: ANN401 - that is the point
    with pytest.raises(BucketCountError, match="buckets") as raised:
        run_operator(NewPlaces(), BATCHES, by="card", buckets=buckets)
    assert raised.value.hint


def test_what_its_state_depends_on_is_one_line() -> None:
    values = pa.schema([("c0", pa.int64()), ("c1", pa.string())])
    assert Adapted(NewPlaces(), ["card", "town"], values).parameters == {
        "class": "NewPlaces",
        "columns of its state": "card int64, town string",
    }
