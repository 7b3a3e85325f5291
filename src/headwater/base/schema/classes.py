"""One class per message and struct, made from its schema.

This file alone decides what a message looks like as a Python object. It knows nothing of bytes.
"""

import keyword
from collections.abc import Callable
from typing import Any, ClassVar, NoReturn

from headwater.base.schema.model import Field, MessageSchema, StructSchema


class Struct:
    """A group of fields. Equal if all fields are equal; made with every field at its default."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    # The class that has the fields; a shared default is of a subclass.
    __plain__: ClassVar["type[Struct]"]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or self.__plain__ is not other.__plain__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _field_names(self))

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _field_names(self))
        return f"{type(self).__qualname__}({fields})"


class Message(Struct):
    """A struct that stands alone: it has versions, and a codec for each."""

    __slots__ = ()
    __schema__: ClassVar[MessageSchema]
    __structs__: ClassVar[dict[str, type[Struct]]]


def _field_names(struct: Struct) -> tuple[str, ...]:
    names: tuple[str, ...] = struct.__plain__.__slots__
    return names


class SharedDefaultError(AttributeError):
    """An attempt to change a default that many messages share."""


def _refuse_change(self: Struct, name: str, value: object) -> NoReturn:
    del value
    kind = type(self).__qualname__
    raise SharedDefaultError(f"this {kind} is a shared default; assign a new {kind}, not {name}")


def build_message(schema: MessageSchema, module: str) -> type[Message]:
    """Return the class of a message, with the classes of its structs as attributes."""
    structs: dict[str, type[Struct]] = {}
    # Structs may name structs that stand further down; those that name none come first.
    for name in _inner_first(schema):
        structs[name] = _build_class(
            schema.structs[name], Struct, structs, module=module, outer=f"{schema.name}."
        )
    message = _build_class(schema.root, Message, structs, module=module, outer="")
    assert issubclass(message, Message)
    message.__schema__ = schema
    message.__structs__ = structs
    for name, struct in structs.items():
        setattr(message, name, struct)
    return message


def _inner_first(schema: MessageSchema) -> list[str]:
    order: list[str] = []

    def visit(struct: StructSchema) -> None:
        for field in struct.fields:
            if field.is_struct and field.type not in order:
                visit(schema.structs[field.type])
                order.append(field.type)

    visit(schema.root)
    return order


def _build_class(
    schema: StructSchema,
    base: type[Struct],
    structs: dict[str, type[Struct]],
    *,
    module: str,
    outer: str,
) -> type[Struct]:
    namespace = {
        "__slots__": tuple(field.name for field in schema.fields),
        "__init__": _build_init(schema, structs),
        "__module__": module,
        "__qualname__": outer + schema.name,
    }
    class_: type[Struct] = type(schema.name, (base,), namespace)
    class_.__plain__ = class_
    return class_


_ABSENT = object()


def _build_init(schema: StructSchema, structs: dict[str, type[Struct]]) -> Callable[..., None]:
    namespace: dict[str, Any] = {"ABSENT": _ABSENT}
    parameters = []
    body = []
    for number, field in enumerate(schema.fields):
        assert field.name.isidentifier()
        assert not keyword.iskeyword(field.name)
        value = field.name
        if needs_fresh_default(field, structs):
            parameters.append(f"{field.name}=ABSENT")
            make = namespace[f"make{number}"] = default_maker(field, structs)
            assert callable(make)
            value = f"make{number}() if {value} is ABSENT else {value}"
        else:
            namespace[f"default{number}"] = constant_default(field, structs)
            parameters.append(f"{field.name}=default{number}")
        body.append(f"    self.{field.name} = {value}\n")
    head = f"def __init__({', '.join(['self', *parameters])}):\n"
    exec(head + ("".join(body) or "    pass\n"), namespace)  # noqa: S102 - names checked above
    init: Callable[..., None] = namespace["__init__"]
    return init


def needs_fresh_default(field: Field, structs: dict[str, type[Struct]]) -> bool:
    """Return whether every instance needs a default of its own, because it can be changed."""
    if field.default_is_null:
        return False
    if field.is_array:
        return True
    return field.is_struct and not _is_flat(structs[field.type])


def default_maker(field: Field, structs: dict[str, type[Struct]]) -> Callable[[], Any]:
    """Return what makes a fresh default."""
    return list if field.is_array else structs[field.type]


def constant_default(field: Field, structs: dict[str, type[Struct]]) -> Any:  # noqa: ANN401
    """Return the default that all instances share."""
    if field.is_struct and not field.default_is_null:
        return shared_default(structs[field.type])
    return field.default


_SHARED: dict[type[Struct], Struct] = {}


def shared_default(struct: type[Struct]) -> Struct:
    """Return the one default instance of a struct of scalars, which refuses to be changed.

    Making three such structs for every partition of a fetch response, only to leave them out
    again because they are defaults, would cost more than encoding the partition.
    """
    if struct not in _SHARED:
        frozen = type(
            struct.__name__,
            (struct,),
            {
                "__slots__": (),
                "__module__": struct.__module__,
                "__qualname__": struct.__qualname__,
                "__setattr__": _refuse_change,
                "__reduce__": lambda _: (struct, ()),
            },
        )
        default = struct()
        default.__class__ = frozen
        _SHARED[struct] = default
    return _SHARED[struct]


def _is_flat(struct: type[Struct]) -> bool:
    default = struct()
    values = [getattr(default, name) for name in _field_names(default)]
    return not any(isinstance(value, list | Struct) for value in values)
