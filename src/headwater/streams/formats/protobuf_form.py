"""Protobuf's messages as rows.

This file alone decides which Spark type a field becomes, and which values are no such message.

    bool, int32, int64, float, double, string, bytes    the same
    uint32, fixed32                 bigint
    uint64, fixed64                 decimal(20,0)
    enum                            string; the number of a value that the enum does not have
    message, repeated, map          struct, array, map; messages in themselves: refused
    google.protobuf.Timestamp       timestamp
    google.protobuf.Int64Value ...  the value, nullable

A field that knows whether it was set is null where it was not; others have their default.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.streams.formats.batches import Row, unwritable
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.framing import (
    framed,
    message_path,
    unframed,
    with_message_path,
)
from headwater.streams.formats.letters import NOT_PROTOBUF, UNKNOWN_SCHEMA, Undecodable

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_UINT64 = pa.decimal128(20, 0)
# By the numbers of FieldDescriptorProto.Type.
_SCALARS = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: _UINT64,
    5: pa.int32(),
    6: _UINT64,
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
_UNSIGNED_64 = {4, 6}
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Bool", "Int32", "Int64", "UInt32", "UInt64", "Float", "Double", "String", "Bytes")
}
_COMPILE = "protoc --include_imports --descriptor_set_out=order.desc order.proto"


class _Shape(NamedTuple):
    """How one value of a field is held, without regard to repetition."""

    arrow: pa.DataType
    read: Callable[[Any], Any]
    # Puts a value into a message of its own, for messages; else makes the scalar.
    write: Callable[[Any], Any] | None
    fill: Callable[[Any, Any], None] | None = None


@dataclass(frozen=True)
class ProtobufForm:
    """One message type of compiled .proto files.

    Attributes:
        descriptors: What protoc has compiled, a FileDescriptorSet.
        message: The full name of the message.
        is_framed: Whether the number of a schema and the way to the message stand before values.
        schema_id: The number to put before values that are written.
    """

    descriptors: bytes
    message: str
    is_framed: bool = False
    schema_id: int | None = None

    @cached_property
    def arrow_type(self) -> pa.StructType:
        """The columns of a message."""
        return self._shape.arrow

    def decoder(self) -> Callable[[bytes], Row]:
        """Return what reads values."""
        shape = self._shape
        make = _message_class(self._descriptor)
        own_path = _path(self._descriptor)
        decode_error = import_module("google.protobuf.message").DecodeError

        def decode(value: bytes) -> Row:
            if self.is_framed:
                path, value = message_path(unframed(value)[1])
                if path != own_path:
                    there, here = list(path), list(own_path)
                    raise Undecodable(
                        UNKNOWN_SCHEMA, f"message indexes {there}, but {self.message} has {here}"
                    )
            message = make()
            try:
                message.ParseFromString(value)
            except decode_error as error:
                raise Undecodable(NOT_PROTOBUF, str(error)) from None
            if not message.IsInitialized():
                missing = ", ".join(message.FindInitializationErrors())
                raise Undecodable(NOT_PROTOBUF, f"required fields are missing: {missing}")
            row: Row = shape.read(message)
            return row

        return decode

    def encoder(self) -> Callable[[Row], bytes]:
        """Return what writes values."""
        shape = self._shape
        make = _message_class(self._descriptor)
        path = _path(self._descriptor)

        def encode(row: Row) -> bytes:
            message = make()
            assert shape.fill is not None
            try:
                shape.fill(message, row)
                value: bytes = message.SerializeToString()
            except Exception as error:
                raise unwritable(f"Protobuf {self.message}", error) from error
            if self.schema_id is None:
                return value
            return framed(self.schema_id, with_message_path(path, value))

        return encode

    @cached_property
    def _descriptor(self) -> Any:  # noqa: ANN401 - the package has no types
        return _find(self.descriptors, self.message)

    @cached_property
    def _shape(self) -> _Shape:
        return _message(self._descriptor, ())

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what cannot travel."""
        fields = ("descriptors", "message", "is_framed", "schema_id")
        return {name: getattr(self, name) for name in fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take it in where the work is done."""
        self.__dict__.update(state)


def descriptor_bytes(descriptors: str | Path | bytes) -> bytes:
    """Return compiled .proto files: given as such, or as a file.

    Raises:
        FormatError: There is no such file.
    """
    if isinstance(descriptors, bytes):
        return descriptors
    try:
        return Path(descriptors).read_bytes()
    except OSError as error:
        raise FormatError(
            f"the Protobuf descriptors cannot be read: {error}", hint=f"make them: {_COMPILE}"
        ) from None


def _google(name: str) -> Any:  # noqa: ANN401 - a module
    try:
        return import_module(f"google.protobuf.{name}")
    except ImportError:
        raise FormatError(
            "Protobuf needs the package protobuf", hint="pip install 'headwater[protobuf]'"
        ) from None


def _message_class(descriptor: Any) -> Any:  # noqa: ANN401 - the package has no types
    return _google("message_factory").GetMessageClass(descriptor)


def _find(descriptors: bytes, name: str) -> Any:  # noqa: ANN401 - the package has no types
    try:
        files = _google("descriptor_pb2").FileDescriptorSet.FromString(descriptors).file
        pool = _google("descriptor_pool").DescriptorPool()
        given = {file.name for file in files}
        for dependency in {name for file in files for name in file.dependency} - given:
            _add_well_known(pool, dependency)
        for file in files:
            pool.Add(file)
    except FormatError:
        raise
    except Exception as error:
        raise FormatError(
            f"no Protobuf descriptors: {type(error).__name__}: {error}",
            hint=f"make them: {_COMPILE}",
        ) from error
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        all_names = ", ".join(
            ".".join(filter(None, (file.package, message.name)))
            for file in files
            for message in file.message_type
        )
        raise FormatError(f"there is no message {name}", hint=f"there are {all_names}") from None


def _add_well_known(pool: Any, file_name: str) -> None:  # noqa: ANN401 - the package has no types
    """Add what comes with protobuf itself, if protoc was not asked to."""
    module_name = Path(file_name).stem + "_pb2"
    if not file_name.startswith("google/protobuf/"):
        raise FormatError(f"{file_name} is imported, but not there", hint=f"make it: {_COMPILE}")
    pool.AddSerializedFile(_google(module_name).DESCRIPTOR.serialized_pb)


def _path(descriptor: Any) -> tuple[int, ...]:  # noqa: ANN401 - the package has no types
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name.values()).index(descriptor),)
    return (*_path(outer), list(outer.nested_types).index(descriptor))


# --- types ----------------------------------------------------------------------------------------


def _message(descriptor: Any, within: tuple[str, ...]) -> _Shape:  # noqa: ANN401
    if descriptor.full_name == _TIMESTAMP:
        return _Shape(pa.timestamp("us", "UTC"), _micros, None, _fill_timestamp)
    if descriptor.full_name in _WRAPPERS:
        return _wrapper(_single(descriptor.fields_by_name["value"], within))
    if descriptor.full_name in within:
        raise FormatError(f"message {descriptor.full_name} is in itself: Spark has no type for it")
    if not descriptor.fields:
        raise FormatError(f"message {descriptor.full_name} has no fields: Spark has no type for it")
    fields = {
        field.name: (_field(field, (*within, descriptor.full_name)), field)
        for field in descriptor.fields
    }
    arrow = pa.struct([pa.field(name, shape.arrow) for name, (shape, _) in fields.items()])

    def read(message: Any) -> dict[str, Any]:  # noqa: ANN401 - of any type
        return {
            name: None
            if field.has_presence and not message.HasField(name)
            else shape.read(getattr(message, name))
            for name, (shape, field) in fields.items()
        }

    def fill(message: Any, row: Mapping[str, Any]) -> None:  # noqa: ANN401 - of any type
        # A struct of nulls is there all the same.
        message.SetInParent()
        for name, value in row.items():
            if value is None:
                continue
            shape, _ = fields[name]
            if shape.fill is not None:
                shape.fill(getattr(message, name), value)
            else:
                assert shape.write is not None
                setattr(message, name, shape.write(value))

    return _Shape(arrow, read, None, fill)


def _single(field: Any, within: tuple[str, ...]) -> _Shape:  # noqa: ANN401
    if field.type in {_GROUP, _MESSAGE}:
        return _message(field.message_type, within)
    if field.type == _ENUM:
        by_number = {value.number: value.name for value in field.enum_type.values}
        by_name = {value.name: value.number for value in field.enum_type.values}

        def number(name: str) -> int:
            return by_name[name] if name in by_name else int(name)

        return _Shape(pa.string(), lambda number: by_number.get(number, str(number)), number)
    if field.type in _UNSIGNED_64:
        return _Shape(_UINT64, _same, int)
    return _Shape(_SCALARS[field.type], _same, _same)


def _field(field: Any, within: tuple[str, ...]) -> _Shape:  # noqa: ANN401
    if not field.is_repeated:
        return _single(field, within)
    if field.type == _MESSAGE and field.message_type.GetOptions().map_entry:
        return _map(field.message_type, within)
    item = _single(field, within)

    def fill(repeated: Any, values: list[Any]) -> None:  # noqa: ANN401 - of any type
        for value in values:
            if item.fill is not None:
                item.fill(repeated.add(), value)
            else:
                assert item.write is not None
                repeated.append(item.write(value))

    return _Shape(
        pa.list_(item.arrow), lambda values: [item.read(value) for value in values], None, fill
    )


def _map(entry: Any, within: tuple[str, ...]) -> _Shape:  # noqa: ANN401
    key = _single(entry.fields_by_name["key"], within)
    item = _single(entry.fields_by_name["value"], within)

    def fill(mapping: Any, pairs: list[tuple[Any, Any]]) -> None:  # noqa: ANN401 - of any type
        assert key.write is not None
        for name, value in pairs:
            if item.fill is not None:
                item.fill(mapping[key.write(name)], value)
            else:
                assert item.write is not None
                mapping[key.write(name)] = item.write(value)

    return _Shape(
        pa.map_(key.arrow, item.arrow),
        lambda mapping: [(key.read(name), item.read(mapping[name])) for name in mapping],
        None,
        fill,
    )


def _micros(timestamp: Any) -> int:  # noqa: ANN401 - a Timestamp
    return int(timestamp.seconds) * 1_000_000 + int(timestamp.nanos) // 1_000


def _fill_timestamp(timestamp: Any, value: dt.datetime) -> None:  # noqa: ANN401
    since = value - _EPOCH
    timestamp.seconds = since.days * 86_400 + since.seconds
    timestamp.nanos = since.microseconds * 1_000
    # The epoch itself sets nothing, but is no missing value.
    timestamp.SetInParent()


def _wrapper(inner: _Shape) -> _Shape:
    def fill(wrapper: Any, value: Any) -> None:  # noqa: ANN401 - of any type
        assert inner.write is not None
        wrapper.value = inner.write(value)
        wrapper.SetInParent()

    return _Shape(inner.arrow, lambda wrapper: inner.read(wrapper.value), None, fill)


def _same(value: Any) -> Any:  # noqa: ANN401 - whatever it is
    return value
