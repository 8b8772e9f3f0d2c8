"""Benchmark of a producer's slowdown while its log moves to another directory. It also checks that
the move preserves the bytes of the log.

One partition of 2 GB moves back and forth between two log directories of one broker, with one move
per round.  During each move, a producer in its own process writes to the partition.
"""

import hashlib
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import trio

from ottla.bench.client_metrics.steady_produce import SteadyProduce
from ottla.bench.load import Load, Progress, make_topic, produce
from ottla.bench.local_cluster import StartedCluster, open_cluster_in
from ottla.client.admin import open_admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.endpoints import parse_bootstrap

TOPIC = "ottla-bench-move"
PARTITION = TopicPartition(TOPIC, 0)
RECORD_BYTES = 1_000
RECORDS = 2_000_000
RATE = 400
"""Number of small produce requests per second, sent one after the other."""

CALM_S = 10.0
LOOK_S = 0.2
MOVE_S_MAX = 300.0
MB = 1_000_000


def log_move(rounds: int, progress: Progress) -> dict[str, Any]:
    """Measure a producer's p99 latency with and without a move of its partition. Also check that
    the bytes of the log are the same before and after a move. Returns the measured latencies by
    name."""
    calm: list[float] = []
    moving: list[float] = []
    rates: list[float] = []
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name:
        directories = [Path(name) / "one", Path(name) / "two"]
        paths = ",".join(map(str, directories))
        up = Path(name) / "up"
        with open_cluster_in(up, controllers=1, brokers=1, log_dirs=paths) as cluster:
            load = Load(
                bootstrap=cluster.bootstrap, topic=TOPIC, count=RECORDS, record_bytes=RECORD_BYTES
            )
            make_topic(load)
            cluster.wait_in_sync(TOPIC)
            produce(load, lambda done: None)
            for number in range(rounds):
                source, target = sorted(directories, key=lambda path: not _holds(path))
                size, digest = _digest(source, None)
                address = parse_bootstrap(cluster.bootstrap)[0]
                with SteadyProduce(address, TOPIC, RATE) as producer:
                    began_at = time.perf_counter()
                    time.sleep(CALM_S)
                    moved_from = time.perf_counter()
                    _move(cluster, source, target)
                    ended_at = time.perf_counter()
                calm.append(producer.p99_ms(began_at, moved_from))
                moving.append(producer.p99_ms(moved_from, ended_at))
                rates.append(size / MB / (ended_at - moved_from))
                if _digest(target, size)[1] != digest:
                    raise RefusedError(ErrorCode.CORRUPT_MESSAGE, "the moved bytes are others")
                progress(number + 1)
            pause_ms = cluster.metrics(1)["loop.pause.longest.ms"]
    return {
        "p99_ms_calm_median": round(median(calm), 3),
        "p99_ms_calm_all": [round(value, 3) for value in calm],
        "p99_ms_moving_median": round(median(moving), 3),
        "p99_ms_moving_all": [round(value, 3) for value in moving],
        "p99_ratio": round(median(moving) / median(calm), 3),
        "moved_mb_per_s": round(median(rates), 1),
        "loop_pause_longest_ms": round(pause_ms, 1),
    }


def _move(cluster: StartedCluster, source: Path, target: Path) -> None:
    """Move the partition's log from the directory `source` to `target`. Returns when the old
    directory has been deleted."""

    async def begin() -> None:
        async with open_admin(cluster.bootstrap) as admin:
            (refusal,) = (await admin.move_replicas(NodeId(1), {PARTITION: str(target)})).values()
            if refusal is not None:
                raise refusal

    trio.run(begin)
    ends_at = time.perf_counter() + MOVE_S_MAX
    while _holds(source) or not _holds(target):
        if time.perf_counter() > ends_at:
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"not moved in {MOVE_S_MAX:g} s")
        time.sleep(LOOK_S)


def _holds(directory: Path) -> bool:
    return (directory / str(PARTITION)).exists()


def _digest(directory: Path, size: int | None) -> tuple[int, str]:
    """Return the size of the partition's log in bytes, and a hash of its first `size` bytes."""
    hasher, total = hashlib.blake2b(), 0
    for path in sorted((directory / str(PARTITION)).glob("*.log")):
        with path.open("rb") as file:
            while data := file.read(MB if size is None else min(MB, size - total)):
                hasher.update(data)
                total += len(data)
    return total, hasher.hexdigest()
