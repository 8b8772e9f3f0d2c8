"""CPU instructions that a broker executes per request, counted by valgrind's callgrind.

A count does not depend on other load of the machine.  It therefore shows a change of a few per
cent, which measured seconds on shared cores do not.  The broker is about fifty times slower under
callgrind.  The instructions of its background tasks are counted while it is idle, and subtracted.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ottla.bench.load import Load, Progress, make_topic
from ottla.bench.local_cluster import open_cluster_in
from ottla.bench.requests import (
    FETCH_VERSION,
    PRODUCE_VERSION,
    SmallRequest,
    answer_to,
    frame_of,
    repeat,
    run_requests,
    small_request,
    topic_id_of,
)
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import ZERO_UUID
from ottla.model.limits import KIB, MIB
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

TOPIC = "ottla-bench"
SMALL_KINDS = ("produce", "fetch", "metadata")
BATCH_KIND = "produce-120-kb"
BATCH_RECORDS = 120
BATCH_RECORD_BYTES = 1_000
LONE_FETCHES = {"fetch-16-kib": 16 * KIB, "fetch-64-kib": 64 * KIB, "fetch-1-mib": MIB}
"""Size in bytes of one fetch of a consumer that has one request in flight, by name of the
benchmark."""
LONE_BATCH_BYTES = 16 * KIB
LONE_REQUESTS = 500
LONE_TOPIC = "ottla-bench-lone"
REQUESTS = 2_000
"""Number of requests per measurement of CPU instructions. With fewer, a single late heartbeat
changes the result. With more, the measurement takes longer."""
WARM_UP_REQUESTS = 150
CONNECTIONS = 4
IN_FLIGHT = 8
"""Number of requests in flight at the measured broker. It is large enough that the broker is never
idle, so the share of its background tasks stays small."""
IDLE_S = 20.0
RECORD_OVERHEAD_BYTES = 72
"""Bytes of a batch of one record without its value."""
START_S = 600.0
STOP_S = 60.0
DUMP_S = 60.0
ASK_AGAIN_S = 0.5
TOTALS = re.compile(rb"^(?:totals|summary): (\d+)", re.MULTILINE)

Drive = Callable[[int], object]
"""Function that sends a given number of requests of one kind."""


class CountedBroker:
    """Broker that runs under callgrind. The process counts the CPU instructions that it
    executes."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._dumped_at = time.monotonic()

    def count(self) -> tuple[int, float]:
        """Return the CPU instructions that the broker executed and the seconds that passed since
        the previous call."""
        before = set(self._directory.glob("counts.*"))
        _control("-d", self._process.pid)
        dumped_at = time.monotonic()
        seconds, self._dumped_at = dumped_at - self._dumped_at, dumped_at
        while time.monotonic() < dumped_at + DUMP_S:
            for path in set(self._directory.glob("counts.*")) - before:
                found = TOTALS.search(path.read_bytes())
                if found is not None:
                    path.unlink()
                    return int(found[1]), seconds
            time.sleep(ASK_AGAIN_S)
        raise OttlaError("callgrind wrote no counts")


