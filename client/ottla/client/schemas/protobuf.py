"""Serializer and deserializer of Protobuf records with a schema registry.

Schemas are registered as a FileDescriptorProto in base64, as by Confluent's Python and JavaScript
serializers. The schema registry converts them to text. Each imported `.proto` file is registered
under a subject with its own name. Google's well-known files are not registered, because every
reader has them.
"""

import base64
import binascii
import re
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)
from google.protobuf.message import DecodeError, Message

from ottla.client.registry.framing import RecordPart
from ottla.client.registry.registry_errors import InvalidSchemaError, ValueMismatchError
from ottla.client.registry.schema_registry import SchemaRegistry
from ottla.client.registry.schema_values import (
    RegisteredSchema,
    Schema,
    SchemaFormat,
    SchemaReference,
)
from ottla.client.schemas.record_codecs import (
    EncodedField,
    SchemaSerializer,
)
from ottla.client.schemas.schema_readers import (
    PayloadReader,
    RegistryDeserializer,
    SchemaReaders,
    require_format,
)
from ottla.client.schemas.subject_writers import SerializerConfig, SubjectWriters

M = TypeVar("M", bound=Message)

WELL_KNOWN = ("google/protobuf/", "google/type/", "confluent/")
"""Path prefixes of imported `.proto` files that are never registered, as in Confluent's
serializers."""
_WELL_KNOWN_FILE = re.compile(r"google/(?:protobuf|type)/[a-z][a-z0-9_]*\.proto")

MessageClassAt = Callable[[tuple[int, ...]], type[Message]]
"""Function that returns the class of a Protobuf message. Its argument is the message's indexes: its
path within the `.proto` file."""


class ProtobufSerializer(SchemaSerializer[M], Generic[M]):
    """A serializer for the messages of one class that `protoc` has generated."""

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[M],
        *,
        config: SerializerConfig | None = None,
    ) -> None:
        # Generated classes have another type of descriptor, with the same attributes.
        descriptor: Any = message_type.DESCRIPTOR

        async def file_schema(registry: SchemaRegistry, config: SerializerConfig) -> Schema:
            return await _FileRegistration(registry, config).schema_of(descriptor.file)

        async def compile_writer(registry: SchemaRegistry, schema: Schema) -> Callable[[M], bytes]:
            return _writer(message_type)

        self._writers: SubjectWriters[M] = SubjectWriters(
            registry,
            config,
            name=descriptor.full_name,
            schema=file_schema,
            compile_writer=compile_writer,
            indexes=indexes_of(descriptor),
        )

    async def serialize(self, topic: str, part: RecordPart, value: M) -> EncodedField:
        """Encode a Protobuf message. The result contains the id of the schema.

        Raises ValueMismatchError if the value is not a message of the serializer's class.
        """
        return await self._writers.encode(topic, part, value)


