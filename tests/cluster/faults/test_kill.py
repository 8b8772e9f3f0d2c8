"""kill -9 at random moments under load: nothing acknowledged is lost, doubled or out of order."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import defaultdict
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = pytest.mark.cluster

KILL_COUNT = int(os.environ.get("OTTLA_KILLS", "5"))
PARTITION_COUNT = 3
TOPIC = "load"
VICTIMS = (("broker",), ("controller",), ("broker", "controller"))


class Load:
    """A steady idempotent acks=all producer in a thread, which stores the acknowledged records."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.failures: list[str] = []
        self.sent = 0
        self._is_stopping = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "message.timeout.ms": 120_000,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
            }
        )
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()
        assert self._producer.flush(120) == 0

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            for _ in range(20):
                number = self.sent
                try:
                    self._producer.produce(
                        TOPIC,
                        b"%d" % number,
                        partition=number % PARTITION_COUNT,
                        on_delivery=self._delivered,
                    )
                except BufferError:
                    break  # it holds all it may until the broker is back
                self.sent += 1
            self._producer.poll(0.005)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
        else:
            self.acknowledged[message.partition()].append((message.offset(), int(message.value())))


def read_all(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """Return (offset, number) of every record, by partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g"})
    found: dict[int, list[tuple[int, int]]] = {}
    for partition in range(PARTITION_COUNT):
        at = TopicPartition(TOPIC, partition, 0)
        _, end = consumer.get_watermark_offsets(at, timeout=30)
        consumer.assign([at])
        rows: list[tuple[int, int]] = []
        while len(rows) < end:
            # No more than there are: librdkafka waits the whole time for the last of them.
            messages = consumer.consume(min(10_000, end - len(rows)), timeout=20)
            assert messages, f"silence at {len(rows)} of {end}"
            rows += [(message.offset(), int(message.value())) for message in messages]
        found[partition] = rows
    consumer.close()
    return found


@pytest.mark.timeout(300 + 10 * KILL_COUNT)
def test_every_acknowledged_record_survives_many_kills_exactly_once_and_in_order(
    fresh: Any, record_property: Any
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    # A killed broker may come back when its old session has ended: the shorter, the more kills.
    fresh.plan.settings = {
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
    }
    fresh.plan.write_properties()
    fresh.start("controller", "broker")
    admin = AdminClient({"bootstrap.servers": fresh.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITION_COUNT)]).values():
        future.result(timeout=60)
    load = Load(fresh.bootstrap)
    load.start()
    recoveries: list[float] = []
    for _ in range(KILL_COUNT):
        # The moment is the point of this test: a real process dies at a random one.
        threading.Event().wait(chance.uniform(0.1, 0.7))
        victims = chance.choice(VICTIMS)
        for victim in victims:
            fresh.kill(victim)
        started = time.monotonic()
        fresh.start(*victims)
        recoveries.append(time.monotonic() - started)
    load.stop()
    found = read_all(fresh.bootstrap)

    acknowledged = sum(map(len, load.acknowledged.values()))
    print(f"{acknowledged} acknowledged of {load.sent} sent; restart seconds {recoveries}")
    record_property("acknowledged", acknowledged)
    record_property("recovery_s_median", sorted(recoveries)[len(recoveries) // 2])
    assert load.failures == []
    assert acknowledged == load.sent > 0
    for partition, rows in found.items():
        assert [offset for offset, _ in rows] == list(range(len(rows)))
        numbers = [number for _, number in rows]
        assert numbers == sorted(set(numbers)), "doubled or out of order"
        assert sorted(load.acknowledged[partition]) == rows
    where = ("--bootstrap", fresh.bootstrap)
    status = subprocess.run(
        (sys.executable, "-m", "ottla.cli", "status", "--format=json", *where),
        capture_output=True,
        check=True,
    )
    assert json.loads(status.stdout)["healthy"] is True
