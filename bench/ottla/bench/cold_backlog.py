"""Benchmark of the effect of a consumer that reads a cold backlog on a producer and on a consumer
at the log's end.

Phases of three kinds alternate on one broker. In the first, no consumer reads a backlog. In the
second, the backlog is in the page cache. In the third, the backlog was flushed and evicted from the
page cache just before.
"""

import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

from ottla.bench.client_metrics.steady_produce import SteadyProduce
from ottla.bench.load import Load, Progress, library, make_topic, produce
from ottla.bench.local_cluster import StartedCluster, open_cluster_in
from ottla.bench.requests import RequestLatency
from ottla.model.settings.endpoints import parse_bootstrap

BACKLOG = "ottla-bench-backlog"
STEADY = "ottla-bench-steady"
RECORD_BYTES = 1_000
RECORDS = 600_000
RATE = 400
"""Number of small produce requests per second, sent one after the other."""

READ_BYTES_PER_S = 40_000_000
"""Bytes per second that the consumer of the backlog reads. It could read more, but then no core
would be left for the other clients."""

PHASE_S = 8.0
SETTLE_S = 1.0
KINDS = ("none", "hot", "cold")
MB = 1_000_000


class Phase(NamedTuple):
    """One phase of the benchmark: its start and end, and the bytes read from the backlog. Also the
    longest pause of the broker's event loop until the end of the phase, in ms."""

    began_at: float
    ended_at: float
    read_bytes: int
    pause_ms: float


def cold(rounds: int, progress: Progress) -> dict[str, Any]:
    """Measure a producer's p99 latency in three cases: without a consumer of a backlog, with a cold
    backlog, and with a cached backlog. Returns the measured latencies by name."""
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as directory:
        path = Path(directory)
        with open_cluster_in(path, controllers=1, brokers=1) as cluster:
            backlog = Load(
                bootstrap=cluster.bootstrap, topic=BACKLOG, count=RECORDS, record_bytes=RECORD_BYTES
            )
            for load in (backlog, Load(bootstrap=cluster.bootstrap, topic=STEADY)):
                make_topic(load)
                cluster.wait_in_sync(load.topic)
            produce(backlog, lambda done: None)
        with open_cluster_in(path) as cluster:  # its event loop counts pauses from here
            cluster.wait_in_sync(STEADY)
            return _measure(cluster, path, rounds, progress)


def _measure(
    cluster: StartedCluster, directory: Path, rounds: int, progress: Progress
) -> dict[str, Any]:
    phases: dict[str, list[Phase]] = {kind: [] for kind in KINDS}
    address = parse_bootstrap(cluster.bootstrap)[0]
    before_ms = cluster.metrics(1)["loop.pause.longest.ms"]
    with _tailing(cluster.bootstrap), SteadyProduce(address, STEADY, RATE) as producer:
        for number in range(rounds):
            # The order of the kinds rotates, so that a drift of the machine affects all of them
            # alike.
            for kind in KINDS[number % 3 :] + KINDS[: number % 3]:
                prepare(directory, kind)
                time.sleep(SETTLE_S)
                phases[kind].append(_phase(cluster, kind))
            progress(number + 1)
    return _figures(phases, producer.waited) | {"loop_pause_longest_ms_before": round(before_ms, 1)}


def _figures(phases: dict[str, list[Phase]], waited: list[RequestLatency]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for kind, found in phases.items():
        each = [_p99_ms(waited, phase) for phase in found]
        figures[f"p99_ms_{kind}_median"] = round(median(each), 3)
        figures[f"p99_ms_{kind}_all"] = [round(value, 3) for value in each]
        rates = [phase.read_bytes / MB / (phase.ended_at - phase.began_at) for phase in found]
        figures[f"read_mb_per_s_{kind}"] = round(median(rates), 1)
        figures[f"loop_pause_longest_ms_after_{kind}"] = [round(p.pause_ms, 1) for p in found]
    for other in ("none", "hot"):
        ratio = figures["p99_ms_cold_median"] / figures[f"p99_ms_{other}_median"]
        figures[f"p99_cold_to_{other}"] = round(ratio, 3)
    return figures


def prepare(directory: Path, kind: str) -> None:
    """Flush all log files below a directory. Then evict the files from the page cache, or load them
    into the page cache, depending on `kind`."""
    for path in directory.rglob("*.*"):
        if path.suffix in (".log", ".index", ".timeindex"):
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                if kind == "cold":
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                while kind == "hot" and os.read(fd, MB):
                    pass
            finally:
                os.close(fd)


def _phase(cluster: StartedCluster, kind: str) -> Phase:
    began_at = time.perf_counter()
    read_bytes = 0
    if kind == "none":
        time.sleep(PHASE_S)
    else:
        with _consumer(cluster.bootstrap, BACKLOG, "OFFSET_BEGINNING") as consumer:
            while (passed := time.perf_counter() - began_at) < PHASE_S:
                if read_bytes > passed * READ_BYTES_PER_S:
                    time.sleep(0.005)
                    continue
                messages = consumer.consume(500, timeout=0.1)
                read_bytes += sum(len(message) for message in messages)
    ended_at = time.perf_counter()
    return Phase(began_at, ended_at, read_bytes, cluster.metrics(1)["loop.pause.longest.ms"])


def _p99_ms(waited: list[RequestLatency], phase: Phase) -> float:
    seen = [each.seconds for each in waited if phase.began_at <= each.sent_at < phase.ended_at]
    return 1e3 * quantiles(seen, n=100)[-1]


@contextmanager
def _consumer(bootstrap: str, topic: str, start: str) -> Iterator[Any]:
    confluent = library("confluent_kafka")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ottla-bench",
            "enable.auto.commit": False,
            "queued.max.messages.kbytes": 16_384,
        }
    )
    consumer.assign([confluent.TopicPartition(topic, 0, getattr(confluent, start))])
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def _tailing(bootstrap: str) -> Iterator[None]:
    """Run a consumer during the block that reads the producer's new records at the end of the
    log."""
    has_ended = threading.Event()
    with _consumer(bootstrap, STEADY, "OFFSET_END") as consumer:

        def tail() -> None:
            while not has_ended.is_set():
                consumer.consume(100, timeout=0.1)

        thread = threading.Thread(target=tail)
        thread.start()
        try:
            yield
        finally:
            has_ended.set()
            thread.join()
