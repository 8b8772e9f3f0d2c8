"""Interface through which requests read records that were copied to the object store, and deleted
from the local log.

Pure. The methods that are awaited may take as long as the object store; a caller sets a deadline
with a cancel scope. Errors of the store itself are raised as they are (`StoreError`).
"""

from typing import Final, NamedTuple, Protocol

from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_EPOCH, NO_OFFSET, Offset, OffsetAndEpoch, TopicIdPartition
from ottla.storage.log.log import Log
from ottla.storage.segments.timestamp_lookup import TimestampedOffset
from ottla.storage.tier.store_seam import StoreError

NOTHING_COPIED: Final = OffsetAndEpoch(NO_OFFSET, NO_EPOCH)
"""Highest copied offset, and its leader epoch, of a partition of which nothing is copied."""


class RemoteReadError(OttlaError):
    """A record that only the object store may have cannot be read now."""


class RemoteNotFoundError(RemoteReadError):
    """No copied segment of the log's lineage contains the record. Clients get OFFSET_OUT_OF_RANGE,
    as in Kafka."""


class RemoteNotReadyError(RemoteReadError):
    """This broker does not know the copied segments of the partition yet. Clients get
    REPLICA_NOT_AVAILABLE, as in Kafka, and try again."""


class RemoteRead(NamedTuple):
    """Records that were read from the object store."""

    records: bytes
    """Whole batches, the first of which contains the requested offset."""
    aborted: tuple[tuple[int, Offset], ...] = ()
    """Producer id and first offset of each aborted transaction among the records, sorted by first
    offset. Empty unless the reader asked for committed records only."""


class RemoteReads(Protocol):
    """Reads of copied segments. A partition is named by its id, and by its log, which has the
    leader epochs that select the valid copies."""

    def highest_remote(self, partition: TopicIdPartition) -> OffsetAndEpoch | None:
        """Return the highest copied offset of a partition, and its leader epoch: (-1, -1) if
        nothing is copied. Returns None while this broker does not know it."""
        ...

    async def read(
        self,
        partition: TopicIdPartition,
        log: Log,
        offset: Offset,
        *,
        bytes_max: int,
        at_least_one: bool,
        read_committed: bool,
    ) -> RemoteRead:
        """Read batches from the one that contains `offset` on, at most `bytes_max` bytes. With
        `at_least_one`, the first batch is read even if it is larger. With `read_committed`, aborted
        transactions are read, too.

        Raises RemoteNotFoundError, RemoteNotReadyError or StoreError.
        """
        ...

    async def offset_for_timestamp(
        self, partition: TopicIdPartition, log: Log, timestamp_ms: int, *, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return the first record from the log start on and below `end_offset` whose timestamp is
        at least `timestamp_ms`, if a copied segment has it. Returns None otherwise: the local log
        may still have such a record.

        Raises RemoteNotReadyError or StoreError.
        """
        ...


class NoRemoteReads:
    """The interface `RemoteReads` of a broker without tiered storage."""

    def highest_remote(self, partition: TopicIdPartition) -> OffsetAndEpoch | None:
        """Return that nothing is copied."""
        return NOTHING_COPIED

    async def read(
        self,
        partition: TopicIdPartition,
        log: Log,
        offset: Offset,
        *,
        bytes_max: int,
        at_least_one: bool,
        read_committed: bool,
    ) -> RemoteRead:
        """Raise RemoteNotFoundError."""
        raise RemoteNotFoundError("this broker has no tiered storage")

    async def offset_for_timestamp(
        self, partition: TopicIdPartition, log: Log, timestamp_ms: int, *, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return that no copied segment has such a record."""
        return None


def code_of(error: RemoteReadError | StoreError) -> ErrorCode:
    """Return the error code with which Kafka answers a failed read of copied segments."""
    if isinstance(error, RemoteNotFoundError):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if isinstance(error, RemoteNotReadyError):
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR
