"""Schemas through a producer and a consumer: bad records, a registry that is down, cancellation."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    DeserializationError,
    DeserializingConsumer,
    SerializingProducer,
    TopicPartition,
    aio,
    open_consumer,
    open_producer,
)
from ottla.client.registry.framing import RecordPart
from ottla.client.schemas import (
    AvroDeserializer,
    AvroSerializer,
    FramingError,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryConfig,
    RegistryUnavailableError,
    RemoteReferenceError,
    Schema,
    SchemaFormat,
    SchemaRegistry,
    SerializerConfig,
    UnknownSchemaError,
    file_registry,
    open_registry,
)
from ottla.client.schemas.record_codecs import FieldHeaders
from ottla.client.testing import ClusterUnderTest
from ottla.testing import async_cluster
from tests.client.registry.registry_server import serve_registry
from tests.client.schemas.order_schemas import ProtoOrder, proto_order

AT = TopicPartition("orders", 0)
FROM_START = ConsumerConfig(auto_offset_reset="earliest")
NUMBER = '"long"'


@pytest.fixture
def registry(tmp_path: Path) -> SchemaRegistry:
    """Give an empty registry."""
    return file_registry(tmp_path)


async def test_records_of_three_formats_come_back(
    ottla_cluster: ClusterUnderTest, registry: SchemaRegistry
) -> None:
    in_header = SerializerConfig(is_guid_in_header=True)
    async with open_producer(ottla_cluster.bootstrap) as producer:
        avro = SerializingProducer(
            producer,
            key=AvroSerializer[int](registry, NUMBER),
            value=AvroSerializer[int](registry, NUMBER, config=in_header),
        )
        await avro.send("orders", 1, key=7, headers=[("h", b"x")])
        await avro.send("orders", None, key=8)
        await SerializingProducer(
            producer, value=JsonSchemaSerializer[Any](registry, "true", config=in_header)
        ).send("json", {"a": 1})
        await SerializingProducer(
            producer, value=ProtobufSerializer[Any](registry, ProtoOrder, config=in_header)
        ).send("protobuf", proto_order(), key=b"k")
        with pytest.raises(TypeError, match="pass headers as pairs"):
            await avro.send("orders", 1, headers=b"\0")
    async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
        consumer.assign([AT])
        reader = DeserializingConsumer(
            consumer,
            key=AvroDeserializer[int](registry),
            value=AvroDeserializer[int](registry),
        )
        first, second = await anext(reader), await anext(reader)
        assert (first.key, first.value, first.headers[0]) == (7, 1, ("h", b"x"))
        assert (second.key, second.value, list(second.headers)) == (8, None, [])
        consumer.seek(AT, 0)
        (batch,) = await reader.poll_batches()
        assert (batch.keys, batch.values) == ([7, 8], [1, None])
        consumer.assign([TopicPartition("json", 0)])
        found = DeserializingConsumer(consumer, value=JsonSchemaDeserializer[Any](registry))
        assert [record.value for record in await found.poll()] == [{"a": 1}]
        consumer.assign([TopicPartition("protobuf", 0)])
        messages = DeserializingConsumer(consumer, value=ProtobufDeserializer[Any](registry))
        (message,) = await messages.poll()
        assert str(message.value) == str(proto_order())


async def test_each_bad_record_is_reported_with_its_offset_and_skipped(
    ottla_cluster: ClusterUnderTest, registry: SchemaRegistry
) -> None:
    remote = Schema('{"$ref": "http://example.com/x.json"}', SchemaFormat.JSON)
    remote_id = (await registry.register("remote", remote)).id
    serializer = JsonSchemaSerializer[Any](registry, "true")
    async with open_producer(ottla_cluster.bootstrap) as producer:
        good = (await serializer.serialize("orders", "value", "good")).data
        bad = (b"{}", b"\0\0", b"\0\0\0\1\0x", bytes((0, 0, 0, 0, remote_id)) + b"1")
        for value in (good, bad[0], bad[1], good, bad[2], bad[3], good):
            await producer.send("orders", value)
    expected: list[Any] = [
        "good", (1, FramingError), (2, FramingError), "good", (4, UnknownSchemaError),
        (5, RemoteReferenceError), "good",
    ]  # fmt: skip
    async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
        reader = DeserializingConsumer(consumer, value=JsonSchemaDeserializer[Any](registry))

        async def by_poll() -> list[Any]:
            return [record.value for record in await reader.poll()]

        async def by_batches() -> list[Any]:
            return [one for batch in await reader.poll_batches() for one in batch.values]

        async def one_by_one() -> list[Any]:
            return [(await anext(reader)).value]

        for read in (by_poll, by_batches, one_by_one):
            consumer.assign([AT])
            consumer.seek(AT, 0)
            found: list[Any] = []
            while len(found) < len(expected):
                try:
                    found += await read()
                except DeserializationError as error:
                    assert (error.record.topic, error.record.partition) == AT
                    assert not error.is_temporary
                    found.append((error.record.offset, type(error.__cause__)))
            assert found == expected


async def test_a_record_is_read_again_after_the_registry_was_down(
    ottla_cluster: ClusterUnderTest, tmp_path: Path
) -> None:
    serializer = JsonSchemaSerializer[Any](file_registry(tmp_path), "true")
    async with open_producer(ottla_cluster.bootstrap) as producer:
        orders = SerializingProducer(producer, value=serializer)
        for number in range(2):
            await orders.send("orders", number)
    hasty = RegistryConfig(retry_count=0)
    with serve_registry(tmp_path) as server:
        async with (
            open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer,
            open_registry(server.url, hasty) as registry,
        ):
            consumer.assign([AT])

            async def fail(read: Any) -> None:
                server.planned.append(None)
                with pytest.raises(DeserializationError, match="at offset 0") as reported:
                    await read()
                assert reported.value.is_temporary
                assert isinstance(reported.value.__cause__, RegistryUnavailableError)
                assert await consumer.position(AT) == 0

            reader = DeserializingConsumer(consumer, value=JsonSchemaDeserializer[Any](registry))
            await fail(reader.poll)
            await fail(reader.poll_batches)
            await fail(lambda: anext(reader))
            assert [record.value for record in await reader.poll()] == [0, 1]


class SlowDeserializer(AvroDeserializer[Any]):
    """A deserializer that waits the first time."""

    is_slow = True

    async def prepare(
        self, part: RecordPart, fields: Iterable[tuple[bytes | None, FieldHeaders]]
    ) -> None:
        if self.is_slow:
            self.is_slow = False
            await trio.sleep_forever()
        await super().prepare(part, fields)


async def test_records_are_not_lost_if_loading_their_schemas_is_cancelled(
    ottla_cluster: ClusterUnderTest, registry: SchemaRegistry
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        await SerializingProducer(producer, value=AvroSerializer[int](registry, NUMBER)).send(
            "orders", 5
        )
    async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
        consumer.assign([AT])
        deserializer = SlowDeserializer(registry)
        reader = DeserializingConsumer(consumer, value=deserializer)
        async with trio.open_nursery() as nursery:

            async def poll() -> None:
                await reader.poll()

            nursery.start_soon(poll)
            while deserializer.is_slow:
                await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
        assert [record.value for record in await reader.poll()] == [5]


def test_the_same_classes_work_in_asyncio(tmp_path: Path) -> None:
    async def scenario(url: str) -> list[int | None]:
        async with async_cluster() as cluster, open_registry(url) as registry:
            async with aio.open_producer(cluster.bootstrap) as producer:
                serializer = AvroSerializer[int](registry, NUMBER)
                await SerializingProducer(producer, value=serializer).send("orders", 5)
            async with aio.open_consumer(cluster.bootstrap, FROM_START) as consumer:
                await consumer.assign([AT])
                reader = DeserializingConsumer(consumer, value=AvroDeserializer[int](registry))
                return [record.value for record in await reader.poll(60)]

    with serve_registry(tmp_path) as server:
        assert asyncio.run(scenario(server.url)) == [5]
