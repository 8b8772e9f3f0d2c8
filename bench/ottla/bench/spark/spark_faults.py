"""`ottla bench spark-faults`: checks that no record is lost or duplicated when brokers and a Spark
driver are killed.

A steady producer fills a topic.  One Spark driver copies it into Parquet files and into another
topic.  In every round, a broker and the driver are killed at random moments, and the driver is
restarted from its checkpoints.

In every second round, the commit entry of the last batch is removed from the checkpoints, as if the
driver had died just before writing the entry.  Both sinks then get the same batch again.  At the
end, the files must contain each record exactly once, and so must the topic when it is read with
dropReplays.
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
from ottla.bench.spark.spark_faults_driver import QUERIES, SparkWork
from ottla.bench.tables import table_of_figures
from ottla.client import ProducerConfig, open_admin, open_producer
from ottla.model.errors import ErrorCode, RefusedError

HEALTHY = 0
UNHEALTHY = 2
REPLICAS = 3
SOURCE_PARTITIONS = 8
COPY_PARTITIONS = 6
KEYS = 1_000
RATE = 500
"""Number of records per second that the producer writes. The test depends on the moment of a kill,
not on the amount of data."""
PAD = b"x" * 80
BATCHES_BEFORE_DEATH = 2
"""Number of batches that both queries of the Spark driver must finish before the driver is
killed."""
KILL_WITHIN_S = 5.0
BATCH_S = 5
"""Maximum size of one batch, in seconds of the producer's output. With larger batches, a run would
have too few moments at which the driver can be killed during a batch."""
LAST_BATCH_S = 120
PROGRESS_TIMEOUT_S = 240.0
LOOK_S = 0.2
END_TIMEOUT_S = 900.0

Figures = dict[str, Any]
Progress = Callable[[int], None]


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark `spark-faults`. Returns exit code 2 if a record is missing, duplicated or
    out of order."""
    figures = run_faults(rounds=arguments.rounds, rate=RATE, say=_say)
    if arguments.format == "json":
        print(json.dumps(figures))
    else:
        print(table_of_figures(figures))
    return HEALTHY if is_clean(figures) else UNHEALTHY


def is_clean(figures: Figures) -> bool:
    """Return whether the counts in `figures` show that every record arrived exactly once, in
    order."""
    wrong = ("missing", "doubled_or_else", "out_of_order")
    counts = [count for name, count in figures.items() if name.endswith(wrong)]
    assert len(counts) == 7
    return not any(counts)


def run_faults(*, rounds: int, rate: int, say: Callable[[str], None], seed: int = 0) -> Figures:
    """Kill a broker and the Spark driver in each of `rounds` rounds, then start a last driver that
    copies the remaining records. Returns the numbers of written, missing, duplicated and
    out-of-order records."""
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
                    died = kill_after_progress(work, cluster, driver, chance)
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
    """Create the topic that the Spark driver reads, and the topic for the copy."""

    async def make() -> None:
        async with open_admin(work.bootstrap) as admin:
            for topic, count in (
                (work.source, SOURCE_PARTITIONS),
                (work.copy, COPY_PARTITIONS),
            ):
                await admin.create_topic(topic, partition_count=count)

    trio.run(make)


class Feeder:
    """Producer that sends numbered records at a steady rate, and counts the acknowledged
    records."""

    def __init__(self, work: SparkWork, rate: int) -> None:
        self._work = work
        self._rate = rate
        self.is_ending = threading.Event()
        self.acknowledged_count = 0

    def run(self) -> None:
        """Write records at a steady rate until `is_ending` is set, then wait for every response."""
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
    """Yield a producer that writes numbered records to the source topic at a steady rate while the
    block runs."""
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
    """Run a Spark driver in a separate process, and yield the process. It is killed at the end of
    the block."""
    child = subprocess.Popen([*_command(work)], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield child
    finally:
        kill_driver(child)


def kill_driver(driver: subprocess.Popen[bytes]) -> None:
    """Kill the Spark driver's Python process and its JVM at once. Its workers end by themselves."""
    pids = [driver.pid, *_children(driver.pid)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    driver.wait()


def kill_after_progress(
    work: SparkWork, cluster: StartedCluster, driver: subprocess.Popen[bytes], chance: random.Random
) -> str:
    """Wait until both queries of the Spark driver have made progress. Then kill a broker and the
    driver, in random order. Returns a text that contains the time of each kill."""
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
    """Return the number of the newest batch in a query's checkpoint, or -1 if the checkpoint has no
    batch. `log` is the directory in the checkpoint: `offsets` or `commits`."""
    path = work.checkpoint(query) / log
    return max((int(one.name) for one in path.glob("[0-9]*") if one.name.isdigit()), default=-1)


def forget_last_batch(work: SparkWork, query: str) -> bool:
    """Remove the commit entry of the last batch from a query's checkpoint, unless a later batch is
    already planned. Returns whether the entry was removed."""
    last = last_batch(work, query, "commits")
    if last < 0 or last_batch(work, query, "offsets") > last:
        return False  # The kill has already had the same effect on the batch after it.
    for name in (f"{last}", f".{last}.crc"):
        (work.checkpoint(query) / "commits" / name).unlink(missing_ok=True)
    return True


def finish(work: SparkWork) -> dict[str, int]:
    """Start a Spark driver that copies all remaining records. Returns the numbers of compared,
    missing, duplicated and out-of-order records."""
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
        "ottla.bench.spark.spark_faults_driver",
        json.dumps(work._asdict()),
    ]


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(text) for text in path.read_text().split()] if path.exists() else []


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
