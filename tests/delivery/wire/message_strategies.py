"""Messages to try, drawn from the tables.

This file alone decides which values a field is tried with. Strings and lists are short and few:
what matters is every combination of null, empty and present in every version.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from headwater.base.schema import Field, Message, Struct, StructSchema

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

# Longer than 127 elements: the length no longer fits one byte of a varint.
COUNTS = st.sampled_from([0, 1, 1, 2])
LONG_COUNT = 130

Narrow = Callable[[str, str, Field], st.SearchStrategy[Any] | None]


def messages(
    message: type[Message], version: int, narrow: Narrow | None = None
) -> st.SearchStrategy[Any]:
    """Return a strategy of messages whose fields outside of the version keep their defaults.

    Args:
        message: The class.
        version: The version.
        narrow: For a path of struct and field and its schema, a strategy to use instead.
    """

    @st.composite
    def build(draw: st.DrawFn) -> Message:
        value = _struct(draw, message, message.__schema__.root, message, version, narrow)
        assert isinstance(value, Message)
        return value

    return build()


def _struct(
    draw: st.DrawFn,
    class_: type[Struct],
    schema: StructSchema,
    message: type[Message],
    version: int,
    narrow: Narrow | None,
) -> Struct:
    value = class_()
    for field in schema.fields:
        if version not in field.versions:
            continue
        # Left at its default, a tagged field is not written at all.
        if version in field.tagged and draw(st.booleans()):
            continue
        if version in field.nullable and draw(st.booleans()):
            setattr(value, field.name, None)
            continue

        def one(field: Field = field) -> Any:
            if field.is_struct:
                inner = message.__schema__.structs[field.type]
                inner_class = message.__structs__[field.type]
                return _struct(draw, inner_class, inner, message, version, narrow)
            narrowed = narrow(schema.name, field.name, field) if narrow else None
            return draw(SCALARS[field.type] if narrowed is None else narrowed)

        drawn = [one() for _ in range(draw(COUNTS))] if field.is_array else one()
        setattr(value, field.name, drawn)
    return value
