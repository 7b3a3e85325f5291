"""Avro's values as rows.

This file alone decides which Spark type an Avro type becomes, and which values are no Avro.

    null, or a union with it    nullable; other unions only of int and long, or float and double
    boolean, int, long, float, double, bytes, string    the same
    fixed, enum                 binary, string
    array, map, record          array, map with string keys, struct; records in themselves: refused
    date, decimal               the same; up to 38 digits
    timestamp-millis, -micros   timestamp; local-timestamp-...: timestamp_ntz
    time-millis, time-micros    bigint, microseconds of the day
    uuid                        string
"""

import datetime as dt
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.streams.formats.batches import Row, unwritable
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.framing import framed, unframed
from headwater.streams.formats.letters import NOT_AVRO, UNKNOWN_SCHEMA, WRONG_TYPE, Undecodable
from headwater.streams.formats.types import DECIMAL_DIGITS_MAX

AvroSchema = str | Path | Mapping[str, Any]
Schemas = str | Path | Mapping[int, AvroSchema]

Convert = Callable[[Any], Any]

_PLAIN = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_LOGICAL = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_WIDER = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
_FILE_OF_ID = re.compile(r"(\d+)\.(?:avsc|json)")


class _Shape(NamedTuple):
    """How a type of Avro is held; None where a value can stay as fastavro gives and takes it."""

    arrow: pa.DataType
    read: Convert | None = None
    write: Convert | None = None


@dataclass(frozen=True)
class AvroForm:
    """Avro with a schema.

    Attributes:
        schema: The schema of rows, as JSON.
        writers: Schemas that values may have been written with, by the number before each value;
            None where values have no such number and are written with `schema` itself.
        schema_id: The number to put before values that are written.
    """

    schema: str
    writers: Mapping[int, str] | None = None
    schema_id: int | None = None

    @cached_property
    def arrow_type(self) -> pa.StructType:
        """The columns of a record."""
        return self._shape.arrow

    @property
    def names_without_default(self) -> list[str]:
        """The fields that each row must have."""
        fields = parsed(self.schema)["fields"]
        return [field["name"] for field in fields if "default" not in field]

    def decoder(self) -> Callable[[bytes], Row]:
        """Return what reads values."""
        fastavro = _fastavro()
        reader = parsed(self.schema)
        writers = None
        if self.writers is not None:
            writers = {number: parsed(text) for number, text in self.writers.items()}
        convert = self._shape.read

        def decode(value: bytes) -> Row:
            writer = reader
            if writers is not None:
                number, value = unframed(value)
                if number not in writers:
                    known = ", ".join(map(str, sorted(writers))) or "none"
                    raise Undecodable(UNKNOWN_SCHEMA, f"schema id {number}; known: {known}")
                writer = writers[number]
            stream = io.BytesIO(value)
            try:
                row = fastavro.schemaless_reader(stream, writer, reader)
            except fastavro.read.SchemaResolutionError as error:
                raise Undecodable(WRONG_TYPE, str(error)) from None
            except Exception as error:  # noqa: BLE001 - whatever bytes can do to a decoder
                raise Undecodable(NOT_AVRO, f"{type(error).__name__}: {error}") from None
            left = len(value) - stream.tell()
            if left:
                raise Undecodable(NOT_AVRO, f"{left} bytes are left behind the record")
            found: Row = row if convert is None else convert(row)
            return found

        return decode

    def encoder(self) -> Callable[[Row], bytes]:
        """Return what writes values."""
        fastavro = _fastavro()
        schema = parsed(self.schema)
        convert = self._shape.write

        def encode(row: Row) -> bytes:
            stream = io.BytesIO()
            try:
                fastavro.schemaless_writer(stream, schema, row if convert is None else convert(row))
            except Exception as error:
                raise unwritable(f"Avro {schema['name']}", error) from error
            value = stream.getvalue()
            return value if self.schema_id is None else framed(self.schema_id, value)

        return encode

    @cached_property
    def _shape(self) -> _Shape:
        schema = parsed(self.schema)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise FormatError("the Avro schema is no record, so it has no columns")
        return _shape(schema, {}, ())

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what holds functions."""
        fields = ("schema", "writers", "schema_id")
        return {name: getattr(self, name) for name in fields}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take it in where the work is done."""
        self.__dict__.update(state)


def schema_text(schema: AvroSchema) -> str:
    """Return a schema as JSON: it is given as such, as a mapping, or as a file.

    A file may be what a schema registry answers for a version of a subject, too.

    Raises:
        FormatError: There is no such file, or no schema in it.
    """
    if isinstance(schema, Mapping):
        document: Any = dict(schema)
    else:
        text = schema
        if isinstance(schema, Path) or schema.endswith((".avsc", ".json")):
            try:
                text = Path(schema).read_text(encoding="utf-8")
            except OSError as error:
                raise FormatError(f"the Avro schema cannot be read: {error}") from None
        try:
            document = json.loads(str(text))
        except ValueError as error:
            raise FormatError(
                f"the Avro schema is no JSON: {error}", hint="give JSON, or a file: order.avsc"
            ) from None
    if isinstance(document, dict) and "type" not in document and "schema" in document:
        return str(document["schema"])
    return json.dumps(document)


def schema_texts(schemas: Schemas) -> dict[int, str]:
    """Return schemas by number: of a mapping, or of a folder with files like 17.avsc.

    Raises:
        FormatError: There is no such folder, nothing in it, or no schema in a file.
    """
    if isinstance(schemas, Mapping):
        return {number: schema_text(schema) for number, schema in schemas.items()}
    folder = Path(schemas)
    if not folder.is_dir():
        raise FormatError(f"{folder} is no folder with schemas by number")
    found = {
        int(match[1]): schema_text(path)
        for path in sorted(folder.iterdir())
        if (match := _FILE_OF_ID.fullmatch(path.name))
    }
    if not found:
        raise FormatError(
            f"no schema in {folder}", hint="name each file after its schema's id: 17.avsc"
        )
    for text in found.values():
        parsed(text)
    return found


