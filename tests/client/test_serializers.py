"""Serializers as plain functions: sent values are read back, and a bad record is reported once."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import ConsumerConfig, TopicPartition, open_consumer, open_producer
from ottla.client.serializers import (
    DeserializationError,
    DeserializingConsumer,
    SerializingProducer,
    from_json,
    from_text,
    to_json,
    to_text,
)
from ottla.client.testing import ClusterUnderTest

AT = TopicPartition("orders", 0)
FROM_START = ConsumerConfig(auto_offset_reset="earliest")


def test_json_is_compact_utf8_and_strict() -> None:
    assert to_json({"é": [1, None]}) == '{"é":[1,null]}'.encode()
    assert from_json(to_json({"a": 1.5})) == {"a": 1.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_json(math.nan)


async def test_values_come_back(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        orders = SerializingProducer(producer, key=to_text, value=to_json)
        await orders.send("orders", {"id": 1}, key="ä")
        await orders.send("orders", None, key="b", headers=[("h", b"x")])
    async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
        consumer.assign([AT])
        reader = DeserializingConsumer(consumer, key=from_text, value=from_json)
        first, second = await anext(reader), await anext(reader)
    assert (first.key, first.value, first.offset) == ("ä", {"id": 1}, 0)
    assert (second.key, second.value, list(second.headers)) == ("b", None, [("h", b"x")])


async def test_a_record_that_cannot_be_read_is_reported_once_and_skipped(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        for value in (b"1", b"2", b"{", b"4", b"5"):
            await producer.send("orders", value)
    async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
        consumer.assign([AT])
        reader = DeserializingConsumer(consumer, value=from_json)
        assert [record.value for record in await reader.poll()] == [1, 2]
        with pytest.raises(
            DeserializationError, match=r"orders-0 at offset 2: the value"
        ) as reported:
            await reader.poll()
        assert reported.value.record.value == b"{"
        assert reported.value.part == "value"
        assert [record.value for record in await reader.poll()] == [4, 5]


async def test_a_batch_ends_before_what_cannot_be_read_which_is_reported_and_skipped(
    ottla_cluster: ClusterUnderTest,
) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        for value in (b"1", b"2", b"{", b"4", None):
            await producer.send("orders", value, key=b"k")
    async with open_consumer(ottla_cluster.bootstrap, FROM_START) as consumer:
        consumer.assign([AT])
        reader = DeserializingConsumer(consumer, key=from_text, value=from_json)
        (first,) = await reader.poll_batches()
        assert (first.keys, first.values, first.batch.offsets) == (["k"] * 2, [1, 2], range(2))
        with pytest.raises(
            DeserializationError, match=r"orders-0 at offset 2: the value"
        ) as reported:
            await reader.poll_batches()
        assert reported.value.part == "value"
        assert isinstance(reported.value.__cause__, ValueError)
        (last,) = await reader.poll_batches()
        assert (last.values, last.batch.offsets) == ([4, None], range(3, 5))


async def test_an_error_of_a_serializer_sends_nothing(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        orders = SerializingProducer(producer, value=to_json)
        with pytest.raises(TypeError, match="not JSON serializable"):
            await orders.send("orders", object())
        delivery = await orders.send("orders", 1)
        assert (await delivery).offset == 0


@pytest.mark.parametrize("make", [SerializingProducer, DeserializingConsumer])
def test_what_is_no_function_is_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"value is 'json' \(str\); it must be a function"):
        make(None, value="json")
