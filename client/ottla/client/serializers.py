"""Serializers: plain functions between values and bytes, and clients that use them.

A serializer takes a value and returns bytes; a deserializer takes bytes and returns a value.  Those
of JSON and of text are here; any function of that form is one, such as `Message.SerializeToString`
of Protobuf.  None is never given to one: a record without a key or a value (a tombstone) has none
on both sides.
"""

import json
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar, overload

from ottla.client.consumer import Consumer
from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.network.arguments import shown
from ottla.client.produce.delivery import Delivery
from ottla.client.producer import Producer
from ottla.model.errors import OttlaError
from ottla.wire.batch_builder import EncodedHeaders, Headers
from ottla.wire.records import RecordHeaders

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Serializer = Callable[[T], bytes]
Deserializer = Callable[[bytes], T]


def to_json(value: object) -> bytes:
    """Return a value as compact JSON in UTF-8.  Raises TypeError or ValueError if it has none."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def from_json(data: bytes) -> Any:
    """Return the value of a JSON text.  Raises ValueError if it is none."""
    return json.loads(data)


def to_text(value: str) -> bytes:
    """Return a text in UTF-8."""
    return value.encode()


def from_text(data: bytes) -> str:
    """Return the text of UTF-8.  Raises UnicodeDecodeError if it is none."""
    return data.decode()


def as_bytes(value: bytes) -> bytes:
    """Return bytes as they are: the default of keys and values."""
    return value


class DeserializationError(OttlaError):
    """A deserializer failed for a record; its error is the cause.

    The consumer stands behind the record: the next poll goes on with what follows.
    """

    def __init__(self, record: ConsumerRecord, part: str, cause: Exception) -> None:
        self.record = record
        """The record, with its key and value as bytes."""
        self.part = part
        """What could not be read: `key` or `value`."""
        super().__init__(
            f"{record.topic}-{record.partition} at offset {record.offset}: the {part} cannot be "
            f"deserialized: {type(cause).__name__}: {cause}"
        )


class DeserializedRecord(NamedTuple, Generic[K, V]):
    """One record with its key and value deserialized, and where it was."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: int
    """Offset of the record."""
    timestamp_ms: int
    """Time of the record, in ms since 1970."""
    key: K | None
    """Key; None where the record has none."""
    value: V | None
    """Value; None for a tombstone."""
    headers: RecordHeaders
    """Headers: (name, bytes) pairs."""


class DeserializedBatch(NamedTuple, Generic[K, V]):
    """Records of one partition with their keys and values deserialized, as columns."""

    batch: RecordBatch
    """The records as bytes, with their offsets, times and headers."""
    keys: list[K | None]
    """Key of each record; None where it has none."""
    values: list[V | None]
    """Value of each record; None for a tombstone."""


def _check_functions(**functions: object) -> None:
    """Raise TypeError for an argument that is no function."""
    for name, function in functions.items():
        if not callable(function):
            raise TypeError(f"{name} is {shown(function)}; it must be a function")


class SerializingProducer(Generic[K, V]):
    """A producer of values that two functions make into bytes.

    `SerializingProducer(producer, key=to_text, value=to_json)`; several may share a producer.
    """

    @overload
    def __init__(
        self: "SerializingProducer[bytes, V]", producer: Producer, *, value: Serializer[V]
    ) -> None: ...
    @overload
    def __init__(
        self: "SerializingProducer[K, bytes]", producer: Producer, *, key: Serializer[K]
    ) -> None: ...
    @overload
    def __init__(self, producer: Producer, *, key: Serializer[K], value: Serializer[V]) -> None: ...
    def __init__(
        self,
        producer: Producer,
        *,
        key: Any = as_bytes,
        value: Any = as_bytes,
    ) -> None:
        _check_functions(key=key, value=value)
        self.producer = producer
        """The producer that sends the bytes; its `flush` and `transaction` are used as ever."""
        self._key: Serializer[K] = key
        self._value: Serializer[V] = value

    async def send(
        self,
        topic: str,
        value: V | None,
        *,
        key: K | None = None,
        partition: int | None = None,
        headers: Headers | EncodedHeaders = (),
        timestamp_ms: int | None = None,
    ) -> Delivery:
        """Serialize and send one record, as `Producer.send` does.

        An error of a serializer is raised as it is, and nothing was sent.
        """
        return await self.producer.send(
            topic,
            None if value is None else self._value(value),
            key=None if key is None else self._key(key),
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
        )


