"""Measured work of one client: writing or reading a number of records as fast as possible.

Each run is a process of its own (`python -m ottla.bench.client_work CLIENT WORK BOOTSTRAP TOPIC
COUNT RECORD_BYTES`), so that it measures one client only. It prints seconds, CPU seconds, and the
CPU seconds of the application's thread as JSON. All clients have the same settings: acks=all,
idempotent, batches of 128 KiB, 5 ms of linger, no compression, checksums verified. Readers assign
all partitions, start at the first offset, and access every value.

The modules of a client are imported before the measurement. For Ottla's client, these include numpy
and the modules that use it. numpy's BLAS, which no client uses, is prevented from starting threads,
because each thread would spin for some 30 ms.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import trio

from ottla.bench.load import library
from ottla.client import (
    Consumer,
    ConsumerConfig,
    ProducerConfig,
    TopicPartition,
    open_consumer,
    open_producer,
)

BATCH_BYTES = 131_072
LINGER_MS = 5
POLL_EVERY = 256
CONSUME_AT_ONCE = 500
PARTITION = 0
TIMEOUT_MS = 1_000
WARM_UP_RECORDS = 2_000
"""Number of records that a reader receives before the measurement.  A writer sends one record
before the measurement.  The cost of objects that a client creates only once, with its first
records, is therefore not counted."""


@dataclass(frozen=True, slots=True)
class ClientWork:
    """The work of one run of the client benchmark: the records that a client writes or reads."""

    bootstrap: str
    topic: str
    count: int
    record_bytes: int

    @property
    def warm_up_count(self) -> int:
        """Number of records that a reading client receives before the measurement."""
        return min(WARM_UP_RECORDS, self.count // 10)

    @property
    def measured_count(self) -> int:
        """Number of records that a reading client receives during the measurement."""
        return self.count - self.warm_up_count


class Stopwatch:
    """Measurement of the elapsed seconds and CPU seconds of a client's work, from its creation
    until `figures` is called.

    The CPU seconds of the calling thread are measured separately. No client of this benchmark runs
    Python code in another thread, so they are an upper bound of the time in which the client holds
    the GIL.
    """

    def __init__(self) -> None:
        self._seconds = time.perf_counter()
        self._cpu_s = time.process_time()
        self._thread_s = time.thread_time()

    def figures(self, count: int) -> dict[str, float]:
        """Return the seconds and CPU seconds since the stopwatch was created, with the given number
        of records."""
        return {
            "count": count,
            "seconds": time.perf_counter() - self._seconds,
            "cpu_s": time.process_time() - self._cpu_s,
            "thread_s": time.thread_time() - self._thread_s,
        }


def _next(left: int) -> int:
    """Return the number of records to request from the client in the next call. `left` is the
    number of records that remain."""
    return min(CONSUME_AT_ONCE, left)


def ottla_produce(work: ClientWork) -> dict[str, float]:
    """Write records with Ottla's client, one record per call. Returns the elapsed seconds and CPU
    seconds."""

    async def write() -> dict[str, float]:
        config = ProducerConfig(batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS)
        payload = os.urandom(work.record_bytes)
        async with open_producer(work.bootstrap, config) as producer:
            await (await producer.send(work.topic, payload))
            watch = Stopwatch()
            for _ in range(work.count):
                await producer.send(work.topic, payload)
            await producer.flush()
            return watch.figures(work.count)

    return trio.run(write)


def ottla_produce_many(work: ClientWork) -> dict[str, float]:
    """Write records with Ottla's client, many records per call. Returns the elapsed seconds and CPU
    seconds."""

    async def write() -> dict[str, float]:
        config = ProducerConfig(batch_bytes=BATCH_BYTES, linger_ms=LINGER_MS)
        payload = os.urandom(work.record_bytes)
        async with open_producer(work.bootstrap, config) as producer:
            await (await producer.send(work.topic, payload))
            watch = Stopwatch()
            for done in range(0, work.count, CONSUME_AT_ONCE):
                count = min(CONSUME_AT_ONCE, work.count - done)
                await producer.send_many(work.topic, [payload for _ in range(count)])
            await producer.flush()
            return watch.figures(work.count)

    return trio.run(write)


def ottla_consume(work: ClientWork) -> dict[str, float]:
    """Read lists of records with Ottla's client. Returns the elapsed seconds and CPU seconds."""

    async def read(consumer: Consumer, wanted: int) -> None:
        count = 0
        while count < wanted:
            for record in await consumer.poll(record_count_max=_next(wanted - count)):
                assert record.value is not None
                count += 1

    return _ottla_read(work, read)


def ottla_consume_batches(work: ClientWork) -> dict[str, float]:
    """Read batches with Ottla's client, and access only the values. Returns the elapsed seconds and
    CPU seconds."""

    async def read(consumer: Consumer, wanted: int) -> None:
        count = 0
        while count < wanted:
            for batch in await consumer.poll_batches(record_count_max=_next(wanted - count)):
                for value in batch.values:
                    assert value is not None
                    count += 1

    return _ottla_read(work, read)


def ottla_consume_singly(work: ClientWork) -> dict[str, float]:
    """Read records with Ottla's client, one by one. Returns the elapsed seconds and CPU seconds."""

    async def read(consumer: Consumer, wanted: int) -> None:
        count = 0
        async for record in consumer:
            assert record.value is not None
            count += 1
            if count >= wanted:
                return

    return _ottla_read(work, read)


