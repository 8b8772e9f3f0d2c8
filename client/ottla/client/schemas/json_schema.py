"""Serializer and deserializer of JSON records with a JSON Schema from a schema registry, through
jsonschema-rs.

References are looked up in the schema registry. No other document is ever fetched. A `$ref` to an
address or a file that is not among the schema's references is an error.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar
from urllib.parse import urljoin

from ottla.client.registry.framing import RecordPart
from ottla.client.registry.registry_errors import (
    InvalidSchemaError,
    MissingExtraError,
    RemoteReferenceError,
    ValueMismatchError,
)
from ottla.client.registry.schema_registry import SchemaRegistry
from ottla.client.registry.schema_values import RegisteredSchema, Schema, SchemaFormat
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

LOCAL_BASE = "json-schema:///"
"""Base address that jsonschema-rs uses for the relative references of a schema without `$id`."""


class JsonSchemaSerializer(SchemaSerializer[T], Generic[T]):
    """A serializer for one JSON schema, which validates each value.

    `schema` is the schema as text, or a Schema with references. `to_dict` converts a value of the
    application to the types that `json.dumps` accepts. A schema without `$schema` follows draft 7,
    as in Confluent's serializers.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema,
        to_dict: Callable[[T], Any] | None = None,
        *,
        config: SerializerConfig | None = None,
        is_validated: bool = True,
    ) -> None:
        _jsonschema()
        own = schema_of(schema, SchemaFormat.JSON)

        async def this_schema(registry: SchemaRegistry, config: SerializerConfig) -> Schema:
            return own

        async def compile_writer(registry: SchemaRegistry, schema: Schema) -> Callable[[T], bytes]:
            check = await _validator(registry, schema) if is_validated else None
            return _writer(check, to_dict)

        self._writers: SubjectWriters[T] = SubjectWriters(
            registry,
            config,
            name=_title_of(own),
            schema=this_schema,
            compile_writer=compile_writer,
        )

    async def serialize(self, topic: str, part: RecordPart, value: T) -> EncodedField:
        """Validate a value and encode it in JSON. The result contains the id of the schema.

        Raises ValueMismatchError if the value does not match the schema.
        """
        return await self._writers.encode(topic, part, value)


class JsonSchemaDeserializer(RegistryDeserializer[T], Generic[T]):
    """A deserializer of JSON records. It validates each record against the schema with which the
    record was written.

    If `schema` is not None, records are validated against that schema instead. `from_dict` converts
    the result of `json.loads` to a value of the application.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        schema: str | Schema | None = None,
        from_dict: Callable[[Any], T] | None = None,
        *,
        is_validated: bool = True,
    ) -> None:
        _jsonschema()
        own = None if schema is None else schema_of(schema, SchemaFormat.JSON)

        async def compile_reader(
            registry: SchemaRegistry, registered: RegisteredSchema
        ) -> PayloadReader[T]:
            require_format(registered, SchemaFormat.JSON)
            check = await _validator(registry, own or registered.schema) if is_validated else None
            return _reader(check, from_dict)

        self._readers: SchemaReaders[T] = SchemaReaders(registry, compile_reader)


def _writer(
    check: Callable[[Any], None] | None, to_dict: Callable[[T], Any] | None
) -> Callable[[T], bytes]:
    def write_value(value: T) -> bytes:
        plain = value if to_dict is None else to_dict(value)
        if check is not None:
            check(plain)
        text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode()

    return write_value


def _reader(
    check: Callable[[Any], None] | None, from_dict: Callable[[Any], T] | None
) -> PayloadReader[T]:
    def read_payload(payload: bytes, indexes: tuple[int, ...]) -> T:
        plain = json.loads(payload)
        if check is not None:
            check(plain)
        found: T = plain if from_dict is None else from_dict(plain)
        return found

    return read_payload


async def _validator(registry: SchemaRegistry, schema: Schema) -> Callable[[Any], None]:
    """Return a function that raises ValueMismatchError for a value that violates the schema.

    Raises InvalidSchemaError if the schema is malformed, or RemoteReferenceError if the schema
    refers to documents that it does not import.
    """
    rules = _jsonschema()
    root = json.loads(schema.text)
    imported = await registry.imported_schemas(schema) if schema.references else {}
    documents = {name: json.loads(one.text) for name, one in imported.items()}
    documents_at = _addresses(root, documents)
    refused: list[str] = []

    def retrieve(uri: str) -> Any:
        if uri not in documents_at:
            refused.append(uri)
            raise ValueError("it is not among the references of the schema")
        return documents_at[uri]

    has_draft = isinstance(root, dict) and "$schema" in root
    make = rules.validator_for if has_draft else rules.Draft7Validator
    try:
        validator = make(root, retriever=retrieve)
    except (rules.ValidationError, rules.ReferencingError, ValueError) as error:
        if refused:
            raise RemoteReferenceError(
                f"the schema refers to {', '.join(refused)}, which is not among its references; "
                "addresses in schemas are not opened"
            ) from error
        reason = getattr(error, "message", str(error))
        raise InvalidSchemaError(f"the JSON schema is invalid: {reason[:500]}") from error

    def check(value: Any) -> None:
        try:
            validator.validate(value)
        except rules.ValidationError as error:
            place = "/".join(map(str, error.instance_path)) or "the whole value"
            raise ValueMismatchError(f"{place}: {error.message[:500]}") from error

    return check


def _addresses(root: Any, documents: Mapping[str, Any]) -> dict[str, Any]:
    """Return the imported documents by address. Each document has every address under which schemas
    can refer to it."""
    ids = [one.get("$id") for one in (root, *documents.values()) if isinstance(one, dict)]
    bases = [LOCAL_BASE, *(one for one in ids if isinstance(one, str))]
    found: dict[str, Any] = {}
    for name, document in documents.items():
        own_id = document.get("$id") if isinstance(document, dict) else None
        if isinstance(own_id, str):
            found.setdefault(own_id, document)
        for base in bases:
            found.setdefault(urljoin(base, name), document)
            if base == LOCAL_BASE:  # `urljoin` does not know this scheme
                found.setdefault(LOCAL_BASE + name.removeprefix("/"), document)
    return found


def _title_of(schema: Schema) -> str:
    """Return the title of a schema, or an empty text if the schema has no title."""
    try:
        found = json.loads(schema.text)
    except (ValueError, RecursionError) as error:
        raise InvalidSchemaError(f"the JSON schema is not JSON: {error}") from error
    return str(found.get("title", "")) if isinstance(found, dict) else ""


def _jsonschema() -> Any:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise MissingExtraError("jsonschema-rs", "JSON Schema") from error
    return jsonschema_rs
