"""Workers of a share group under kills of workers and brokers: each record is settled once.

OTTLA_SHARE_RECORDS sets the number of records, OTTLA_SHARE_WORKERS the number of workers, by hand:
OTTLA_SHARE_RECORDS=2000000 OTTLA_SHARE_WORKERS=64.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

RECORD_COUNT = int(os.environ.get("OTTLA_SHARE_RECORDS", "3000"))
WORKER_COUNT = int(os.environ.get("OTTLA_SHARE_WORKERS", "4"))
PARTITION_COUNT = 4
TOPIC, GROUP = "jobs", "workers"
WORKER_KILL_S, BROKER_KILL_S = 4.0 if RECORD_COUNT < 10_000 else 20.0, 20.0
SETTLED_TIMEOUT_S = 120.0 + RECORD_COUNT / 200
LOOK_SHARE = 0.1
"""Share of the CPU time of a core in which the workers' files are read. A run of millions of
records would otherwise read all the time."""
LOOK_S_MAX = 10.0
UNKNOWN_S_MAX = 120.0
"""Time after which records that are settled, but of which no worker knows it, fail the test."""
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(int(SETTLED_TIMEOUT_S) + 240)]
SETTINGS = {
    "group.share.record.lock.duration.ms": "15000",
    "group.share.min.record.lock.duration.ms": "15000",
    "group.share.delivery.count.limit": "10",
}


class Delivery(NamedTuple):
    """One line of a worker's file."""

    worker: str
    delivery_count: int
    outcome: str
    begin_ns: int
    state: str


