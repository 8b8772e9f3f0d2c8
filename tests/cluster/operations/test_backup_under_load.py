"""`ottla backup` of real processes under load, restored into another cluster.

Promise of docs/backup-and-restore.md: records and offsets acknowledged before the start are in the
backup; each partition is a prefix without gaps; no group is beyond its records; no record of an
aborted transaction, and each transaction that ended before the start is in all its partitions.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.cluster.conftest import Processes

pytestmark = pytest.mark.cluster

PARTITIONS = 3
CLIENT_S = 60.0


class Load:
    """Writers and a group, and the work that was acknowledged to them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._is_ending = threading.Event()
        self.acked = [0] * PARTITIONS
        """Number of records acknowledged in each partition of `plain`."""
        self.committed = [0] * PARTITIONS
        """Committed offsets of the group `readers` in `plain`."""
        self.transactions: list[bytes] = []
        """Committed transactions, each with one record in `left` and one in `right`."""
        self.aborted_count = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        bodies = (self._write, self._read, self._transact)
        threads = [threading.Thread(target=body) for body in bodies]
        for one in threads:
            one.start()
        try:
            yield
        finally:
            self._is_ending.set()
            for one in threads:
                one.join()

    def has_worked(self) -> bool:
        return (
            min(self.acked) > 50
            and min(self.committed) > 20
            and len(self.transactions) > 5
            and self.aborted_count > 2
        )

    def _write(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True}
        producer, sent = Producer(settings), [0] * PARTITIONS

        def on_delivery(error: object, message: object) -> None:
            assert error is None
            self.acked[message.partition()] += 1  # type: ignore[attr-defined]  # a Message

        while not self._is_ending.is_set():
            for partition in range(PARTITIONS):
                value = b"%d" % sent[partition]
                producer.produce("plain", value, partition=partition, on_delivery=on_delivery)
                sent[partition] += 1
            producer.poll(0.005)
        producer.flush(CLIENT_S)

    def _read(self) -> None:
        consumer = self._consumer("readers")
        consumer.subscribe(["plain"])
        while not self._is_ending.is_set():
            for message in consumer.consume(50, 0.1):
                assert message.error() is None
            for one in consumer.commit(asynchronous=False) if self._has_position(consumer) else ():
                self.committed[one.partition] = max(self.committed[one.partition], one.offset)
        consumer.close()

    @staticmethod
    def _has_position(consumer: Consumer) -> bool:
        return any(one.offset >= 0 for one in consumer.position(consumer.assignment()))

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )

    def _transact(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "transactional.id": "both", "linger.ms": 0}
        )
        producer.init_transactions(CLIENT_S)
        number = 0
        while not self._is_ending.is_set():
            number += 1
            is_aborted = number % 3 == 0
            value = b"%s%d" % (b"lost " if is_aborted else b"kept ", number)
            producer.begin_transaction()
            producer.produce("left", value, partition=0)
            producer.produce("right", value, partition=0)
            producer.flush(CLIENT_S)
            if is_aborted:
                producer.abort_transaction(CLIENT_S)
                self.aborted_count += 1
            else:
                producer.commit_transaction(CLIENT_S)
                self.transactions.append(value)


def values(bootstrap: str, topic: str, partition: int, count: int) -> list[bytes]:
    """Return the first records of a partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "checker"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), CLIENT_S)
        assert messages
        found += [one.value() or b"" for one in messages]
    consumer.close()
    return found


def offsets_of(cluster: Processes, group: str) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the committed offset and the end of each partition of a group."""
    said = cluster.ottla("group", "lag", group, "--format=json").stdout
    return {
        (row["topic"], row["partition"]): (row["committed"], row["end"]) for row in json.loads(said)
    }


def test_a_backup_under_load_restores_a_consistent_state(
    plan_cluster: Callable[..., Processes], tmp_path: Path
) -> None:
    factor = {"default_replication_factor": "3", "min_insync_replicas": "2"}
    first = plan_cluster(controllers=1, brokers=3, **factor)
    first.start()
    first.wait_healthy()
    first.ottla("topic", "create", "plain", "-p", str(PARTITIONS))
    first.ottla("topic", "create", "left", "right", "-p", "1")
    directory = str(tmp_path / "backup")
    load = Load(first.bootstrap)
    with load.running():
        first.wait_for(load.has_worked, "load")
        acked, committed = list(load.acked), list(load.committed)
        transactions = list(load.transactions)
        said = first.ottla("backup", "create", directory, "--format=json").stdout
    counts = {row["topic"]: row["records"] for row in json.loads(said)}
    assert sum(load.acked) > counts["plain"], "records were written during the backup"
    first.stop_all()

    second = plan_cluster(controllers=1, brokers=3, **factor)
    second.start()
    second.wait_healthy()
    second.ottla("backup", "restore", directory)

    offsets = offsets_of(second, "readers")
    for partition in range(PARTITIONS):
        offset, end = offsets["plain", partition]
        assert end >= acked[partition]
        assert committed[partition] <= offset <= end
        found = values(second.bootstrap, "plain", partition, end)
        assert found == [b"%d" % number for number in range(end)]
    left = values(second.bootstrap, "left", 0, counts["left"])
    right = values(second.bootstrap, "right", 0, counts["right"])
    assert left[: len(transactions)] == right[: len(transactions)] == transactions
    assert all(one.startswith(b"kept ") for one in (*left, *right))
    # At most the transaction whose end was being written is in one partition only.
    assert abs(len(left) - len(right)) <= 1
    assert left[: len(right)] == right[: len(left)]
