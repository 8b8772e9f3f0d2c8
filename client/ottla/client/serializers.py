"""Serializers and deserializers: functions that convert values to bytes and back, and clients that
apply these functions.

A serializer is a function from a value to bytes; a deserializer is a function from bytes to a
value. This module contains functions for JSON and text. An application may use any other function
with this argument and result, such as `Message.SerializeToString` of Protobuf. The functions are
never called with None: a missing key, and the missing value of a tombstone, are None both before
and after the conversion.

Serializers with a schema registry are in `ottla.client.schemas`.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from ottla.client.fetch.record_batch import ConsumerRecord, RecordBatch
from ottla.client.network.arguments import shown
from ottla.client.produce.delivery import RecordMetadata
from ottla.client.registry.framing import RecordPart
from ottla.client.schemas.record_codecs import EncodedField, SchemaDeserializer, SchemaSerializer
from ottla.model.errors import OttlaError
from ottla.wire.batch_builder import EncodedHeaders, Headers
from ottla.wire.records import RecordHeaders

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Serializer = Callable[[T], bytes] | SchemaSerializer[T]
Deserializer = Callable[[bytes], T] | SchemaDeserializer[T]


def to_json(value: object) -> bytes:
    """Encode a value as compact JSON in UTF-8. Raises TypeError or ValueError if JSON cannot
    represent the value."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def from_json(data: bytes) -> Any:
    """Decode a JSON text and return its value. Raises ValueError if the data is not JSON."""
    return json.loads(data)


def to_text(value: str) -> bytes:
    """Encode a text in UTF-8."""
    return value.encode()


def from_text(data: bytes) -> str:
    """Decode a text in UTF-8. Raises UnicodeDecodeError if the data is not UTF-8."""
    return data.decode()


def as_bytes(value: bytes) -> bytes:
    """Return bytes unchanged.  This is the default for keys and values."""
    return value


class RecordDelivery(Awaitable[RecordMetadata], Protocol):
    """Interface of the delivery report of one record: Delivery, or AioDelivery under asyncio."""

    @property
    def is_settled(self) -> bool:
        """True if the record was delivered or has failed permanently."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Reason why the record was not delivered, or None if it was delivered or its outcome is
        not known yet."""
        ...

    def result(self) -> RecordMetadata:
        """Return the metadata of the delivered record. The caller must first wait until
        `is_settled` is True. Raises NotDeliveredError if the record was not delivered."""
        ...

    async def wait(self) -> RecordMetadata:
        """Wait until the record is delivered or has failed, and return its metadata. Raises
        NotDeliveredError if the record was not delivered."""
        ...


class RecordSender(Protocol):
    """Interface of a producer whose keys and values are bytes: Producer, or AioProducer under
    asyncio."""

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers | EncodedHeaders = (),
        timestamp_ms: int | None = None,
    ) -> RecordDelivery:
        """Buffer one record for delivery, and return its delivery report."""
        ...


class RecordReader(Protocol):
    """Interface of a consumer whose keys and values are bytes: Consumer, or AioConsumer under
    asyncio."""

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, with keys and values as bytes."""
        ...

    async def poll_batches(
        self,
        timeout_s: float | None = None,
        *,
        record_count_max: int | None = None,
        bytes_max: int | None = None,
    ) -> list[RecordBatch]:
        """Return the next records as batches, with keys and values as bytes."""
        ...

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record, with key and value as bytes."""
        ...

    async def _seek_back(self, records: Sequence[ConsumerRecord]) -> None:
        """Move the positions of partitions back to the first of `records` in each partition.
        Partitions that are no longer assigned are skipped."""
        ...


class DeserializationError(OttlaError):
    """Error of a record that a deserializer could not read. The deserializer's own error is in
    `__cause__`.

    The position of the consumer is already after the record, so that the next poll skips the
    record. If `is_temporary`, the position is at the record instead.
    """

    def __init__(self, record: ConsumerRecord, part: str, cause: Exception) -> None:
        self.record = record
        """The record that could not be deserialized, with its key and value as bytes."""
        self.part = part
        """Part of the record that could not be deserialized: `key` or `value`."""
        self.is_temporary: bool = getattr(cause, "is_temporary", False)
        """True if the schema registry could not be reached. The position of the consumer is then at
        the record, so that the next poll reads the record again."""
        super().__init__(
            f"{record.topic}-{record.partition} at offset {record.offset}: the {part} cannot be "
            f"deserialized: {type(cause).__name__}: {cause}"
        )


class DeserializedRecord(NamedTuple, Generic[K, V]):
    """One record, whose key and value have been deserialized, with its topic, partition and
    offset."""

    topic: str
    """Name of the topic."""
    partition: int
    """Number of the partition."""
    offset: int
    """Offset of the record."""
    timestamp_ms: int
    """Timestamp of the record, in ms since 1970."""
    key: K | None
    """Deserialized key of the record, or None."""
    value: V | None
    """Deserialized value of the record.  None for a tombstone."""
    headers: RecordHeaders
    """Headers of the record: pairs of name and bytes."""