class Workers:
    """Worker processes, each with a file of its own."""

    def __init__(self, bootstrap: str, directory: Path) -> None:
        self._bootstrap = bootstrap
        self.directory = directory
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: set[str] = set()
        self._made_count = 0
        self._ends: dict[Path, int] = {}
        """Number of bytes of each file that were read."""
        self._last: dict[tuple[int, int], dict[tuple[str, int], Delivery]] = defaultdict(dict)
        self._settled: set[tuple[int, int]] = set()
        directory.mkdir()

    def start(self) -> None:
        """Start one more worker."""
        self._made_count += 1
        name = f"worker-{self._made_count}"
        output = self.directory / name
        program = [sys.executable, "-m", "tests.cluster.groups.share_worker"]
        with (self.directory / f"{name}.errors").open("wb") as errors:
            self.running[name] = subprocess.Popen(
                [*program, self._bootstrap, TOPIC, GROUP, str(output)], stderr=errors
            )

    def kill_one(self, rng: Random) -> None:
        """Kill a worker, and start another in its place."""
        name = rng.choice(sorted(self.running))
        process = self.running.pop(name)
        process.kill()
        process.wait()
        self.killed.add(name)
        self.start()

    def end(self) -> None:
        """Kill all workers."""
        for process in self.running.values():
            process.kill()
            process.wait()
        self.running.clear()

    def errors(self) -> set[str]:
        """Return the ends of what the workers wrote on their standard error."""
        return {path.read_text()[-500:] for path in self.directory.glob("*.errors")}

    def read(self) -> int:
        """Read what the workers have written since the last call. Returns the number of settled
        records."""
        for path in self.directory.glob("worker-*[0-9]"):
            with path.open("rb") as file:
                file.seek(self._ends.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._ends[path] = self._ends.get(path, 0) + len(whole)
            for line in whole.decode().splitlines():
                words = line.split()
                if len(words) == 6:
                    partition, offset, count, outcome, begin_ns, state = words
                    delivery = Delivery(path.name, int(count), outcome, int(begin_ns), state)
                    at = int(partition), int(offset)
                    self._last[at][path.name, delivery.begin_ns] = delivery
                    is_settled = any(map(is_final, self._last[at].values()))
                    (self._settled.add if is_settled else self._settled.discard)(at)
        return len(self._settled)

    def unsettled(self) -> Counter[str]:
        """Return the states of the last deliveries of unsettled records, with their counts."""
        last = (max(each.values(), key=lambda one: one.begin_ns) for each in self._last.values())
        return Counter(f"{one.outcome} {one.state}" for one in last if not is_final(one))

    def deliveries(self) -> dict[tuple[int, int], list[Delivery]]:
        """Return the deliveries that were read, by partition and offset."""
        return {at: list(of_record.values()) for at, of_record in self._last.items()}


def send_all(bootstrap: str) -> None:
    """Send the records, which all replicas acknowledge."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    for number in range(RECORD_COUNT):
        while True:
            try:
                producer.produce(TOPIC, b"%d" % number, partition=number % PARTITION_COUNT)
                break
            except BufferError:
                producer.poll(1)
    assert producer.flush(120) == 0


def test_each_record_is_settled_once_while_workers_and_brokers_are_killed(
    plan_cluster: Any, tmp_path: Path
) -> None:
    cluster = plan_cluster(controllers=1, brokers=3)
    cluster.start(**{key.replace(".", "_"): value for key, value in SETTINGS.items()})
    sizes = ("--partitions", str(PARTITION_COUNT), "--replication-factor", "3")
    cluster.ottla("topic", "create", TOPIC, *sizes, "--config", "min.insync.replicas=2")
    cluster.ottla("config", "set", "--group", GROUP, "share.auto.offset.reset=earliest")
    send_all(cluster.bootstrap)
    workers, rng = Workers(cluster.bootstrap, tmp_path / "workers"), Random(7)
    for _ in range(WORKER_COUNT):
        workers.start()
    try:
        deliveries = run_until_settled(cluster, workers, rng)
    finally:
        workers.end()
    check(deliveries, workers.killed)


def run_until_settled(
    cluster: Any, workers: Workers, rng: Random
) -> dict[tuple[int, int], list[Delivery]]:
    """Kill workers and brokers until every record has a final outcome."""
    begun = time.monotonic()
    next_worker, next_broker = begun + WORKER_KILL_S, begun + BROKER_KILL_S / 4
    dead: str | None = None
    next_look, settled, changed = begun, 0, begun
    while True:
        time.sleep(0.5)
        now = time.monotonic()
        if now >= next_look:
            cpu_s = time.process_time()
            before, settled = settled, workers.read()
            changed = now if settled != before else changed
            cpu_s = time.process_time() - cpu_s
            next_look = now + min(LOOK_S_MAX, cpu_s / LOOK_SHARE)
        if settled == RECORD_COUNT and dead is None and lag_of(cluster) == 0:
            workers.read()
            return workers.deliveries()
        if now - changed > UNKNOWN_S_MAX and dead is None:
            assert lag_of(cluster), f"settled, but refused: {workers.unsettled()}"
            changed = now
        assert now - begun < SETTLED_TIMEOUT_S, (
            f"{settled} of {RECORD_COUNT}: {workers.unsettled()} {workers.errors()}"
        )
        if now >= next_worker:
            workers.kill_one(rng)
            next_worker = now + WORKER_KILL_S
        if now >= next_broker:
            next_broker = now + BROKER_KILL_S
            if dead is None:
                dead = rng.choice(cluster.named("broker"))
                cluster.end(dead, signal.SIGKILL)
                next_broker = now + 2.0
            else:
                cluster.start(dead)
                dead = None


def lag_of(cluster: Any) -> int:
    """Return the number of records of the topic that are not settled."""
    rows = json.loads(cluster.ottla("share", "offsets", GROUP, "--format", "json").stdout)
    return sum(row["lag"] for row in rows)


def is_final(delivery: Delivery) -> bool:
    """Return whether a delivery's acknowledgement settled its record, as far as is known.

    INVALID_RECORD_STATE means that it did not. After any other error it may have, since the broker
    may have stored it and died before it responded.
    """
    return delivery.outcome != "released" and delivery.state != "INVALID_RECORD_STATE"


def check(deliveries: dict[tuple[int, int], list[Delivery]], killed: set[str]) -> None:
    """Check that each record was settled, and not delivered after a confirmation of that."""
    assert len(deliveries) == RECORD_COUNT
    for at, each in deliveries.items():
        confirmed = [one for one in each if is_final(one) and one.state == "confirmed"]
        assert len(confirmed) <= 1, f"{at} was settled twice: {each}"
        for one in confirmed:
            later = [other for other in each if other.begin_ns > one.begin_ns]
            assert not later, f"{at} was delivered after it was settled: {each}"
        if not confirmed:
            is_unknown = [
                is_final(one) and (one.worker in killed or one.state != "sent") for one in each
            ]
            assert any(is_unknown), f"{at}: {each}"
