"""The log of committed offsets does not grow with the commits, and a restart loads only the rest.

Runs if OTTLA_OFFSETS_LOAD_S is set: the seconds for which offsets are committed, 600 for a view of
a busy cluster. `pytest -s` shows the figures.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.bench.groups import run_commits
from ottla.client.admin import open_admin
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.batch import batches

pytestmark = pytest.mark.cluster

Processes = Any  # the class of the fixture, in conftest.py
LOAD_S = float(os.environ.get("OTTLA_OFFSETS_LOAD_S", "0"))
TOPIC, PARTITIONS, IN_FLIGHT = "orders", 8, 16
COMMITS_PER_ROUND = 5_000
SEGMENT_BYTES = 1 << 20
LIVE_SEGMENTS_MAX = 4
"""A compacted segment, one closed since, the replacement by a pass, and the active one."""

SETTLE_S = 60.0


class LogSize(NamedTuple):
    """Bytes of a log's directory."""

    live: int
    """Of segments that are read."""
    removed: int
    """Of replaced ones, which stay for `file.delete.delay.ms`."""


def size_of(directory: Path) -> LogSize:
    live = removed = 0
    for path in directory.iterdir():
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            continue
        if path.suffix == ".log":
            live += size
        elif ".log." in path.name:
            removed += size
    return LogSize(live, removed)


@contextmanager
def sampled(directory: Path) -> Iterator[list[LogSize]]:
    """Sample the sizes once a second."""
    sizes: list[LogSize] = []
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(1.0):
            if directory.exists():
                sizes.append(size_of(directory))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        is_over.set()
        thread.join()


def commit_for(bootstrap: str, seconds: float) -> int:
    """Commit offsets as fast as they are answered; return how many."""
    count, ends_at = 0, time.monotonic() + seconds
    while time.monotonic() < ends_at:
        run_commits(
            parse_bootstrap(bootstrap)[0],
            topic=TOPIC,
            count=COMMITS_PER_ROUND,
            connections=PARTITIONS,
            in_flight=IN_FLIGHT,
            has_members=False,
            progress=lambda done: None,
        )
        count += COMMITS_PER_ROUND
    return count


def records_in(directory: Path) -> int:
    """Return how many records a load of the log reads."""
    return sum(
        header.record_count
        for path in directory.glob("*.log")
        for _, header in batches(path.read_bytes())
    )


async def committed(bootstrap: str) -> tuple[float, list[int]]:
    """Wait for the groups; return the seconds, and how many offsets each has."""
    started = time.monotonic()
    async with open_admin(bootstrap, timeout_s=SETTLE_S) as admin:
        groups = [group.group_id for group in await admin.list_groups()]
        counts = [len(await admin.group_offsets(group)) for group in groups]
    return time.monotonic() - started, counts


@pytest.mark.timeout(LOAD_S + 5 * SETTLE_S)
@pytest.mark.skipif(not LOAD_S, reason="LOUD: OTTLA_OFFSETS_LOAD_S is not set; nothing was loaded")
def test_offsets_are_compacted_as_fast_as_they_are_committed(
    plan_cluster: Callable[..., Processes],
) -> None:
    processes = plan_cluster(
        brokers=1,
        offsets_topic_num_partitions="1",
        offsets_topic_segment_bytes=str(SEGMENT_BYTES),
        log_cleaner_backoff_ms="2000",
    )
    processes.start()
    admin = AdminClient({"bootstrap.servers": processes.bootstrap})
    for future in admin.create_topics([NewTopic(TOPIC, PARTITIONS)]).values():
        future.result(timeout=60)
    directory = Path(processes.node("broker").dir) / "__consumer_offsets-0"

    with sampled(directory) as sizes:
        count = commit_for(processes.bootstrap, LOAD_S)
        ends_at = time.monotonic() + SETTLE_S
        while size_of(directory).live > 2 * SEGMENT_BYTES and time.monotonic() < ends_at:
            time.sleep(0.5)
    largest = max(size.live for size in sizes)
    processes.end("broker")
    left, record_count = size_of(directory), records_in(directory)
    start_s = processes.start("broker")
    load_s, counts = trio.run(committed, processes.bootstrap)
    print(
        f"\n{count:,} commits in {LOAD_S:g} s; live bytes: largest {largest:,}, at the end "
        f"{left.live:,} with {record_count:,} records ({left.removed:,} of replaced segments); "
        f"broker started in {start_s:.1f} s, {len(counts)} groups answered in {load_s:.1f} s more"
    )

    assert counts == [PARTITIONS] * (count // COMMITS_PER_ROUND)
    assert largest <= LIVE_SEGMENTS_MAX * SEGMENT_BYTES
    assert left.live <= 2 * SEGMENT_BYTES
    assert record_count < count / 2
