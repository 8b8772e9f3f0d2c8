"""Popular clients, unmodified and with default settings, write and read all kinds of records."""

import json
import subprocess
import sys
import zlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import NewTopic as KafkaNewTopic

from tests.cluster.secure_form import command_of

pytestmark = pytest.mark.cluster

PARTITION_COUNT = 6
RECORD_COUNT = 100_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
FIRST_TIMESTAMP_MS = 1_760_000_000_000
KEPT = {"retention.ms": "-1"}
"""The records are older than a week, and retention runs half a minute after the start."""


class ExpectedRecord(NamedTuple):
    """A record as it should read back."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


def record(index: int) -> ExpectedRecord:
    """Return the record of an index: every seventh value null, every third without headers."""
    return ExpectedRecord(
        key=None if index % 11 == 0 and index % 7 else b"key-%d" % (index % 1000),
        value=None if index % 7 == 0 else b"value-%d-" % index + b"x" * (index % 50),
        headers=() if index % 3 == 0 else (("n", b"%d" % index), ("empty", b"")),
        timestamp_ms=FIRST_TIMESTAMP_MS + index,
    )


def indexes_of(codec: str) -> Iterator[int]:
    """Yield the indexes that one codec's producer sends: a fifth of all records."""
    share = RECORD_COUNT // len(CODECS)
    start = CODECS.index(codec) * share
    yield from range(start, start + share)


def partition_of(index: int) -> int:
    """Spread the records so that every partition has every codec."""
    return zlib.crc32(b"%d" % index) % PARTITION_COUNT


def expected() -> dict[int, list[ExpectedRecord]]:
    """Return the expected records of each partition, in order."""
    found: dict[int, list[ExpectedRecord]] = defaultdict(list)
    for index in range(RECORD_COUNT):
        found[partition_of(index)].append(record(index))
    return found


def write_by_confluent(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, PARTITION_COUNT, config=KEPT)]).values():
        future.result(timeout=60)
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    for codec in CODECS:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
        for index in indexes_of(codec):
            sent = record(index)
            while True:
                try:
                    producer.produce(
                        topic,
                        value=sent.value,
                        key=sent.key,
                        partition=partition_of(index),
                        on_delivery=delivered,
                        timestamp=sent.timestamp_ms,
                        headers=list(sent.headers),
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(60) == 0
    assert failures == []


def read_by_confluent(bootstrap: str, topic: str) -> dict[int, list[ExpectedRecord]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITION_COUNT)])
    found: dict[int, list[ExpectedRecord]] = defaultdict(list)
    count = 0
    while count < RECORD_COUNT:
        messages = consumer.consume(5_000, timeout=20)
        assert messages, f"silence after {count}"
        for message in messages:
            assert message.error() is None
            partition = message.partition()
            assert message.offset() == len(found[partition])
            found[partition].append(
                ExpectedRecord(
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                )
            )
        count += len(messages)
    consumer.close()
    return found


def test_confluent_kafka_writes_and_reads_everything(cluster: Any) -> None:
    write_by_confluent(cluster.bootstrap, "by-confluent")
    assert read_by_confluent(cluster.bootstrap, "by-confluent") == expected()


def test_confluent_kafka_finds_offsets_by_time(cluster: Any) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    index = RECORD_COUNT // 2
    partition = partition_of(index)
    wanted = [TopicPartition("by-confluent", partition, FIRST_TIMESTAMP_MS + index)]
    at = consumer.offsets_for_times(wanted, timeout=60)[0]
    consumer.assign([at])
    message = consumer.poll(10)
    assert message is not None
    assert message.timestamp()[1] == FIRST_TIMESTAMP_MS + index
    consumer.seek(TopicPartition("by-confluent", partition, 5))
    message = consumer.poll(10)
    assert message is not None
    assert message.offset() == 5
    consumer.close()


def test_the_command_line_lists_the_same_records(cluster: Any) -> None:
    command = [sys.executable, "-m", "ottla.cli", "consume", "by-confluent", "-e", "-J"]
    done = subprocess.run(
        [*command, "--bootstrap", cluster.bootstrap], capture_output=True, check=True, timeout=120
    )
    found: dict[int, list[ExpectedRecord]] = defaultdict(list)
    for line in done.stdout.splitlines():
        row = json.loads(line)
        headers = row.get("headers", [])
        found[row["partition"]].append(
            ExpectedRecord(
                None if row["key"] is None else row["key"].encode(),
                None if row["payload"] is None else row["payload"].encode(),
                tuple(zip(headers[::2], (h.encode() for h in headers[1::2]), strict=True)),
                row["ts"],
            )
        )
    assert found == expected()


