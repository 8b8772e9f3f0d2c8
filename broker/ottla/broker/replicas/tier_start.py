"""State in which the local log of a follower begins after a copied segment (KIP-405, Kafka's
TierStateMachine). Pure.

A leader of a tiered partition deletes its oldest records from its disk, so a new follower cannot
fetch them. The follower's local log begins after a copied segment instead, with the leader epochs
and the producers that are stored with the segment.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, TopicIdPartition
from ottla.storage.segments.epoch_cache import EpochEntry


class TierStart(NamedTuple):
    """State of a log at the end of a copied segment."""

    offset: Offset
    """Offset after the segment's last record, at which the local log begins."""
    epochs: Sequence[EpochEntry]
    """Leader epochs of the records below `offset`, oldest first."""
    producer_snapshot: bytes
    """States of the producers at `offset`, as the bytes of a producer snapshot (`.snapshot`)."""


class TierStarts(Protocol):
    """Interface that finds the copied segment after which a follower's log begins."""

    is_after_last: bool
    """True if an empty log begins after the last copied segment, and False if it begins at the
    leader's first local record (KIP-1023)."""

    async def find(self, partition: TopicIdPartition, offset: Offset, epoch: Epoch) -> TierStart:
        """Return the state of the log at the end of the copied segment that contains the record
        with this offset and leader epoch. Raises OttlaError if no segment contains the record, or
        if the object store fails. The follower then calls this method again later."""
        ...


class NoTierStarts:
    """Implementation of `TierStarts` for a broker without tiered storage. It finds no copied
    segments."""

    is_after_last = False

    async def find(self, partition: TopicIdPartition, offset: Offset, epoch: Epoch) -> TierStart:
        """Raise RefusedError(OFFSET_MOVED_TO_TIERED_STORAGE), because this broker cannot read
        copied segments."""
        raise RefusedError(
            ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE,
            "the leader has its oldest records only in the object store, and this broker has no"
            " tiered storage; set remote.log.storage.system.enable",
        )


def epoch_before(
    offset: Offset, *, epoch: Epoch, earlier_epoch: Epoch, earlier_end: Offset
) -> Epoch:
    """Return the leader epoch of the record before `offset` in the leader's log. `epoch` is the
    leader epoch of the record at `offset`.

    `earlier_epoch` and `earlier_end` are the leader's newest epoch below `epoch`, and the end of
    its records.
    """
    return earlier_epoch if earlier_end > offset - 1 else epoch
