"""What a topic may be called; the broker's own tests ask Kafka."""

import pytest

from headwater.base.topic_names import NAME_LENGTH_MAX, maybe_name_problem


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * NAME_LENGTH_MAX])
def test_names_that_are_fine(name: str) -> None:
    assert maybe_name_problem(name) is None


@pytest.mark.parametrize(
    "name,said",
    [
        ("", "empty string"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("a b/ü", "characters other than"),
        ("a\n", "characters other than"),
        ("x" * (NAME_LENGTH_MAX + 1), "longer than the max allowed length 249"),
    ],
)
def test_names_that_are_not(name: str, said: str) -> None:
    assert said in (maybe_name_problem(name) or "")
