"""Errors of schemas, registries, and records that were written with a schema.

Each class has one cause.  A consumer raises DeserializationError, which contains the topic,
partition and offset of the record; an error of this module is its cause (`error.__cause__`).
"""

from ottla.model.errors import OttlaError
from ottla.model.install_hint import install_hint


class SchemaError(OttlaError):
    """Base class of the errors of schemas, registries, and records with schemas."""

    is_temporary = False
    """True if the same record may be readable later."""


class FramingError(SchemaError):
    """A record does not begin with a schema id: it is too short, or its magic byte is unknown.

    The usual cause is a producer that writes without a schema registry.
    """


class UnknownSchemaError(SchemaError):
    """The registry does not contain the requested schema, subject or version."""


class SchemaTooLargeError(SchemaError):
    """A schema, or the schemas that it imports, exceed the maximum size. The excess was not
    read."""


class InvalidSchemaError(SchemaError):
    """A schema from the registry or from the application is malformed."""


class RemoteReferenceError(SchemaError):
    """A schema imports a document that is not among its references.

    Addresses in schemas are never opened.
    """


class ReferenceLimitError(SchemaError):
    """The references of a schema form a cycle, are nested too deeply, or are too numerous."""


class ValueMismatchError(SchemaError):
    """A value, or the bytes of a record, do not match the schema."""


class RegistryRefusedError(SchemaError):
    """The registry refused a request, for example an incompatible schema or a wrong password."""

    def __init__(self, message: str, *, status: int, error_code: int | None = None) -> None:
        self.status = status
        """HTTP status of the response."""
        self.error_code = error_code
        """Error code of the registry, such as 409 for an incompatible schema, or None."""
        super().__init__(message)


class RegistryUnavailableError(SchemaError):
    """The registry did not respond, or only with temporary errors.

    A consumer stays at the record, so the next poll reads it again.
    """

    is_temporary = True


class MissingExtraError(SchemaError, ImportError):
    """A package of the extra (optional dependencies) `schemas` is not installed."""

    def __init__(self, package: str, feature: str) -> None:
        super().__init__(f"{feature} needs {package}: {install_hint('schemas')}")
