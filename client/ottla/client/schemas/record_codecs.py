"""Interfaces of serializers and deserializers that depend on a schema registry.

`SerializingProducer` and `DeserializingConsumer` accept them in place of functions. The producer
awaits `serialize`. The consumer first awaits `prepare` for all records of a poll, which loads
unknown schemas. The consumer then calls `deserialize` for each record, which never waits. A slow
registry therefore never blocks the event loop.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from ottla.client.registry.framing import RecordPart

T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

FieldHeaders = Sequence[tuple[str, bytes | None]]
"""Headers of a record: pairs of name and bytes."""


class EncodedField(NamedTuple):
    """A serialized key or value, and the headers that belong to it."""

    data: bytes
    headers: tuple[tuple[str, bytes], ...] = ()
    """Headers to add to the record, such as the header with the schema's GUID."""


class SchemaSerializer(ABC, Generic[T_contra]):
    """Interface of a serializer that may have to send requests to a schema registry."""

    @abstractmethod
    async def serialize(self, topic: str, part: RecordPart, value: T_contra) -> EncodedField:
        """Encode the key or value of a record. `topic` is the record's topic."""


class SchemaDeserializer(ABC, Generic[T_co]):
    """Interface of a deserializer that may have to load schemas from a schema registry before it
    can deserialize."""

    @abstractmethod
    async def prepare(
        self, part: RecordPart, fields: Iterable[tuple[bytes | None, FieldHeaders]]
    ) -> None:
        """Load the schemas that `deserialize` needs for the keys or values of some records, in
        order.

        Each item of `fields` is the data and the headers of one record. If a schema cannot be
        loaded, `deserialize` raises the error for the record that needs the schema. `prepare` may
        stop at that record.
        """

    @abstractmethod
    def deserialize(self, part: RecordPart, data: bytes, headers: FieldHeaders) -> T_co:
        """Deserialize a key or value. Raises SchemaError if the data cannot be read."""
