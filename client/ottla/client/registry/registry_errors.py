"""Errors of schemas, schema registries, and records that were written with a schema.

Each class has one cause. A consumer raises DeserializationError, which contains the topic,
partition and offset of the record. The attribute `__cause__` of this DeserializationError is the
error of this module.
"""

from ottla.model.errors import OttlaError
from ottla.model.install_hint import install_hint


class SchemaError(OttlaError):
    """Base class of the errors of schemas, registries, and records with schemas."""

    is_temporary = False
    """True if a later attempt to read the same record may succeed."""


class FramingError(SchemaError):
    """Error of a record that does not begin with a schema id, because it is too short or its magic
    byte is unknown.

    The usual cause is a producer that writes without a schema registry.
    """


class UnknownSchemaError(SchemaError):
    """Error if the registry does not contain the requested schema, subject or version."""


class SchemaTooLargeError(SchemaError):
    """Error if a schema, possibly together with the schemas that it imports, exceeds the maximum
    size. The client has stopped reading at the limit."""


class InvalidSchemaError(SchemaError):
    """Error if a schema from the registry or from the application is malformed."""


class RemoteReferenceError(SchemaError):
    """Error if a schema refers to a document that is not among its registered references.

    The client never fetches documents from addresses in schemas.
    """


class ReferenceLimitError(SchemaError):
    """Error if the references of a schema form a cycle, are nested too deeply, or are too
    numerous."""


class ValueMismatchError(SchemaError):
    """Error if a value, or the data of a record, does not match the schema."""


class RegistryRefusedError(SchemaError):
    """Error if the schema registry refused a request, for example because of an incompatible schema
    or a wrong password."""

    def __init__(self, message: str, *, status: int, error_code: int | None = None) -> None:
        self.status = status
        """HTTP status of the registry's response, such as 409 or 422."""
        self.error_code = error_code
        """Error code in the registry's response, such as 409 for an incompatible schema. None if
        the response has no error code."""
        super().__init__(message)


class RegistryUnavailableError(SchemaError):
    """Error if the schema registry did not respond, or responded only with temporary errors.

    The position of a consumer remains at the record, so that the next poll reads the record again.
    """

    is_temporary = True


class MissingExtraError(SchemaError, ImportError):
    """Error if a package that belongs to the extra (optional dependencies) `schemas` is not
    installed."""

    def __init__(self, package: str, feature: str) -> None:
        super().__init__(f"{feature} needs {package}: {install_hint('schemas')}")
