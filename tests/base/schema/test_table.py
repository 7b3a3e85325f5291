"""The notation of message tables."""

import pytest

from headwater.base.schema import ZERO_UUID, Field, Table
from tests.base.schema.small_table import TABLE, TEXT


def field(name: str) -> Field:
    return next(f for f in TABLE.schema("EverythingRequest").root.fields if f.name == name)


def test_messages_are_found_by_name_in_the_order_of_the_text() -> None:
    assert TABLE.names() == ["EverythingRequest", "NothingResponse", "OldHeader"]


def test_a_message_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        TABLE.schema("SomethingElse")


def test_heading_tells_all_but_the_fields() -> None:
    heading = TABLE.heading("EverythingRequest")
    assert (heading.kind, heading.name, heading.api_key) == ("request", "EverythingRequest", 7)
    assert (heading.versions, heading.first_flexible) == (range(1, 5), 3)


def test_heading_without_key_or_flexible_versions() -> None:
    heading = TABLE.heading("OldHeader")
    assert (heading.api_key, heading.first_flexible) == (None, 1)
    assert TABLE.heading("NothingResponse").first_flexible is None


def test_only_messages_that_are_asked_for_are_parsed() -> None:
    table = Table(TEXT + "\nrequest BrokenRequest versions=0\n  no_type\n")
    assert table.schema("OldHeader").name == "OldHeader"
    with pytest.raises(ValueError, match="unpack"):
        table.schema("BrokenRequest")


def test_versions_of_a_field_default_to_those_of_its_message() -> None:
    assert field("small").versions == range(1, 5)
    assert field("since_two").versions == range(2, 5)
    assert field("ids").versions == range(4, 5)


def test_nullable_holds_in_all_versions_of_the_field_unless_it_names_some() -> None:
    assert field("pair").nullable == range(2, 5)
    assert field("name").nullable == range(2, 5)
    assert not field("data").nullable


def test_tagged_fields_are_tagged_in_all_their_versions() -> None:
    assert (field("rack").tag, field("rack").tagged) == (1, range(3, 5))
    assert (field("name").tag, len(field("name").tagged)) == (None, 0)


@pytest.mark.parametrize(
    "name, default",
    [
        ("flag", True),
        ("small", 0),
        ("since_two", -1),
        ("ratio", 0.0),
        ("id", ZERO_UUID),
        ("name", ""),
        ("data", b""),
        ("rack", None),
        ("batch", None),
    ],
)
def test_defaults(name: str, default: object) -> None:
    assert field(name).default == default
    assert field(name).default_is_null == (default is None)


def test_structs_stand_beside_the_message() -> None:
    schema = TABLE.schema("EverythingRequest")
    assert list(schema.structs) == ["Part", "Pair", "Loose"]
    assert [f.name for f in schema.structs["Pair"].fields] == ["left", "right"]
    assert field("parts").is_array
    assert field("parts").is_struct


def test_tagged_fields_come_by_rising_tag() -> None:
    tagged = TABLE.schema("EverythingRequest").root.tagged(4)
    assert [f.name for f in tagged] == ["hint", "rack", "loose"]


def test_least_sizes() -> None:
    schema = TABLE.schema("EverythingRequest")
    assert schema.min_struct_bytes(schema.structs["Part"], 1) == 4 + 4
    assert schema.min_struct_bytes(schema.structs["Part"], 3) == 4 + 1 + 1
    assert schema.min_struct_bytes(schema.structs["Pair"], 2) == 12
