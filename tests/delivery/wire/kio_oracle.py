"""Our messages as kio's, and kio's as bytes.

This file alone knows how kio, an independent implementation of the same protocol, spells a message:
one frozen dataclass per version, whose fields stand in the schema's order under names of kio's own,
with durations, instants, error codes and UUIDs as Python types.
"""

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

import kio.index
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import classify_field
from kio.static.constants import EntityType

from headwater.base.schema import Field, Message, Struct, StructSchema

# kio's own types are narrower than what it accepts.
Kio: TypeAlias = Any

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# The widest values that survive a trip through kio's Python types.
NARROW = {
    "error_code": st.sampled_from([int(code) for code in ErrorCode]),
    "timedelta_i64": st.integers(-(10**12), 10**12),
    # Whole seconds: kio goes through floating point.
    "datetime_i64": st.integers(0, 10**10).map(lambda seconds: seconds * 1000),
}


class Oracle:
    """kio's view of one message in one version."""

    def __init__(self, message: type[Message], version: int) -> None:
        schema = message.__schema__
        self._message = message
        self._version = version
        if schema.kind in {"request", "response"}:
            load: Kio = getattr(kio.index, f"load_{schema.kind}_schema")
            self.entity: Kio = load(schema.api_key, version)
        else:
            kind: Kio = EntityType[schema.kind]
            self.entity = kio.index.load_entity_schema(_kio_name(schema.name), version, kind)
        self._write = entity_writer(self.entity)
        self._read = entity_reader(self.entity)
        self._entities = {schema.root.name: self.entity}
        self._narrow: dict[tuple[str, str], st.SearchStrategy[Any] | None] = {}
        self._learn(schema.root, self.entity)

    def _learn(self, struct: StructSchema, entity: Kio) -> None:
        for field, theirs in self._pairs(struct, entity):
            kafka_type = theirs.metadata.get("kafka_type", "")
            self._narrow[struct.name, field.name] = NARROW.get(kafka_type)
            if field.is_struct and field.type not in self._entities:
                inner: Kio = classify_field(theirs).type_
                self._entities[field.type] = inner
                self._learn(self._message.__schema__.structs[field.type], inner)

    def _pairs(
        self, struct: StructSchema, entity: Kio
    ) -> list[tuple[Field, "dataclasses.Field[Any]"]]:
        ours = [field for field in struct.fields if self._version in field.versions]
        theirs = dataclasses.fields(entity)
        assert len(ours) == len(theirs), (struct.name, ours, theirs)
        pairs = list(zip(ours, theirs, strict=True))
        for field, their in pairs:
            assert their.name.split("_")[0] == field.name.split("_")[0], (field, their)
        return pairs

    def narrow(self, struct: str, field: Field) -> st.SearchStrategy[Any] | None:
        """Return a narrower strategy where kio cannot hold every value of the wire type."""
        return self._narrow[struct, field.name]

    def convert(self, message: Message) -> Kio:
        """Return our message as kio's."""
        return self._struct(message, self._message.__schema__.root)

    def _struct(self, value: Struct, struct: StructSchema) -> Kio:
        entity = self._entities[struct.name]
        return entity(
            **{
                theirs.name: self._value(getattr(value, field.name), field, theirs)
                for field, theirs in self._pairs(struct, entity)
            }
        )

    def _value(self, value: Kio, field: Field, theirs: "dataclasses.Field[Any]") -> Kio:
        if value is None:
            return None
        if field.is_array:
            return tuple(self._one(item, field, theirs) for item in value)
        return self._one(value, field, theirs)

    def _one(self, value: Kio, field: Field, theirs: "dataclasses.Field[Any]") -> Kio:
        if field.is_struct:
            return self._struct(value, self._message.__schema__.structs[field.type])
        match theirs.metadata["kafka_type"]:
            case "error_code":
                return ErrorCode(value)
            case "timedelta_i32" | "timedelta_i64":
                return timedelta(milliseconds=value)
            case "datetime_i64":
                return EPOCH + timedelta(milliseconds=value)
            case "uuid":
                # The zero UUID is kio's None.
                return UUID(bytes=value) if any(value) else None
            case _:
                return value

    def encode(self, entity: Kio) -> bytes:
        """Return the bytes that kio writes."""
        with io.BytesIO() as buffer:
            self._write(buffer, entity)
            return buffer.getvalue()

    def decode(self, data: bytes) -> Kio:
        """Return what kio reads, which must be all of the bytes."""
        entity, size = self._read(data, 0)
        assert size == len(data)
        return entity


def _kio_name(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


_ORACLES: dict[tuple[str, int], Oracle] = {}


def oracle(message: type[Message], version: int) -> Oracle:
    """Return kio's view of one message in one version; making it costs more than using it."""
    key = message.__name__, version
    if key not in _ORACLES:
        _ORACLES[key] = Oracle(message, version)
    return _ORACLES[key]
