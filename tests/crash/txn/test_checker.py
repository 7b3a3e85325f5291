"""The checker passes what is legal and finds each thing that is not."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.crash.txn.checker import check
from tests.crash.txn.history import (
    UNSTABLE,
    Ask,
    Begin,
    Consume,
    End,
    Ended,
    Event,
    Failed,
    Final,
    FinalOffset,
    Initialized,
    OffsetRead,
    Place,
    Read,
    Send,
    Sent,
    read_journals,
    write_line,
)
from tests.crash.txn.model import Model

A: Place = ("a", 0)
B: Place = ("b", 0)
IN: Place = ("in", 0)


@settings(max_examples=150)
@given(seed=st.integers(0, 10**9), steps=st.integers(1, 120))
def test_a_legal_history_passes(seed: int, steps: int) -> None:
    assert check(Model(random.Random(seed)).run(steps)) == []


def test_the_model_does_all_that_the_checker_looks_at() -> None:
    seen = {type(event) for event in Model(random.Random(3)).run(400)}
    assert len(seen) == 14


def history() -> list[Event]:
    """One committed, one aborted and one undecided transaction, a reader and a group."""
    return [
        Initialized("p1", "t1", 7, 0),
        Begin("feed", "f", plain=True),
        Send("feed", IN, "i0"),
        Sent("feed", IN, "i0", 0),
        Begin("p1/1", "p1"),
        Send("p1/1", A, "v0"),
        Sent("p1/1", A, "v0", 0),
        Send("p1/1", A, "v1"),
        Sent("p1/1", A, "v1", 1),
        Send("p1/1", B, "v2"),
        Sent("p1/1", B, "v2", 0),
        Consume("p1/1", "g", IN, (0,), 1),
        Ask("r"),
        Read("r", A, 0, 0, (), last_stable_offset=0, high_watermark=2),
        End("p1/1", commit=True),
        Ended("p1/1", commit=True),
        Ask("r"),
        Read("r", A, 0, 3, ((0, "v0"), (1, "v1")), last_stable_offset=3, high_watermark=3),
        Ask("r"),
        OffsetRead("r", "g", IN, 1),
        Begin("p1/2", "p1"),
        Send("p1/2", A, "v3"),
        Sent("p1/2", A, "v3", 3),
        End("p1/2", commit=False),
        Ended("p1/2", commit=False),
        Begin("p1/3", "p1"),
        Send("p1/3", A, "v4"),
        Sent("p1/3", A, "v4", 5),
        Send("p1/3", B, "v5"),
        Sent("p1/3", B, "v5", 2),
        End("p1/3", commit=True),
        Initialized("p2", "t1", 7, 1),
        Begin("p1/4", "p1"),
        Send("p1/4", A, "v6"),
        End("p1/4", commit=True),
        Failed("p1/4"),
        Final(IN, ((0, "i0"),), ((0, "i0"),), 1, 1),
        Final(
            A,
            ((0, "v0"), (1, "v1"), (5, "v4")),
            ((0, "v0"), (1, "v1"), (3, "v3"), (5, "v4")),
            7,
            7,
        ),
        Final(B, ((0, "v2"), (2, "v5")), ((0, "v2"), (2, "v5")), 4, 4),
        FinalOffset("g", IN, 1),
    ]


def test_the_example_is_legal() -> None:
    assert check(history()) == []


def swap(events: list[Event], old: Event, *new: Event) -> list[Event]:
    at = events.index(old)
    return [*events[:at], *new, *events[at + 1 :]]


def final(place: Place, **changes: object) -> Callable[[list[Event]], list[Event]]:
    def plant(events: list[Event]) -> list[Event]:
        old = next(e for e in events if isinstance(e, Final) and e.place == place)
        return swap(events, old, replace(old, **changes))  # type: ignore[arg-type]

    return plant


def insert(before: Event, *new: Event) -> Callable[[list[Event]], list[Event]]:
    return lambda events: swap(events, before, *new, before)


def append_read(read: Read) -> Callable[[list[Event]], list[Event]]:
    return lambda events: [*events, Ask(read.reader), read]


PLANTED: dict[str, tuple[Callable[[list[Event]], list[Event]], set[str]]] = {
    "a committed record is gone": (
        final(A, committed=((0, "v0"), (5, "v4")), uncommitted=((0, "v0"), (3, "v3"), (5, "v4"))),
        {"lost", "torn"},
    ),
    "an acknowledged record of an aborted transaction is gone": (
        final(A, uncommitted=((0, "v0"), (1, "v1"), (5, "v4"))),
        {"lost"},
    ),
    "a whole committed transaction is aborted instead": (
        lambda events: final(B, committed=((2, "v5"),))(
            final(A, committed=((5, "v4"),))(events),
        ),
        {"lost"},
    ),
    "a marker is missing in one partition": (
        final(B, committed=((2, "v5"),), last_stable_offset=0),
        {"lost", "torn", "hanging"},
    ),
    "an undecided transaction is shown in one partition only": (
        final(B, committed=((0, "v2"),)),
        {"torn"},
    ),
    "an aborted record is shown at the end": (
        final(A, committed=((0, "v0"), (1, "v1"), (3, "v3"), (5, "v4"))),
        {"aborted"},
    ),
    "a reader saw an aborted record": (
        append_read(Read("r", A, 3, 4, ((3, "v3"),), last_stable_offset=7)),
        {"aborted"},
    ),
    "a reader saw a record before the commit": (
        insert(
            End("p1/1", commit=True),
            Ask("s"),
            Read("s", A, 0, 1, ((0, "v0"),), last_stable_offset=2, high_watermark=2),
        ),
        {"dirty", "early"},
    ),
    "a record is there twice": (
        final(
            B,
            committed=((0, "v2"), (2, "v5"), (3, "v5")),
            uncommitted=((0, "v2"), (2, "v5"), (3, "v5")),
        ),
        {"doubled"},
    ),
    "an input was processed twice": (
        insert(
            Initialized("p2", "t1", 7, 1),
            Begin("x", "q"),
            Consume("x", "g", IN, (0,), 1),
            End("x", commit=True),
            Ended("x", commit=True),
        ),
        {"doubled"},
    ),
    "an input was left out": (
        lambda events: [
            FinalOffset("g", IN, 2) if isinstance(event, FinalOffset) else event
            for event in final(
                IN, committed=((0, "i0"), (1, "i1")), uncommitted=((0, "i0"), (1, "i1"))
            )(insert(Begin("p1/1", "p1"), Send("feed", IN, "i1"))(events))
        ],
        {"skipped", "offsets", "torn"},
    ),
    "a reader was not shown a committed record": (
        append_read(Read("r", A, 0, 3, ((0, "v0"),), last_stable_offset=7)),
        {"skipped"},
    ),
    "a reader got records in another order": (
        append_read(Read("r", A, 0, 3, ((1, "v1"), (0, "v0")), last_stable_offset=7)),
        {"reordered"},
    ),
    "records of a producer are stored in another order": (
        lambda events: [
            event
            for event in final(
                A,
                committed=((0, "v1"), (1, "v0"), (5, "v4")),
                uncommitted=((0, "v1"), (1, "v0"), (3, "v3"), (5, "v4")),
            )(events)
            if not (isinstance(event, Sent) and event.place == A)
            and not (isinstance(event, Read) and event.records)
        ],
        {"reordered"},
    ),
    "an offset shows another record than it did": (
        append_read(Read("r", A, 0, 2, ((0, "v1"),), False, 7, 7)),
        {"changed"},
    ),
    "a record is in a partition that it was not sent to": (
        append_read(Read("r", B, 0, 2, ((1, "v0"),), False, 4, 4)),
        {"changed"},
    ),
    "a record that nobody sent": (
        append_read(Read("r", B, 0, 2, ((1, "ghost"),), False, 4, 4)),
        {"unknown"},
    ),
    "the last stable offset goes back": (
        append_read(Read("r", A, 0, 0, (), last_stable_offset=2, high_watermark=7)),
        {"went back"},
    ),
    "the high watermark goes back": (
        append_read(Read("r", A, 0, 0, (), last_stable_offset=3, high_watermark=2)),
        {"went back"},
    ),
    "a reader was shown what is not stable": (
        append_read(Read("r", A, 0, 6, ((0, "v0"), (1, "v1"), (5, "v4")), True, 4, 7)),
        {"beyond"},
    ),
    "the last stable offset passed an open transaction": (
        insert(
            End("p1/1", commit=True),
            Ask("s"),
            Read("s", A, 0, 0, (), last_stable_offset=1, high_watermark=2),
        ),
        {"early"},
    ),
    "a replaced producer wrote": (
        final(A, uncommitted=((0, "v0"), (1, "v1"), (3, "v3"), (5, "v4"), (7, "v6"))),
        {"zombie"},
    ),
    "a replaced producer was told that it wrote": (
        insert(
            Failed("p1/4"),
            Sent("p1/4", A, "v6", 7),
        ),
        {"zombie", "lost"},
    ),
    "a replaced producer committed": (
        lambda events: swap(events, Failed("p1/4"), Ended("p1/4", commit=True)),
        {"zombie"},
    ),
    "an id and its epoch are given twice": (
        insert(FinalOffset("g", IN, 1), Initialized("q", "t2", 7, 1)),
        {"repeated"},
    ),
    "offsets of an aborted transaction are applied": (
        lambda events: [
            FinalOffset("g", IN, 9) if isinstance(event, FinalOffset) else event
            for event in insert(End("p1/2", commit=False), Consume("p1/2", "g", IN, (), 9))(events)
        ],
        {"offsets", "torn"},
    ),
    "offsets of a committed transaction are lost": (
        lambda events: swap(events, FinalOffset("g", IN, 1), FinalOffset("g", IN, -1)),
        {"offsets", "torn"},
    ),
    "an offset was shown before its commit": (
        insert(End("p1/1", commit=True), Ask("s"), OffsetRead("s", "g", IN, 1)),
        {"offsets"},
    ),
    "a stable offset was shown that a commit had passed": (
        insert(Begin("p1/2", "p1"), Ask("s"), OffsetRead("s", "g", IN, -1)),
        {"went back"},
    ),
    "a transaction hangs": (final(A, last_stable_offset=5), {"hanging"}),
    "offsets hang": (
        lambda events: swap(events, FinalOffset("g", IN, 1), FinalOffset("g", IN, UNSTABLE)),
        {"hanging"},
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_anomaly_is_found(name: str) -> None:
    plant, kinds = PLANTED[name]
    assert {anomaly.kind for anomaly in check(plant(history()))} == kinds


def test_every_kind_of_anomaly_is_planted() -> None:
    documented = check.__globals__["__doc__"].split("what that is:")[1].split("It knows")[0]
    lines = [line for line in documented.splitlines() if line.startswith("    ")]
    kinds = {line.split("  ")[2] for line in lines if not line.startswith(" " * 5)}
    assert kinds == set().union(*(kinds for _, kinds in PLANTED.values()))


@given(seed=st.integers(0, 10**9), kind=st.sampled_from(("lost", "aborted", "doubled", "torn")))
def test_an_anomaly_is_found_wherever_it_is(seed: int, kind: str) -> None:
    dice = random.Random(seed)
    events = Model(dice).run(80)
    planted = spoil(events, kind, dice)
    assert planted is None or kind in {anomaly.kind for anomaly in check(planted)}


def spoil(events: list[Event], kind: str, dice: random.Random) -> list[Event] | None:
    """Break one thing somewhere; None where the history offers nothing to break."""
    sent = {event.value for event in events if isinstance(event, Sent)}
    certain = {event.transaction for event in events if isinstance(event, Ended)}
    open_to_doubt = {e.transaction for e in events if isinstance(e, End) and e.commit} - certain
    plain = {event.transaction for event in events if isinstance(event, Begin) and event.plain}
    of = {event.value: event.transaction for event in events if isinstance(event, Send)}
    places: dict[str, set[str]] = {}
    for event in events:
        if isinstance(event, Sent):
            places.setdefault(event.transaction, set()).add(event.value)
    finals = [event for event in events if isinstance(event, Final)]
    choices = []
    for at in finals:
        hidden = [entry for entry in at.uncommitted if of[entry[1]] not in open_to_doubt]
        hidden = [entry for entry in hidden if entry not in at.committed]
        if kind == "aborted":
            choices += [
                (at, replace(at, committed=tuple(sorted((*at.committed, e))))) for e in hidden
            ]
        for entry in at.committed:
            whole = places.get(of[entry[1]], set()) | {entry[1]}
            if kind == "torn" and (of[entry[1]] in plain or len(whole) < 2):
                continue
            if kind == "lost" and of[entry[1]] not in certain | plain:
                continue
            if entry[1] in sent and kind in {"lost", "torn"}:
                rest = tuple(e for e in at.committed if e != entry)
                choices.append((at, replace(at, committed=rest)))
            if kind == "doubled":
                again = (*at.uncommitted, (at.high_watermark, entry[1]))
                choices.append((at, replace(at, uncommitted=again)))
    if not choices:
        return None
    old, new = dice.choice(choices)
    return swap(events, old, new)


def test_journals_become_one_history() -> None:
    events = history()
    journals = [b"", b"", b""]
    for at, event in enumerate(events):
        journals[at % 3] += write_line(at * 10, event)
    half = write_line(10**6, events[0])[:-9]
    assert read_journals([*journals[:2], journals[2] + half]) == events
