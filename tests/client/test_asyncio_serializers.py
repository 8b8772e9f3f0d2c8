"""Serializers over the asyncio clients: the same classes, and the types that mypy sees."""

import asyncio
from typing import assert_type

import pytest

from ottla.client import (
    ConsumerConfig,
    DeserializationError,
    DeserializingConsumer,
    SerializingProducer,
    from_text,
    to_text,
)
from ottla.client.aio import open_consumer, open_producer
from ottla.client.produce.delivery import RecordMetadata
from ottla.client.serializers import DeserializedRecord
from ottla.testing import async_cluster


def number_of(data: bytes) -> int:
    """Return the number in a text; raises ValueError."""
    return int(data)


def test_a_malformed_record_is_reported_after_those_before_it_and_skipped() -> None:
    async def scenario() -> list[list[int | None]]:
        async with async_cluster() as cluster:
            async with open_producer(cluster.bootstrap) as producer:
                texts = SerializingProducer(producer, key=to_text, value=to_text)
                for value in ("1", "2", "three", "4"):
                    delivery = await texts.send("numbers", value, key="k")
                assert_type(await delivery, RecordMetadata)
            config = ConsumerConfig(group_id="readers", auto_offset_reset="earliest")
            async with open_consumer(cluster.bootstrap, config) as consumer:
                await consumer.subscribe(["numbers"])
                numbers = DeserializingConsumer(consumer, key=from_text, value=number_of)
                first = await numbers.poll(60)
                assert_type(first, list[DeserializedRecord[str, int]])
                with pytest.raises(DeserializationError, match="numbers-0 at offset 2: the value"):
                    await numbers.poll(60)
                return [
                    [one.value for one in records] for records in (first, await numbers.poll(60))
                ]

    assert asyncio.run(scenario()) == [[1, 2], [4]]
