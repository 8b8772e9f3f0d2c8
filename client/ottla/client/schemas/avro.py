"""Serializer and deserializer of Avro records with a schema registry, through fastavro."""

import io
import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.client.registry.framing import RecordPart
from ottla.client.registry.registry_errors import (
    InvalidSchemaError,
    MissingExtraError,
    ValueMismatchError,
)
from ottla.client.registry.schema_registry import SchemaRegistry
from ottla.client.registry.schema_values import RegisteredSchema, Schema, SchemaFormat
from ottla.client.schemas.avro_nesting import NestingCheck
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
from ottla.client.schemas.subject_writers import SerializerConfig, SubjectWriters, schema_of

T = TypeVar("T")


class AvroSerializer(SchemaSerializer[T], Generic[T]):
    """A serializer for one Avro schema.

    `schema` is the schema as JSON text, or a Schema with references. `to_dict` converts a value of
    the application to the form that fastavro writes, which is a dict for an Avro record.

    With `is_validated`, each value is checked completely before it is written. Otherwise fastavro
    still refuses values of wrong types, but not an int that is out of range.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema,
        to_dict: Callable[[T], Any] | None = None,
        *,
        config: SerializerConfig | None = None,
        is_validated: bool = False,
    ) -> None:
        _fastavro()
        own = schema_of(schema, SchemaFormat.AVRO)

        async def this_schema(registry: SchemaRegistry, config: SerializerConfig) -> Schema:
            return own

        async def compile_writer(registry: SchemaRegistry, schema: Schema) -> Callable[[T], bytes]:
            return _writer(await _parsed(registry, schema), to_dict, is_validated)

        self._writers: SubjectWriters[T] = SubjectWriters(
            registry,
            config,
            name=_name_of(own),
            schema=this_schema,
            compile_writer=compile_writer,
        )

    async def serialize(self, topic: str, part: RecordPart, value: T) -> EncodedField:
        """Encode a value in Avro. The result contains the id of the schema.

        Raises ValueMismatchError if the value does not match the schema.
        """
        return await self._writers.encode(topic, part, value)


class AvroDeserializer(RegistryDeserializer[T], Generic[T]):
    """A deserializer of Avro records.

    Each record is read with the schema with which it was written. If `schema` is not None, values
    are then converted to that schema by Avro's rules of schema resolution. `from_dict` converts
    fastavro's result to a value of the application.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema | None = None,
        from_dict: Callable[[Any], T] | None = None,
    ) -> None:
        _fastavro()
        own = None if schema is None else schema_of(schema, SchemaFormat.AVRO)

        async def compile_reader(
            registry: SchemaRegistry, registered: RegisteredSchema
        ) -> PayloadReader[T]:
            require_format(registered, SchemaFormat.AVRO)
            reader_schema = None if own is None else await _parsed(registry, own)
            return _reader(await _parsed(registry, registered.schema), reader_schema, from_dict)

        self._readers: SchemaReaders[T] = SchemaReaders(registry, compile_reader)


def _writer(
    schema: Any, to_dict: Callable[[T], Any] | None, is_validated: bool
) -> Callable[[T], bytes]:
    write, validate = _fastavro().schemaless_writer, _fastavro().validation.validate

    def write_value(value: T) -> bytes:
        plain = value if to_dict is None else to_dict(value)
        if is_validated:
            validate(plain, schema)
        out = io.BytesIO()
        write(out, schema, plain)
        return out.getvalue()

    return write_value


def _reader(
    schema: Any, reader_schema: Any, from_dict: Callable[[Any], T] | None
) -> PayloadReader[T]:
    read = _fastavro().schemaless_reader
    nesting = NestingCheck(schema)

    def read_payload(payload: bytes, indexes: tuple[int, ...]) -> T:
        nesting.check(payload)
        source = io.BytesIO(payload)
        value: Any = read(source, schema, reader_schema)
        if source.tell() != len(payload):
            raise ValueMismatchError(f"{len(payload) - source.tell()} bytes follow the value")
        found: T = value if from_dict is None else from_dict(value)
        return found

    return read_payload


