"""Metrics of the free space on the volumes of a node's directories, for brokers and controllers.
Pure."""

from collections.abc import Iterable, Iterator

from ottla.storage.directories.free_space import FreeSpaceLevel, FreeSpaceReport
from ottla.telemetry.metrics.instruments import Family, MetricKind


def free_space_families(reports: Iterable[FreeSpaceReport]) -> Iterator[Family]:
    """Yield metrics of the free disk space of each directory whose space was measured at least
    once."""
    known = list(reports)
    measured = [(one.path, one.space) for one in known if one.space is not None]
    label = ("logDirectory",)
    for name, text, samples in (
        (
            "total_bytes",
            "Size of the volume with a log directory or the metadata log, in bytes.",
            [((path,), space.total_bytes) for path, space in measured],
        ),
        (
            "usable_bytes",
            "Free space of that volume, in bytes.",
            [((path,), space.usable_bytes) for path, space in measured],
        ),
        (
            "used_bytes",
            "Space of that volume that any program uses, in bytes.",
            [((path,), space.total_bytes - space.usable_bytes) for path, space in measured],
        ),
        (
            "filling",
            "1 if less is free than ottla.disk.warn.free.percent and .bytes require.",
            [((one.path,), int(one.state is FreeSpaceLevel.FILLING)) for one in known],
        ),
        (
            "full",
            "1 if writes are refused because the volume is full.",
            [((one.path,), int(one.state is FreeSpaceLevel.FULL)) for one in known],
        ),
        (
            "room_age_seconds",
            "Age of these numbers, which increases while a disk hangs.",
            [((one.path,), one.age_ms / 1_000) for one in known],
        ),
    ):
        yield Family(f"ottla_log_directory_{name}", MetricKind.GAUGE, text, label, samples)
    yield Family(
        "ottla_log_directory_refused_writes_total",
        MetricKind.COUNTER,
        "Writes that failed because the volume was full.",
        label,
        [((one.path,), one.refused_count) for one in known],
    )


def reserve_families(reserved_bytes: int) -> Iterator[Family]:
    """Yield a metric of the disk space that is reserved for the metadata log in case its disk is
    full."""
    yield Family(
        "ottla_metadata_reserved_bytes",
        MetricKind.GAUGE,
        "Size of reserved.space, in bytes: space for the metadata log when its disk is full.",
        (),
        (((), reserved_bytes),),
    )