class DeserializedBatch(NamedTuple, Generic[K, V]):
    """Records of one partition as columns, whose keys and values have been deserialized."""

    batch: RecordBatch
    """The same records with keys and values as bytes, and with their offsets, timestamps and
    headers."""
    keys: list[K | None]
    """Deserialized key of each record, or None."""
    values: list[V | None]
    """Deserialized value of each record; None for a tombstone."""


def _check_functions(kind: type, **functions: object) -> None:
    """Raise TypeError for an argument that is neither callable nor an instance of `kind`."""
    for name, function in functions.items():
        if not callable(function) and not isinstance(function, kind):
            raise TypeError(
                f"{name} is {shown(function)}; it must be a function or a {kind.__name__}"
            )


async def _encode(
    codec: "Serializer[T]", topic: str, part: RecordPart, value: T | None
) -> EncodedField | None:
    if value is None:
        return None
    if isinstance(codec, SchemaSerializer):
        return await codec.serialize(topic, part, value)
    return EncodedField(codec(value))


def _with_headers(
    headers: Headers | EncodedHeaders, *fields: EncodedField | None
) -> Headers | EncodedHeaders:
    """Return the headers of a record, followed by the headers that its serialized key and value
    add."""
    added = [one for encoded in fields if encoded is not None for one in encoded.headers]
    if not added:
        return headers
    if isinstance(headers, bytes):
        raise TypeError("a serializer adds a header to the record; pass headers as pairs")
    return [*headers, *added]


def _reader(codec: "Deserializer[T]", part: RecordPart) -> Callable[[bytes, RecordHeaders], T]:
    """Return a function of data and headers that deserializes a key or value. `codec` is a function
    or a schema deserializer."""
    if isinstance(codec, SchemaDeserializer):
        return partial(codec.deserialize, part)
    function: Callable[[bytes], T] = codec
    return lambda data, _: function(data)


class SerializingProducer(Generic[K, V]):
    """A producer that serializes keys and values, by functions or by schema serializers.

    For example: `SerializingProducer(producer, key=to_text, value=to_json)`. Several serializing
    producers may share one producer.
    """

    @overload
    def __init__(
        self: "SerializingProducer[bytes, V]", producer: RecordSender, *, value: Serializer[V]
    ) -> None: ...
    @overload
    def __init__(
        self: "SerializingProducer[K, bytes]", producer: RecordSender, *, key: Serializer[K]
    ) -> None: ...
    @overload
    def __init__(
        self, producer: RecordSender, *, key: Serializer[K], value: Serializer[V]
    ) -> None: ...
    def __init__(
        self,
        producer: RecordSender,
        *,
        key: Any = as_bytes,
        value: Any = as_bytes,
    ) -> None:
        _check_functions(SchemaSerializer, key=key, value=value)
        self.producer = producer
        """The producer that sends the serialized records. Applications call its other methods, such
        as `flush` and `transaction`, directly."""
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
    ) -> RecordDelivery:
        """Serialize one record, buffer it for delivery as `Producer.send` does, and return its
        delivery report.

        An error of a serializer is raised unchanged, and the record is then not sent.
        """
        encoded_value = await _encode(self._value, topic, "value", value)
        encoded_key = await _encode(self._key, topic, "key", key)
        return await self.producer.send(
            topic,
            None if encoded_value is None else encoded_value.data,
            key=None if encoded_key is None else encoded_key.data,
            partition=partition,
            headers=_with_headers(headers, encoded_key, encoded_value),
            timestamp_ms=timestamp_ms,
        )


