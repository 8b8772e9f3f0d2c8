"""Schema registries that a worker process shares among its tasks, and records of any format as
plain values.

Spark's workers run many tasks. A worker opens a registry once, and loads each schema once.
"""

from contextlib import ExitStack
from functools import lru_cache
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from ottla.client.registry.framing import decode_prefix
from ottla.client.schemas import (
    AvroDeserializer,
    JsonSchemaDeserializer,
    ProtobufDeserializer,
    RegistryConfig,
    SchemaDeserializer,
    SchemaFormat,
    SchemaRegistry,
    file_registry,
    open_blocking_registry,
    run_blocking,
)

REGISTRIES_MAX = 16
"""Maximum number of schema registries that a worker process keeps open."""

_OPEN = ExitStack()
"""Connections of this process to schema registries, which are closed when the process ends."""


@lru_cache(REGISTRIES_MAX)
def worker_registry(address: str, config: RegistryConfig | None = None) -> SchemaRegistry:
    """Return the schema registry at an HTTP address, or in a directory. It stays open until the
    process ends."""
    if address.startswith(("http://", "https://")):
        return _OPEN.enter_context(open_blocking_registry(address, config))
    return file_registry(address)


class PlainReader:
    """Reader that decodes records of all formats to plain Python values, each record with its own
    schema."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._deserializers: dict[SchemaFormat, SchemaDeserializer[Any]] = {
            SchemaFormat.AVRO: AvroDeserializer[Any](registry),
            SchemaFormat.JSON: JsonSchemaDeserializer[Any](registry),
            SchemaFormat.PROTOBUF: ProtobufDeserializer[Any](registry),
        }

    def read(self, data: bytes) -> Any:
        """Return the value of a record as a plain Python value; a Protobuf message becomes a dict.

        Raises SchemaError if the record cannot be read.
        """
        key = decode_prefix(data, has_indexes=False).key
        if isinstance(key, int):
            registered = run_blocking(self._registry.schema_by_id(key))
        else:
            registered = run_blocking(self._registry.schema_by_guid(key))
        deserializer = self._deserializers[registered.schema.format]
        run_blocking(deserializer.prepare("value", [(data, ())]))
        found = deserializer.deserialize("value", data, ())
        return plain_message(found) if isinstance(found, Message) else found


@lru_cache(REGISTRIES_MAX)
def plain_reader(address: str, config: RegistryConfig | None = None) -> PlainReader:
    """Return the reader of records whose schemas are in the schema registry at an address, or in a
    directory. Repeated calls return the same reader."""
    return PlainReader(worker_registry(address, config))


def plain_message(message: Message) -> dict[str, Any]:
    """Convert a Protobuf message to a dict of all its fields, by their names in the `.proto` file.

    A field that is not set is None if Protobuf tracks its presence, and its default otherwise.
    """
    return {field.name: _plain_field(message, field) for field in message.DESCRIPTOR.fields}


def _plain_field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        is_message = inner.fields_by_name["value"].message_type is not None
        return {key: plain_message(one) if is_message else one for key, one in value.items()}
    if field.is_repeated:
        return [_plain_value(field, one) for one in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _plain_value(field, value)


def _plain_value(field: Any, value: Any) -> Any:
    if field.type == FieldDescriptor.TYPE_ENUM:
        found = field.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    return plain_message(value) if isinstance(value, Message) else value
