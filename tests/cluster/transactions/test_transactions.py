"""kill -9 of coordinators and leaders at random: transactions are whole, and each is read once."""

import os
import random
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.cluster

KILL_COUNT = int(os.environ.get("OTTLA_KILLS", "3"))
PARTITION_COUNT = 3
TOPIC = "payments"
TIMEOUT_S = 120
SEED = 11


class Payments:
    """A producer that writes each number to every partition, in one transaction, in a thread.

    Every third transaction is aborted on purpose. Numbers of uncertain outcome are in `unknown`.
    """

    def __init__(self, bootstrap: str) -> None:
        self.committed: set[int] = set()
        self.aborted: set[int] = set()
        self.unknown: set[int] = set()
        self.fault: BaseException | None = None
        self._bootstrap = bootstrap
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join(2 * TIMEOUT_S)
        assert not self._thread.is_alive()
        assert self.fault is None, self.fault

    def _run(self) -> None:
        try:
            producer = self._producer()
            number = 0
            while not self._is_stopping.is_set():
                producer = self._pay(producer, number)
                number += 1
        except BaseException as fault:
            self.fault = fault

    def _producer(self) -> Any:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "payments",
                "transaction.timeout.ms": 30_000,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _pay(self, producer: Any, number: int) -> Any:
        """Write one transaction; return the producer for the next one."""
        is_ending = False
        try:
            producer.begin_transaction()
            for partition in range(PARTITION_COUNT):
                producer.produce(TOPIC, b"%d" % number, partition=partition)
            if number % 3 == 2:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
                self.aborted.add(number)
            else:
                is_ending = True
                producer.commit_transaction(TIMEOUT_S)
                self.committed.add(number)
        except KafkaException as caught:
            error = caught.args[0]
            if error.txn_requires_abort():
                producer.abort_transaction(TIMEOUT_S)
                self.aborted.add(number)
            else:
                (self.unknown if is_ending else self.aborted).add(number)
                return self._producer()
        return producer


def read_committed(bootstrap: str) -> list[list[int]]:
    """Return the numbers of each partition in the order of the log."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITION_COUNT)])
    found: list[list[int]] = [[] for _ in range(PARTITION_COUNT)]
    at_end: set[int] = set()
    deadline = time.monotonic() + TIMEOUT_S
    while len(at_end) < PARTITION_COUNT:
        assert time.monotonic() < deadline, f"only {sorted(at_end)} were read to their end"
        message = consumer.poll(1)
        if message is None:
            continue
        partition = message.partition()
        assert partition is not None
        if message.error() is not None:
            at_end.add(partition)
        else:
            found[partition].append(int(message.value() or b""))
    consumer.close()
    return found


def test_transactions_are_atomic_under_any_kill(plan_cluster: Any) -> None:
    cluster = plan_cluster(brokers=3, transaction_state_log_num_partitions="5")
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT, 3)])[TOPIC].result(TIMEOUT_S)
    payments = Payments(cluster.bootstrap)
    payments.start()
    chance = random.Random(SEED)
    for _ in range(KILL_COUNT):
        time.sleep(chance.uniform(0.5, 2))
        victim = chance.choice(cluster.named("broker"))
        cluster.kill(victim)
        time.sleep(chance.uniform(0, 1))
        cluster.start(victim)
        cluster.wait_healthy()
    payments.stop()
    found = read_committed(cluster.bootstrap)
    for numbers in found:
        assert numbers == sorted(set(numbers)), "each is there once, in order"
        assert set(numbers) == set(found[0]), "a transaction is in all of its partitions or none"
        assert payments.committed <= set(numbers) <= payments.committed | payments.unknown
        assert not payments.aborted & set(numbers)
    assert len(payments.committed) > KILL_COUNT
