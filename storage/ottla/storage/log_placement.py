"""Chooses the directory in which a partition's log is made, and which of two logs counts.

Pure.  An empty log in place of one that lies on a missing disk would be taken for a replica that
has all it ever had, and could be elected.  So a log is made without question only for a replica
that holds nothing which counts; any other has its place, and stays offline while that is missing.
A cordoned directory takes a log only where no other one serves, or as the one the cluster knows;
a full one where none has room.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.storage.log import Log
from ottla.storage.log_directory_driver import LogDirectory


class Placed(NamedTuple):
    """A log and the directory it lies in."""

    log: Log
    directory: LogDirectory


class CandidateDirectory(Protocol):
    """What the choice needs of a log directory."""

    path: str

    is_cordoned: bool

    @property
    def is_live(self) -> bool:
        """Whether the directory serves."""
        ...

    @property
    def is_full(self) -> bool:
        """Whether its disk has no room."""
        ...

    @property
    def directory_id(self) -> UUID | None:
        """The directory's id."""
        ...


def choose_place(
    places: Sequence[CandidateDirectory],
    wanted: UUID | None,
    count_of: Mapping[str, int],
    *,
    holds_nothing: bool,
) -> int:
    """Return the index of the directory for a log: the wanted one, else the one with the fewest.

    `wanted` is the id under which the cluster knows the replica's directory, None where it knows
    none; `count_of` has the logs by directory path.  `holds_nothing` says that the replica cannot
    have records that count.

    Raises RefusedError(KAFKA_STORAGE_ERROR) if the log may lie in a directory that is missing.
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
            ErrorCode.KAFKA_STORAGE_ERROR, f"its log may lie in {offline}, which is offline"
        )
    open_to_all = [index for index in live if not places[index].is_cordoned] or live
    open_to_all = [index for index in open_to_all if not places[index].is_full] or open_to_all
    if len(open_to_all) == 1:
        return open_to_all[0]
    return min(open_to_all, key=lambda index: count_of.get(places[index].path, 0))


def choose_log(
    partition: TopicPartition, one: Placed, other: Placed, wanted: UUID | None
) -> tuple[Placed, Placed]:
    """Return which of a partition's two logs counts, and the other; a move cut short leaves two.

    The one with the later leadership counts, of equal ones the longer, and of those that are equal
    in both the one in the directory which the cluster knows it in (`wanted`).

    Raises ConfigError if nothing says which it is.
    """
    ends = [(each.log.last_epoch, each.log.end_offset) for each in (one, other)]
    if ends[0] != ends[1]:
        return (one, other) if ends[0] > ends[1] else (other, one)
    if wanted is not None and wanted == one.directory.directory_id:
        return one, other
    if wanted is not None and wanted == other.directory.directory_id:
        return other, one
    raise ConfigError(
        "log.dirs", f"{partition} lies in both {one.directory.path} and {other.directory.path}"
    )
