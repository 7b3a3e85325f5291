"""Messages as Python objects."""

import copy
import pickle

import pytest

from headwater.base.schema import Message, SharedDefaultError, Struct
from tests.base.schema.small_table import EverythingRequest, NothingResponse

Pair = EverythingRequest.Pair


def test_fields_take_their_defaults() -> None:
    message = EverythingRequest()
    assert message.flag is True
    assert message.since_two == -1
    assert message.name == ""
    assert message.numbers == []
    assert message.pair is None
    assert message.plain == Pair(left=-1, right=0)


def test_fields_are_taken_by_position_or_by_name() -> None:
    assert Pair(1, 2) == Pair(right=2, left=1)


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(TypeError):
        Pair(middle=1)
    with pytest.raises(AttributeError):
        Pair().middle = 1


def test_lists_are_fresh_in_every_instance() -> None:
    first = EverythingRequest()
    first.numbers.append(1)
    assert EverythingRequest().numbers == []


def test_none_is_kept_where_a_list_could_be() -> None:
    assert EverythingRequest(numbers=None).numbers is None


def test_structs_that_hold_lists_are_fresh_in_every_instance() -> None:
    first = EverythingRequest()
    first.loose.items.append(1)
    assert EverythingRequest().loose.items == []


def test_a_shared_default_refuses_to_be_changed() -> None:
    message = EverythingRequest()
    with pytest.raises(SharedDefaultError, match=r"assign a new EverythingRequest\.Pair"):
        message.plain.left = 5
    assert EverythingRequest().plain.left == -1
    message.plain = Pair(left=5)
    assert message.plain.left == 5


def test_a_shared_default_equals_its_like_on_either_side() -> None:
    shared = EverythingRequest().plain
    assert shared == Pair()
    assert Pair() == shared
    assert shared != Pair(left=0)
    assert isinstance(shared, Pair)


def test_copies_of_a_shared_default_can_be_changed() -> None:
    duplicate = copy.deepcopy(EverythingRequest())
    duplicate.plain.left = 5
    assert EverythingRequest().plain.left == -1


def test_equality_is_by_value_and_class() -> None:
    assert EverythingRequest(small=1) == EverythingRequest(small=1)
    assert EverythingRequest(small=1) != EverythingRequest(small=2)
    assert EverythingRequest() != NothingResponse()
    assert NothingResponse() == NothingResponse()
    assert Pair() != object()
    assert Pair() != (-1, 0)


def test_messages_are_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Pair())


def test_repr_names_every_field() -> None:
    assert repr(Pair(1, 2)) == "EverythingRequest.Pair(left=1, right=2)"


def test_structs_are_attributes_of_their_message() -> None:
    assert issubclass(EverythingRequest, Message)
    assert issubclass(EverythingRequest.Part, Struct)
    assert EverythingRequest.Part.__qualname__ == "EverythingRequest.Part"


def test_messages_can_be_pickled() -> None:
    message = EverythingRequest(parts=[EverythingRequest.Part(1, b"x")], pair=Pair(1, 2))
    assert pickle.loads(pickle.dumps(message)) == message