def reader_of_text(text: str) -> PayloadReader[Any]:
    """Return a function that reads payloads without a schema id. `text` is the schema with which
    they were written; it must not have references. Raises InvalidSchemaError if the text is not an
    Avro schema."""
    fastavro = _fastavro()
    try:
        schema = fastavro.parse_schema(json.loads(text))
        refuse_unbounded_arrays(schema)
        reader: PayloadReader[Any] = _reader(schema, None, None)
    except InvalidSchemaError:
        raise
    except Exception as error:
        # fastavro raises errors of many types for malformed schemas.
        raise InvalidSchemaError(f"{type(error).__name__}: {str(error)[:500]}") from error
    return reader


class _ImportedSchemas:
    """Repository of imported schemas by name, in the interface that fastavro's `load_schema`
    requires."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas

    def load(self, name: str) -> Any:
        """Return the imported schema with this name."""
        if name not in self._schemas:
            raise InvalidSchemaError(f"{name} is not among the references of the schema")
        return self._schemas[name]


async def _parsed(registry: SchemaRegistry, schema: Schema) -> Any:
    """Parse a schema and all schemas that it imports with fastavro, and return the result."""
    fastavro = _fastavro()
    if not schema.references:
        found = fastavro.parse_schema(json.loads(schema.text))
        refuse_unbounded_arrays(found)
        return found
    imported = await registry.imported_schemas(schema)
    texts = {name: json.loads(one.text) for name, one in imported.items()}
    root = "the schema itself"
    texts[root] = json.loads(schema.text)
    found = fastavro.schema.load_schema(root, repo=_ImportedSchemas(texts))
    refuse_unbounded_arrays(found)
    return found


def refuse_unbounded_arrays(schema: Any) -> None:
    """Raise InvalidSchemaError if a schema contains an array whose items are encoded in no bytes.

    A record of five bytes can announce millions of such items, for example nulls, and fastavro
    would create all of them. The size of the record limits the length of any other array.
    """
    _MinimumSizes().size_of(schema)


class _MinimumSizes:
    """Minimum encoded size of a schema's values in bytes: 0, or 1 for any size above 0."""

    def __init__(self) -> None:
        self._named: dict[str, int] = {}

    def size_of(self, schema: Any) -> int:
        """Return the minimum encoded size of a value: 0 or 1. `schema` is a schema that fastavro
        has parsed."""
        if isinstance(schema, list):
            for branch in schema:
                self.size_of(branch)
            return 1  # the number of the branch
        if isinstance(schema, str):
            return 0 if schema == "null" else self._named.get(schema, 1)
        match schema["type"]:
            case "array":
                if self.size_of(schema["items"]) == 0:
                    raise InvalidSchemaError("an array has items that take no bytes")
                return 1
            case "map":
                self.size_of(schema["values"])
                return 1
            case "record" | "error":
                # What contains the record within itself (an array, a map, a union) takes a byte.
                self._named[schema["name"]] = 1
                size = max((self.size_of(one["type"]) for one in schema["fields"]), default=0)
                self._named[schema["name"]] = size
                return size
            case "fixed":
                self._named[schema["name"]] = min(schema["size"], 1)
                return self._named[schema["name"]]
            case "enum":
                return 1
            case inner:
                return self.size_of(inner)


def _name_of(schema: Schema) -> str:
    """Return the full name of a schema, or an empty text if the schema has no name."""
    try:
        found = json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"the Avro schema is not JSON: {error}") from error
    if not isinstance(found, dict) or "name" not in found:
        return found if isinstance(found, str) else ""
    name, namespace = str(found["name"]), found.get("namespace")
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
        import fastavro.validation
    except ImportError as error:
        raise MissingExtraError("fastavro", "Avro") from error
    return fastavro
