"""Schemas with which a serializer writes, by subject, and the bytes that identify these schemas in
records."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from ottla.client.registry.framing import (
    HEADER_NAMES,
    RecordPart,
    encode_guid_header,
    encode_prefix,
)
from ottla.client.registry.registry_errors import (
    InvalidSchemaError,
    RegistryRefusedError,
    SchemaError,
    ValueMismatchError,
)
from ottla.client.registry.schema_registry import BoundedCache, SchemaRegistry
from ottla.client.registry.schema_values import RegisteredSchema, Schema, SchemaFormat
from ottla.client.registry.subjects import SubjectStrategy, topic_name
from ottla.client.schemas.record_codecs import EncodedField
from ottla.model.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SerializerConfig:
    """Settings of a serializer, with the defaults of Confluent's serializers."""

    auto_register: bool = True
    """True to register the schema at the first record of each subject (`auto.register.schemas`). If
    False, the schema must already be registered."""
    normalize: bool = False
    """True if the registry normalizes the schema when the schema is registered
    (`normalize.schemas`)."""
    use_latest_version: bool = False
    """True to write with the latest version of the subject's schema (`use.latest.version`). The
    version is looked up at the first record. Requires `auto_register=False`."""
    subject: SubjectStrategy = topic_name
    """Function that returns the name of the subject (`subject.name.strategy`): `topic_name`,
    `record_name` or `topic_record_name` from `ottla.client.schemas`, or a function of the
    application."""
    is_guid_in_header: bool = False
    """True to write the schema's GUID into a record header instead of the schema id before the
    payload. The registry must support GUIDs."""

    def __post_init__(self) -> None:
        if self.use_latest_version and self.auto_register:
            raise ConfigError("use_latest_version", "it needs auto_register=False")


class _SubjectWriter(NamedTuple, Generic[T]):
    """Function that writes payloads with one schema, and the bytes that identify the schema in
    records."""

    write: Callable[[T], bytes]
    prefix: bytes
    headers: tuple[tuple[str, bytes], ...]


class SubjectWriters(Generic[T]):
    """Payload writers of one serializer, by subject. A writer is created at the first record of its
    subject."""

    def __init__(
        self,
        registry: SchemaRegistry,
        config: SerializerConfig | None,
        *,
        name: str,
        schema: Callable[[SchemaRegistry, SerializerConfig], Awaitable[Schema]],
        compile_writer: Callable[[SchemaRegistry, Schema], Awaitable[Callable[[T], bytes]]],
        indexes: tuple[int, ...] | None = None,
    ) -> None:
        self._registry = registry
        self._config = config or SerializerConfig()
        self._name = name
        self._schema = schema
        self._compile = compile_writer
        self._indexes = indexes
        self._writers: BoundedCache[tuple[str, RecordPart], _SubjectWriter[T]] = BoundedCache()

    async def encode(self, topic: str, part: RecordPart, value: T) -> EncodedField:
        """Encode a value, together with the id or GUID of its schema.

        Raises ValueMismatchError if the value does not match the schema.
        """
        writer = self._writers.get((topic, part))
        if writer is None:
            writer = await self._open(topic, part)
            self._writers[topic, part] = writer
        try:
            payload = writer.write(value)
        except SchemaError:
            raise
        except Exception as error:
            # The codecs raise errors of many types for a value of the wrong type.
            raise ValueMismatchError(
                f"the {part} does not match its schema: {type(error).__name__}: {error}"
            ) from error
        return EncodedField(writer.prefix + payload, writer.headers)

    async def _open(self, topic: str, part: RecordPart) -> _SubjectWriter[T]:
        subject = self._config.subject(topic, part, self._name)
        registered = await self._registered(subject)
        write = await compiled(self._compile(self._registry, registered.schema), subject)
        if not self._config.is_guid_in_header:
            return _SubjectWriter(write, encode_prefix(registered.id, self._indexes), ())
        if registered.guid is None:
            raise RegistryRefusedError(
                f"{subject}: the registry returned no GUID, which is_guid_in_header needs",
                status=200,
            )
        header = (HEADER_NAMES[part], encode_guid_header(registered.guid, self._indexes))
        return _SubjectWriter(write, b"", (header,))

    async def _registered(self, subject: str) -> RegisteredSchema:
        if self._config.use_latest_version:
            return await self._registry.latest_schema(subject)
        schema = await self._schema(self._registry, self._config)
        register = self._registry.register if self._config.auto_register else self._registry.look_up
        return await register(subject, schema, is_normalized=self._config.normalize)


def schema_of(schema: str | Schema, kind: SchemaFormat) -> Schema:
    """Return `schema` as a Schema of the format `kind`. Raises InvalidSchemaError if `schema` has
    another format."""
    if isinstance(schema, str):
        return Schema(schema, kind)
    if schema.format is not kind:
        raise InvalidSchemaError(f"the schema is {schema.format}, not {kind}")
    return schema


async def compiled(work: Awaitable[T], where: str) -> T:
    """Await `work`, which creates the encoder or decoder of a schema, and return its result. Raises
    InvalidSchemaError if the schema is malformed."""
    try:
        return await work
    except SchemaError:
        raise
    except Exception as error:
        # A schema may be malformed in any way; the codecs raise errors of many types for it.
        raise InvalidSchemaError(
            f"{where}: the schema is invalid: {type(error).__name__}: {str(error)[:500]}"
        ) from error
