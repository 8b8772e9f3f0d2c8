"""Our client with brokers of older versions: a real one behind a proxy that announces fewer
versions."""

from typing import Any

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    ProducerConfig,
    TopicPartition,
    open_consumer,
    open_producer,
)
from ottla.wire.apis import FETCH, INIT_PRODUCER_ID, LIST_OFFSETS, METADATA, PRODUCE

AGES = {
    "Kafka 3.9, whose Produce knows no topic ids": {PRODUCE: 11, FETCH: 17},
    "Kafka 2.8, whose Fetch knows none": {PRODUCE: 9, FETCH: 12, METADATA: 11},
    "Kafka 2.3, before any topic ids": {
        PRODUCE: 7, FETCH: 11, LIST_OFFSETS: 5, METADATA: 8, INIT_PRODUCER_ID: 1,
    },
    "Kafka 1.0, before fetch sessions and leader epochs": {
        PRODUCE: 5, FETCH: 6, LIST_OFFSETS: 2, METADATA: 5, INIT_PRODUCER_ID: 0,
    },
    "a broker that fetches by ids it never reported": {METADATA: 9},
}  # fmt: skip


@pytest.mark.parametrize("age", AGES)
async def test_an_old_broker_takes_and_gives_records(behind_proxy: Any, age: str) -> None:
    highest = AGES[age]
    count = 300
    at = TopicPartition("t", 0)
    async with behind_proxy(highest=highest) as (_, known_at, proxy):
        async with open_producer(known_at, ProducerConfig(batch_bytes=1_000)) as producer:
            for number in range(count):
                await producer.send("t", b"%d" % number, partition=0)
        async with open_consumer(
            known_at, ConsumerConfig(auto_offset_reset="earliest")
        ) as consumer:
            consumer.assign([at])
            found: list[int] = []
            with trio.fail_after(60):
                while len(found) < count:
                    found += [int(record.value or b"") for record in await consumer.poll()]
            consumer.seek(at, 100)
            with trio.fail_after(60):
                assert (await consumer.poll(60))[0].value == b"100"
    assert found == list(range(count))
    for api_key, version in highest.items():
        asked = {one for key, one in proxy.asked if key == api_key}
        assert asked == {version}


async def test_a_broker_without_new_epochs_gives_a_new_id_instead(behind_proxy: Any) -> None:
    async with (
        behind_proxy(highest={INIT_PRODUCER_ID: 2}) as (_, known_at, _proxy),
        open_producer(known_at) as producer,
    ):
        before = await (await producer.send("t", b"0"))
        first = producer._gathered.identity
        producer._gathered._is_epoch_due = True
        producer._on_change(None)
        after = await (await producer.send("t", b"1"))
        second = producer._gathered.identity
    assert first is not None
    assert second is not None
    assert (after.offset, second.epoch) == (before.offset + 1, 0)
    assert second.producer_id != first.producer_id
