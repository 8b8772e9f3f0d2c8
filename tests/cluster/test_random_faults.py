"""Faults drawn at random under load, several nodes at once: nothing acknowledged is ever lost.

`OTTLA_FAULTS_SECONDS=600 pytest tests/cluster/test_random_faults.py -s` goes on for longer;
`OTTLA_FAULTS_SEED` draws the same faults again (when they meet the cluster is up to the machine).
"""

import os
import random
import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3_600)]

SECONDS = float(os.environ.get("OTTLA_FAULTS_SECONDS", "20"))
SETTINGS = {"broker_session_timeout_ms": "1500", "broker_heartbeat_interval_ms": "300"}
TOPICS = {"load": 12, "few": 3}
RATE = 10_000


class Chaos:
    """Hurts a cluster as chance has it; owns the dice."""

    def __init__(self, cluster: Any, load: Any, dice: random.Random) -> None:
        self._cluster = cluster
        self._load = load
        self._dice = dice

    def hurt(self) -> None:
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
        future.result(timeout=30)
    load = start_load(cluster, *TOPICS, rate=RATE)
    chaos = Chaos(cluster, load, dice)
    ends_at = time.monotonic() + SECONDS
    while time.monotonic() < ends_at:
        chaos.hurt()
        if dice.random() < 0.5:
            cluster.wait_healthy()
    cluster.wait_healthy()
    run = load.stop()
    assert run.is_clean
    assert run.report["failed"] == run.report["unanswered"] == 0
    assert all(child.poll() is None for child in cluster.running.values())
