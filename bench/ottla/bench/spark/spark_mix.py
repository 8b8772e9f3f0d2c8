"""Topics that contain every kind of record, for a round trip through Spark.

The records use every codec and all sizes. Keys and values may be null or empty, and headers may be
missing or empty. Timestamps may be equal or out of order.  Compacted topics also have gaps between
offsets.
"""

import random
from collections.abc import Iterable
from typing import Any

from ottla.bench.load import library
from ottla.model.errors import ErrorCode, RefusedError

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEY_COUNT = 20_000
"""Number of distinct keys in a compacted topic. With fewer keys, compaction removes more
records."""
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "min.cleanable.dirty.ratio": "0.01",
}
KEPT = {"retention.ms": "-1"}
"""Settings of the topics, by key. Without them, retention would delete the records, which are older
than a week."""
FIRST_TIMESTAMP_MS = 1_700_000_000_000
POOL_BYTES = 1 << 22
"""Number of random bytes from which the contents of records are taken. It is larger than the
windows of the compression codecs, so that the contents do not compress well and segments fill."""
FLUSH_S = 120
READ_TIMEOUT_S = 30.0


def make_mixed_topic(bootstrap: str, topic: str, partitions: int, *, is_compacted: bool) -> None:
    """Create a topic for records of all kinds."""
    admin_module = library("confluent_kafka.admin")
    admin = admin_module.AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    config = {**KEPT, **(COMPACTED if is_compacted else {})}
    new = admin_module.NewTopic(topic, num_partitions=partitions, config=config)
    for future in admin.create_topics([new]).values():
        try:
            future.result(timeout=READ_TIMEOUT_S)
        except library("confluent_kafka").KafkaException as error:
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"{topic}: {error}") from None


def write_mix(bootstrap: str, topic: str, count: int, *, has_keys: bool, seed: int = 0) -> None:
    """Write `count` records of all kinds, an equal share with each compression codec. If
    `has_keys`, every record has a key."""
    chance = random.Random(seed)
    pool = chance.randbytes(POOL_BYTES)
    for index, codec in enumerate(CODECS):
        share = count * (index + 1) // len(CODECS) - count * index // len(CODECS)
        records = (_record(chance, pool, number, has_keys) for number in range(share))
        _write(bootstrap, topic, codec, records)


def _record(chance: random.Random, pool: bytes, number: int, has_keys: bool) -> dict[str, Any]:
    kind = chance.random()
    size = int(50 * chance.paretovariate(1.2)) % 5_000 if kind < 0.9 else 0
    at = chance.randrange(POOL_BYTES - 5_000)
    key = b"%d" % chance.randrange(KEY_COUNT) if has_keys or kind < 0.7 else None
    late_ms = chance.randrange(3_600_000) if kind < 0.1 else 0
    headers = None
    if kind < 0.2:
        headers = [("trace", pool[at : at + 16]), ("none", None), ("ünïcode", b"")]
    return {
        "key": b"" if key and not has_keys and kind < 0.05 else key,
        "value": None if kind > 0.97 else pool[at : at + size],
        "headers": headers,
        # Timestamps mostly rise, but some are up to an hour earlier.
        "timestamp": FIRST_TIMESTAMP_MS + number - late_ms,
    }


def _write(bootstrap: str, topic: str, codec: str, records: Iterable[dict[str, Any]]) -> None:
    producer = library("confluent_kafka").Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "queue.buffering.max.messages": 500_000,
            "log_level": 3,
        }
    )
    for number, record in enumerate(records):
        while True:
            try:
                producer.produce(topic, **record)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(FLUSH_S):
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"{topic} was not written")


def read_partition(bootstrap: str, topic: str, partition: int) -> Iterable[Any]:
    """Yield every message of a partition up to its current end, as read by confluent-kafka's
    consumer."""
    confluent = library("confluent_kafka")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ottla-bench-spark",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "log_level": 3,
        }
    )
    consumer.assign([confluent.TopicPartition(topic, partition, confluent.OFFSET_BEGINNING)])
    try:
        while True:
            messages = consumer.consume(10_000, timeout=1.0)
            for message in messages:
                error = message.error()
                if error is None:
                    yield message
                elif error.code() == confluent.KafkaError._PARTITION_EOF:
                    return
                else:
                    raise RefusedError(ErrorCode.INVALID_REQUEST, str(error))
    finally:
        consumer.close()
