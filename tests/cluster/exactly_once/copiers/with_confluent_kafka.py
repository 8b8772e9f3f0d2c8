"""Copies a topic, each batch in one transaction, as confluent-kafka documents it.

Arguments: BOOTSTRAP SOURCE TARGET. The target's name is also the name of the group and the
transactional id. Exits with 3 when another producer has taken over the transactional id, and with 1
when a batch hangs.
"""

import faulthandler
import sys

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

FENCED = 3
HANGS_S = 40.0
"""Seconds after which a batch counts as hanging: longer than a transaction may be open. From 2.10
on librdkafka's `send_offsets_to_transaction` waits permanently, whatever its timeout, for a group
coordinator that has gone from the metadata and come back (its issue 5511)."""

bootstrap, source, target = sys.argv[1:]

producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        "transactional.id": target,
        "transaction.timeout.ms": 30_000,
    }
)
consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": target,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 6_000,
    }
)


def copy_batch() -> None:
    """Copy some records and the position behind them."""
    messages = [one for one in consumer.consume(50, timeout=1) if one.error() is None]
    if not messages:
        return
    producer.begin_transaction()
    for one in messages:
        producer.produce(target, one.value(), partition=one.partition() or 0)
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
    producer.commit_transaction()


def go_back() -> None:
    """Seek to the end of the last committed transaction."""
    for one in consumer.committed(consumer.assignment()):
        consumer.seek(TopicPartition(source, one.partition, max(one.offset, 0)))


producer.init_transactions()
consumer.subscribe([source])
while True:
    faulthandler.dump_traceback_later(HANGS_S, exit=True)
    try:
        copy_batch()
    except KafkaException as failure:
        error = failure.args[0]
        if error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
            sys.exit(FENCED)
        if not error.txn_requires_abort():
            raise
        producer.abort_transaction()
        go_back()
