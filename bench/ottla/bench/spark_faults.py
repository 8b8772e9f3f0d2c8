"""`ottla bench spark-faults`: brokers and Spark drivers die by SIGKILL, and nothing may show.

A steady producer fills a topic; one Spark driver carries it into Parquet files and into another
topic. In every round a broker and the driver are killed, each at a moment of its own, and the
driver is started again from its checkpoints.  In every second round the checkpoints lose the line
that says the last batch is done, as when a driver dies right before it writes that: both sinks get
the same batch again.  In the end the files hold each record exactly once, and so does the topic
when it is read with dropReplays.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import trio

from ottla.bench.local_cluster import StartedCluster, open_local_cluster
from ottla.bench.spark_faults_driver import QUERIES, SparkWork
from ottla.client import ProducerConfig, open_admin, open_producer
from ottla.model.errors import ErrorCode, RefusedError

HEALTHY = 0
UNHEALTHY = 2
REPLICAS = 3
SOURCE_PARTITIONS = 8
COPY_PARTITIONS = 6
KEYS = 1_000
RATE = 500
"""Records a second: what matters is when something dies, not how much is carried."""
PAD = b"x" * 80
BATCHES_BEFORE_DEATH = 2
"""A driver lives until both queries have finished so many batches, and then a little longer."""
KILL_WITHIN_S = 5.0
BATCH_S = 5
"""One batch takes at most the records of so many seconds: more, and there are few to die in."""
LAST_BATCH_S = 120
PROGRESS_TIMEOUT_S = 240.0
LOOK_S = 0.2
END_TIMEOUT_S = 900.0

Figures = dict[str, Any]
Progress = Callable[[int], None]


def run(arguments: argparse.Namespace) -> int:
    """Run what the command line asks for; 2 where a record is missing, doubled or out of order."""
    figures = run_faults(rounds=arguments.rounds, rate=RATE, say=_say)
    if arguments.format == "json":
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:32} {value}")
    return HEALTHY if is_clean(figures) else UNHEALTHY


def is_clean(figures: Figures) -> bool:
    """Return whether every record arrived exactly once, in order."""
    wrong = ("missing", "doubled_or_else", "out_of_order")
    counts = [count for name, count in figures.items() if name.endswith(wrong)]
    assert len(counts) == 7
    return not any(counts)


def run_faults(*, rounds: int, rate: int, say: Callable[[str], None], seed: int = 0) -> Figures:
    """Hurt a cluster and a driver for so many rounds; return what came of it."""
    chance = random.Random(seed)
    with (
        open_local_cluster(controllers=1, restarts=True) as cluster,
        tempfile.TemporaryDirectory(prefix="ottla-spark-faults-") as directory,
    ):
        work = SparkWork(cluster.bootstrap, "faults", "faults-copy", directory, BATCH_S * rate)
        make_topics(work)
        again = 0
        with feeding(work, rate) as feeder:
            for number in range(rounds):
                with spark_driver(work) as driver:
                    died = live_and_die(work, cluster, driver, chance)
                is_forced = number % 2 == 1
                repeated = [forget_last_batch(work, one) for one in QUERIES if is_forced]
                again += sum(repeated)
                say(f"round {number + 1}: {died}; batches to be repeated by force: {sum(repeated)}")
        say(f"{feeder.acknowledged_count} records were acknowledged; waiting for the rest")
        found = finish(work._replace(batch_records=LAST_BATCH_S * rate))
    return {
        "rounds": rounds,
        "acknowledged": feeder.acknowledged_count,
        "batches_repeated_by_force": again,
        **found,
        "acknowledged_missing": max(0, feeder.acknowledged_count - found["source_records"]),
    }


def make_topics(work: SparkWork) -> None:
    """Create both topics."""

    async def make() -> None:
        async with open_admin(work.bootstrap) as admin:
            for topic, count in (
                (work.source, SOURCE_PARTITIONS),
                (work.copy, COPY_PARTITIONS),
            ):
                await admin.create_topic(topic, partition_count=count)

    trio.run(make)


class Feeder:
    """Writes numbered records at a steady rate; owns the count of those that were acknowledged."""

    def __init__(self, work: SparkWork, rate: int) -> None:
        self._work = work
        self._rate = rate
        self.is_ending = threading.Event()
        self.acknowledged_count = 0

    def run(self) -> None:
        """Write until told to end, and wait for every answer."""
        trio.run(self._feed)

    async def _feed(self) -> None:
        number = 0
        began_s = trio.current_time()
        async with open_producer(self._work.bootstrap, ProducerConfig(linger_ms=20)) as producer:
            waiting = []
            while not self.is_ending.is_set():
                due = int((trio.current_time() - began_s) * self._rate)
                while number < due:
                    key = None if number % 3 == 0 else b"key %d" % (number % KEYS)
                    waiting.append(
                        await producer.send(self._work.source, b"%d " % number + PAD, key=key)
                    )
                    number += 1
                while waiting and waiting[0].is_settled:
                    await waiting.pop(0)
                    self.acknowledged_count += 1
                await trio.sleep(LOOK_S / 10)
            for delivery in waiting:
                await delivery
                self.acknowledged_count += 1


@contextmanager
def feeding(work: SparkWork, rate: int) -> Iterator[Feeder]:
    """Feed the source topic meanwhile."""
    feeder = Feeder(work, rate)
    thread = threading.Thread(target=feeder.run, daemon=True)
    thread.start()
    try:
        yield feeder
    finally:
        feeder.is_ending.set()
        thread.join(PROGRESS_TIMEOUT_S)


@contextmanager
def spark_driver(work: SparkWork) -> Iterator[subprocess.Popen[bytes]]:
    """Run a driver in a process of its own; it is dead afterwards."""
    child = subprocess.Popen([*_command(work)], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield child
    finally:
        kill_driver(child)


def kill_driver(driver: subprocess.Popen[bytes]) -> None:
    """Kill the driver's Python and its JVM at once; its workers are left to notice."""
    pids = [driver.pid, *_children(driver.pid)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.wait()


def live_and_die(
    work: SparkWork, cluster: StartedCluster, driver: subprocess.Popen[bytes], chance: random.Random
) -> str:
    """Wait until both queries work; then kill a broker and the driver, in whatever order."""
    goals = {one: last_batch(work, one, "commits") + BATCHES_BEFORE_DEATH for one in QUERIES}
    deadline = time.monotonic() + PROGRESS_TIMEOUT_S
    while any(last_batch(work, one, "commits") < goal for one, goal in goals.items()):
        if driver.poll() is not None or time.monotonic() > deadline:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, f"the driver made no progress (code {driver.poll()})"
            )
        time.sleep(LOOK_S)
    broker = chance.choice(
        [
            name
            for name, pid in cluster.look().items()
            if name.startswith("broker") and Path(f"/proc/{pid}").exists()
        ]
    )
    moments = sorted((chance.uniform(0, KILL_WITHIN_S), one) for one in (broker, "driver"))
    began = time.monotonic()
    for moment, name in moments:
        time.sleep(max(0.0, began + moment - time.monotonic()))
        if name == "driver":
            kill_driver(driver)
        else:
            cluster.kill(name)
    return ", ".join(f"{name} killed after {moment:.1f} s" for moment, name in moments)


