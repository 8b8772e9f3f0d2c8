"""Protobuf records: message indexes, imported files, classes from the registry."""

import base64
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.registry.file_registry import file_registry
from ottla.client.registry.schema_registry import run_blocking
from ottla.client.schemas import (
    FramingError,
    InvalidSchemaError,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaError,
    SchemaFormat,
    SchemaRegistry,
    SerializerConfig,
    UnknownSchemaError,
    ValueMismatchError,
    record_name,
)
from ottla.client.schemas.protobuf import indexes_of, message_classes_of
from tests.client.schemas.order_schemas import (
    ProtoCustomer,
    ProtoLine,
    ProtoOrder,
    ProtoPrice,
    proto_order,
)
from tests.client.schemas.round_trips import read_back, round_trip


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> SchemaRegistry:
    """Give an empty registry."""
    return file_registry(tmp_path_factory.mktemp("registry"))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS, st.lists(TEXTS), st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_every_message_is_read_as_it_was_written(
    registry: SchemaRegistry, name: str, tags: list[str], cents: int, is_guid_in_header: bool
) -> None:
    order = ProtoOrder(id=name, tags=tags, price=ProtoPrice(cents=cents))
    config = SerializerConfig(is_guid_in_header=is_guid_in_header)
    serializer = ProtobufSerializer[Any](registry, ProtoOrder, config=config)
    typed = ProtobufDeserializer[Any](registry, ProtoOrder)
    assert run_blocking(round_trip(serializer, typed, order)) == order
    found = run_blocking(round_trip(serializer, ProtobufDeserializer[Any](registry), order))
    assert found.DESCRIPTOR.full_name == "shop.Order"
    assert found.SerializeToString(deterministic=True) == order.SerializeToString(
        deterministic=True
    )


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(registry: SchemaRegistry, data: bytes) -> None:
    serializer = ProtobufSerializer[Any](registry, ProtoOrder)
    encoded = run_blocking(serializer.serialize("o", "value", proto_order()))
    hostile = encoded._replace(data=encoded.data[:5] + data)
    try:
        run_blocking(read_back(ProtobufDeserializer[Any](registry), hostile))
    except SchemaError:
        return


def test_the_path_to_a_message_counts_its_siblings() -> None:
    assert indexes_of(ProtoCustomer.DESCRIPTOR) == (0,)
    assert indexes_of(ProtoOrder.DESCRIPTOR) == (1,)
    assert indexes_of(ProtoLine.DESCRIPTOR) == (1, 0)


@pytest.mark.parametrize(
    ("message", "prefix"),
    [
        (ProtoCustomer(name="ann"), b"\0"),
        (ProtoOrder(id="1"), b"\2\2"),
        (ProtoLine(article="tea"), b"\4\2\0"),
    ],
)
async def test_messages_are_found_by_their_indexes(
    registry: SchemaRegistry, message: Any, prefix: bytes
) -> None:
    serializer = ProtobufSerializer[Any](registry, type(message))
    encoded = await serializer.serialize("orders", "value", message)
    assert encoded.data[5:].startswith(prefix)
    found = await read_back(ProtobufDeserializer[Any](registry), encoded)
    assert found.DESCRIPTOR.full_name == message.DESCRIPTOR.full_name
    assert str(found) == str(message)


async def test_imported_files_are_registered_under_their_names(tmp_path: Path) -> None:
    registry = file_registry(tmp_path)
    config = SerializerConfig(subject=record_name)
    serializer = ProtobufSerializer[Any](registry, ProtoOrder, config=config)
    await serializer.serialize("orders", "value", proto_order())
    assert await registry.list_subjects() == ["shop.Order", "shop/price.proto"]
    (reference,) = (await registry.latest_schema("shop.Order")).schema.references
    assert (reference.name, reference.version) == ("shop/price.proto", 1)

    config = SerializerConfig(subject=record_name, auto_register=False)
    again = ProtobufSerializer[Any](file_registry(tmp_path), ProtoOrder, config=config)
    order = await round_trip(again, ProtobufDeserializer[Any](registry), proto_order())
    assert (order.price.cents, order.at.seconds) == (950, 1_700_000_000)
    empty = file_registry(tmp_path / "empty")
    with pytest.raises(UnknownSchemaError):
        await ProtobufSerializer[Any](empty, ProtoOrder, config=config).serialize(
            "orders", "value", proto_order()
        )


