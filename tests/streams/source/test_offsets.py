"""Offsets in a checkpoint, for this release and for later ones."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.errors import CheckpointError
from headwater.streams.options import Choice
from headwater.streams.source.offsets import Place, make_offsets, parse_offsets

numbers = st.dictionaries(
    st.tuples(st.text(min_size=1, max_size=8), st.integers(0, 200)), st.integers(0, 1 << 62)
)


def test_the_form_stays_as_it_was() -> None:
    """A checkpoint outlives releases: whoever changes this text has to read the old one too."""
    offsets = make_offsets(
        {("orders", 0): 17, ("orders", 10): 2, ("clicks", 1): 0},
        {"orders": "AAAAAAAAAAAAAAAAAAAAAA"},
        began={("orders", 0): 3},
        group="g-1",
        initial=True,
    )
    assert json.dumps(offsets.as_json()) == (
        '{"version": 1, "group": "g-1", "initial": true, "topics": {'
        '"clicks": {"id": "", "partitions": {"1": 0}}, '
        '"orders": {"id": "AAAAAAAAAAAAAAAAAAAAAA", "partitions": {"0": 17, "10": 2}, '
        '"began": {"0": 3}}}}'
    )


@pytest.mark.parametrize(
    "choice,text",
    [
        (Choice(topics=("a", "b")), '"subscribe": "a,b"'),
        (Choice(pattern="a.*"), '"pattern": "a.*"'),
        (Choice(partitions={"a": (0, 2)}), r'"assign": "{\"a\": [0, 2]}"'),
    ],
)
def test_the_choice_of_the_source_is_kept_in_the_same_form(choice: Choice, text: str) -> None:
    offsets = make_offsets({("a", 0): 7}, {}, choice=choice)
    stored = json.dumps(offsets.as_json())
    assert stored.startswith(f'{{"version": 1, {text}, "topics": ')
    assert parse_offsets(json.loads(stored)) == offsets
    assert offsets.only(lambda *_: True) == offsets


@given(numbers, numbers, st.text(), st.booleans(), st.randoms())
def test_offsets_survive_json_and_equal_ones_have_equal_texts(
    positions: dict[Place, int],
    began: dict[Place, int],
    group: str,
    initial: bool,
    dice: random.Random,
) -> None:
    topics = {topic for topic, _ in positions}
    began = {place: each for place, each in began.items() if place[0] in topics}
    offsets = make_offsets(positions, {}, began=began, group=group, initial=initial)
    assert parse_offsets(json.loads(json.dumps(offsets.as_json()))) == offsets
    shuffled = list(positions.items())
    dice.shuffle(shuffled)
    again = make_offsets(dict(shuffled), {}, began=began, group=group, initial=initial)
    assert json.dumps(again.as_json()) == json.dumps(offsets.as_json())
    assert offsets.positions() == positions


@pytest.mark.parametrize(
    "stored,words",
    [
        ({"orders": {"0": 17}}, "not those of this source"),
        ([], "not those of this source"),
        (None, "not those of this source"),
        ({"version": 2, "topics": {}}, "of version 2"),
        ({"version": 1}, "damaged"),
        ({"version": 1, "pattern": "(", "topics": {}}, "damaged"),
        ({"version": 1, "topics": []}, "damaged"),
        ({"version": 1, "topics": {"a": {"id": "x"}}}, "damaged"),
        ({"version": 1, "topics": {"a": {"id": "x", "partitions": {"zero": 1}}}}, "damaged"),
    ],
)
def test_a_foreign_or_damaged_checkpoint_is_named(stored: object, words: str) -> None:
    with pytest.raises(CheckpointError, match=words) as caught:
        parse_offsets(stored)
    assert caught.value.hint