class DeserializingConsumer(Generic[K, V]):
    """A consumer of values that two functions make of bytes.

    `DeserializingConsumer(consumer, key=from_text, value=from_json)`: read by `poll` or
    `async for`; all else (`subscribe`, `commit`, …) is asked of the consumer itself.
    """

    @overload
    def __init__(
        self: "DeserializingConsumer[bytes, V]", consumer: Consumer, *, value: Deserializer[V]
    ) -> None: ...
    @overload
    def __init__(
        self: "DeserializingConsumer[K, bytes]", consumer: Consumer, *, key: Deserializer[K]
    ) -> None: ...
    @overload
    def __init__(
        self, consumer: Consumer, *, key: Deserializer[K], value: Deserializer[V]
    ) -> None: ...
    def __init__(
        self,
        consumer: Consumer,
        *,
        key: Any = as_bytes,
        value: Any = as_bytes,
    ) -> None:
        _check_functions(key=key, value=value)
        self.consumer = consumer
        """The consumer that reads the bytes."""
        self._key: Deserializer[K] = key
        self._value: Deserializer[V] = value

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[DeserializedRecord[K, V]]:
        """Return the next records as `Consumer.poll` does.

        Raises DeserializationError for a record that cannot be read, after all before it have been
        returned.
        """
        records = await self.consumer.poll(timeout_s, record_count_max=record_count_max)
        found: list[DeserializedRecord[K, V]] = []
        for index, record in enumerate(records):
            try:
                found.append(self._read(record))
            except DeserializationError:
                # What is not returned now is read again; the record itself is not, once it is told.
                self._go_back(records[index:] if found else records[1:])
                if found:
                    return found
                raise
        return found

    async def poll_batches(
        self,
        timeout_s: float | None = None,
        *,
        record_count_max: int | None = None,
        bytes_max: int | None = None,
    ) -> list[DeserializedBatch[K, V]]:
        """Return the next records as batches, as `Consumer.poll_batches` does.

        Raises DeserializationError as `poll`: after all before the record have been returned.
        """
        batches = await self.consumer.poll_batches(
            timeout_s, record_count_max=record_count_max, bytes_max=bytes_max
        )
        found: list[DeserializedBatch[K, V]] = []
        for index, batch in enumerate(batches):
            keys, values, failure = self._read_columns(batch)
            count = len(values)
            if count:
                found.append(DeserializedBatch(batch[:count], keys[:count], values))
            if failure is not None:
                # As in `poll`: what is not returned now is read again, the record itself is not.
                rest = [one[0] for one in batches[index + 1 :]]
                again = count if found else count + 1
                self._go_back(([batch[again]] if again < len(batch) else []) + rest)
                if not found:
                    raise failure from failure.__cause__
                break
        return found

    def _read_columns(
        self, batch: RecordBatch
    ) -> tuple[list[K | None], list[V | None], DeserializationError | None]:
        """Return keys and values up to the first that cannot be read, and why it cannot."""
        keys: list[K | None] = []
        values: list[V | None] = []
        read_key, read_value = self._key, self._value
        try:
            for key, value in zip(batch.keys, batch.values, strict=True):
                keys.append(None if key is None else read_key(key))
                values.append(None if value is None else read_value(value))
        except Exception as error:
            # Whatever somebody's function raises: the record that it raised for must be told.
            part = "key" if len(keys) == len(values) else "value"
            failure = DeserializationError(batch[len(values)], part, error)
            failure.__cause__ = error
            return keys, values, failure
        return keys, values, None

    def __aiter__(self) -> "DeserializingConsumer[K, V]":
        return self

    async def __anext__(self) -> DeserializedRecord[K, V]:
        """Return the next record.  Raises DeserializationError if it cannot be read."""
        return self._read(await self.consumer.__anext__())

    def _read(self, record: ConsumerRecord) -> DeserializedRecord[K, V]:
        part = "key"
        try:
            key = None if record.key is None else self._key(record.key)
            part = "value"
            value = None if record.value is None else self._value(record.value)
        except Exception as error:
            # Whatever somebody's function raises: the record that it raised for must be told.
            raise DeserializationError(record, part, error) from error
        return DeserializedRecord(*record[:4], key, value, record.headers)

    def _go_back(self, records: list[ConsumerRecord]) -> None:
        firsts: dict[tuple[str, int], ConsumerRecord] = {}
        for record in records:
            firsts.setdefault((record.topic, record.partition), record)
        for at in self.consumer.assignment:
            if at in firsts:
                self.consumer.seek(at, firsts[at].offset)