async def test_a_message_of_another_class_is_refused(registry: SchemaRegistry) -> None:
    serializer = ProtobufSerializer[Any](registry, ProtoCustomer)
    with pytest.raises(ValueMismatchError, match="the value is a Order, not a Customer"):
        await serializer.serialize("orders", "value", proto_order())
    reader = ProtobufDeserializer[Any](registry, ProtoLine)
    with pytest.raises(
        ValueMismatchError, match=r"a shop.Customer, and is read as shop.Order.Line"
    ):
        await round_trip(serializer, reader, ProtoCustomer(name="ann"))
    lax = ProtobufDeserializer[Any](registry, ProtoLine, is_name_checked=False)
    found = await round_trip(serializer, lax, ProtoCustomer(name="ann"))
    assert found == ProtoLine(article="ann")


async def test_a_schema_as_text_needs_a_class(registry: SchemaRegistry) -> None:
    text = 'syntax = "proto3"; package shop; message Customer { string name = 1; }'
    registered = await registry.register("text", Schema(text, SchemaFormat.PROTOBUF))
    data = bytes(4) + bytes((registered.id, 0)) + ProtoCustomer(name="ann").SerializeToString()
    typed = ProtobufDeserializer[Any](registry, ProtoCustomer)
    await typed.prepare("value", [(data, ())])
    assert typed.deserialize("value", data, ()) == ProtoCustomer(name="ann")
    untyped = ProtobufDeserializer[Any](registry)
    await untyped.prepare("value", [(data, ())])
    with pytest.raises(InvalidSchemaError, match="read it with a message_type"):
        untyped.deserialize("value", data, ())


@pytest.mark.parametrize("indexes", [b"\2\x0e", b"\6\2\0\0"])
async def test_indexes_that_lead_nowhere_are_refused(
    registry: SchemaRegistry, indexes: bytes
) -> None:
    serializer = ProtobufSerializer[Any](registry, ProtoOrder)
    encoded = await serializer.serialize("orders", "value", proto_order())
    hostile = encoded._replace(data=encoded.data[:5] + indexes)
    with pytest.raises(ValueMismatchError, match="the schema has no message at"):
        await read_back(ProtobufDeserializer[Any](registry), hostile)
    with pytest.raises(FramingError):
        await read_back(
            ProtobufDeserializer[Any](registry), encoded._replace(data=encoded.data[:5])
        )


@pytest.mark.parametrize(
    "fields",
    [
        {"dependency": ["missing.proto"]},
        {"dependency": ["google/protobuf/../../os.proto"]},
        {"dependency": ["confluent/meta.proto"]},
        {"message_type": [{"name": ""}]},
        {"message_type": [{"name": "A"}, {"name": "A"}]},
    ],
)
async def test_a_malformed_schema_is_refused(registry: SchemaRegistry, fields: Any) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto(name="x.proto", **fields)
    text = base64.b64encode(file.SerializeToString()).decode()
    registered = await registry.register("bad", Schema(text, SchemaFormat.PROTOBUF))
    deserializer = ProtobufDeserializer[Any](registry)
    data = bytes(4) + bytes((registered.id, 0))
    await deserializer.prepare("value", [(data, ())])
    with pytest.raises(InvalidSchemaError):
        deserializer.deserialize("value", data, ())


def test_messages_of_a_descriptor_set_are_found_by_name() -> None:
    own = FileDescriptorProto(
        name="shop.proto", package="shop", syntax="proto3", dependency=["google/protobuf/any.proto"]
    )
    message = own.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1, json_name="id")
    data = FileDescriptorSet(file=[own]).SerializeToString()
    found = message_classes_of(data)
    assert list(found) == ["shop.Order"]
    assert str(found["shop.Order"].FromString(b"\x08\x07")) == "id: 7\n"


@pytest.mark.parametrize("data", [b"no descriptor", b"\x0a\x10\x0a\x01a\x1a\x0bmissing.txt"])
def test_bytes_that_are_no_descriptor_set_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidSchemaError, match="not a complete descriptor set"):
        message_classes_of(data)
