"""Copies a topic, each batch in one transaction, as kafka-python documents it.

Arguments: BOOTSTRAP SOURCE TARGET. The target's name is also the name of the group and the
transactional id. Exits with 3 when another producer has taken over the transactional id.
"""

import logging
import signal
import sys

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import InvalidProducerEpochError, KafkaError, ProducerFencedError

FENCED = 3
BATCH_S = 15
"""kafka-python 3.0 forgets a request whose coordinator refuses the connection, and then waits
without an end: SIGALRM ends the process, and its successor continues."""

bootstrap, source, target = sys.argv[1:]
logging.basicConfig(level=logging.WARNING)

producer = KafkaProducer(
    bootstrap_servers=bootstrap.split(","),
    transactional_id=target,
    transaction_timeout_ms=30_000,
)
consumer = KafkaConsumer(
    source,
    bootstrap_servers=bootstrap.split(","),
    group_id=target,
    auto_offset_reset="earliest",
    enable_auto_commit=False,
    isolation_level="read_committed",
    max_poll_records=50,
    session_timeout_ms=6_000,
    heartbeat_interval_ms=1_000,
)


def copy_batch() -> None:
    """Copy some records and the position behind them."""
    found = consumer.poll(timeout_ms=1_000)
    if not found:
        return
    producer.begin_transaction()
    for at, records in found.items():
        for record in records:
            producer.send(target, record.value, partition=at.partition)
    positions = {
        at: OffsetAndMetadata(records[-1].offset + 1, "", -1) for at, records in found.items()
    }
    producer.send_offsets_to_transaction(positions, consumer.group_metadata())
    producer.commit_transaction()


def go_back() -> None:
    """Seek to the end of the last committed transaction."""
    for at in consumer.assignment():
        consumer.seek(TopicPartition(*at), consumer.committed(at) or 0)


producer.init_transactions()
while True:
    signal.alarm(BATCH_S)
    try:
        copy_batch()
    except (ProducerFencedError, InvalidProducerEpochError):
        sys.exit(FENCED)
    except KafkaError:
        producer.abort_transaction()
        go_back()
