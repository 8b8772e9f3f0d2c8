"""Records of Confluent's Python serializers are read, and ours are read by theirs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Schema as ConfluentSchema,
)
from confluent_kafka.schema_registry import (
    SchemaReference as ConfluentReference,
)
from confluent_kafka.schema_registry import (
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry import avro as confluent_avro
from confluent_kafka.schema_registry import json_schema as confluent_json
from confluent_kafka.schema_registry import protobuf as confluent_protobuf
from confluent_kafka.serialization import MessageField, SerializationContext

from ottla.client.registry.schema_registry import run_blocking
from ottla.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    EncodedField,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    Schema,
    SchemaFormat,
    SchemaRegistry,
    SerializerConfig,
    open_blocking_registry,
)
from tests.client.registry.registry_server import serve_registry
from tests.client.schemas.order_schemas import (
    AVRO_ORDER,
    AVRO_PRICE,
    JSON_ORDER,
    JSON_PRICE,
    ORDER,
    ProtoLine,
    ProtoOrder,
    proto_order,
)
from tests.client.schemas.round_trips import read_back

FORMATS = ("avro", "json", "protobuf", "nested protobuf")
VALUES: dict[str, Any] = {
    "avro": ORDER,
    "json": ORDER,
    "protobuf": proto_order(),
    "nested protobuf": ProtoLine(article="tea"),
}


class Registries:
    """One registry, through our client and through Confluent's."""

    def __init__(self, ours: SchemaRegistry, theirs: Any) -> None:
        self.ours = ours
        self.theirs = theirs


@pytest.fixture
def registries(tmp_path: Path) -> Iterator[Registries]:
    """Give a registry that has the prices of Avro and JSON."""
    with serve_registry(tmp_path) as server, open_blocking_registry(server.url) as ours:
        run_blocking(ours.register("shop.Price", Schema(AVRO_PRICE)))
        run_blocking(ours.register("price.json", Schema(JSON_PRICE, SchemaFormat.JSON)))
        with SchemaRegistryClient({"url": server.url}) as theirs:
            yield Registries(ours, theirs)


def their_schema(schema: Schema) -> Any:
    """Return a schema for Confluent's serializers."""
    references = [
        ConfluentReference(one.name, one.subject, one.version) for one in schema.references
    ]
    return ConfluentSchema(schema.text, schema.format.value, references)


def write_theirs(registries: Registries, kind: str, is_in_header: bool) -> EncodedField:
    """Return a value as Confluent's serializer writes it."""
    place = header_schema_id_serializer if is_in_header else prefix_schema_id_serializer
    config = {"schema.id.serializer": place}
    serializer: Any
    if kind == "avro":
        serializer = confluent_avro.AvroSerializer(
            registries.theirs, their_schema(AVRO_ORDER), conf=config
        )
    elif kind == "json":
        serializer = confluent_json.JSONSerializer(
            their_schema(JSON_ORDER), registries.theirs, conf=config
        )
    else:
        serializer = confluent_protobuf.ProtobufSerializer(
            type(VALUES[kind]), registries.theirs, conf=config
        )
    context = SerializationContext("orders", MessageField.VALUE, [])
    data = serializer(VALUES[kind], context)
    return EncodedField(data, tuple(context.headers))


def read_theirs(registries: Registries, kind: str, encoded: EncodedField) -> Any:
    """Return a value as Confluent's deserializer reads it."""
    deserializer: Any
    if kind == "avro":
        deserializer = confluent_avro.AvroDeserializer(registries.theirs)
    elif kind == "json":
        deserializer = confluent_json.JSONDeserializer(
            None, schema_registry_client=registries.theirs
        )
    else:
        deserializer = confluent_protobuf.ProtobufDeserializer(
            type(VALUES[kind]), {}, registries.theirs
        )
    context = SerializationContext("orders", MessageField.VALUE, list(encoded.headers))
    return deserializer(encoded.data, context)


def write_ours(registries: Registries, kind: str, is_in_header: bool) -> EncodedField:
    """Return a value as our serializer writes it."""
    config = SerializerConfig(is_guid_in_header=is_in_header)
    serializer: Any
    if kind == "avro":
        serializer = AvroSerializer[Any](registries.ours, AVRO_ORDER, config=config)
    elif kind == "json":
        serializer = JsonSchemaSerializer[Any](registries.ours, JSON_ORDER, config=config)
    else:
        serializer = ProtobufSerializer[Any](registries.ours, type(VALUES[kind]), config=config)
    encoded: EncodedField = run_blocking(serializer.serialize("orders", "value", VALUES[kind]))
    return encoded


def read_ours(registries: Registries, kind: str, encoded: EncodedField) -> Any:
    """Return a value as our deserializer reads it."""
    deserializer: Any
    if kind == "avro":
        deserializer = AvroDeserializer[Any](registries.ours)
    elif kind == "json":
        deserializer = JsonSchemaDeserializer[Any](registries.ours)
    else:
        untyped = ProtobufDeserializer[Any](registries.ours)
        typed = ProtobufDeserializer[Any](registries.ours, type(VALUES[kind]))
        assert str(run_blocking(read_back(untyped, encoded))) == str(VALUES[kind])
        deserializer = typed
    return run_blocking(read_back(deserializer, encoded))


@pytest.mark.parametrize("is_in_header", [False, True], ids=["prefix", "header"])
@pytest.mark.parametrize("kind", FORMATS)
def test_records_of_either_are_read_by_both(
    registries: Registries, kind: str, is_in_header: bool
) -> None:
    theirs = write_theirs(registries, kind, is_in_header)
    ours = write_ours(registries, kind, is_in_header)
    assert bool(ours.headers) is is_in_header
    for encoded in (theirs, ours):
        assert read_ours(registries, kind, encoded) == VALUES[kind]
        assert read_theirs(registries, kind, encoded) == VALUES[kind]
    if "protobuf" not in kind:
        # Both register the same text, so even the bytes are the same.
        assert ours == theirs


def test_our_schema_of_a_protobuf_file_is_theirs(registries: Registries) -> None:
    ours = write_ours(registries, "protobuf", False)
    theirs = write_theirs(registries, "protobuf", False)
    assert ours.data[:7] == theirs.data[:7]
    assert ProtoOrder.FromString(ours.data[7:]) == ProtoOrder.FromString(theirs.data[7:])
