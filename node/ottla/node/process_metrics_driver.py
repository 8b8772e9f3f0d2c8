"""What the kernel and Python know of this process, under the names of Prometheus's own clients.

Linux: from /proc, which is memory and so may be read on the loop.
"""

import gc
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.telemetry.instruments import Family, MetricKind, Value
from ottla.telemetry.kafka_names import prometheus_name

PROC = Path("/proc/self")
PAGE_BYTES = resource.getpagesize()
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

_STARTTIME_AT = 19
"""Of the fields of /proc/self/stat behind the command's name: when the process began, in ticks."""

DISK = {
    "read_bytes": ("linux-disk-read-bytes", "Bytes this process had read from disks."),
    "write_bytes": ("linux-disk-write-bytes", "Bytes this process had written to disks."),
}
"""Lines of /proc/self/io, and what Kafka calls them (`kafka.server:type=KafkaServer`)."""


DESCRIPTORS_PER_SLICE = 1_000
"""Counted before a pause is offered, where they must be counted: about a millisecond."""


def process_families() -> Iterator[Family | None]:
    """Yield time, memory, descriptors, disk traffic and the garbage collector's work."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield _family(
        "process_cpu_seconds_total",
        MetricKind.COUNTER,
        "User and system time spent.",
        usage.ru_utime + usage.ru_stime,
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
    """Yield how many errors nobody foresaw were caught, by the kind of what each one ended."""
    yield Family(
        "ottla_unexpected_errors_total",
        MetricKind.COUNTER,
        "Errors that nobody foresaw, by what each of them ended.",
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
    yield _family("process_max_fds", MetricKind.GAUGE, "Descriptors it may have.", soft)
    yield _family("process_start_time_seconds", MetricKind.GAUGE, "When it started.", _started_at())
    for line in (PROC / "io").read_text().splitlines():
        key, _, value = line.partition(": ")
        if key in DISK:
            attribute, text = DISK[key]
            name = prometheus_name(f"kafka.server:type=KafkaServer,name={attribute}")
            yield _family(name, MetricKind.GAUGE, text, int(value))


def _descriptors() -> Iterator[Family | None]:
    """Yield how many descriptors are open; before Linux 6.2 they must be counted one by one."""
    count = os.stat(PROC / "fd").st_size
    if not count:
        with os.scandir(PROC / "fd") as entries:
            for count, _ in enumerate(entries, start=1):
                if not count % DESCRIPTORS_PER_SLICE:
                    yield None
    yield _family("process_open_fds", MetricKind.GAUGE, "Open descriptors.", count)


def _started_at() -> float:
    """Return when the process began, in seconds since 1970."""
    booted_at = next(
        int(line.split()[1])
        for line in Path("/proc/stat").read_text().splitlines()
        if line.startswith("btime ")
    )
    fields = (PROC / "stat").read_text().rpartition(")")[2].split()
    return booted_at + int(fields[_STARTTIME_AT]) / TICKS_PER_SECOND


def _family(name: str, kind: MetricKind, text: str, value: Value) -> Family:
    return Family(name, kind, text, (), (((), value),))