def write_by_kafka_python(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([KafkaNewTopic(topic, PARTITION_COUNT, 1, topic_configs=KEPT)])
    admin.close()
    for codec in CODECS:
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec
        )
        futures = [
            producer.send(
                topic,
                value=record(index).value,
                key=record(index).key,
                headers=list(record(index).headers),
                partition=partition_of(index),
                timestamp_ms=record(index).timestamp_ms,
            )
            for index in indexes_of(codec)
        ]
        producer.flush(timeout=120)
        assert all(future.succeeded() for future in futures)
        producer.close()


def test_kafka_python_writes_and_reads_everything(cluster: Any) -> None:
    topic = "by-kafka-python"
    write_by_kafka_python(cluster.bootstrap, topic)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap, consumer_timeout_ms=20_000)
    partitions = [KafkaTopicPartition(topic, p) for p in range(PARTITION_COUNT)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    found: dict[int, list[ExpectedRecord]] = defaultdict(list)
    for count, message in enumerate(consumer, 1):
        assert message.offset == len(found[message.partition])
        found[message.partition].append(
            ExpectedRecord(message.key, message.value, tuple(message.headers), message.timestamp)
        )
        if count == RECORD_COUNT:
            break
    assert found == expected()
    index = RECORD_COUNT // 2
    at = KafkaTopicPartition(topic, partition_of(index))
    by_time = consumer.offsets_for_times({at: FIRST_TIMESTAMP_MS + index})[at]
    assert by_time.timestamp == FIRST_TIMESTAMP_MS + index
    consumer.seek(at, by_time.offset)
    message = next(m for m in consumer if m.partition == at.partition)
    assert message.timestamp == FIRST_TIMESTAMP_MS + index
    consumer.close()


def test_aiokafka_writes_and_reads_everything(cluster: Any, tmp_path: Path) -> None:
    script = tmp_path / "with_aiokafka.py"
    script.write_text(AIOKAFKA_SCRIPT)
    done = subprocess.run(
        [*command_of(script), cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        input=json.dumps([PARTITION_COUNT, RECORD_COUNT, list(CODECS)]),
        cwd=str(cluster.plan.directory),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert read_by_confluent(cluster.bootstrap, "by-aiokafka") == expected()
    assert json.loads(done.stdout) == {
        str(partition): len(records) for partition, records in expected().items()
    }


# aiokafka owns an asyncio loop, so it runs in a process of its own.
AIOKAFKA_SCRIPT = """
import asyncio, json, sys, zlib
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

PARTITIONS, COUNT, CODECS = json.load(sys.stdin)
BOOTSTRAP, TOPIC, FIRST = sys.argv[1], "by-aiokafka", 1_760_000_000_000

def record(i):
    return dict(
        key=None if i % 11 == 0 and i % 7 else b"key-%d" % (i % 1000),
        value=None if i % 7 == 0 else b"value-%d-" % i + b"x" * (i % 50),
        headers=[] if i % 3 == 0 else [("n", b"%d" % i), ("empty", b"")],
        timestamp_ms=FIRST + i,
    )

async def main():
    admin = AIOKafkaAdminClient(bootstrap_servers=BOOTSTRAP)
    await admin.start()
    kept = {"retention.ms": "-1"}
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, topic_configs=kept)])
    await admin.close()
    share = COUNT // len(CODECS)
    for n, codec in enumerate(CODECS):
        producer = AIOKafkaProducer(
            bootstrap_servers=BOOTSTRAP, compression_type=None if codec == "none" else codec
        )
        await producer.start()
        futures = []
        for i in range(n * share, (n + 1) * share):
            partition = zlib.crc32(b"%d" % i) % PARTITIONS
            futures.append(await producer.send(TOPIC, partition=partition, **record(i)))
        await asyncio.gather(*futures)
        await producer.stop()
    consumer = AIOKafkaConsumer(bootstrap_servers=BOOTSTRAP, auto_offset_reset="earliest")
    await consumer.start()
    wanted = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
    consumer.assign(wanted)
    await consumer.seek_to_beginning()
    seen = {p: 0 for p in range(PARTITIONS)}
    order = {p: -1 for p in range(PARTITIONS)}
    while sum(seen.values()) < COUNT:
        for at, messages in (await consumer.getmany(timeout_ms=20000)).items():
            for m in messages:
                i = m.timestamp - FIRST
                r = record(i)
                assert (m.key, m.value, list(m.headers)) == (r["key"], r["value"], r["headers"]), i
                assert m.offset == order[at.partition] + 1
                order[at.partition] = m.offset
                seen[at.partition] += 1
    at = TopicPartition(TOPIC, zlib.crc32(b"%d" % (COUNT // 2)) % PARTITIONS)
    found = (await consumer.offsets_for_times({at: FIRST + COUNT // 2}))[at]
    consumer.seek(at, found.offset)
    assert (await consumer.getone(at)).timestamp == FIRST + COUNT // 2
    await consumer.stop()
    print(json.dumps(seen))

asyncio.run(main())
"""