def _ottla_read(
    work: ClientWork, read: Callable[[Consumer, int], Awaitable[None]]
) -> dict[str, float]:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    library("numpy")
    import_module("ottla.client.fetch.array_columns")

    async def main() -> dict[str, float]:
        config = ConsumerConfig(auto_offset_reset="earliest")
        async with open_consumer(work.bootstrap, config) as consumer:
            consumer.assign([TopicPartition(work.topic, PARTITION)])
            await read(consumer, work.warm_up_count)
            watch = Stopwatch()
            await read(consumer, work.measured_count)
            return watch.figures(work.measured_count)

    return trio.run(main)


def confluent_produce(work: ClientWork) -> dict[str, float]:
    """Write records with librdkafka's client. Returns the elapsed seconds and CPU seconds."""
    producer = library("confluent_kafka").Producer(
        {
            "bootstrap.servers": work.bootstrap,
            "enable.idempotence": True,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 1_000_000,
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    payload = os.urandom(work.record_bytes)
    producer.produce(work.topic, payload)
    producer.flush(30)
    watch = Stopwatch()
    for index in range(work.count):
        while True:
            try:
                producer.produce(work.topic, payload)
                break
            except BufferError:
                producer.poll(0.05)
        if index % POLL_EVERY == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return watch.figures(work.count)


def confluent_consume(work: ClientWork) -> dict[str, float]:
    """Read lists of records with librdkafka's client. Returns the elapsed seconds and CPU
    seconds."""

    def read(consumer: Any, wanted: int) -> None:
        count = 0
        while count < wanted:
            for message in consumer.consume(_next(wanted - count), timeout=TIMEOUT_MS / 1_000):
                assert message.value() is not None
                count += 1

    return _confluent_read(work, read)


def confluent_consume_singly(work: ClientWork) -> dict[str, float]:
    """Read records with librdkafka's client, one by one. Returns the elapsed seconds and CPU
    seconds."""

    def read(consumer: Any, wanted: int) -> None:
        count = 0
        while count < wanted:
            message = consumer.poll(TIMEOUT_MS / 1_000)
            if message is not None:
                assert message.value() is not None
                count += 1

    return _confluent_read(work, read)


def _confluent_read(work: ClientWork, read: Callable[[Any, int], None]) -> dict[str, float]:
    confluent = library("confluent_kafka")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": work.bootstrap,
            "group.id": "ottla-bench",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([confluent.TopicPartition(work.topic, PARTITION, 0)])
    read(consumer, work.warm_up_count)
    watch = Stopwatch()
    read(consumer, work.measured_count)
    figures = watch.figures(work.measured_count)
    consumer.close()
    return figures


def aiokafka_produce(work: ClientWork) -> dict[str, float]:
    """Write records with aiokafka. Returns the elapsed seconds and CPU seconds."""

    async def write() -> dict[str, float]:
        producer = library("aiokafka").AIOKafkaProducer(
            bootstrap_servers=work.bootstrap,
            enable_idempotence=True,
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
        )
        payload = os.urandom(work.record_bytes)
        await producer.start()
        await producer.send_and_wait(work.topic, payload)
        watch = Stopwatch()
        for _ in range(work.count):
            await producer.send(work.topic, payload)
        await producer.flush()
        figures = watch.figures(work.count)
        await producer.stop()
        return figures

    return asyncio.run(write())


def aiokafka_consume(work: ClientWork) -> dict[str, float]:
    """Read records with aiokafka. Returns the elapsed seconds and CPU seconds."""

    async def read() -> dict[str, float]:
        aiokafka = library("aiokafka")
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=work.bootstrap, auto_offset_reset="earliest", check_crcs=True
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(work.topic, PARTITION)])

        async def read(wanted: int) -> None:
            count = 0
            while count < wanted:
                most = _next(wanted - count)
                found = await consumer.getmany(timeout_ms=TIMEOUT_MS, max_records=most)
                count += sum(map(len, found.values()))

        await read(work.warm_up_count)
        watch = Stopwatch()
        await read(work.measured_count)
        figures = watch.figures(work.measured_count)
        await consumer.stop()
        return figures

    return asyncio.run(read())


# A client that has only one method for two kinds of work is measured with it in both kinds.
WORKS: dict[tuple[str, str], Callable[[ClientWork], dict[str, float]]] = {
    ("ottla", "produce"): ottla_produce,
    ("ottla", "produce many"): ottla_produce_many,
    ("ottla", "consume"): ottla_consume,
    ("ottla", "consume batches"): ottla_consume_batches,
    ("ottla", "consume singly"): ottla_consume_singly,
    ("confluent-kafka", "produce"): confluent_produce,
    ("confluent-kafka", "produce many"): confluent_produce,
    ("confluent-kafka", "consume"): confluent_consume,
    ("confluent-kafka", "consume batches"): confluent_consume,
    ("confluent-kafka", "consume singly"): confluent_consume_singly,
    ("aiokafka", "produce"): aiokafka_produce,
    ("aiokafka", "consume"): aiokafka_consume,
}


def main(arguments: list[str]) -> None:
    """Run one client's work, and print the elapsed seconds and CPU seconds as JSON."""
    client, what, bootstrap, topic, count, record_bytes = arguments
    figures: Any = WORKS[client, what](ClientWork(bootstrap, topic, int(count), int(record_bytes)))
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
