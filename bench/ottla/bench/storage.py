"""Benchmarks of storage: appends, the recovery of logs after a kill, and a broker with many
partitions.

Figures are comparable only within one run, so always quote figures of the same run.
"""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import trio

from ottla.bench.load import Progress
from ottla.bench.local_cluster import StartedCluster, open_cluster_in
from ottla.bench.processes import usage_of
from ottla.client import open_admin
from ottla.client.network.cluster import Cluster
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.model.settings.broker import BrokerConfig
from ottla.node.clock_driver import RealClock, RealRng
from ottla.storage.directories.meta_properties import MetaProperties, format_meta_properties
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.manager.log_manager_driver import LogManager, open_log_manager
from ottla.storage.manager.recovery_processes_driver import MAY_START_PROCESSES
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch

Figures = dict[str, Any]

APPENDS = {KIB: 20_000, 16 * KIB: 10_000, 1024 * KIB: 300}
"""Number of record batches to append, by their size in bytes."""
RECOVERED_BYTES = 1280 * MIB
"""Total size in bytes of the logs to recover. It is large enough that recovery uses worker
processes."""
RECOVERED_LOGS = 8
RECOVERED_BATCHES = (KIB, 64 * KIB)
THREADS = (1, 2)
PARTITION_COUNTS = (2_000, 10_000)
RECORD_OVERHEAD_BYTES = 80
"""Approximate number of bytes in a record batch that are not the value of its only record."""
NOW_MS = 1_700_000_000_000
TOPIC = "many"
BROKER = "broker 1"
MB = 1_000_000


def append(rounds: int, progress: Progress) -> Figures:
    """Measure appends of one record batch to a log, for batches of several sizes. Returns the
    microseconds of one append by name, for each size."""
    found: dict[int, list[float]] = {size: [] for size in APPENDS}
    for index in range(rounds):
        for size, count in APPENDS.items():
            with _directory() as path:
                found[size].append(trio.run(_append, path, size, count))
        progress(index + 1)
    return {
        f"append_{size // KIB}_kib_us": round(median(each) * 1e6, 2) for size, each in found.items()
    }


def recovery(rounds: int, progress: Progress) -> Figures:
    """Measure the recovery of logs after a kill, alternately with one thread and with two threads.
    Returns the rates in MB per second by name."""
    figures: Figures = {}
    for size in RECOVERED_BATCHES:
        found: dict[int, list[float]] = {threads: [] for threads in THREADS}
        with _directory() as path:
            trio.run(_fill, path, size)
            for index in range(rounds):
                for threads in THREADS:
                    found[threads].append(trio.run(_recover, path, threads))
                progress(index + 1)
        name = f"recovery_{size // KIB}_kib_mb_per_s"
        figures |= {f"{name}_{threads}": round(median(each)) for threads, each in found.items()}
        ratios = [two / one for one, two in zip(found[1], found[2], strict=True)]
        figures[f"{name}_ratio"] = round(median(ratios), 2)
    return figures


def partitions(rounds: int, progress: Progress) -> Figures:
    """Measure one broker with many partitions: creation of the partitions, an idle broker, a clean
    restart, and a restart after a kill. Returns the measured figures by name."""
    figures: Figures = {}
    for count in PARTITION_COUNTS:
        found: list[dict[str, float]] = []
        for index in range(rounds):
            with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
                found.append(_many_partitions(Path(directory), count))
            progress(index + 1)
        figures |= {
            f"{name}_{count}": round(median(each[name] for each in found), 2) for name in found[0]
        }
    return figures


# ---- a log manager without a broker


@contextmanager
def _directory() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="ottla-bench-")
    identity = MetaProperties(cluster_id="bench", node_id=NodeId(1), directory_id=ZERO_UUID)
    Path(path, "meta.properties").write_bytes(format_meta_properties(identity))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def _config(path: str, threads: int = 1) -> BrokerConfig:
    return BrokerConfig(node_id=NodeId(1), log_dirs=(path,), recovery_threads_per_dir=threads)


