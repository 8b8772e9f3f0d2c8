"""Serializers and deserializers that depend on a schema registry.

`SerializingProducer` and `DeserializingConsumer` accept them in place of functions.  The producer
awaits `serialize`.  The consumer awaits `prepare` for all records of a poll, which loads the
schemas that are still unknown, and then calls `deserialize` for each record, which never waits.
The event loop is therefore never blocked by a registry.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.client.registry.framing import RecordPart

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

FieldHeaders = Sequence[tuple[str, bytes | None]]
"""Headers of a record."""


class EncodedField(NamedTuple):
    """A serialized key or value."""

    data: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers to add to the record."""


class SchemaSerializer(ABC, Generic[T_contra]):
    """A serializer that may have to send requests to a schema registry."""

    @abstractmethod
    async def serialize(self, topic: str, part: RecordPart, value: T_contra) -> EncodedField:
        """Return the key or value of a record as bytes. `topic` is the record's topic."""


class SchemaDeserializer(ABC, Generic[T_co]):
    """A deserializer that may have to load schemas from a schema registry before it can
    deserialize."""

    @abstractmethod
    async def prepare(
        self, part: RecordPart, fields: Iterable[tuple[bytes | None, FieldHeaders]]
    ) -> None:
        """Load the schemas that `deserialize` needs for the keys or values of some records, in
        order.

        Each field is the data and the headers of one record. If a schema cannot be loaded,
        `deserialize` raises the error for the record that needs it. `prepare` may stop at that
        record.
        """

    @abstractmethod
    def deserialize(self, part: RecordPart, data: bytes, headers: FieldHeaders) -> T_co:
        """Deserialize a key or value. Raises SchemaError if it cannot be read."""
