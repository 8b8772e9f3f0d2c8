"""Choice of the log directory for a new log, and choice between two logs of one partition.

Pure. An empty log that replaces one on a missing disk would be mistaken for a complete replica, and
could be elected leader. Therefore a log may be created in any directory only for a replica that
cannot have had committed records. Any other replica must use its assigned directory, and is offline
while that directory is missing.

A cordoned directory gets a log only if no other directory is online, or if the cluster assigned the
directory. A full directory gets a log only if all other directories are full too.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.log.log import Log


class PlacedLog(NamedTuple):
    """A partition's log and the log directory that contains it."""

    log: Log
    directory: LogDirectory


class CandidateDirectory(Protocol):
    """Properties of a log directory that decide whether a new log may be created there."""

    path: str

    is_cordoned: bool

    @property
    def is_live(self) -> bool:
        """True if the log directory is online."""
        ...

    @property
    def is_full(self) -> bool:
        """True if the disk of the log directory is full."""
        ...

    @property
    def directory_id(self) -> UUID | None:
        """Id of the log directory, which the cluster uses to assign replicas. None if the directory
        has no id."""
        ...


def choose_place(
    places: Sequence[CandidateDirectory],
    wanted: UUID | None,
    count_of: Mapping[str, int],
    *,
    holds_nothing: bool,
) -> int:
    """Return the index of the log directory for a new log: the assigned directory, otherwise the
    one with the fewest logs.

    `wanted` is the directory id that the cluster assigned to the replica, or None if it assigned
    none. `count_of` is the number of logs by directory path. `holds_nothing` means that the replica
    cannot have had committed records.

    Raises RefusedError(KAFKA_STORAGE_ERROR) if the log may be in a directory that is missing.
    """
    live = [index for index, place in enumerate(places) if place.is_live]
    if not live:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, "every log directory is offline")
    for index in live:
        if wanted is not None and places[index].directory_id == wanted:
            return index
    if wanted is not None and not holds_nothing:
        raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, f"its log directory {wanted} is not here")
    if len(live) < len(places) and not holds_nothing:
        offline = next(place.path for place in places if not place.is_live)
        raise RefusedError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"its log may be in {offline}, which is offline"
        )
    open_to_all = [index for index in live if not places[index].is_cordoned] or live
    open_to_all = [index for index in open_to_all if not places[index].is_full] or open_to_all
    if len(open_to_all) == 1:
        return open_to_all[0]
    return min(open_to_all, key=lambda index: count_of.get(places[index].path, 0))


def choose_log(
    partition: TopicPartition, one: PlacedLog, other: PlacedLog, wanted: UUID | None
) -> tuple[PlacedLog, PlacedLog]:
    """Choose between two logs of one partition, which an interrupted move has left. Returns the
    valid log, then the invalid log.

    The log with the later leader epoch is valid. If the epochs are equal, the longer log is valid.
    If the lengths are equal too, the log in the directory that the cluster assigned (`wanted`) is
    valid.

    Raises ConfigError if no rule decides.
    """
    ends = [(each.log.last_epoch, each.log.end_offset) for each in (one, other)]
    if ends[0] != ends[1]:
        return (one, other) if ends[0] > ends[1] else (other, one)
    if wanted is not None and wanted == one.directory.directory_id:
        return one, other
    if wanted is not None and wanted == other.directory.directory_id:
        return other, one
    raise ConfigError(
        "log.dirs", f"{partition} has logs in both {one.directory.path} and {other.directory.path}"
    )
