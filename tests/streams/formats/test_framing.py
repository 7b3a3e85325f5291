"""Confluent's framing, against examples that its documentation works out."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.formats.framing import (
    framed,
    message_path,
    unframed,
    with_message_path,
)
from headwater.streams.formats.letters import Undecodable


def test_a_value_begins_with_zero_and_the_id() -> None:
    assert framed(258, b"abc") == b"\x00\x00\x00\x01\x02abc"
    assert unframed(b"\x00\x00\x00\x01\x02abc") == (258, b"abc")
    assert unframed(b"\x00\x00\x00\x00\x07") == (7, b"")


@pytest.mark.parametrize(
    "value", [b"", b"\x00\x00\x00\x00", b"\x01\x00\x00\x00\x07abc", b'{"a":1}']
)
def test_other_values_are_not_framed(value: bytes) -> None:
    with pytest.raises(Undecodable, match="NOT_FRAMED"):
        unframed(value)


@pytest.mark.parametrize(
    "path, written",
    [
        ((0,), b"\x00"),  # the shortened form
        ((1, 0), b"\x04\x02\x00"),
        ((2,), b"\x02\x04"),
        ((100,), b"\x02\xc8\x01"),
    ],
)
def test_ways_to_messages(path: tuple[int, ...], written: bytes) -> None:
    assert with_message_path(path, b"rest") == written + b"rest"
    assert message_path(written + b"rest") == (path, b"rest")


def test_the_long_form_of_the_first_message_is_read_too() -> None:
    assert message_path(b"\x02\x00rest") == ((0,), b"rest")


@pytest.mark.parametrize(
    "payload", [b"", b"\x04\x02", b"\x01", b"\xff\xff\xff\xff\xff\x01", b"\x80"]
)
def test_ways_that_lead_nowhere(payload: bytes) -> None:
    with pytest.raises(Undecodable, match="NOT_FRAMED"):
        message_path(payload)


@given(st.binary(max_size=40))
def test_any_bytes_are_framed_or_undecodable(value: bytes) -> None:
    with contextlib.suppress(Undecodable):
        _, payload = unframed(value)
        path, rest = message_path(payload)
        assert payload.endswith(rest)
        assert path
