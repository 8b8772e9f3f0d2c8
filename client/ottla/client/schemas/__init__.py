"""Avro, JSON Schema and Protobuf records with a schema registry, for the producer and the consumer.

Needs the extra (optional dependencies) `schemas`. Example programs are in docs/client-schemas.md.

record_codecs.py    interfaces that SerializingProducer and DeserializingConsumer accept
subject_writers.py  schemas under which a serializer writes, by subject
schema_readers.py   schemas of records that a deserializer reads, by id
avro.py             Avro, through fastavro
avro_nesting.py     limit of the nesting of Avro values (pure)
json_schema.py      JSON Schema, through jsonschema-rs
protobuf.py         Protobuf
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.client.registry.file_registry import file_registry
    from ottla.client.registry.http_registry import (
        RegistryConfig,
        open_blocking_registry,
        open_registry,
    )
    from ottla.client.registry.registry_errors import (
        FramingError,
        InvalidSchemaError,
        MissingExtraError,
        ReferenceLimitError,
        RegistryRefusedError,
        RegistryUnavailableError,
        RemoteReferenceError,
        SchemaError,
        SchemaTooLargeError,
        UnknownSchemaError,
        ValueMismatchError,
    )
    from ottla.client.registry.schema_registry import SchemaRegistry, run_blocking
    from ottla.client.registry.schema_values import (
        RegisteredSchema,
        Schema,
        SchemaFormat,
        SchemaReference,
    )
    from ottla.client.registry.subjects import record_name, topic_name, topic_record_name
    from ottla.client.schemas.avro import AvroDeserializer, AvroSerializer
    from ottla.client.schemas.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
    from ottla.client.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from ottla.client.schemas.record_codecs import (
        EncodedField,
        SchemaDeserializer,
        SchemaSerializer,
    )
    from ottla.client.schemas.subject_writers import SerializerConfig

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "EncodedField",
    "FramingError",
    "InvalidSchemaError",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "MissingExtraError",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "ReferenceLimitError",
    "RegisteredSchema",
    "RegistryConfig",
    "RegistryRefusedError",
    "RegistryUnavailableError",
    "RemoteReferenceError",
    "Schema",
    "SchemaDeserializer",
    "SchemaError",
    "SchemaFormat",
    "SchemaReference",
    "SchemaRegistry",
    "SchemaSerializer",
    "SchemaTooLargeError",
    "SerializerConfig",
    "UnknownSchemaError",
    "ValueMismatchError",
    "file_registry",
    "open_blocking_registry",
    "open_registry",
    "record_name",
    "run_blocking",
    "topic_name",
    "topic_record_name",
]

_HOMES = {
    "ottla.client.registry.file_registry": ("file_registry",),
    "ottla.client.registry.http_registry": (
        "RegistryConfig",
        "open_blocking_registry",
        "open_registry",
    ),
    "ottla.client.registry.schema_registry": ("SchemaRegistry", "run_blocking"),
    "ottla.client.registry.schema_values": (
        "RegisteredSchema",
        "Schema",
        "SchemaFormat",
        "SchemaReference",
    ),
    "ottla.client.registry.subjects": ("record_name", "topic_name", "topic_record_name"),
    "ottla.client.schemas.avro": ("AvroDeserializer", "AvroSerializer"),
    "ottla.client.schemas.json_schema": ("JsonSchemaDeserializer", "JsonSchemaSerializer"),
    "ottla.client.schemas.protobuf": ("ProtobufDeserializer", "ProtobufSerializer"),
    "ottla.client.schemas.record_codecs": (
        "EncodedField",
        "SchemaDeserializer",
        "SchemaSerializer",
    ),
    "ottla.client.schemas.subject_writers": ("SerializerConfig",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the module that defines the public name `name`, and return the object with this name.
    fastavro, jsonschema-rs and httpx2 are therefore imported only if they are used."""
    home = _HOME.get(name)
    if home is None and name in __all__:
        home = "ottla.client.registry.registry_errors"
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