def _batch(size: int) -> bytes:
    return build_batch([(NOW_MS, None, bytes(size - RECORD_OVERHEAD_BYTES))])


@asynccontextmanager
async def _opened(path: str) -> AsyncIterator[LogManager]:
    """Open and yield a log manager. At the end of the block, its files remain as if its process had
    been killed."""
    async with (
        RealDisk([path]) as disk,
        open_log_manager(disk, _config(path), RealClock(), RealRng()) as logs,
    ):
        await logs.recover(lambda partition: LogConfig())
        yield logs


async def _append(path: str, size: int, count: int) -> float:
    """Append record batches of one size to a log, and return the seconds that one append takes."""
    async with _opened(path) as logs:
        log = await logs.create(TopicPartition(TOPIC, 0), ZERO_UUID, LogConfig())
        records = memoryview(bytearray(_batch(size)))
        started = time.perf_counter()
        for _ in range(count):
            log.append_as_leader(records, leader_epoch=Epoch(0), now_ms=NOW_MS)
        return (time.perf_counter() - started) / count


async def _fill(path: str, size: int) -> None:
    records = _batch(size)
    async with _opened(path) as logs:
        for index in range(RECOVERED_LOGS):
            log = await logs.create(TopicPartition(TOPIC, index), ZERO_UUID, LogConfig())
            for number in range(RECOVERED_BYTES // RECOVERED_LOGS // len(records)):
                log.append_as_leader(
                    memoryview(bytearray(records)),
                    leader_epoch=Epoch(0),
                    now_ms=NOW_MS + number,
                )


async def _recover(path: str, threads: int) -> float:
    """Recover the logs of a directory with the given number of threads, and return the MB recovered
    per second."""
    MAY_START_PROCESSES.set(True)
    config = _config(path, threads)
    async with (
        RealDisk([path]) as disk,
        open_log_manager(disk, config, RealClock(), RealRng()) as logs,
    ):
        started = time.perf_counter()
        await logs.recover(lambda partition: LogConfig())
        seconds = time.perf_counter() - started
        return sum(log.size_bytes for _, log in logs) / MB / seconds


# ---- a whole broker


def _many_partitions(directory: Path, count: int) -> dict[str, float]:
    found: dict[str, float] = {}
    with open_cluster_in(directory, controllers=1, brokers=1) as cluster:
        started = time.perf_counter()
        trio.run(_make_topic, cluster.bootstrap, count)
        _wait_until_served(cluster, count)
        found["created_s"] = time.perf_counter() - started
        found |= _held(cluster, "created")
        started = time.perf_counter()
    found["stopped_s"] = time.perf_counter() - started
    for way in ("stopped", "killed"):
        started = time.perf_counter()
        with open_cluster_in(directory) as cluster:
            _wait_until_served(cluster, count)
            found[f"start_after_{way}_s"] = time.perf_counter() - started
            found |= _held(cluster, way)
            cluster.kill(BROKER)
    return found


async def _make_topic(bootstrap: str, count: int) -> None:
    async with open_admin(bootstrap) as admin:
        await admin.create_topic(TOPIC, partition_count=count)


def _wait_until_served(cluster: StartedCluster, count: int) -> None:
    async def ask(asked: Cluster) -> bool | None:
        (topic,) = (await asked.metadata([TOPIC])).topics
        served = [row for row in topic.partitions if row.leader_id >= 0 and not row.error_code]
        return True if len(served) == count else None

    cluster.wait_for(ask)


def _held(cluster: StartedCluster, when: str) -> dict[str, float]:
    """Return the broker's number of open file descriptors and its resident memory in MB. The names
    of the two values end with `when`, which names the moment of the measurement."""
    pid = cluster.pids[BROKER]
    return {
        f"descriptors_{when}": len(os.listdir(f"/proc/{pid}/fd")),
        f"rss_mb_{when}": usage_of([pid]).rss_bytes / MB,
    }
