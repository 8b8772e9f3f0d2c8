"""Registers the metrics of log directories and of the logs in them. Pure."""

from collections.abc import Callable, Iterable, Iterator

from ottla.broker.metrics.cleaner_metrics import cleaner_families
from ottla.node.free_space_metrics import free_space_families, reserve_families
from ottla.node.part_registry import PartRegistry
from ottla.storage.directories.free_space import FreeSpaceReport
from ottla.storage.losses.known_losses_driver import count_by_kind
from ottla.storage.losses.log_losses import LossKind
from ottla.storage.manager.log_manager_driver import LogManager
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import gauge, gauges


def register_log_metrics(
    parts: PartRegistry,
    logs: LogManager,
    free_spaces: Callable[[], Iterable[FreeSpaceReport]],
    reserved_bytes: Callable[[], int],
) -> None:
    """Register the metrics of logs, of log directories and of the log cleaner."""
    parts.families(lambda: _losses(logs))
    parts.families(lambda: _logs(logs))
    parts.families(lambda: free_space_families(free_spaces()))
    parts.families(lambda: _reliefs(logs))
    parts.figures(lambda: _relief_figures(logs))
    parts.families(lambda: reserve_families(reserved_bytes()))
    parts.families(lambda: cleaner_families(logs))


def _reliefs(logs: LogManager) -> Iterator[Family]:
    label = ("logDirectory",)
    yield Family(
        "ottla_log_directory_tier_deleted_segments_total",
        MetricKind.COUNTER,
        "Local copies of segments that local.retention.free.bytes has deleted.",
        label,
        [((relief.path,), relief.segment_count) for relief in logs.reliefs],
    )
    yield Family(
        "ottla_log_directory_tier_deleted_bytes_total",
        MetricKind.COUNTER,
        "Size in bytes of these local copies.",
        label,
        [((relief.path,), relief.size_bytes) for relief in logs.reliefs],
    )


def _relief_figures(logs: LogManager) -> dict[str, float]:
    """Return the bytes that were deleted for lack of space, and the configured minimum of free
    bytes. The result is empty if local.retention.free.bytes is not set."""
    reliefs = logs.reliefs
    if not any(relief.free_bytes_min for relief in reliefs):
        return {}
    return {
        "tier.relief.bytes": sum(relief.size_bytes for relief in reliefs),
        "tier.relief.free": max(relief.free_bytes_min for relief in reliefs),
    }


def _losses(logs: LogManager) -> Iterator[Family]:
    found = logs.known_losses.found_counts
    lacking = count_by_kind(logs.losses)
    yield Family(
        "ottla_log_losses_found_total",
        MetricKind.COUNTER,
        "Replicas that this start found to have lost acknowledged records, by kind.",
        ("kind",),
        tuple(((kind.value,), found[kind]) for kind in LossKind),
    )
    yield Family(
        "ottla_log_recovery_cut_bytes_total",
        MetricKind.COUNTER,
        "Bytes of incomplete records that this start truncated from the ends of logs.",
        (),
        (((), logs.known_losses.cut_bytes),),
    )
    yield Family(
        "ottla_log_losses",
        MetricKind.GAUGE,
        "Replicas that lost acknowledged records and are not complete again, by kind.",
        ("kind",),
        tuple(((kind.value,), lacking[kind]) for kind in LossKind),
    )


def _logs(logs: LogManager) -> Iterator[Family]:
    manager = "kafka.log:type=LogManager,name="
    directories = logs.directories
    yield gauge(
        "kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
        "Offline replicas.",
        len(logs.offline),
    )
    yield gauge(
        f"{manager}OfflineLogDirectoryCount",
        "Directories of log.dirs that failed.",
        sum(not directory.is_live for directory in directories),
    )
    yield gauges(
        f"{manager}LogDirectoryOffline",
        "1 for a directory that failed.",
        ("logDirectory",),
        [((directory.path,), int(not directory.is_live)) for directory in directories],
    )
    yield gauge(
        f"{manager}CordonedLogDirectoryCount",
        "Cordoned directories of log.dirs, which accept no new replica.",
        sum(directory.is_cordoned for directory in directories),
    )
    yield gauges(
        f"{manager}LogDirectoryCordoned",
        "1 for a cordoned directory, which accepts no new replica.",
        ("logDirectory",),
        [((directory.path,), int(directory.is_cordoned)) for directory in directories],
    )
    yield gauges(
        f"{manager}remainingLogsToRecover",
        "Logs still to be recovered.",
        ("dir",),
        [((directory.path,), directory.progress.remaining_log_count) for directory in directories],
    )
    yield gauges(
        f"{manager}remainingSegmentsToRecover",
        "Segments left of the log that a recovery thread checks.",
        ("dir", "threadNum"),
        [
            ((directory.path, str(thread)), count)
            for directory in directories
            for thread, count in enumerate(directory.progress.segment_counts_by_thread)
        ],
    )
