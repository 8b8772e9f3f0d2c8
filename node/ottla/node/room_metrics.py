"""The room on the volumes of a node's directories, as both roles tell it.  Pure."""

from collections.abc import Iterable, Iterator

from ottla.storage.disk_room import RoomReport, RoomState
from ottla.telemetry.instruments import Family, MetricKind


def room_families(reports: Iterable[RoomReport]) -> Iterator[Family]:
    """Yield the room of each directory; nothing of one that was never measured."""
    known = list(reports)
    measured = [(one.path, one.space) for one in known if one.space is not None]
    label = ("logDirectory",)
    for name, text, samples in (
        (
            "total_bytes",
            "Bytes of the volume that holds a log directory or the metadata log.",
            [((path,), space.total_bytes) for path, space in measured],
        ),
        (
            "usable_bytes",
            "Bytes that are free there.",
            [((path,), space.usable_bytes) for path, space in measured],
        ),
        (
            "used_bytes",
            "Bytes that are taken there, by whatever program.",
            [((path,), space.total_bytes - space.usable_bytes) for path, space in measured],
        ),
        (
            "filling",
            "1 where less is free than ottla.disk.warn.free.percent and .bytes ask for.",
            [((one.path,), int(one.state is RoomState.FILLING)) for one in known],
        ),
        (
            "full",
            "1 where writes are refused for want of room.",
            [((one.path,), int(one.state is RoomState.FULL)) for one in known],
        ),
        (
            "room_age_seconds",
            "How old these numbers are; they grow old while a disk hangs.",
            [((one.path,), one.age_ms / 1_000) for one in known],
        ),
    ):
        yield Family(f"ottla_log_directory_{name}", MetricKind.GAUGE, text, label, samples)
    yield Family(
        "ottla_log_directory_refused_writes_total",
        MetricKind.COUNTER,
        "Writes that found no room.",
        label,
        [((one.path,), one.refused_count) for one in known],
    )


def reserve_families(reserved_bytes: int) -> Iterator[Family]:
    """Yield what is kept for a full disk of the metadata log."""
    yield Family(
        "ottla_metadata_reserved_bytes",
        MetricKind.GAUGE,
        "Bytes of reserved.space, by which the metadata log goes on when its disk is full.",
        (),
        (((), reserved_bytes),),
    )
