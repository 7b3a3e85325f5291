"""Protobuf's messages as rows, against the messages of protobuf's own classes."""

import datetime as dt
import decimal
import functools
import pickle
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.formats.batches import decoded_batches, encoded_batches
from headwater.streams.formats.errors import FormatError
from headwater.streams.formats.letters import Undecodable
from headwater.streams.formats.protobuf_form import ProtobufForm
from headwater.streams.formats.types import spark_type


def files() -> descriptor_pb2.FileDescriptorSet:
    """Describe messages of every kind, as protoc would."""
    found = descriptor_pb2.FileDescriptorSet()
    file = found.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"])
    color = file.enum_type.add(name="Color")
    color.value.add(name="RED", number=0)
    color.value.add(name="BLUE", number=3)
    file.message_type.add(name="Other").field.add(
        name="x", number=1, type=Field.TYPE_INT32, label=Field.LABEL_OPTIONAL
    )
    order = file.message_type.add(name="Order")
    inner = order.nested_type.add(name="Line")
    inner.field.add(name="sku", number=1, type=Field.TYPE_STRING, label=Field.LABEL_OPTIONAL)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    for name, number, kind in (("key", 1, Field.TYPE_STRING), ("value", 2, Field.TYPE_INT32)):
        entry.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    order.oneof_decl.add(name="_note")
    one, many = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED
    for number, (name, kind, label, type_name) in enumerate(
        [
            ("id", Field.TYPE_INT64, one, None),
            ("small", Field.TYPE_SINT32, one, None),
            ("u32", Field.TYPE_UINT32, one, None),
            ("u64", Field.TYPE_FIXED64, one, None),
            ("real", Field.TYPE_FLOAT, one, None),
            ("flag", Field.TYPE_BOOL, one, None),
            ("text", Field.TYPE_STRING, one, None),
            ("data", Field.TYPE_BYTES, one, None),
            ("color", Field.TYPE_ENUM, one, ".shop.Color"),
            ("note", Field.TYPE_STRING, one, None),
            ("line", Field.TYPE_MESSAGE, one, ".shop.Order.Line"),
            ("lines", Field.TYPE_MESSAGE, many, ".shop.Order.Line"),
            ("tags", Field.TYPE_UINT64, many, None),
            ("counts", Field.TYPE_MESSAGE, many, ".shop.Order.CountsEntry"),
            ("at", Field.TYPE_MESSAGE, one, ".google.protobuf.Timestamp"),
            ("maybe", Field.TYPE_MESSAGE, one, ".google.protobuf.UInt64Value"),
        ],
        1,
    ):
        field = order.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            field.type_name = type_name
        if name == "note":
            field.oneof_index = 0
            field.proto3_optional = True
    tree = file.message_type.add(name="Tree")
    tree.field.add(
        name="left", number=1, type=Field.TYPE_MESSAGE, label=one, type_name=".shop.Tree"
    )
    file.message_type.add(name="Nothing")
    strict = found.file.add(name="strict.proto", package="strict", syntax="proto2")
    strict.message_type.add(name="Must").field.add(
        name="x", number=1, type=Field.TYPE_INT32, label=Field.LABEL_REQUIRED
    )
    return found


FILES = files().SerializeToString()
DECLARED = (
    "struct<`id`: bigint, `small`: int, `u32`: bigint, `u64`: decimal(20,0), `real`: float, "
    "`flag`: boolean, `text`: string, `data`: binary, `color`: string, `note`: string, "
    "`line`: struct<`sku`: string>, `lines`: array<struct<`sku`: string>>, "
    "`tags`: array<decimal(20,0)>, `counts`: map<string, int>, `at`: timestamp, "
    "`maybe`: decimal(20,0)>"
)
ROW: dict[str, Any] = {
    "id": -5,
    "small": -7,
    "u32": (1 << 32) - 1,
    "u64": decimal.Decimal((1 << 64) - 1),
    "real": 0.5,
    "flag": True,
    "text": "zoë",
    "data": b"\xff",
    "color": "BLUE",
    "note": "",
    "line": {"sku": "a"},
    "lines": [{"sku": "b"}, {"sku": ""}],
    "tags": [decimal.Decimal(1), decimal.Decimal((1 << 64) - 1)],
    "counts": [("k", 3)],
    "at": dt.datetime(2026, 11, 15, 12, 0, 0, 1, tzinfo=dt.UTC),
    "maybe": decimal.Decimal(0),
}
UNSET: dict[str, Any] = {
    "id": 0,
    "small": 0,
    "u32": 0,
    "u64": decimal.Decimal(0),
    "real": 0.0,
    "flag": False,
    "text": "",
    "data": b"",
    "color": "RED",
    "note": None,
    "line": None,
    "lines": [],
    "tags": [],
    "counts": [],
    "at": None,
    "maybe": None,
}


@functools.cache
def order_class() -> Any:  # noqa: ANN401 - a class made at run time
    """Give protobuf's own class of the message, independent of ours."""
    pool = descriptor_pool.DescriptorPool()
    for well_known in ("timestamp", "wrappers"):
        module = __import__(f"google.protobuf.{well_known}_pb2", fromlist=["DESCRIPTOR"])
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in files().file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def decoded(form: ProtobufForm, *values: bytes) -> pa.RecordBatch:
    (batch,) = decoded_batches([pa.record_batch({"value": list(values)})], "value", form)
    return batch


