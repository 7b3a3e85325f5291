"""Values of Confluent's own serializers, with a registry in memory: they judge our framing."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.streams.formats.avro_form import AvroForm
from headwater.streams.formats.letters import Undecodable
from headwater.streams.formats.protobuf_form import ProtobufForm

CONTEXT = SerializationContext("orders", MessageField.VALUE)
OLD = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
NEW = """{"type": "record", "name": "Order", "fields": [
  {"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}]}"""
INT64 = st.integers(-(2**63), 2**63 - 1)


def registry() -> Any:  # noqa: ANN401 - the package has no types
    """Give a registry that nobody else has."""
    return SchemaRegistryClient.new_client({"url": "mock://headwater"})


@settings(max_examples=20)
@given(number=INT64, note=st.text(max_size=20))
def test_avro_of_two_schemas_is_read(number: int, note: str) -> None:
    schemas = registry()
    old = AvroSerializer(schemas, OLD)({"id": number}, CONTEXT)
    new = AvroSerializer(schemas, NEW)({"id": number, "note": note}, CONTEXT)
    ids = [int.from_bytes(value[1:5]) for value in (old, new)]
    assert ids[0] != ids[1]
    decode = AvroForm(NEW, dict(zip(ids, (OLD, NEW), strict=True))).decoder()
    assert decode(old) == {"id": number, "note": ""}
    assert decode(new) == {"id": number, "note": note}
    with pytest.raises(Undecodable, match=f"schema id {ids[0]}; known: {ids[1]}"):
        AvroForm(NEW, {ids[1]: NEW}).decoder()(old)


@settings(max_examples=20)
@given(number=INT64, note=st.text(max_size=20))
def test_avro_is_written_as_they_write_it(number: int, note: str) -> None:
    schemas = registry()
    row = {"id": number, "note": note}
    theirs = AvroSerializer(schemas, NEW)(row, CONTEXT)
    ours = AvroForm(NEW, schema_id=int.from_bytes(theirs[1:5])).encoder()(row)
    assert ours == theirs
    assert AvroDeserializer(schemas)(ours, CONTEXT) == row


def described() -> descriptor_pb2.FileDescriptorSet:
    """Describe a message beside another, with one of its own inside."""
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="confluent.proto", package="confluent", syntax="proto3")
    file.message_type.add(name="Other").field.add(
        name="x", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL
    )
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
    order.nested_type.add(name="Line").field.add(
        name="id", number=2, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL
    )
    first = found.file.add(name="first.proto", package="first", syntax="proto3")
    first.message_type.add(name="Order").field.add(
        name="id", number=1, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL
    )
    return found


def message_class(name: str) -> Callable[..., Any]:
    pool = descriptor_pool.DescriptorPool()
    for file in described().file:
        pool.Add(file)
    made: Callable[..., Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return made


@pytest.mark.parametrize(
    "name, path",
    [
        ("first.Order", b"\x00"),
        ("confluent.Order", b"\x02\x02"),
        ("confluent.Order.Line", b"\x04\x02\x00"),
    ],
)
def test_protobuf_both_ways(name: str, path: bytes) -> None:
    schemas = registry()
    make = message_class(name)
    wanted = {"use.deprecated.format": False}
    theirs = ProtobufSerializer(make, schemas, wanted)(make(id=7), CONTEXT)
    assert theirs[5:].startswith(path)
    descriptors = described().SerializeToString()
    row: Mapping[str, object] = {"id": 7}
    assert ProtobufForm(descriptors, name, is_framed=True).decoder()(theirs) == row
    ours = ProtobufForm(descriptors, name, schema_id=int.from_bytes(theirs[1:5])).encoder()(row)
    assert ours == theirs
    assert ProtobufDeserializer(make, wanted, schemas)(ours, CONTEXT).id == 7


def test_protobuf_of_another_message_is_refused() -> None:
    make = message_class("confluent.Other")
    theirs = ProtobufSerializer(make, registry(), {"use.deprecated.format": False})(
        make(x=1), CONTEXT
    )
    form = ProtobufForm(described().SerializeToString(), "confluent.Order", is_framed=True)
    with pytest.raises(Undecodable, match=r"message indexes \[0\]"):
        form.decoder()(theirs)
