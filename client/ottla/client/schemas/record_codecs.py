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
    """A serializer that may have to ask a schema registry."""

    @abstractmethod
    async def serialize(self, topic: str, part: RecordPart, value: T_contra) -> EncodedField:
        """Return the key or value of a record for a topic as bytes."""


class SchemaDeserializer(ABC, Generic[T_co]):
    """A deserializer that may have to ask a schema registry first."""

    @abstractmethod
    async def prepare(
        self, part: RecordPart, fields: Iterable[tuple[bytes | None, FieldHeaders]]
    ) -> None:
        """Load what `deserialize` needs for the keys or values of some records, in their order.

        Each field is the data and the headers of a record.  A failure is raised by `deserialize`
        for the record that it concerns.  `prepare` may stop at that record.
        """

    @abstractmethod
    def deserialize(self, part: RecordPart, data: bytes, headers: FieldHeaders) -> T_co:
        """Return the value of a key or value.  Raises SchemaError if it cannot be read."""
