"""Decodes Avro, Protobuf and JSON Schema records with schemas of the console's registry or files.

The addresses of the registry and the paths of files are settings of the console. A request can only
name a file that the settings contain.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import PurePath
from typing import Any, cast

import trio
from google.protobuf.json_format import MessageToDict

from ottla.client.registry.framing import RecordPart, decode_frame
from ottla.client.registry.http_registry import RegistryConfig, open_registry
from ottla.client.registry.registry_errors import (
    FramingError,
    RegistryUnavailableError,
    SchemaError,
    ValueMismatchError,
)
from ottla.client.registry.schema_registry import SchemaRegistry
from ottla.client.registry.schema_values import SchemaFormat, SchemaId, SchemaKey
from ottla.client.schemas.avro import AvroDeserializer, reader_of_text
from ottla.client.schemas.protobuf import ProtobufDeserializer, message_classes_of
from ottla.client.schemas.record_codecs import SchemaDeserializer
from ottla.console.page_types import ConsoleConfig
from ottla.console.records.record_text import (
    FORMATS,
    PARSED_BYTES_MAX,
    DecodedField,
    decode_plain,
    object_text,
    parse_json,
)
from ottla.model.limits import MIB
from ottla.model.values import frozen

REGISTRY = "registry"
REGISTRY_TIMEOUT_S = 3.0
"""Time limit for one request to the schema registry in seconds."""
SCHEMAS_S = 5.0
"""Time limit for loading all schemas that one page needs, in seconds."""
SCHEMAS_MAX = 30
"""Maximum number of schemas that are loaded from the registry for one page."""
FILE_BYTES_MAX = 4 * MIB
MESSAGES_MAX = 200
"""Maximum number of Protobuf messages of one schema file in the list of formats."""
FORMAT_NAMES = {
    SchemaFormat.AVRO: "Avro",
    SchemaFormat.PROTOBUF: "Protobuf",
    SchemaFormat.JSON: "JSON Schema",
}

Headers = Sequence[tuple[str, bytes | None]]
DecodePayload = Callable[[bytes], object]


@frozen(kw_only=True)
class FormatChoice:
    """One entry in a form's list of formats for keys and values."""

    value: str
    """Value of the query parameter that selects this format."""
    name: str


@frozen
class SchemaFiles:
    """Readers of records by the schemas in the console's files."""

    readers: dict[str, tuple[str, DecodePayload]]
    """Formats of keys and values, by the value of the query parameter that selects them, such as
    `file:orders.avsc` or `file:shop.desc:shop.Order`. Each has a name and a decoding function."""
    problems: tuple[str, ...]
    """Sentences about schema files that cannot be used."""


async def read_schema_files(config: ConsoleConfig) -> SchemaFiles:
    """Return the readers of all schema files: Avro schemas (`.avsc`), and descriptor sets of
    Protobuf (other names)."""
    readers: dict[str, tuple[str, DecodePayload]] = {}
    problems: list[str] = []
    for path in config.schema_files:
        name = PurePath(path).name
        try:
            data = await _file(path)
            if name.endswith(".avsc"):
                readers[f"file:{name}"] = f"Avro, {name}", _avro_payload(data.decode())
                continue
            for message, kind in list(message_classes_of(data).items())[:MESSAGES_MAX]:
                readers[f"file:{name}:{message}"] = f"Protobuf {message}", _message_payload(kind)
        except (OSError, ValueError, SchemaError) as error:
            problems.append(f"{name}: {error}")
    return SchemaFiles(readers, tuple(problems))


async def _file(path: str) -> bytes:
    async with await trio.open_file(path, "rb") as file:
        data = await file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"is larger than {FILE_BYTES_MAX:,} bytes")
    return data


def format_choices(config: ConsoleConfig, files: SchemaFiles) -> list[FormatChoice]:
    """Return the formats for keys and values that a form offers."""
    found = [FormatChoice(value=value, name=name) for value, name in FORMATS.items()]
    if config.registry_url:
        found.append(FormatChoice(value=REGISTRY, name="schema registry"))
    found += [FormatChoice(value=one, name=name) for one, (name, _) in files.readers.items()]
    return found


