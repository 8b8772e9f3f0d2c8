"""Client of a schema registry, over any transport: requests, caches and references.

The registry's responses are untrusted. Transports limit the size of each response. This module
limits the size and number of schemas, references and cache entries. Schemas by id and by version of
a subject are cached without expiry, because they never change. The latest version of a subject is
never cached.
"""

import json
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar
from urllib.parse import quote
from uuid import UUID

from ottla.client.registry.registry_errors import (
    InvalidSchemaError,
    ReferenceLimitError,
    RegistryRefusedError,
    RegistryUnavailableError,
    SchemaError,
    SchemaTooLargeError,
    UnknownSchemaError,
)
from ottla.client.registry.schema_values import (
    SCHEMA_BYTES_MAX,
    RegisteredSchema,
    Schema,
    SchemaFormat,
    SchemaId,
    SchemaKey,
    SchemaReference,
)

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

CACHED_SCHEMAS_MAX = 1_000
"""Maximum number of schemas in each cache of a registry's client, as in Confluent's Python client.
"""
REFERENCE_DEPTH_MAX = 32
"""Maximum depth of references: a schema imports schemas, which may import further schemas, and so
on."""
REFERENCE_COUNT_MAX = 256
"""Maximum number of schemas that one schema imports, directly and indirectly."""
REFERENCE_BYTES_MAX = 8 * SCHEMA_BYTES_MAX
"""Maximum size in bytes of all schemas that one schema imports, directly and indirectly."""


