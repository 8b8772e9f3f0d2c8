"""Readers of records, cached by the id of the schema with which the records were written.
Deserializers use them. A schema that is not in the cache is requested from the schema registry."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, TypeVar

from ottla.client.registry.framing import RecordPart, decode_frame
from ottla.client.registry.registry_errors import FramingError, SchemaError, ValueMismatchError
from ottla.client.registry.schema_registry import CACHED_SCHEMAS_MAX, SchemaRegistry
from ottla.client.registry.schema_values import RegisteredSchema, SchemaFormat, SchemaKey
from ottla.client.schemas.record_codecs import FieldHeaders, SchemaDeserializer
from ottla.client.schemas.subject_writers import compiled

T = TypeVar("T")

PayloadReader = Callable[[bytes, tuple[int, ...]], T]
"""Function that deserializes a payload. Its arguments are the payload's bytes and its message
indexes, which are empty except for Protobuf."""


class SchemaReaders(Generic[T]):
    """Payload readers of one deserializer, by schema. A reader is created when its schema first
    occurs in a record."""

    def __init__(
        self,
        registry: SchemaRegistry,
        compile_reader: Callable[[SchemaRegistry, RegisteredSchema], Awaitable[PayloadReader[T]]],
        *,
        has_indexes: bool = False,
        is_serialized: bool = False,
    ) -> None:
        self._registry = registry
        self._compile = compile_reader
        self._has_indexes = has_indexes
        self._is_serialized = is_serialized
        self._readers: dict[SchemaKey, PayloadReader[T]] = {}
        self._failures: dict[SchemaKey, SchemaError] = {}
        """Failures of the last `prepare` by schema. There is at most one, because `prepare` stops
        at the first failure."""

    async def prepare(
        self, part: RecordPart, fields: Iterable[tuple[bytes | None, FieldHeaders]]
    ) -> None:
        """Load the schemas of some keys or values. Stops at the first schema that cannot be
        loaded."""
        self._failures.clear()
        # Readers of this call stay, however many there are; each is a registered schema.
        for key in list(self._readers)[:-CACHED_SCHEMAS_MAX]:
            del self._readers[key]
        for data, headers in fields:
            if data is None:
                continue
            try:
                key = decode_frame(part, data, headers, has_indexes=self._has_indexes).key
            except FramingError:
                return  # `decode` raises it again
            if key in self._readers:
                continue
            try:
                await self._load(key)
            except SchemaError as error:
                self._failures[key] = error
                return

    def decode(self, part: RecordPart, data: bytes, headers: FieldHeaders) -> T:
        """Deserialize a key or value whose schema `prepare` has loaded.

        Raises SchemaError if the key or value cannot be read.
        """
        frame = decode_frame(part, data, headers, has_indexes=self._has_indexes)
        read = self._readers.get(frame.key)
        if read is None:
            failure = self._failures.get(frame.key)
            raise (
                SchemaError(f"schema {frame.key} was not prepared") if failure is None else failure
            )
        try:
            return read(data[frame.start :], frame.indexes)
        except SchemaError:
            raise
        except Exception as error:
            # The codecs raise errors of many types for malformed bytes.
            raise ValueMismatchError(
                f"the bytes do not match schema {frame.key}: {type(error).__name__}: "
                f"{str(error)[:500]}"
            ) from error

    async def _load(self, key: SchemaKey) -> None:
        if isinstance(key, int):
            registered = await self._registry.schema_by_id(key, is_serialized=self._is_serialized)
        else:
            registered = await self._registry.schema_by_guid(key, is_serialized=self._is_serialized)
        work = self._compile(self._registry, registered)
        self._readers[key] = await compiled(work, f"schema {key}")


def require_format(registered: RegisteredSchema, kind: SchemaFormat) -> None:
    """Raise ValueMismatchError if a record's schema has another format than the deserializer
    reads."""
    found = registered.schema.format
    if found is not kind:
        raise ValueMismatchError(f"the record was written as {found}, and is read as {kind}")


class RegistryDeserializer(SchemaDeserializer[T]):
    """A deserializer that loads the schema of each record from a registry."""

    _readers: SchemaReaders[T]

    async def prepare(
        self, part: RecordPart, fields: Iterable[tuple[bytes | None, FieldHeaders]]
    ) -> None:
        """Load the schemas that some keys or values need, up to the first schema that cannot be
        loaded."""
        await self._readers.prepare(part, fields)

    def deserialize(self, part: RecordPart, data: bytes, headers: FieldHeaders) -> T:
        """Deserialize a key or value. Raises SchemaError if the data cannot be read."""
        return self._readers.decode(part, data, headers)