class ProtobufDeserializer(RegistryDeserializer[M], Generic[M]):
    """A deserializer of Protobuf messages.

    With `message_type`, all records are decoded as messages of that class. A record whose message
    has another name is an error if `is_name_checked` is True. Without `message_type`, each record
    becomes a message of the type that its schema describes. This requires a registry that returns
    serialized schemas, such as Confluent's and Redpanda's.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        message_type: type[M] | None = None,
        *,
        is_name_checked: bool = True,
    ) -> None:
        async def compile_reader(
            registry: SchemaRegistry, registered: RegisteredSchema
        ) -> PayloadReader[M]:
            require_format(registered, SchemaFormat.PROTOBUF)
            if message_type is not None and not is_name_checked:
                return _typed_reader(message_type, None)
            file = _file_of(registered.schema)
            if file is None and message_type is None:
                raise InvalidSchemaError(
                    "the registry returned the schema as text, not serialized; read it with a "
                    "message_type"
                )
            class_at = None if file is None else await _class_finder(registry, registered, file)
            if message_type is not None:
                return _typed_reader(message_type, class_at)
            assert class_at is not None
            return cast("PayloadReader[M]", _untyped_reader(class_at))

        self._readers: SchemaReaders[M] = SchemaReaders(
            registry, compile_reader, has_indexes=True, is_serialized=True
        )


class _FileRegistration:
    """Converts `.proto` files to schemas, and registers the files that they import."""

    def __init__(self, registry: SchemaRegistry, config: SerializerConfig) -> None:
        self._registry = registry
        self._config = config
        self._references: dict[str, SchemaReference] = {}

    async def schema_of(self, file: FileDescriptor) -> Schema:
        """Return the schema of a `.proto` file, with references to the files that it imports."""
        references = [
            await self._reference_to(one)
            for one in file.dependencies
            if not one.name.startswith(WELL_KNOWN)
        ]
        text = base64.standard_b64encode(file.serialized_pb).decode()
        return Schema(text, SchemaFormat.PROTOBUF, tuple(references))

    async def _reference_to(self, file: FileDescriptor) -> SchemaReference:
        found = self._references.get(file.name)
        if found is None:
            schema = await self.schema_of(file)
            is_normalized = self._config.normalize
            if self._config.auto_register:
                await self._registry.register(file.name, schema, is_normalized=is_normalized)
            # Registries return a version for sure only when a schema is looked up.
            registered = await self._registry.look_up(
                file.name, schema, is_normalized=is_normalized
            )
            if registered.version is None:
                raise InvalidSchemaError(f"the registry returned no version of {file.name}")
            found = SchemaReference(file.name, file.name, registered.version)
            self._references[file.name] = found
        return found


def indexes_of(descriptor: Descriptor) -> tuple[int, ...]:
    """Return the message indexes of a Protobuf message: its path within its `.proto` file."""
    indexes: list[int] = []
    at: Descriptor | None = descriptor
    while at is not None:
        outer: Descriptor | None = at.containing_type
        siblings = list(
            at.file.message_types_by_name.values() if outer is None else outer.nested_types
        )
        names = [one.full_name for one in siblings]
        indexes.insert(0, names.index(at.full_name))
        at = outer
    return tuple(indexes)


def _writer(message_type: type[M]) -> Callable[[M], bytes]:
    def write_value(value: M) -> bytes:
        if not isinstance(value, message_type):
            raise ValueMismatchError(
                f"the value is a {type(value).__name__}, not a {message_type.__name__}"
            )
        return value.SerializeToString()

    return write_value


def _typed_reader(message_type: type[M], class_at: MessageClassAt | None) -> PayloadReader[M]:
    full_name = message_type.DESCRIPTOR.full_name

    def read_payload(payload: bytes, indexes: tuple[int, ...]) -> M:
        if class_at is not None:
            found = class_at(indexes).DESCRIPTOR.full_name
            if found != full_name:
                raise ValueMismatchError(f"the record is a {found}, and is read as {full_name}")
        return message_type.FromString(payload)

    return read_payload


def _untyped_reader(class_at: MessageClassAt) -> PayloadReader[Message]:
    return lambda payload, indexes: class_at(indexes).FromString(payload)


def _file_of(schema: Schema) -> FileDescriptorProto | None:
    """Decode a schema that is a FileDescriptorProto in base64. Returns None if the schema is
    `.proto` text."""
    try:
        return FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return None


async def _class_finder(
    registry: SchemaRegistry, registered: RegisteredSchema, file: FileDescriptorProto
) -> MessageClassAt:
    """Return a function that returns a message class of a registered file. Its argument is the
    message's indexes."""
    imported = await registry.imported_schemas(registered.schema, is_serialized=True)
    pool = descriptor_pool.DescriptorPool()
    for name, schema in imported.items():
        imported_file = _file_of(schema)
        if imported_file is None:
            raise InvalidSchemaError(f"{name}: the registry returned text, not a serialized file")
        _add(pool, imported_file, name)
    # A schema has no name in a registry; it must not be the name of an imported one.
    _add(pool, file, f"schema {registered.id} itself")
    classes: dict[tuple[int, ...], type[Message]] = {}

    def class_at(indexes: tuple[int, ...]) -> type[Message]:
        found = classes.get(indexes)
        if found is None:
            name = _name_at(file, indexes)
            found = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
            classes[indexes] = found
        return found

    return class_at


def message_classes_of(descriptor_set: bytes) -> dict[str, type[Message]]:
    """Return the classes of all messages in a FileDescriptorSet, by full name. `descriptor_set` is
    the output of `protoc --include_imports --descriptor_set_out`. Raises InvalidSchemaError if the
    bytes are not a complete FileDescriptorSet."""
    try:
        files = FileDescriptorSet.FromString(descriptor_set).file
        pool = descriptor_pool.DescriptorPool()
        for file in files:
            if not _WELL_KNOWN_FILE.fullmatch(file.name):
                _add(pool, file, file.name)
        names = [name for file in files for name in _names_in(file)]
        return {
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
            for name in names
        }
    except Exception as error:
        # The pool raises errors of many types for descriptors that do not fit together.
        raise InvalidSchemaError(
            f"it is not a complete descriptor set ({str(error)[:300]}); write it by "
            "protoc --include_imports --descriptor_set_out"
        ) from error


def _names_in(file: FileDescriptorProto) -> Iterable[str]:
    """Yield the full names of the messages at the top of a file, except the well-known files."""
    if not _WELL_KNOWN_FILE.fullmatch(file.name):
        prefix = f"{file.package}." if file.package else ""
        yield from (prefix + message.name for message in file.message_type)


def _add(pool: Any, file: FileDescriptorProto, name: str) -> None:
    """Add a `.proto` file to a descriptor pool, after the well-known files that it imports."""
    for dependency in file.dependency:
        if _WELL_KNOWN_FILE.fullmatch(dependency):
            _add_well_known(pool, dependency)
    file.name = name
    pool.Add(file)


def _add_well_known(pool: Any, name: str) -> None:
    module = import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2")
    file: FileDescriptor = module.DESCRIPTOR
    for one in file.dependencies:
        _add_well_known(pool, one.name)
    pool.AddSerializedFile(file.serialized_pb)  # has no effect the second time


def _name_at(file: FileDescriptorProto, indexes: tuple[int, ...]) -> str:
    """Return the full name of the message with these message indexes. Raises ValueMismatchError if
    the file has no such message."""
    names = [file.package] if file.package else []
    messages: Iterable[DescriptorProto] = file.message_type
    for index in indexes:
        siblings = list(messages)
        if index >= len(siblings):
            raise ValueMismatchError(f"the schema has no message at {list(indexes)}")
        names.append(siblings[index].name)
        messages = siblings[index].nested_type
    return ".".join(names)