@dataclass(frozen=True, slots=True)
class RegistryCall:
    """One request to the HTTP API of a schema registry."""

    method: Literal["GET", "POST"]
    path: str
    """Path of the request, percent-encoded, without the address of the registry."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class RegistryReply:
    """Response of a schema registry to one request."""

    status: int
    body: bytes


class RegistryTransport(Protocol):
    """Transport of requests to a schema registry: HTTP, or a store in this process."""

    async def exchange(self, call: RegistryCall) -> RegistryReply:
        """Send a request to the schema registry, and return the response.

        Raises RegistryUnavailableError if the registry does not respond, and SchemaTooLargeError if
        the response is too large.
        """
        ...


class BoundedCache(OrderedDict[K, V], Generic[K, V]):
    """A mapping that drops the oldest entry when it is full."""

    def __init__(self, count_max: int = CACHED_SCHEMAS_MAX) -> None:
        super().__init__()
        self._count_max = count_max

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        if len(self) > self._count_max:
            self.popitem(last=False)


class SchemaRegistry:
    """Client of a schema registry with the HTTP API of Confluent, Karapace and Redpanda."""

    def __init__(self, transport: RegistryTransport) -> None:
        self._transport = transport
        self._by_key: BoundedCache[tuple[SchemaKey, bool], RegisteredSchema] = BoundedCache()
        self._by_version: BoundedCache[tuple[str, int, bool], RegisteredSchema] = BoundedCache()
        self._by_schema: BoundedCache[tuple[str, Schema, bool], RegisteredSchema] = BoundedCache()

    async def schema_by_id(
        self, schema_id: int, *, is_serialized: bool = False
    ) -> RegisteredSchema:
        """Return the schema with an id. Raises UnknownSchemaError if the id does not exist.

        With `is_serialized`, a Protobuf schema is returned as a FileDescriptorProto in base64, if
        the registry can convert it.
        """
        key = (SchemaId(schema_id), is_serialized)
        path = f"schemas/ids/{schema_id}"
        return await self._by_identity(key, path, f"the registry has no schema {schema_id}")

    async def schema_by_guid(self, guid: UUID, *, is_serialized: bool = False) -> RegisteredSchema:
        """Return the schema with a GUID. Raises UnknownSchemaError if the GUID does not exist.

        `is_serialized` has the same meaning as in `schema_by_id`.
        """
        key = (guid, is_serialized)
        return await self._by_identity(key, f"schemas/guids/{guid}", f"there is no schema {guid}")

    async def schema_of_version(
        self, subject: str, version: int, *, is_serialized: bool = False
    ) -> RegisteredSchema:
        """Return the schema of one version of a subject, even if that version was deleted.

        Raises UnknownSchemaError if the version never existed.
        """
        key = (subject, version, is_serialized)
        found = self._by_version.get(key)
        if found is None:
            query = {"deleted": "true", **_format_query(is_serialized)}
            found = await self._version(subject, str(version), query)
            self._by_version[key] = found
        return found

    async def latest_schema(self, subject: str) -> RegisteredSchema:
        """Return the schema of the latest version of a subject.  Raises UnknownSchemaError if the
        subject has no version."""
        return await self._version(subject, "latest", {})

    async def register(
        self, subject: str, schema: Schema, *, is_normalized: bool = False
    ) -> RegisteredSchema:
        """Register a schema under a subject, and return the registered schema.

        A schema that is already registered under the subject keeps its id and version.

        With `is_normalized`, the registry first normalizes the schema. Raises RegistryRefusedError
        if the schema is invalid or incompatible.
        """
        key = (subject, schema, is_normalized)
        found = self._by_schema.get(key)
        if found is None:
            path = f"subjects/{_quoted(subject)}/versions"
            query = {"normalize": "true"} if is_normalized else {}
            reply = await self._call(RegistryCall("POST", path, query, _schema_body(schema)))
            found = self._by_schema[key] = _registered(reply, subject=subject, schema=schema)
        return found

    async def look_up(
        self, subject: str, schema: Schema, *, is_normalized: bool = False
    ) -> RegisteredSchema:
        """Return the id and version under which a schema is registered for a subject, together with
        the schema.

        Raises UnknownSchemaError if the schema is not registered for the subject.
        """
        key = (subject, schema, is_normalized)
        found = self._by_schema.get(key)
        if found is None or found.version is None:
            path = f"subjects/{_quoted(subject)}"
            query = {"normalize": "true"} if is_normalized else {}
            reply = await self._call(RegistryCall("POST", path, query, _schema_body(schema)))
            found = self._by_schema[key] = _registered(reply, subject=subject, schema=schema)
        return found

    async def list_subjects(self) -> list[str]:
        """Return the names of all subjects for which the registry has schemas."""
        found = await self._call(RegistryCall("GET", "subjects"))
        if not isinstance(found, list):
            raise InvalidSchemaError("the registry's list of subjects is not a list")
        return [str(name) for name in found]

    async def imported_schemas(
        self, schema: Schema, *, is_serialized: bool = False
    ) -> dict[str, Schema]:
        """Return all schemas that a schema imports, directly or indirectly, by name. Each schema
        follows the schemas that it imports itself.

        Raises ReferenceLimitError if the references form a cycle, are nested too deeply, or are too
        numerous.
        """
        imports = _ImportWalk(self, is_serialized)
        await imports.visit(schema)
        return imports.found

    async def _by_identity(
        self, key: tuple[SchemaKey, bool], path: str, missing: str
    ) -> RegisteredSchema:
        found = self._by_key.get(key)
        if found is None:
            try:
                reply = await self._call(RegistryCall("GET", path, _format_query(key[1])))
            except UnknownSchemaError as error:
                raise UnknownSchemaError(f"{missing}: {error}") from error
            schema_id = SchemaId(key[0]) if isinstance(key[0], int) else None
            found = self._by_key[key] = _registered(reply, schema_id=schema_id)
        return found

    async def _version(
        self, subject: str, version: str, query: Mapping[str, str]
    ) -> RegisteredSchema:
        path = f"subjects/{_quoted(subject)}/versions/{version}"
        return _registered(await self._call(RegistryCall("GET", path, query)), subject=subject)

    async def _call(self, call: RegistryCall) -> Any:
        reply = await self._transport.exchange(call)
        try:
            content = json.loads(reply.body) if reply.body else None
        except (ValueError, RecursionError) as error:
            if 200 <= reply.status < 300:
                raise InvalidSchemaError("the registry's response is not JSON") from error
            content = None
        if 200 <= reply.status < 300:
            return content
        raise _refusal(call, reply.status, content)


class _ImportWalk:
    """Depth-first traversal of the schemas that a schema imports, with limits on depth, count and
    size."""

    def __init__(self, registry: SchemaRegistry, is_serialized: bool) -> None:
        self.found: dict[str, Schema] = {}
        self._registry = registry
        self._is_serialized = is_serialized
        self._path: list[tuple[str, int]] = []
        self._size_bytes = 0

    async def visit(self, schema: Schema) -> None:
        for reference in schema.references:
            at = (reference.subject, reference.version)
            where = f"{reference.subject} version {reference.version}"
            if at in self._path:
                raise ReferenceLimitError(f"{where} imports itself")
            if len(self._path) >= REFERENCE_DEPTH_MAX:
                raise ReferenceLimitError(f"{where} is nested over {REFERENCE_DEPTH_MAX} deep")
            imported = await self._registry.schema_of_version(
                reference.subject, reference.version, is_serialized=self._is_serialized
            )
            known = self.found.get(reference.name)
            if known is not None:
                if known != imported.schema:
                    raise InvalidSchemaError(f"two schemas are imported as {reference.name}")
                continue
            self._path.append(at)
            await self.visit(imported.schema)
            self._path.pop()
            self._size_bytes += len(imported.schema.text)
            if len(self.found) >= REFERENCE_COUNT_MAX:
                raise ReferenceLimitError(f"more than {REFERENCE_COUNT_MAX} schemas are imported")
            if self._size_bytes > REFERENCE_BYTES_MAX:
                raise SchemaTooLargeError(
                    f"the imported schemas have more than {REFERENCE_BYTES_MAX} bytes"
                )
            self.found[reference.name] = imported.schema


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for an event loop, and return its result.

    The methods of a registry client with a blocking transport return such coroutines.
    """
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("this registry was opened for trio or asyncio: await its calls")