class DeserializingConsumer(Generic[K, V]):
    """A consumer that deserializes keys and values, by functions or by schema deserializers.

    For example: `DeserializingConsumer(consumer, key=from_text, value=from_json)`. `poll` and
    `async for` return deserialized records. Applications call all other methods, such as
    `subscribe` and `commit`, on the consumer itself.
    """

    @overload
    def __init__(
        self: "DeserializingConsumer[bytes, V]", consumer: RecordReader, *, value: Deserializer[V]
    ) -> None: ...
    @overload
    def __init__(
        self: "DeserializingConsumer[K, bytes]", consumer: RecordReader, *, key: Deserializer[K]
    ) -> None: ...
    @overload
    def __init__(
        self, consumer: RecordReader, *, key: Deserializer[K], value: Deserializer[V]
    ) -> None: ...
    def __init__(
        self,
        consumer: RecordReader,
        *,
        key: Any = as_bytes,
        value: Any = as_bytes,
    ) -> None:
        _check_functions(SchemaDeserializer, key=key, value=value)
        self.consumer = consumer
        """The consumer that reads the serialized records."""
        self._key: Deserializer[K] = key
        self._value: Deserializer[V] = value
        self._read_key = _reader(self._key, "key")
        self._read_value = _reader(self._value, "value")
        self._has_schemas = isinstance(key, SchemaDeserializer) or isinstance(
            value, SchemaDeserializer
        )

    async def poll(
        self, timeout_s: float | None = None, *, record_count_max: int | None = None
    ) -> list[DeserializedRecord[K, V]]:
        """Return the next records with deserialized keys and values, as `Consumer.poll` does.

        Raises DeserializationError for a malformed record, after all records before it have been
        returned.
        """
        records = await self.consumer.poll(timeout_s, record_count_max=record_count_max)
        await self._prepare_records(records)
        found: list[DeserializedRecord[K, V]] = []
        for index, record in enumerate(records):
            try:
                found.append(self._read(record))
            except DeserializationError as error:
                # Seek back to the first record that is not returned now.  The reported record
                # itself is skipped, unless it may be readable later.
                again = index if found or error.is_temporary else index + 1
                await self.consumer._seek_back(records[again:])
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
        """Return the next records as batches with deserialized keys and values, as
        `Consumer.poll_batches` does.

        Raises DeserializationError for a malformed record, after all records before it have been
        returned.
        """
        batches = await self.consumer.poll_batches(
            timeout_s, record_count_max=record_count_max, bytes_max=bytes_max
        )
        if self._has_schemas:
            # From the columns: the objects of all records would cost more than the rest.
            await self._prepare(
                (field for one in batches for field in zip(one.keys, one.headers, strict=True)),
                (field for one in batches for field in zip(one.values, one.headers, strict=True)),
                [one[0] for one in batches],
            )
        found: list[DeserializedBatch[K, V]] = []
        for index, batch in enumerate(batches):
            keys, values, failure = self._read_columns(batch)
            count = len(values)
            if count:
                found.append(DeserializedBatch(batch[:count], keys[:count], values))
            if failure is not None:
                # As in `poll`: seek back to the first record that is not returned; skip the
                # reported one.
                rest = [one[0] for one in batches[index + 1 :]]
                again = count if found or failure.is_temporary else count + 1
                await self.consumer._seek_back(
                    ([batch[again]] if again < len(batch) else []) + rest
                )
                if not found:
                    raise failure from failure.__cause__
                break
        return found

    def _read_columns(
        self, batch: RecordBatch
    ) -> tuple[list[K | None], list[V | None], DeserializationError | None]:
        """Deserialize keys and values up to the first malformed record. Returns the keys, the
        values, and the error of the malformed record or None."""
        keys: list[K | None] = []
        values: list[V | None] = []
        read_key, read_value = self._read_key, self._read_value
        # Headers are decoded only if they can contain the id of a schema.
        headers: Iterable[RecordHeaders] = batch.headers if self._has_schemas else repeat(())
        try:
            for key, value, more in zip(batch.keys, batch.values, headers, strict=False):
                keys.append(None if key is None else read_key(key, more))
                values.append(None if value is None else read_value(value, more))
        except Exception as error:
            # A user's function may raise any exception; the error must name its record.
            part = "key" if len(keys) == len(values) else "value"
            failure = DeserializationError(batch[len(values)], part, error)
            failure.__cause__ = error
            return keys, values, failure
        return keys, values, None

    def __aiter__(self) -> "DeserializingConsumer[K, V]":
        return self

    async def __anext__(self) -> DeserializedRecord[K, V]:
        """Return the next record, with its key and value deserialized. Raises DeserializationError
        if the record is malformed."""
        record = await self.consumer.__anext__()
        await self._prepare_records([record])
        try:
            return self._read(record)
        except DeserializationError as error:
            if error.is_temporary:
                await self.consumer._seek_back([record])
            raise

    async def _prepare_records(self, records: Sequence[ConsumerRecord]) -> None:
        if self._has_schemas and records:
            await self._prepare(
                ((one.key, one.headers) for one in records),
                ((one.value, one.headers) for one in records),
                records,
            )

    async def _prepare(
        self,
        keys: Iterable[tuple[bytes | None, RecordHeaders]],
        values: Iterable[tuple[bytes | None, RecordHeaders]],
        records: Sequence[ConsumerRecord],
    ) -> None:
        """Load the schemas of some keys and values before the keys and values are deserialized.

        If this call is cancelled, the consumer continues at the first of `records` in each
        partition.
        """
        try:
            if isinstance(self._key, SchemaDeserializer):
                await self._key.prepare("key", keys)
            if isinstance(self._value, SchemaDeserializer):
                await self._value.prepare("value", values)
        except BaseException:
            await self.consumer._seek_back(records)
            raise

    def _read(self, record: ConsumerRecord) -> DeserializedRecord[K, V]:
        part = "key"
        try:
            key = None if record.key is None else self._read_key(record.key, record.headers)
            part = "value"
            value = None if record.value is None else self._read_value(record.value, record.headers)
        except Exception as error:
            # A user's function may raise any exception; the error must name its record.
            raise DeserializationError(record, part, error) from error
        return DeserializedRecord(*record[:4], key, value, record.headers)
