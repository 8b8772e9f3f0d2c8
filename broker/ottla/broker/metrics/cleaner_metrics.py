"""What the log cleaner of this broker shows: Kafka's gauges, and a few of our own.  Pure."""

from collections.abc import Iterator

from ottla.broker.metrics.families import gauge, gauges
from ottla.storage.cleaner.cleaner_driver import LogCleaner
from ottla.storage.log_manager_driver import LogManager
from ottla.telemetry.instruments import Family, MetricKind

CLEANER = "kafka.log:type=LogCleaner,name="
MANAGER = "kafka.log:type=LogCleanerManager,name="


def cleaner_families(logs: LogManager) -> Iterator[Family]:
    """Yield the metrics of all cleanings, and of the logs that are not cleaned."""
    cleaner = logs.cleaner
    yield from _totals(cleaner)
    figures = cleaner.figures
    yield gauge(
        f"{MANAGER}max-dirty-percent",
        "The largest dirty part of a log that is to be compacted.",
        int(100 * figures.dirty_ratio_max),
    )
    yield gauge(
        f"{MANAGER}time-since-last-run-ms",
        "Time since logs were last looked at.",
        cleaner.since_last_round_ms,
    )
    counts = dict.fromkeys((each.path for each in logs.directories), 0)
    sizes = dict(counts)
    for partition, cleanable_bytes in cleaner.uncleanable():
        directory = logs.directory_of(partition)
        if directory is not None:
            counts[directory.path] += 1
            sizes[directory.path] += cleanable_bytes
    yield gauges(
        f"{MANAGER}uncleanable-partitions-count",
        "Logs that are not compacted any more, because that failed.",
        ("logDirectory",),
        [((path,), count) for path, count in counts.items()],
    )
    yield gauges(
        f"{MANAGER}uncleanable-bytes",
        "Bytes of these that could be compacted.",
        ("logDirectory",),
        [((path,), size) for path, size in sizes.items()],
    )


def _totals(cleaner: LogCleaner) -> Iterator[Family]:
    figures = cleaner.figures
    read_bytes = max(1, figures.read_bytes)
    for name, text, value in (
        (
            "max-buffer-utilization-percent",
            "The largest part of the memory for keys that a last cleaning used.",
            100 * figures.map_part_max,
        ),
        (
            "cleaner-recopy-percent",
            "The part of what was read that was written again.",
            100 * figures.written_bytes / read_bytes,
        ),
        (
            "max-clean-time-secs",
            "The longest of the last cleanings.",
            figures.seconds_max,
        ),
        (
            "max-compaction-delay-secs",
            "How long the oldest dirty record is over max.compaction.lag.ms.",
            figures.delay_ms_max / 1_000,
        ),
        (
            "DeadThreadCount",
            "Workers that died within a cleaning and have no successor yet.",
            cleaner.runner.dead_count,
        ),
    ):
        yield gauge(f"{CLEANER}{name}", text, int(value))
    for name, text, figure in (
        ("ottla_log_cleaner_cleanings", "Cleanings that came to their end.", "cleaning_count"),
        ("ottla_log_cleaner_failures", "Cleanings that failed.", "failure_count"),
        ("ottla_log_cleaner_read_bytes", "Bytes that cleanings read.", "read_bytes"),
        ("ottla_log_cleaner_written_bytes", "Bytes that cleanings wrote.", "written_bytes"),
        (
            "ottla_log_cleaner_keyless_records",
            "Records without key that cleanings dropped.",
            "keyless_record_count",
        ),
    ):
        samples = (((), getattr(figures, figure)),)
        yield Family(f"{name}_total", MetricKind.COUNTER, text, (), samples)