def parsed(text: str) -> Any:  # noqa: ANN401 - a schema is any JSON
    """Return a schema with all names in full.

    Raises:
        FormatError: It is no Avro schema.
    """
    fastavro = _fastavro()
    try:
        return fastavro.parse_schema(json.loads(text))
    except Exception as error:
        raise FormatError(f"not an Avro schema: {type(error).__name__}: {error}") from error


def _fastavro() -> Any:  # noqa: ANN401 - a module
    try:
        return import_module("fastavro")
    except ImportError:
        raise FormatError(
            "Avro needs the package fastavro", hint="pip install 'headwater[avro]'"
        ) from None


def _shape(schema: Any, named: dict[str, Any], within: tuple[str, ...]) -> _Shape:  # noqa: ANN401
    if isinstance(schema, list):
        return _union(schema, named, within)
    if isinstance(schema, str):
        if schema in _PLAIN:
            return _Shape(_PLAIN[schema])
        if schema in within:
            raise FormatError(f"record {schema} is in itself: Spark has no type for it")
        return _shape(named[schema], named, within)
    if "name" in schema:
        named[schema["name"]] = schema
    if "logicalType" in schema and (logical := _maybe_logical(schema)) is not None:
        return logical
    return _complex(schema, named, within)


def _complex(schema: Mapping[str, Any], named: dict[str, Any], within: tuple[str, ...]) -> _Shape:
    match schema["type"]:
        case "record" | "error":
            return _record(schema, named, (*within, schema["name"]))
        case "array":
            return _array(_shape(schema["items"], named, within))
        case "map":
            return _map(_shape(schema["values"], named, within))
        case "enum":
            return _Shape(pa.string())
        case "fixed":
            return _Shape(pa.binary())
        case other:
            return _shape(other, named, within)


def _maybe_logical(schema: Mapping[str, Any]) -> _Shape | None:
    """Return how a logical type is held, or None for one that fastavro does not know either."""
    logical = schema["logicalType"]
    if logical == "decimal":
        precision, scale = schema["precision"], schema.get("scale", 0)
        if precision > DECIMAL_DIGITS_MAX:
            raise FormatError(f"decimal({precision},{scale}): Spark holds 38 digits")
        return _Shape(pa.decimal128(precision, scale))
    if logical == "uuid":
        return _Shape(pa.string(), str)
    if logical in {"time-millis", "time-micros"}:
        return _Shape(pa.int64(), _micros_of_day, _time_of_day)
    return _Shape(_LOGICAL[logical]) if logical in _LOGICAL else None


def _micros_of_day(time: dt.time) -> int:
    seconds = (time.hour * 60 + time.minute) * 60 + time.second
    return seconds * 1_000_000 + time.microsecond


def _time_of_day(micros: int) -> dt.time:
    seconds, micros = divmod(micros, 1_000_000)
    return dt.time(seconds // 3_600, seconds // 60 % 60, seconds % 60, micros)


def _union(branches: list[Any], named: dict[str, Any], within: tuple[str, ...]) -> _Shape:
    some = [branch for branch in branches if branch != "null"]
    if len(some) == 1:
        shape = _shape(some[0], named, within)
        return _Shape(shape.arrow, _if_there(shape.read), _if_there(shape.write))
    if all(isinstance(branch, str) for branch in some) and frozenset(some) in _WIDER:
        return _Shape(_PLAIN[_WIDER[frozenset(some)]])
    shown = ", ".join(_name(branch) for branch in some) or "null alone"
    raise FormatError(f"the union of {shown} has no single Spark type")


def _name(schema: Any) -> str:  # noqa: ANN401 - a schema is any JSON
    return str(schema.get("name", schema["type"]) if isinstance(schema, dict) else schema)


def _if_there(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


def _record(schema: Mapping[str, Any], named: dict[str, Any], within: tuple[str, ...]) -> _Shape:
    shapes = {field["name"]: _shape(field["type"], named, within) for field in schema["fields"]}
    if not shapes:
        raise FormatError(f"record {schema['name']} has no fields: Spark has no type for it")
    arrow = pa.struct([pa.field(name, shape.arrow) for name, shape in shapes.items()])
    reads = {name: shape.read for name, shape in shapes.items() if shape.read is not None}
    writes = {name: shape.write for name, shape in shapes.items() if shape.write is not None}
    return _Shape(arrow, _fields(reads), _fields(writes))


def _fields(converts: Mapping[str, Convert]) -> Convert | None:
    if not converts:
        return None

    def convert(row: Mapping[str, Any]) -> dict[str, Any]:
        found = dict(row)
        for name, each in converts.items():
            if name in found:
                found[name] = each(found[name])
        return found

    return convert


def _array(item: _Shape) -> _Shape:
    read, write = item.read, item.write
    return _Shape(
        pa.list_(item.arrow),
        None if read is None else lambda values: [read(value) for value in values],
        None if write is None else lambda values: [write(value) for value in values],
    )


def _map(item: _Shape) -> _Shape:
    read, write = item.read or _same, item.write or _same
    return _Shape(
        pa.map_(pa.string(), item.arrow),
        lambda values: [(key, read(value)) for key, value in values.items()],
        lambda pairs: {key: write(value) for key, value in pairs},
    )


def _same(value: Any) -> Any:  # noqa: ANN401 - whatever it is
    return value