def _control(*arguments: str | int) -> None:
    subprocess.run(
        ["callgrind_control", *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def instructions(rounds: int, progress: Progress) -> dict[str, Any]:
    """Count the CPU instructions of one request of each kind. Returns the medians, and the count of
    every round."""
    if shutil.which("callgrind_control") is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "callgrind is missing: install valgrind")
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name, _open(Path(name)) as opened:
        broker, address = opened
        drives = _drives(address)
        for drive in drives.values():
            drive(WARM_UP_REQUESTS)
        broker.count()
        time.sleep(IDLE_S)
        idle, seconds = broker.count()
        idle_per_s = idle / seconds
        counts: dict[str, list[int]] = {kind: [] for kind in drives}
        for index in range(rounds):
            for kind, drive in drives.items():
                count = LONE_REQUESTS if kind in LONE_FETCHES else REQUESTS
                broker.count()
                drive(count)
                counted, seconds = broker.count()
                counts[kind].append(round((counted - idle_per_s * seconds) / count))
            progress(index + 1)
    figures: dict[str, Any] = {"idle_per_s": round(idle_per_s)}
    for kind, found in counts.items():
        figures |= {kind: round(median(found)), f"{kind}_all": found}
    return figures


def _drives(address: tuple[str, int]) -> dict[str, Drive]:
    """Return one function for each kind of request, by name of the benchmark. Each function sends a
    given number of these requests."""
    common: dict[str, Any] = {"in_flight": IN_FLIGHT, "progress": lambda done: None}
    drives: dict[str, Drive] = {}
    for kind in SMALL_KINDS:
        drives[kind] = partial(_drive_small, address, kind, common)
    drives[BATCH_KIND] = partial(_drive_batches, address, common)
    for kind, size in LONE_FETCHES.items():
        drives[kind] = partial(_drive_lone_fetches, address, kind, size)
    return drives


def _drive_small(address: tuple[str, int], kind: str, common: dict[str, Any], count: int) -> None:
    run_requests(address, kind=kind, topic=TOPIC, count=count, connections=CONNECTIONS, **common)


def _drive_batches(address: tuple[str, int], common: dict[str, Any], count: int) -> None:
    small = _batch_request(TOPIC, BATCH_RECORD_BYTES, BATCH_RECORDS)
    repeat(address, BATCH_KIND, [small] * CONNECTIONS, count=count, **common)


def _batch_request(topic: str, record_bytes: int, records: int) -> SmallRequest:
    record = RecordToBuild(time.time_ns() // 1_000_000, None, b"x" * record_bytes)
    batch = build_batch([record] * records)
    data = [PartitionProduceData(index=0, records=batch)]
    request = ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=data)]
    )
    return SmallRequest(frame_of(request, PRODUCE_VERSION), len(batch))


def _fill_lone_topic(address: tuple[str, int]) -> None:
    small = _batch_request(LONE_TOPIC, LONE_BATCH_BYTES - RECORD_OVERHEAD_BYTES, 1)
    count = 2 * max(LONE_FETCHES.values()) // LONE_BATCH_BYTES
    repeat(address, LONE_TOPIC, [small], count=count, in_flight=1, progress=lambda done: None)


def _drive_lone_fetches(address: tuple[str, int], kind: str, size: int, count: int) -> None:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=size)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=size,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=topic_id_of(address, LONE_TOPIC), partitions=[wanted])],
    )
    small = SmallRequest(frame_of(request, FETCH_VERSION), size)
    repeat(address, kind, [small], count=count, in_flight=1, progress=lambda done: None)


@contextmanager
def _open(directory: Path) -> Iterator[tuple[CountedBroker, tuple[str, int]]]:
    """Start one controller, and one broker that runs under callgrind. Yields the broker and its
    address."""
    with open_cluster_in(directory, controllers=1, brokers=1) as cluster:
        host, _, port = cluster.bootstrap.rpartition(":")
        names = [name.replace(" ", "-") for name in cluster.pids]
    address = (host, int(port))
    counted = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
    counted.append(f"--callgrind-out-file={directory}/counts")
    processes = {}
    try:
        for name in sorted(names, reverse=True):  # The controller is started first.
            role = name.partition("-")[0]
            processes[role] = subprocess.Popen(
                [
                    *(counted if role == "broker" else []),
                    *(sys.executable, "-m", "ottla.cli", role, f"{directory}/{name}.properties"),
                ],
                env=os.environ | {"PYTHONHASHSEED": "0"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        _wait_until_served(address)
        for topic in (TOPIC, LONE_TOPIC):
            make_topic(_load(f"{host}:{port}", topic))
        _fill_lone_topic(address)
        # The start, which is not measured, is several times faster without counting.
        _control("-i", "on", processes["broker"].pid)
        yield CountedBroker(processes["broker"], directory), address
    finally:
        for role in ("broker", "controller"):
            if role in processes:
                processes[role].send_signal(signal.SIGTERM)
                processes[role].wait(STOP_S)


def _wait_until_served(address: tuple[str, int]) -> None:
    frame = small_request("metadata", TOPIC, ZERO_UUID).frame
    ends_at = time.monotonic() + START_S
    while time.monotonic() < ends_at:
        with suppress(OSError):
            if answer_to(address, frame):
                return
        time.sleep(ASK_AGAIN_S)
    raise OttlaError("the broker under callgrind did not start")


def _load(bootstrap: str, topic: str) -> Load:
    return Load(
        bootstrap=bootstrap,
        topic=topic,
        count=1,
        record_bytes=1,
        batch_bytes=1_000,
        codec="none",
        acks="all",
        linger_ms=0.0,
        partitions=1,
        replication_factor=1,
    )
