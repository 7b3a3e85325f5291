"""Write stubs of the classes that are made from a table at run time.

This file alone decides how message classes look to a type checker. What they are at run time is
decided by `headwater.base.schema.classes`.
"""

from headwater.base.schema import Field, StructSchema, Table

LINE_MAX = 100

PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
    # Decoding gives a memoryview; encoding takes whatever has a length.
    "records": "Any",
}


def stub_of(table: Table) -> str:
    """Return the stub of a module whose attributes are the messages of a table."""
    body = "".join(_message(table, name) for name in table.names())
    lines = ["# Written by codegen/kafka_messages.py from the table of the same name. Do not edit."]
    lines.append("# fmt: off")
    ignored = []
    if any(len(line) > LINE_MAX for line in body.splitlines()):
        ignored.append("E501")
    if " Any" in body:
        ignored.append("ANN401")
    if ignored:
        lines.append(f"# ruff: noqa: {', '.join(ignored)}")
    if " Any" in body:
        lines.append("from typing import Any\n")
    lines.append("from headwater.base.schema import Catalogue, Message, Struct\n")
    lines.append("CATALOGUE: Catalogue\n")
    return "\n".join(lines) + body


def _message(table: Table, name: str) -> str:
    schema = table.schema(name)
    lines = ["", f"class {name}(Message):"]
    for struct in schema.structs.values():
        lines += [f"    class {struct.name}(Struct):"]
        lines += _members(struct, name, indent=8)
    lines += _members(schema.root, name, indent=4)
    return "\n".join(lines) + "\n"


def _members(struct: StructSchema, message: str, indent: int) -> list[str]:
    margin = " " * indent
    if not struct.fields:
        return [f"{margin}def __init__(self) -> None: ..."]
    types = {field.name: _type(field, message) for field in struct.fields}
    lines = [f"{margin}{name}: {type_}" for name, type_ in types.items()]
    lines.append(f"{margin}def __init__(")
    lines.append(f"{margin}    self,")
    lines += [f"{margin}    {name}: {type_} = ...," for name, type_ in types.items()]
    lines.append(f"{margin}) -> None: ...")
    return lines


def _type(field: Field, message: str) -> str:
    type_ = PYTHON_TYPES.get(field.type, "int")
    if field.is_struct:
        type_ = f"{message}.{field.type}"
    if field.is_array:
        type_ = f"list[{type_}]"
    nullable = len(field.nullable) > 0 or field.default_is_null
    return f"{type_} | None" if nullable and field.type != "records" else type_
