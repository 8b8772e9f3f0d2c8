"""Schemas, the references between them, and the ids that a registry assigns to them. Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType
from uuid import UUID

SchemaId = NewType("SchemaId", int)
"""Number that identifies a schema within its schema registry."""

SchemaKey = SchemaId | UUID
"""Identity of a schema in a record: the schema's id or its GUID."""

SCHEMA_BYTES_MAX = 1 << 20
"""Maximum size of one schema in bytes, equal to the limit of Confluent's registry. A larger schema
is refused before it is read."""


class SchemaFormat(StrEnum):
    """Language of a schema, under the names in the HTTP API of schema registries."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another schema imports."""

    name: str
    """Name by which another schema refers to the imported schema: a full name in Avro, a `$ref` in
    JSON Schema, a file name in Protobuf."""
    subject: str
    """Subject under which the imported schema is registered."""
    version: int
    """Version of the imported schema within its subject."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its language and its references."""

    text: str
    """Text of the schema. For Protobuf, a `.proto` file or a FileDescriptorProto in base64."""
    format: SchemaFormat = SchemaFormat.AVRO
    """Language of the schema's text: Avro, JSON Schema or Protobuf."""
    references: tuple[SchemaReference, ...] = ()
    """References to the schemas that the text imports."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, with the ids that the schema registry has assigned to it."""

    schema: Schema
    """The schema's text, language and references."""
    id: SchemaId
    """Number of the schema in the registry."""
    guid: UUID | None = None
    """GUID of the schema, or None if the registry has no GUIDs."""
    subject: str | None = None
    """Subject for which the schema was requested, or None if it was looked up by id."""
    version: int | None = None
    """Version of the schema within its subject, or None if the registry did not return it."""