class FieldDecoder:
    """Decoder of the record keys and values on one page. `prepare` loads the schemas of records, so
    that `decode` never waits."""

    def __init__(
        self, registry: SchemaRegistry | None, files: SchemaFiles, formats: dict[RecordPart, str]
    ) -> None:
        self._registry = registry
        self._files = files
        self._formats = formats
        self._schemas: dict[tuple[RecordPart, SchemaKey], _LoadedSchema | SchemaError] = {}
        self._avro: SchemaDeserializer[Any] | None = None
        self._protobuf: SchemaDeserializer[Any] | None = None
        self._trouble: SchemaError | None = None

    async def prepare(self, records: Iterable[tuple[bytes | None, bytes | None, Headers]]) -> None:
        """Load the schemas of records. Each item of `records` is a key, a value and headers."""
        if self._registry is None:
            return
        with trio.move_on_after(SCHEMAS_S) as scope:
            for key, value, headers in records:
                if key is not None:
                    await self._prepare_field("key", key, headers)
                if value is not None:
                    await self._prepare_field("value", value, headers)
        if scope.cancelled_caught:
            self._trouble = RegistryUnavailableError(
                f"the schema registry did not answer in {SCHEMAS_S:g} s"
            )

    def decode(self, part: RecordPart, data: bytes, headers: Headers) -> DecodedField:
        """Decode a record's key or value in the format that the user has chosen. If the bytes are
        not in this format, the format is detected, and the result contains the reason."""
        chosen = self._formats[part]
        try:
            if chosen in self._files.readers:
                return self._by_file(chosen, data)
            has_schema = chosen == "auto" and self._may_have_schema(part, data, headers)
            if chosen == REGISTRY or has_schema:
                return self._by_registry(part, data, headers)
        except SchemaError as error:
            if chosen == "auto" and not isinstance(error, RegistryUnavailableError):
                return decode_plain(data, "auto")
            return _with_problem(decode_plain(data, "auto"), str(error)[:300])
        except Exception as error:
            # Decoders raise errors of many types for malformed bytes.
            problem = f"the bytes do not match the schema: {type(error).__name__}"
            return _with_problem(decode_plain(data, "auto"), problem)
        return decode_plain(data, chosen)

    def _may_have_schema(self, part: RecordPart, data: bytes, headers: Headers) -> bool:
        return self._registry is not None and _frame_key(part, data, headers) is not None

    async def _prepare_field(self, part: RecordPart, data: bytes, headers: Headers) -> None:
        if self._formats[part] not in ("auto", REGISTRY):
            return
        key = _frame_key(part, data, headers)
        if key is None or (part, key) in self._schemas or self._trouble is not None:
            return
        if len(self._schemas) >= SCHEMAS_MAX:
            return
        try:
            self._schemas[part, key] = await self._load(part, key, data, headers)
        except RegistryUnavailableError as error:
            self._trouble = error
        except SchemaError as error:
            self._schemas[part, key] = error

    async def _load(
        self, part: RecordPart, key: SchemaKey, data: bytes, headers: Headers
    ) -> "_LoadedSchema":
        registry = self._registry
        assert registry is not None
        if isinstance(key, int):
            registered = await registry.schema_by_id(SchemaId(key))
        else:
            registered = await registry.schema_by_guid(key)
        kind = registered.schema.format
        decoder: SchemaDeserializer[Any] | None = None
        if kind is SchemaFormat.AVRO:
            decoder = self._avro = self._avro or AvroDeserializer(registry)
        elif kind is SchemaFormat.PROTOBUF:
            decoder = self._protobuf = self._protobuf or ProtobufDeserializer(registry)
        if decoder is not None:
            await decoder.prepare(part, [(data, headers)])
            # Failures of `prepare` are raised here. Bytes that do not match fail record by record.
            with suppress(ValueMismatchError):
                decoder.deserialize(part, data, headers)
        return _LoadedSchema(f"{FORMAT_NAMES[kind]}, schema {key}", kind, decoder)

    def _by_registry(self, part: RecordPart, data: bytes, headers: Headers) -> DecodedField:
        if self._registry is None:
            raise RegistryUnavailableError("the console has no schema registry")
        frame = decode_frame(part, data, headers, has_indexes=False)
        found = self._schemas.get((part, frame.key))
        if found is None:
            raise self._trouble or RegistryUnavailableError(
                f"the page has more than {SCHEMAS_MAX} schemas"
            )
        if isinstance(found, SchemaError):
            raise found
        if len(data) > PARSED_BYTES_MAX:
            raise SchemaError(f"it is larger than {PARSED_BYTES_MAX:,} bytes")
        if found.decoder is None:
            content = parse_json(data[frame.start :].decode())
        else:
            content = _plain_object(found.decoder.deserialize(part, data, headers))
        return _decoded(content, found.name)

    def _by_file(self, chosen: str, data: bytes) -> DecodedField:
        name, decode = self._files.readers[chosen]
        if len(data) > PARSED_BYTES_MAX:
            raise SchemaError(f"it is larger than {PARSED_BYTES_MAX:,} bytes")
        return _decoded(decode(data), name)


@frozen
class _LoadedSchema:
    """A schema of the registry, and the deserializer that has loaded it, which is None for JSON
    Schema."""

    name: str
    kind: SchemaFormat
    decoder: SchemaDeserializer[Any] | None


@asynccontextmanager
async def open_field_decoder(
    config: ConsoleConfig, files: SchemaFiles, formats: dict[RecordPart, str]
) -> AsyncIterator[FieldDecoder]:
    """Open and yield the decoder of the record keys and values on a page. The decoder connects to
    the registry only if a record requires it."""
    async with AsyncExitStack() as opened:
        registry = None
        if config.registry_url and {"auto", REGISTRY} & set(formats.values()):
            # Neither redirects nor references to other servers are followed.
            settings = RegistryConfig(timeout_s=REGISTRY_TIMEOUT_S, retry_count=0)
            registry = await opened.enter_async_context(
                open_registry(config.registry_url, settings)
            )
        yield FieldDecoder(registry, files, formats)


def _frame_key(part: RecordPart, data: bytes, headers: Headers) -> SchemaKey | None:
    try:
        return decode_frame(part, data, headers, has_indexes=False).key
    except FramingError:
        return None


def _decoded(content: object, schema: str) -> DecodedField:
    return DecodedField(format="schema", content=content, text=object_text(content), schema=schema)


def _with_problem(found: DecodedField, problem: str) -> DecodedField:
    return DecodedField(
        format=found.format, content=found.content, text=found.text, problem=problem
    )


def _avro_payload(text: str) -> DecodePayload:
    read = reader_of_text(text)
    return lambda data: read(data, ())


def _message_payload(kind: Any) -> DecodePayload:
    return lambda data: _plain_object(kind.FromString(data))


def _plain_object(value: Any) -> object:
    """Return a deserialized key or value as dicts, lists and scalars."""
    if hasattr(value, "DESCRIPTOR"):
        return cast("object", MessageToDict(value, preserving_proto_field_name=True))
    return cast("object", value)
