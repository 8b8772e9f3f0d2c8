"""Computes the metrics of the log cleaner: Kafka's gauges, and additional ones of Ottla. Pure."""

from collections.abc import Iterator

from ottla.storage.cleaner.cleaner_driver import LogCleaner
from ottla.storage.manager.log_manager_driver import LogManager
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import gauge, gauges

CLEANER = "kafka.log:type=LogCleaner,name="
MANAGER = "kafka.log:type=LogCleanerManager,name="


def cleaner_families(logs: LogManager) -> Iterator[Family]:
    """Yield the metric families of the log cleaner's work, and of the logs that are not
    compacted."""
    cleaner = logs.cleaner
    yield from _totals(cleaner)
    figures = cleaner.figures
    yield gauge(
        f"{MANAGER}max-dirty-percent",
        "Largest dirty part of a log to be compacted.",
        int(100 * figures.dirty_ratio_max),
    )
    yield gauge(
        f"{MANAGER}time-since-last-run-ms",
        "Time since the logs were last checked.",
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
        "Logs that are no longer compacted after a failure.",
        ("logDirectory",),
        [((path,), count) for path, count in counts.items()],
    )
    yield gauges(
        f"{MANAGER}uncleanable-bytes",
        "Compactable bytes of logs that are no longer compacted after a failure.",
        ("logDirectory",),
        [((path,), size) for path, size in sizes.items()],
    )


def _totals(cleaner: LogCleaner) -> Iterator[Family]:
    figures = cleaner.figures
    read_bytes = max(1, figures.read_bytes)
    for name, text, value in (
        (
            "max-buffer-utilization-percent",
            "Largest share of the key memory that one of the last cleanings used, in percent.",
            100 * figures.map_part_max,
        ),
        (
            "cleaner-recopy-percent",
            "Percent of the bytes read by the last cleanings that were written again.",
            100 * figures.written_bytes / read_bytes,
        ),
        (
            "max-clean-time-secs",
            "Duration of the longest of the last cleanings.",
            figures.seconds_max,
        ),
        (
            "max-compaction-delay-secs",
            "Time by which the oldest dirty record exceeds max.compaction.lag.ms.",
            figures.delay_ms_max / 1_000,
        ),
        (
            "DeadThreadCount",
            "Cleaner workers that ended with an error and are not replaced yet.",
            cleaner.runner.dead_count,
        ),
    ):
        yield gauge(f"{CLEANER}{name}", text, int(value))
    for name, text, figure in (
        ("ottla_log_cleaner_cleanings", "Completed cleanings.", "cleaning_count"),
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
