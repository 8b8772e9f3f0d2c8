"""Interface for reading records that were copied to the object store and deleted from the local
log.

Pure. The async methods may take as long as the object store; a caller sets a deadline with a cancel
scope. Errors of the store itself (`StoreError`) are raised unchanged.
"""

from typing import Final, NamedTuple, Protocol

from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import NO_EPOCH, NO_OFFSET, Offset, OffsetAndEpoch, TopicIdPartition
from ottla.storage.log.log import Log
from ottla.storage.segments.timestamp_lookup import TimestampedOffset
from ottla.storage.tier.store_seam import StoreError

NOTHING_COPIED: Final = OffsetAndEpoch(NO_OFFSET, NO_EPOCH)
"""Result for a partition without copied segments: highest copied offset -1, and leader epoch -1."""


class RemoteReadError(OttlaError):
    """Base class of the errors for a record that only the object store may contain and that cannot
    be read now."""


class RemoteNotFoundError(RemoteReadError):
    """Raised if no copied segment of the log contains the record. Clients get OFFSET_OUT_OF_RANGE,
    as in Kafka."""


class RemoteNotReadyError(RemoteReadError):
    """Raised while this broker has not loaded the list of the partition's copied segments. Clients
    get REPLICA_NOT_AVAILABLE, as in Kafka, and try again."""


class RemoteRead(NamedTuple):
    """Records that were read from the object store."""

    records: bytes
    """Complete record batches, the first of which contains the requested offset."""
    aborted: tuple[tuple[int, Offset], ...] = ()
    """Producer id and first offset of each aborted transaction among the records, sorted by first
    offset. Empty if the reader also requested uncommitted records."""


class RemoteReads(Protocol):
    """Interface to read copied segments. Its methods identify a partition by its id and its log.
    The leader epochs of the log determine which copied segments belong to it."""

    def highest_remote(self, partition: TopicIdPartition) -> OffsetAndEpoch | None:
        """Return the highest copied offset of a partition, and the leader epoch of its record.
        Returns (-1, -1) if nothing is copied, and None while this broker has not loaded the list of
        copied segments."""
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
        """Return at most `bytes_max` bytes of batches, beginning with the batch that contains
        `offset`. With `at_least_one`, the first batch is returned even if it is larger. With
        `read_committed`, the result also contains the aborted transactions in the range.

        Raises RemoteNotFoundError, RemoteNotReadyError or StoreError.
        """
        ...

    async def offset_for_timestamp(
        self, partition: TopicIdPartition, log: Log, timestamp_ms: int, *, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return the first copied record from the log start offset to `end_offset` (exclusive)
        whose timestamp is at least `timestamp_ms` (milliseconds since 1970). Returns None if no
        copied record qualifies; the local log may contain such a record.

        Raises RemoteNotReadyError or StoreError.
        """
        ...


class NoRemoteReads:
    """Implementation of `RemoteReads` for a broker without tiered storage: no partition has a
    copied segment."""

    def highest_remote(self, partition: TopicIdPartition) -> OffsetAndEpoch | None:
        """Return (-1, -1), because nothing is copied."""
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
        """Raise RemoteNotFoundError, because nothing is copied."""
        raise RemoteNotFoundError("this broker has no tiered storage")

    async def offset_for_timestamp(
        self, partition: TopicIdPartition, log: Log, timestamp_ms: int, *, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return None, because a broker without tiered storage has no copied segments."""
        return None


def code_of(error: RemoteReadError | StoreError) -> ErrorCode:
    """Return the error code for the response to a client if a read of copied segments has failed.
    The codes are Kafka's."""
    if isinstance(error, RemoteNotFoundError):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    if isinstance(error, RemoteNotReadyError):
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.UNKNOWN_SERVER_ERROR