def _quoted(subject: str) -> str:
    return quote(subject, safe="")


def _format_query(is_serialized: bool) -> dict[str, str]:
    return {"format": "serialized"} if is_serialized else {}


def _schema_body(schema: Schema) -> bytes:
    body: dict[str, Any] = {"schema": schema.text}
    if schema.format is not SchemaFormat.AVRO:
        body["schemaType"] = schema.format.value
    if schema.references:
        body["references"] = [
            {"name": one.name, "subject": one.subject, "version": one.version}
            for one in schema.references
        ]
    return json.dumps(body).encode()


def _registered(
    reply: Any,
    *,
    subject: str | None = None,
    schema_id: SchemaId | None = None,
    schema: Schema | None = None,
) -> RegisteredSchema:
    """Return the registered schema in a response. Fields that the response lacks are filled from
    the arguments."""
    try:
        found_id = schema_id if schema_id is not None else SchemaId(int(reply.get("id", -1)))
        guid, version = reply.get("guid"), reply.get("version")
        return RegisteredSchema(
            schema=_schema(reply) if schema is None else schema,
            id=found_id,
            guid=UUID(guid) if guid else None,
            subject=subject,
            version=int(version) if version is not None else None,
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSchemaError(
            f"the registry's response is malformed: {type(error).__name__}: {error}"
        ) from error


def _schema(reply: Mapping[str, Any]) -> Schema:
    text = reply["schema"]
    if not isinstance(text, str):
        raise TypeError("the schema is not a text")
    size_bytes = len(text.encode())
    if size_bytes > SCHEMA_BYTES_MAX:
        raise SchemaTooLargeError(
            f"the schema has {size_bytes} bytes, of {SCHEMA_BYTES_MAX} at most"
        )
    return Schema(
        text,
        SchemaFormat(reply.get("schemaType") or "AVRO"),
        tuple(
            SchemaReference(str(one["name"]), str(one["subject"]), int(one["version"]))
            for one in reply.get("references") or ()
        ),
    )


def _refusal(call: RegistryCall, status: int, content: Any) -> SchemaError:
    message, error_code = f"HTTP status {status}", None
    if isinstance(content, dict):
        message = str(content.get("message", message))[:1_000]
        code = content.get("error_code")
        error_code = code if isinstance(code, int) else None
    text = f"{call.method} {call.path}: {message}"
    if status == 404:
        return UnknownSchemaError(text)
    if status >= 500 or status == 429:
        return RegistryUnavailableError(text)
    return RegistryRefusedError(text, status=status, error_code=error_code)
