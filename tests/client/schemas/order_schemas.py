"""The same order as an Avro, a JSON and a Protobuf schema, each of which imports a price."""

from typing import Any

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import DESCRIPTOR as TIMESTAMP_FILE

from ottla.client.registry.schema_values import Schema, SchemaFormat, SchemaReference

AVRO_PRICE = """{"type": "record", "name": "Price", "namespace": "shop", "fields": [
    {"name": "cents", "type": "long"},
    {"name": "currency", "type": {"type": "enum", "name": "Currency", "symbols": ["EUR", "USD"]}}
]}"""
AVRO_ORDER = Schema(
    """{"type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "id", "type": "string"},
        {"name": "price", "type": "Price"},
        {"name": "discount", "type": ["null", "shop.Price"], "default": null},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "double", "boolean"]}}
    ]}""",
    SchemaFormat.AVRO,
    (SchemaReference("shop.Price", "shop.Price", 1),),
)
JSON_PRICE = """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Price",
    "type": "object", "required": ["cents", "currency"], "properties": {
        "cents": {"type": "integer"}, "currency": {"enum": ["EUR", "USD"]}
    }, "additionalProperties": false}"""
JSON_ORDER = Schema(
    """{"$schema": "http://json-schema.org/draft-07/schema#", "title": "Order",
        "type": "object", "required": ["id", "price"], "properties": {
            "id": {"type": "string"},
            "price": {"$ref": "price.json"},
            "discount": {"oneOf": [{"type": "null"}, {"$ref": "price.json"}]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "counts": {"type": "object", "additionalProperties": {"type": ["null", "number"]}}
        }, "additionalProperties": false}""",
    SchemaFormat.JSON,
    (SchemaReference("price.json", "price.json", 1),),
)
ORDER: dict[str, Any] = {
    "id": "ä-1",
    "price": {"cents": 950, "currency": "EUR"},
    "discount": None,
    "tags": ["new", ""],
    "counts": {"a": 0.5, "b": None},
}
"""A value of the Avro and of the JSON schema."""


def _field(
    name: str, number: int, type_name: str = "", *, kind: str = "STRING", is_repeated: bool = False
) -> FieldDescriptorProto:
    return FieldDescriptorProto(
        name=name,
        json_name=name,  # as protoc sets it; JavaScript's messages need it
        number=number,
        type=FieldDescriptorProto.Type.Value(f"TYPE_{'MESSAGE' if type_name else kind}"),
        type_name=type_name or None,
        label=FieldDescriptorProto.Label.Value(
            f"LABEL_{'REPEATED' if is_repeated else 'OPTIONAL'}"
        ),
    )


PRICE_FILE = FileDescriptorProto(
    name="shop/price.proto",
    package="shop",
    syntax="proto3",
    message_type=[
        DescriptorProto(
            name="Price", field=[_field("cents", 1, kind="INT64"), _field("currency", 2)]
        )
    ],
)
ORDER_FILE = FileDescriptorProto(
    name="shop/order.proto",
    package="shop",
    syntax="proto3",
    dependency=["shop/price.proto", "google/protobuf/timestamp.proto"],
    message_type=[
        DescriptorProto(name="Customer", field=[_field("name", 1)]),
        DescriptorProto(
            name="Order",
            field=[
                _field("id", 1),
                _field("price", 2, ".shop.Price"),
                _field("tags", 3, is_repeated=True),
                _field("at", 4, ".google.protobuf.Timestamp"),
                _field("lines", 5, ".shop.Order.Line", is_repeated=True),
            ],
            nested_type=[DescriptorProto(name="Line", field=[_field("article", 1)])],
        ),
    ],
)

_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(TIMESTAMP_FILE.serialized_pb)
_POOL.Add(PRICE_FILE)
_POOL.Add(ORDER_FILE)


def message_class(name: str) -> type[Message]:
    """Return the class of a message, as `protoc` would generate it."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


ProtoOrder: Any = message_class("shop.Order")
ProtoLine: Any = message_class("shop.Order.Line")
ProtoCustomer: Any = message_class("shop.Customer")
ProtoPrice: Any = message_class("shop.Price")


def proto_order() -> Any:
    """Return a message with a price, a time and lines."""
    order = ProtoOrder(id="ä-1", tags=["new", ""], price=ProtoPrice(cents=950, currency="EUR"))
    order.at.seconds = 1_700_000_000
    order.lines.add(article="tea")
    return order
