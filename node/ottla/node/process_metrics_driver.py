"""Metrics of this process, from the kernel and from Python, named as in Prometheus's client
libraries.

On Linux, the values are read from /proc.  Its files are in memory, so the event loop may read them
without blocking.
"""

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.metrics.instruments import Family, MetricKind, Value
from ottla.telemetry.metrics.kafka_names import prometheus_name

PROC = Path("/proc/self")
PAGE_BYTES = resource.getpagesize()
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_STARTTIME_AT = 19
"""Index of the process's start time in /proc/self/stat, counted from the first field after the
command name. The start time is in clock ticks."""

DISK = {
    "read_bytes": ("linux-disk-read-bytes", "Bytes this process had read from disks."),
    "write_bytes": ("linux-disk-write-bytes", "Bytes this process had written to disks."),
}
"""Keys of the disk traffic in /proc/self/io, with Kafka's metric names and descriptions
(`kafka.server:type=KafkaServer`)."""


DESCRIPTORS_PER_SLICE = 1_000
"""Number of file descriptors that are counted before the event loop may run other tasks. This takes
about a millisecond."""


def cpu_seconds() -> float:
    """Return the CPU time (user and system) that this process has used, in seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def process_families() -> Iterator[Family | None]:
    """Yield metrics of this process: CPU time, memory, file descriptors, disk traffic and garbage
    collections. Yields None where the event loop may run other tasks."""
    yield _family(
        "process_cpu_seconds_total",
        MetricKind.COUNTER,
        "User and system time spent.",
        cpu_seconds(),
    )
    with suppress(OSError):
        yield from _from_proc()
    yield Family(
        "python_gc_collections_total",
        MetricKind.COUNTER,
        "Runs of the garbage collector.",
        ("generation",),
        [((str(at),), row["collections"]) for at, row in enumerate(gc.get_stats())],
    )


def unexpected_error_families(errors: UnexpectedErrors) -> Iterator[Family]:
    """Yield a metric that counts unexpected exceptions, by the kind of owner (such as a request or
    task) that the exception has ended."""
    yield Family(
        "ottla_unexpected_errors_total",
        MetricKind.COUNTER,
        "Unexpected errors, by the kind of owner that each of them ended.",
        ("owner",),
        [((kind,), count) for kind, count in sorted(errors.counts.items())],
    )


def _from_proc() -> Iterator[Family | None]:
    virtual_pages, resident_pages = map(int, (PROC / "statm").read_text().split()[:2])
    yield _family(
        "process_resident_memory_bytes",
        MetricKind.GAUGE,
        "Memory held.",
        resident_pages * PAGE_BYTES,
    )
    yield _family(
        "process_virtual_memory_bytes",
        MetricKind.GAUGE,
        "Memory mapped.",
        virtual_pages * PAGE_BYTES,
    )
    yield from _descriptors()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield _family("process_max_fds", MetricKind.GAUGE, "Maximum number of open descriptors.", soft)
    yield _family("process_start_time_seconds", MetricKind.GAUGE, "When it started.", _started_at())
    for line in (PROC / "io").read_text().splitlines():
        key, _, value = line.partition(": ")
        if key in DISK:
            attribute, text = DISK[key]
            name = prometheus_name(f"kafka.server:type=KafkaServer,name={attribute}")
            yield _family(name, MetricKind.GAUGE, text, int(value))


def _descriptors() -> Iterator[Family | None]:
    """Yield the number of open file descriptors. Before that, yields None whenever the event loop
    may run other tasks.

    Kernels before Linux 6.2 do not report the number, so the descriptors are counted one by one.
    """
    count = os.stat(PROC / "fd").st_size
    if not count:
        with os.scandir(PROC / "fd") as entries:
            for count, _ in enumerate(entries, start=1):
                if not count % DESCRIPTORS_PER_SLICE:
                    yield None
    yield _family("process_open_fds", MetricKind.GAUGE, "Open descriptors.", count)


def _started_at() -> float:
    """Return the start time of this process in seconds since 1970."""
    booted_at = next(
        int(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime ")
    )
    fields = (PROC / "stat").read_text().rpartition(")")[2].split()
    return booted_at + int(fields[_STARTTIME_AT]) / TICKS_PER_SECOND


def _family(name: str, kind: MetricKind, text: str, value: Value) -> Family:
    return Family(name, kind, text, (), (((), value),))