def last_batch(work: SparkWork, query: str, log: str) -> int:
    """Return the newest batch in `offsets` or `commits` of a query's checkpoint; -1: none."""
    path = work.checkpoint(query) / log
    return max((int(one.name) for one in path.glob("[0-9]*") if one.name.isdigit()), default=-1)


def forget_last_batch(work: SparkWork, query: str) -> bool:
    """Unmark the last batch as done, unless a later one was begun; return whether it was."""
    last = last_batch(work, query, "commits")
    if last < 0 or last_batch(work, query, "offsets") > last:
        return False  # the kill did the same to the batch after it
    for name in (f"{last}", f".{last}.crc"):
        (work.checkpoint(query) / "commits" / name).unlink(missing_ok=True)
    return True


def finish(work: SparkWork) -> dict[str, int]:
    """Let a driver carry over all there is; return what it found."""
    ended = subprocess.run(
        [*_command(work), "last"], stdout=subprocess.PIPE, timeout=END_TIMEOUT_S, check=False
    )
    if ended.returncode:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "the last driver failed; it said why")
    found: dict[str, int] = json.loads(ended.stdout.splitlines()[-1])
    return found


def _command(work: SparkWork) -> list[str]:
    return [
        sys.executable,
        "-m",
        "ottla.bench.spark_faults_driver",
        json.dumps(work._asdict()),
    ]


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(text) for text in path.read_text().split()] if path.exists() else []


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
