"""Random faults under load, of several nodes at once: no acknowledged record is ever lost.

A record that a consumer has read also remains to the end: it was committed when it was read.

`OTTLA_FAULTS_SECONDS=600 pytest tests/cluster/faults/test_random_faults.py -s` runs longer;
`OTTLA_FAULTS_SEED` draws the same faults again (their timing depends on the machine).
"""

import os
import random
import threading
import time
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.bench.faults.audit import STAMP, read_back

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]

SECONDS = float(os.environ.get("OTTLA_FAULTS_SECONDS", "15"))
SETTINGS = {"broker_session_timeout_ms": "1500", "broker_heartbeat_interval_ms": "300"}
TOPICS = {"load": 12, "few": 3}
RATE = 10_000 if "OTTLA_FAULTS_SECONDS" in os.environ else 3_000


class Reader:
    """A consumer in a thread, which remembers the number of every record it is shown."""

    def __init__(self, bootstrap: str) -> None:
        self.seen: dict[tuple[str, int], list[int]] = {
            (topic, partition): [] for topic, count in TOPICS.items() for partition in range(count)
        }
        self.wrong: list[str] = []
        self._is_stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "g",
                "enable.auto.commit": False,
                # An offset that is gone must be an error, never a jump.
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 250,
            }
        )
        self._consumer.assign([TopicPartition(*lane, 0) for lane in self.seen])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> int:
        """Stop reading; return the number of records read."""
        self._is_stopping.set()
        self._thread.join()
        self._consumer.close()
        return sum(map(len, self.seen.values()))

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            for message in self._consumer.consume(1_000, timeout=0.1):
                if message.error() is not None:
                    self.wrong.append(str(message.error()))
                    continue
                lane = (message.topic(), message.partition())
                if message.offset() != len(self.seen[lane]):
                    self.wrong.append(
                        f"{lane}: offset {message.offset()} after {len(self.seen[lane])} records"
                    )
                self.seen[lane].append(STAMP.unpack_from(message.value())[1])


class Chaos:
    """Hurts a cluster as chance has it; owns the dice."""

    def __init__(self, cluster: Any, load: Any, dice: random.Random) -> None:
        self._cluster = cluster
        self._load = load
        self._dice = dice

    def inject_fault(self) -> None:
        """Do one thing at random, and undo it."""
        self._dice.choice((self._kill, self._kill, self._stop, self._pause, self._kill_again))()
        self._wait(1.5)

    def _some(self, counts: tuple[int, ...]) -> list[str]:
        cluster, dice = self._cluster, self._dice
        victims = dice.sample(cluster.named("broker"), dice.choice(counts))
        return victims + dice.sample(cluster.named("controller"), dice.choice((0, 0, 1, 2)))

    def _kill(self) -> None:
        victims = self._some((0, 1, 1, 2, 3)) or ["controller 101"]
        self._load.mark(f"kill -9 {', '.join(victims)}")
        self._cluster.kill(*victims)
        self._wait(3.0)
        self._cluster.start(*victims)

    def _kill_again(self) -> None:
        victim = self._dice.choice(self._cluster.named("broker"))
        self._load.mark(f"kill -9 {victim} as soon as it is back")
        for _ in range(2):
            self._cluster.kill(victim)
            self._cluster.start(victim)
            self._wait(0.5)

    def _stop(self) -> None:
        victims = self._dice.sample(self._cluster.names, 2)
        self._load.mark(f"stop {', '.join(victims)}")
        for victim in victims:
            assert self._cluster.end(victim) == 0
        self._cluster.start(*victims)

    def _pause(self) -> None:
        victims = self._dice.sample(self._cluster.names, 2)
        self._load.mark(f"SIGSTOP {', '.join(victims)}")
        for victim in victims:
            self._cluster.pause(victim)
        self._wait(4.0)
        is_killed = self._dice.random() < 0.3
        for victim in victims:
            self._cluster.resume(victim)
            if is_killed:
                self._cluster.kill(victim)
        if is_killed:
            self._cluster.start(*victims)

    def _wait(self, longest_s: float) -> None:
        time.sleep(self._dice.uniform(0.0, longest_s))


def test_whatever_is_killed_stopped_or_paused_nothing_acknowledged_is_lost(
    plan_cluster: Any, start_load: Any
) -> None:
    seed = int(os.environ.get("OTTLA_FAULTS_SEED", random.randrange(1 << 32)))
    print(f"OTTLA_FAULTS_SEED={seed}")
    dice = random.Random(seed)
    cluster = plan_cluster(controllers=3, brokers=3, **SETTINGS)
    cluster.start()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [
        NewTopic(name, count, replication_factor=3, config={"min.insync.replicas": "2"})
        for name, count in TOPICS.items()
    ]
    for future in admin.create_topics(new).values():
        future.result(timeout=60)
    load = start_load(cluster, *TOPICS, rate=RATE)
    reader = Reader(cluster.bootstrap)
    chaos = Chaos(cluster, load, dice)
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        chaos.inject_fault()
        if dice.random() < 0.5:
            cluster.wait_healthy()
    cluster.wait_healthy()
    seen_count = reader.stop()
    run = load.stop()
    assert run.is_clean
    assert run.report["failed"] == run.report["unanswered"] == 0
    assert all(child.poll() is None for child in cluster.running.values())
    places = [row.place for row in run.ledger.answers]
    found = read_back(cluster.bootstrap, places, run.ledger.run_id)
    assert reader.wrong == []
    assert seen_count > 0
    for lane in places:
        seen = reader.seen[lane.topic, lane.partition]
        assert seen == list(found[lane].numbers[: len(seen)]), f"{lane}: what was seen is gone"