def test_a_message_of_protobuf_itself_becomes_a_row_and_the_same_message_again() -> None:
    message = order_class()(
        id=-5,
        small=-7,
        u32=(1 << 32) - 1,
        u64=(1 << 64) - 1,
        real=0.5,
        flag=True,
        text="zoë",
        data=b"\xff",
        color=3,
        note="",
        line={"sku": "a"},
        lines=[{"sku": "b"}, {}],
        tags=[1, (1 << 64) - 1],
        counts={"k": 3},
        maybe={"value": 0},
    )
    message.at.seconds, message.at.nanos = 1_794_744_000, 1_999
    form = ProtobufForm(FILES, "shop.Order")
    assert spark_type(form.arrow_type) == DECLARED
    batch = decoded(form, message.SerializeToString(), b"")
    assert batch.column("__hw_error").to_pylist() == [None, None]
    assert batch.column("__hw_decoded").to_pylist() == [ROW, UNSET]
    structs = pa.record_batch({"f": batch.column("__hw_decoded")})
    (back,) = encoded_batches([structs], [], "f", form)
    message.at.nanos = 1_000  # Spark's timestamps end there
    again = [order_class().FromString(value) for value in back.column("value").to_pylist()]
    assert again == [message, order_class()()]


def test_the_epoch_and_empty_structs_are_not_null() -> None:
    form = ProtobufForm(FILES, "shop.Order")
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    message = order_class().FromString(form.encoder()({"at": epoch, "line": {"sku": None}}))
    assert message.HasField("at")
    assert message.HasField("line")


def test_an_enum_value_of_tomorrow_is_its_number() -> None:
    form = ProtobufForm(FILES, "shop.Order")
    value = order_class()(color=99).SerializeToString()
    assert form.decoder()(value)["color"] == "99"
    assert form.encoder()({"color": "99"}) == value


def test_framed_messages() -> None:
    form = ProtobufForm(FILES, "shop.Order", is_framed=True, schema_id=9)
    value = form.encoder()({"id": 4})
    assert value == b"\0\0\0\0\x09" + b"\x02\x02" + order_class()(id=4).SerializeToString()
    assert form.decoder()(value)["id"] == 4
    line = ProtobufForm(FILES, "shop.Order.Line", is_framed=True, schema_id=9)
    assert line.encoder()({"sku": "a"}).startswith(b"\0\0\0\0\x09\x04\x02\x00")
    with pytest.raises(Undecodable, match=r"UNKNOWN_SCHEMA: message indexes \[1\]"):
        line.decoder()(value)
    with pytest.raises(Undecodable, match="NOT_FRAMED"):
        form.decoder()(b"\x01" + value[1:])


@pytest.mark.parametrize(
    "message, value",
    [("shop.Order", b"\x0a"), ("shop.Order", b"\x3a\x01\xff"), ("strict.Must", b"")],
)
def test_other_bytes_are_no_such_message(message: str, value: bytes) -> None:
    with pytest.raises(Undecodable, match="NOT_PROTOBUF"):
        ProtobufForm(FILES, message).decoder()(value)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_undecodable(value: bytes) -> None:
    (error,) = decoded(ProtobufForm(FILES, "shop.Order"), value).column("__hw_error").to_pylist()
    assert error is None or error.startswith(("NOT_PROTOBUF: ", "WRONG_TYPE: "))


@pytest.mark.parametrize(
    "descriptors, message, told",
    [
        (b"\xff", "shop.Order", "no Protobuf descriptors"),
        (FILES, "shop.Ordr", "no message shop.Ordr"),
        (FILES, "shop.Tree", "shop.Tree is in itself"),
        (FILES, "shop.Nothing", "no fields"),
    ],
)
def test_descriptors_that_cannot_be_used(descriptors: bytes, message: str, told: str) -> None:
    with pytest.raises(FormatError, match=told):
        assert ProtobufForm(descriptors, message).arrow_type


def test_an_import_that_is_not_there_is_told() -> None:
    found = descriptor_pb2.FileDescriptorSet()
    found.file.add(name="a.proto").dependency.append("b.proto")
    with pytest.raises(FormatError, match=r"b.proto is imported") as told:
        assert ProtobufForm(found.SerializeToString(), "A").arrow_type
    assert "--include_imports" in told.value.hint


def test_rows_that_do_not_fit_are_told() -> None:
    with pytest.raises(FormatError, match=r"cannot be written as Protobuf shop.Order"):
        ProtobufForm(FILES, "shop.Order").encoder()({"color": "GREEN"})
    with pytest.raises(FormatError, match=r"cannot be written as Protobuf strict.Must"):
        ProtobufForm(FILES, "strict.Must").encoder()({})


def test_it_travels_to_other_processes() -> None:
    form = ProtobufForm(FILES, "shop.Order", is_framed=True)
    assert form.arrow_type is not None
    again = pickle.loads(pickle.dumps(form))
    assert again == form
    assert again.arrow_type == form.arrow_type
