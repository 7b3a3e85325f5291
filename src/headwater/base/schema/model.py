"""What a message schema says, as plain values.

This file alone decides which facts a schema holds: fields, types, versions, nullability, tags and
defaults. It knows neither the text they are written in nor the code that is made from them.
"""

from dataclasses import dataclass

EVERY_NUMBER_FORMAT = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "float64": "d",
}
"""The number types and their letter in the language of `struct`."""

ZERO_UUID = bytes(16)

FIXED_FORMAT = {**EVERY_NUMBER_FORMAT, "uuid": "16s"}
"""Every type whose size does not depend on its value."""

VARIABLE_TYPES = frozenset({"string", "bytes", "records"})

Scalar = bool | int | float | str | bytes | None


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    Attributes:
        name: The attribute's name.
        type: A primitive type or the name of a struct of the same message; of one element, where
            the field is an array.
        is_array: Whether the field holds a list of `type`.
        versions: The versions in which the field is written.
        nullable: The versions in which it may be null.
        tag: Its number among the tagged fields.
        tagged: The versions in which it is a tagged field.
        default: The value where it is absent; None also stands for a null array or struct.
        default_is_null: Whether null is the default.
        ignorable: Whether Kafka's own encoder drops a set value silently in older versions.
        legacy_length: Whether the length keeps its fixed-size form in flexible versions.
    """

    name: str
    type: str
    is_array: bool
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    default: Scalar
    default_is_null: bool
    ignorable: bool
    legacy_length: bool

    @property
    def is_struct(self) -> bool:
        """Whether the type, or the element's type, is a struct."""
        return self.type not in FIXED_FORMAT and self.type not in VARIABLE_TYPES


@dataclass(frozen=True, slots=True)
class StructSchema:
    """A named list of fields, in the order in which they are written."""

    name: str
    fields: tuple[Field, ...]

    def plain(self, version: int) -> list[Field]:
        """Return the fields that stand in the body of this version."""
        return [f for f in self.fields if version in f.versions and version not in f.tagged]

    def tagged(self, version: int) -> list[Field]:
        """Return the tagged fields of this version, by rising tag as they are written."""
        return sorted(
            (f for f in self.fields if version in f.tagged), key=lambda field: field.tag or 0
        )

    def absent(self, version: int) -> list[Field]:
        """Return the fields that this version does not have."""
        return [f for f in self.fields if version not in f.versions]


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """One message: its own fields, and the structs that they are made of.

    Attributes:
        name: The message's name.
        kind: request, response, header, data, key or value.
        api_key: The number under which requests, responses, keys and values belong together.
        versions: The versions that exist.
        first_flexible: The first version with compact lengths and tagged fields.
        root: The message's own fields.
        structs: The structs by name, in the order of their first use.
    """

    name: str
    kind: str
    api_key: int | None
    versions: range
    first_flexible: int | None
    root: StructSchema
    structs: dict[str, StructSchema]

    def is_flexible(self, version: int) -> bool:
        """Return whether this version has compact lengths and tagged fields."""
        return self.first_flexible is not None and version >= self.first_flexible

    def min_bytes(self, field: Field, version: int) -> int:
        """Return how many bytes one value, or one array element, takes at the very least."""
        if field.type in FIXED_FORMAT:
            return _FIXED_BYTES[field.type]
        flexible = self.is_flexible(version) and not field.legacy_length
        if not field.is_struct:
            return 1 if flexible else 2 if field.type == "string" else 4
        if version in field.nullable and not field.is_array:
            return 1
        return self.min_struct_bytes(self.structs[field.type], version)

    def min_struct_bytes(self, struct: StructSchema, version: int) -> int:
        """Return how many bytes a struct takes with everything in it empty or null."""
        flexible = self.is_flexible(version)
        size = 1 if flexible else 0
        for field in struct.plain(version):
            if field.is_array:
                size += 1 if flexible else 4
            else:
                size += self.min_bytes(field, version)
        return size


_FIXED_BYTES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint16": 2,
    "uint32": 4,
    "float64": 8,
    "uuid": 16,
}


def has_records(schema: MessageSchema, version: int) -> bool:
    """Return whether some field of this version holds record batches."""
    structs = [schema.root, *schema.structs.values()]
    return any(f.type == "records" for struct in structs for f in struct.plain(version))
