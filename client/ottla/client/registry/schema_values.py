"""Schemas, the references between them, and the ids that a registry gave them.  Pure."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NewType
from uuid import UUID

SchemaId = NewType("SchemaId", int)
"""Number of a schema in its registry."""

SchemaKey = SchemaId | UUID
"""Identity of a schema in a record: its id, or its GUID."""

SCHEMA_BYTES_MAX = 1 << 20
"""Maximum size of one schema in bytes, as the Confluent registry limits it.  A larger schema is
refused before it is read."""


class SchemaFormat(StrEnum):
    """Language of a schema, under the names of the registry's API."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another schema imports."""

    name: str
    """Name in the importing schema: a full name in Avro, a `$ref` in JSON Schema, a file name in
    Protobuf."""
    subject: str
    """Subject under which the imported schema is registered."""
    version: int
    """Version of the imported schema within its subject."""


@dataclass(frozen=True, slots=True)
class Schema:
    """The text of a schema, its language and its references."""

    text: str
    """Text of the schema.  For Protobuf: a `.proto` file, or a FileDescriptorProto in base64."""
    format: SchemaFormat = SchemaFormat.AVRO
    """Language of the text."""
    references: tuple[SchemaReference, ...] = ()
    """Schemas that the text imports."""


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, and the identity that the registry gave it."""

    schema: Schema
    """The schema."""
    id: SchemaId
    """Number of the schema in the registry."""
    guid: UUID | None = None
    """GUID of the schema, or None if the registry has no GUIDs."""
    subject: str | None = None
    """Subject that was asked for, or None for a schema that was looked up by its id."""
    version: int | None = None
    """Version within the subject, or None if the registry did not return it."""
