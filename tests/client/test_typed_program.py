"""One program of a user for trio and for asyncio, with the types that its author sees.

`make check` types this module by mypy --strict.  Pyright types it here, if it is installed.
"""

import asyncio
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import assert_type

import pytest
import trio

from ottla.client import (
    ConsumerConfig,
    ConsumerRecord,
    Delivery,
    DeserializationError,
    DeserializingConsumer,
    NotDeliveredError,
    ProducerConfig,
    RecordBatch,
    RecordMetadata,
    SerializingProducer,
    TopicPartition,
    aio,
    from_json,
    from_text,
    open_admin,
    open_consumer,
    open_producer,
    to_json,
    to_text,
)
from ottla.client.aio import AioDelivery
from ottla.testing import cluster

WRITERS = ProducerConfig(acks=1, enable_idempotence=False, linger_ms=0)
READERS = ConsumerConfig(group_id="readers", auto_offset_reset="earliest")


@dataclass
class Order:
    """A value of the application."""

    number: int
    note: str


def to_bytes(order: Order) -> bytes:
    """Return an order as JSON."""
    return to_json({"number": order.number, "note": order.note})


def from_bytes(data: bytes) -> Order:
    """Return the order of a JSON text."""
    fields: dict[str, str] = from_json(data)
    return Order(int(fields["number"]), fields["note"])


async def with_trio(bootstrap: str) -> list[str]:
    """Write and read orders.  Returns the notes of the orders."""
    async with open_admin(bootstrap) as admin:
        await admin.create_topic("orders", partition_count=1)
        assert_type(await admin.list_topics(), list[str])
    async with open_producer(bootstrap, WRITERS) as producer:
        orders = SerializingProducer(producer, key=to_text, value=to_bytes)
        delivery = await orders.send("orders", Order(1, "tea"), key="ann")
        assert_type(await delivery, RecordMetadata)
        plain = await producer.send("orders", to_bytes(Order(2, "jam")), headers=[("a", b"b")])
        assert_type(plain, Delivery)
        try:
            await plain
        except NotDeliveredError as error:
            assert_type(error.may_be_in_log, bool)
    notes: list[str] = []
    async with open_consumer(bootstrap, READERS) as consumer:
        consumer.subscribe(["orders"])
        read = DeserializingConsumer(consumer, key=from_text, value=from_bytes)
        while len(notes) < 2:
            try:
                for record in await read.poll(60):
                    assert_type(record.key, str | None)
                    assert_type(record.value, Order | None)
                    notes += [] if record.value is None else [record.value.note]
            except DeserializationError as error:
                assert_type(error.record, ConsumerRecord)
        consumer.seek_to_beginning()
        batches = await consumer.poll_batches(60)
        assert_type(batches, list[RecordBatch])
        for batch in batches:
            await consumer.commit({batch.at: batch.end_offset})
    return notes


async def with_asyncio(bootstrap: str) -> list[str]:
    """Write and read orders.  Returns the notes of the orders."""
    async with aio.open_admin(bootstrap) as admin:
        await admin.create_topic("orders-2", partition_count=1)
        assert_type(await admin.list_topics(), list[str])
    async with aio.open_producer(bootstrap, WRITERS) as producer:
        orders = SerializingProducer(producer, key=to_text, value=to_bytes)
        delivery = await orders.send("orders-2", Order(1, "tea"), key="ann")
        assert_type(await delivery, RecordMetadata)
        plain = await producer.send("orders-2", to_bytes(Order(2, "jam")))
        assert_type(plain, AioDelivery)
    notes: list[str] = []
    async with aio.open_consumer(bootstrap, READERS) as consumer:
        await consumer.subscribe(["orders-2"])
        read = DeserializingConsumer(consumer, key=from_text, value=from_bytes)
        async for record in read:
            assert_type(record.value, Order | None)
            notes += [] if record.value is None else [record.value.note]
            if len(notes) == 2:
                break
        committed = await consumer.committed([TopicPartition("orders-2", 0)])
        assert_type(sorted(one.metadata for one in committed.values()), list[str])
    return notes


def test_the_program_works_with_both_event_loops() -> None:
    with cluster() as running:
        assert trio.run(with_trio, running.bootstrap) == ["tea", "jam"]
        assert asyncio.run(with_asyncio(running.bootstrap)) == ["tea", "jam"]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["basic", "strict"])
def test_pyright_finds_no_error_in_it(tmp_path: Path, mode: str) -> None:
    program = shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "program.py").write_text(Path(__file__).read_text("utf-8"), "utf-8")
    (tmp_path / "pyrightconfig.json").write_text(f'{{"typeCheckingMode": "{mode}"}}')
    command = [program, "--pythonpath", sys.executable, "--project", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
