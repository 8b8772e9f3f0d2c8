"""Load driven by librdkafka. Ottla's own client never generates this load, so that the comparison
of brokers is fair."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.bench.result import Result
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.install_hint import install_hint

Progress = Callable[[int], None]
"""Callback that receives the number of records that a load has processed so far."""

SAMPLE_EVERY = 100
POLL_EVERY = 256
CONSUME_AT_ONCE = 1_000
SILENCE_S = 20.0
FETCH_BYTES_MAX = 50 << 20
"""Maximum size in bytes of a fetch response with many partitions: librdkafka's default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Load of a benchmark: the records to send or read, and the settings of the client."""

    bootstrap: str
    topic: str = ""
    count: int = 0
    record_bytes: int = 1_000
    batch_bytes: int = 131_072
    codec: str = "none"
    acks: str = "all"
    linger_ms: float = 5.0
    partitions: int = 1
    key_count: int = 0
    """Number of different record keys. The records use the keys in rotation, and so spread over all
    partitions. With 0, records have no key."""

    replication_factor: int | None = None
    """Replication factor of the load's topic; None uses the cluster's default."""

    login: Mapping[str, str] = field(default_factory=dict)
    """Settings of librdkafka for TLS and login, by name."""


def make_topic(load: Load) -> None:
    """Create the load's topic if it does not exist."""
    admin_module = library("confluent_kafka.admin")
    admin = admin_module.AdminClient(
        {"bootstrap.servers": load.bootstrap, "log_level": 3, **load.login}
    )
    topic = admin_module.NewTopic(
        load.topic,
        num_partitions=load.partitions,
        replication_factor=load.replication_factor or -1,
        # Batches up to the load's size must be accepted, whatever a broker's default is.
        config={"max.message.bytes": str(max(1_048_588, 2 * load.batch_bytes))},
    )
    for future in admin.create_topics([topic]).values():
        try:
            future.result(timeout=30)
        except library("confluent_kafka").KafkaException as error:
            if error.args[0].code() != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise RefusedError(ErrorCode.INVALID_REQUEST, str(error)) from None


def produce(load: Load, progress: Progress) -> Result:
    """Write the load's `count` records as fast as the broker accepts them. Returns a result whose
    latency is measured from send to acknowledgement."""
    producer = library("confluent_kafka").Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": load.acks,
            "batch.size": load.batch_bytes,
            "batch.num.messages": 1_000_000,
            "message.max.bytes": max(1_000_000, 2 * load.batch_bytes),
            "linger.ms": load.linger_ms,
            "compression.type": load.codec,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": max(65_536, 8 * load.batch_bytes // 1024),
            # Records that are still queued after Ctrl-C must not recreate a topic that was deleted.
            "allow.auto.create.topics": False,
            **load.login,
        }
    )
    payload = os.urandom(load.record_bytes)
    latencies: list[float] = []
    failures: list[str] = []

    def sampled(sent: float) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            latencies.append((time.perf_counter() - sent) * 1e3)
            if error is not None:
                failures.append(str(error))

        return delivered

    started = time.perf_counter()
    for index in range(load.count):
        report = sampled(time.perf_counter()) if index % SAMPLE_EVERY == 0 else None
        key = b"key-%d" % (index % load.key_count) if load.key_count else None
        while True:
            try:
                producer.produce(load.topic, payload, key=key, on_delivery=report)
                break
            except BufferError:
                producer.poll(0.05)
        if index % POLL_EVERY == 0:
            producer.poll(0)
            progress(index)
    left = producer.flush(120)
    seconds = time.perf_counter() - started
    if failures or left:
        reason = failures[0] if failures else f"{left} records were not acknowledged in 120 s"
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, reason)
    return Result("produce", load.count, load.count * load.record_bytes, seconds, latencies)


def consume(load: Load, progress: Progress) -> Result:
    """Assign the topic's partitions to a consumer, read `count` records from the beginning, and
    return the result."""
    confluent = library("confluent_kafka")
    partition_bytes = max(load.batch_bytes, 65_536)
    fetch_bytes = min(FETCH_BYTES_MAX, partition_bytes * max(1, load.partitions))
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": "ottla-bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": partition_bytes,
            "fetch.max.bytes": fetch_bytes,
            # librdkafka refuses a fetch size that is smaller than its largest message size.
            "message.max.bytes": min(fetch_bytes, 1_000_000),
            "receive.message.max.bytes": 2 * max(fetch_bytes, 64 * partition_bytes),
            "queued.max.messages.kbytes": 262_144,
            **load.login,
        }
    )
    try:
        topics = consumer.list_topics(load.topic, timeout=30).topics
        partitions = sorted(topics[load.topic].partitions)
        consumer.assign(
            [
                confluent.TopicPartition(load.topic, p, confluent.OFFSET_BEGINNING)
                for p in partitions
            ]
        )
        done = size = 0
        started = last = time.perf_counter()
        while done < load.count:
            messages = consumer.consume(min(CONSUME_AT_ONCE, load.count - done), timeout=1.0)
            now = time.perf_counter()
            if messages:
                done += len(messages)
                size += sum(len(message) for message in messages)
                last = now
                progress(done)
            elif now - last > SILENCE_S:
                raise RefusedError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"{done} of {load.count} records came, then none for {SILENCE_S:g} s; "
                    "write them first with 'ottla bench produce'",
                )
        return Result("consume", done, size, time.perf_counter() - started)
    finally:
        consumer.close()


def end_to_end(load: Load, progress: Progress) -> Result:
    """Send one record at a time and wait until a consumer receives it. Returns a result whose
    latency is the time from the send to the receipt."""
    confluent = library("confluent_kafka")
    producer = confluent.Producer(
        {
            "bootstrap.servers": load.bootstrap,
            "acks": load.acks,
            "linger.ms": 0,
            "allow.auto.create.topics": False,
            **load.login,
        }
    )
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": load.bootstrap,
            "group.id": "ottla-bench",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 500,
            **load.login,
        }
    )
    payload = os.urandom(load.record_bytes)
    latencies: list[float] = []
    try:
        _, end = consumer.get_watermark_offsets(confluent.TopicPartition(load.topic, 0), timeout=30)
        consumer.assign([confluent.TopicPartition(load.topic, 0, end)])
        started = time.perf_counter()
        for index in range(load.count):
            sent = time.perf_counter()
            producer.produce(load.topic, payload, partition=0)
            producer.flush(30)
            message = consumer.poll(30)
            if message is None or message.error():
                raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "a record did not come in 30 s")
            latencies.append((time.perf_counter() - sent) * 1e3)
            progress(index)
        seconds = time.perf_counter() - started
    finally:
        consumer.close()
    return Result("e2e", load.count, load.count * load.record_bytes, seconds, latencies)


def library(name: str) -> Any:
    """Import and return a module of librdkafka's Python client, which Ottla does not depend on.

    Raises ConfigError with the install command if the module is missing.
    """
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ConfigError(
            name, f"is not installed, and this benchmark needs it: {install_hint('bench')}"
        ) from None
