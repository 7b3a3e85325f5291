"""Messages to try, drawn from the tables.

This file alone decides which values a field is tried with. Strings and lists are short and few:
what matters is every combination of null, empty and present in every version.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from hypothesis import strategies as st

from headwater.base.schema import Field, Message, Struct, StructSchema

Value: TypeAlias = Any

INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False, allow_infinity=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(max_size=5),
    "bytes": st.binary(max_size=5),
    "records": st.binary(max_size=5),
    **{name: st.integers(*bounds) for name, bounds in INTEGERS.items()},
}

COUNTS = st.sampled_from([0, 1, 1, 2])

# From a struct's name and one of its fields to a strategy for its values, or None for the usual.
Narrow = Callable[[str, Field], st.SearchStrategy[Any] | None]


def messages(
    message: type[Message], version: int, narrow: Narrow = lambda _struct, _field: None
) -> st.SearchStrategy[Any]:
    """Return a strategy of messages whose fields outside of the version keep their defaults."""

    @st.composite
    def build(draw: st.DrawFn) -> Struct:
        return _Builder(draw, message, version, narrow).struct(message, message.__schema__.root)

    return build()


class _Builder:
    def __init__(
        self, draw: st.DrawFn, message: type[Message], version: int, narrow: Narrow
    ) -> None:
        self._draw = draw
        self._message = message
        self._version = version
        self._narrow = narrow

    def struct(self, class_: type[Struct], schema: StructSchema) -> Struct:
        value = class_()
        for field in schema.fields:
            if self._version not in field.versions:
                continue
            # Left at its default, a tagged field is not written at all.
            if self._version in field.tagged and self._draw(st.booleans()):
                continue
            setattr(value, field.name, self._field(schema.name, field))
        return value

    def _field(self, struct: str, field: Field) -> Value:
        if self._version in field.nullable and self._draw(st.booleans()):
            return None
        if field.is_array:
            return [self._one(struct, field) for _ in range(self._draw(COUNTS))]
        return self._one(struct, field)

    def _one(self, struct: str, field: Field) -> Value:
        if field.is_struct:
            inner = self._message.__schema__.structs[field.type]
            return self.struct(self._message.__structs__[field.type], inner)
        narrowed = self._narrow(struct, field)
        return self._draw(SCALARS[field.type] if narrowed is None else narrowed)


FILLED: dict[str, Any] = {
    "bool": True,
    "float64": 0.5,
    "uuid": bytes(range(16)),
    "string": "schön",
    "bytes": b"bytes",
    "records": b"records",
}


def filled(message: type[Message], version: int) -> Message:
    """Return the message with two elements in every array and nothing left null or default."""
    value = _filled_struct(message, message.__schema__.root, message, version)
    assert isinstance(value, Message)
    return value


def _filled_struct(
    class_: type[Struct], schema: StructSchema, message: type[Message], version: int
) -> Struct:
    def one(field: Field) -> Value:
        if not field.is_struct:
            return FILLED.get(field.type, 77)
        inner = message.__schema__.structs[field.type]
        return _filled_struct(message.__structs__[field.type], inner, message, version)

    value = class_()
    for field in schema.fields:
        if version in field.versions:
            setattr(value, field.name, [one(field), one(field)] if field.is_array else one(field))
    return value
