"""Decisions about one tiered partition on this broker. Pure.

A driver (`partition_tier_driver`) makes a snapshot of the log, requests the next steps from this
module, and performs them. It repeats this after each step, because the log, the leader or the
copied segments may have changed.

Rules: a segment is copied only below the last stable offset; the log start moves before segments
are deleted; a replica deletes a local segment only if all its records are readable in the store.
"""

from collections.abc import Collection, Sequence

from ottla.model.ids import NodeId, Offset, OffsetAndEpoch
from ottla.model.values import frozen
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier.copy_plan import (
    CopyLag,
    LocalSegment,
    copied_offset,
    effective_lag,
    epochs_of,
    first_readable_offset,
    highest_remote,
    log_start_after_election,
    segments_to_copy,
)
from ottla.storage.tier.expiry_plan import ExpiryInput, ExpiryStep, plan_expiry
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)


@frozen(kw_only=True)
class LogSnapshot:
    """State of a tiered log at one moment: its offsets, leader epochs and local segments."""

    epochs: Sequence[EpochEntry]
    """Leader epochs of the log from its log start offset on. They are taken from the log's epoch
    cache."""
    local_segments: Sequence[LocalSegment]
    log_start_offset: Offset
    local_start_offset: Offset
    high_watermark: Offset
    last_stable_offset: Offset
    end_offset: Offset

    @property
    def lineage(self) -> Lineage:
        """Lineage (leader epochs) of the log's records."""
        return Lineage(self.epochs, start_offset=self.log_start_offset, end_offset=self.end_offset)


def copied_up_to(log: LogSnapshot, metadata: RemoteMetadata) -> Offset:
    """Return the last offset (inclusive) up to which all records are readable in the object store.
    Local segments up to this offset may be deleted."""
    return copied_offset(metadata, log.lineage, local_log_start_offset=log.local_start_offset)


def highest_copied(log: LogSnapshot, metadata: RemoteMetadata) -> OffsetAndEpoch:
    """Return the highest offset of the log that is copied, with its leader epoch, or (-1, -1) if
    nothing is copied."""
    return highest_remote(metadata, log.lineage)


def start_of_leader(log: LogSnapshot, metadata: RemoteMetadata) -> Offset | None:
    """Return the log start offset that a new leader derives from the copied segments, or None if
    its own log start is right. The caller sets the log start when the high watermark has reached
    this offset."""
    start = log_start_after_election(
        metadata,
        log.epochs,
        log_start_offset=log.log_start_offset,
        local_log_start_offset=log.local_start_offset,
        end_offset=log.end_offset,
    )
    return start if start > log.log_start_offset else None


def lost_start(log: LogSnapshot, metadata: RemoteMetadata) -> Offset | None:
    """Return the first readable offset if it is above the log start offset, otherwise None. The
    records from the log start offset up to the returned offset are lost, because a deposed leader
    has deleted copied segments of this log."""
    start = first_readable_offset(
        metadata, log.lineage, local_log_start_offset=log.local_start_offset
    )
    return start if start > log.log_start_offset else None


def copies_due(
    log: LogSnapshot, metadata: RemoteMetadata, settings: LogConfig, now_ms: int
) -> list[LocalSegment]:
    """Return the local segments that the leader must copy now, in the order of their offsets."""
    if not settings.is_copied:
        return []
    lag = effective_lag(
        CopyLag(age_ms=settings.copy_lag_ms, size_bytes=settings.copy_lag_bytes),
        local_retention_ms=settings.effective_local_retention_ms,
        local_retention_bytes=settings.effective_local_retention_bytes,
    )
    return segments_to_copy(
        log.local_segments,
        log.epochs,
        copied_offset=copied_up_to(log, metadata),
        log_start_offset=log.log_start_offset,
        last_stable_offset=log.last_stable_offset,
        lag=lag,
        now_ms=now_ms,
    )


def uncopied(log: LogSnapshot, metadata: RemoteMetadata) -> list[LocalSegment]:
    """Return the closed local segments that are not copied yet."""
    copied = copied_up_to(log, metadata)
    return [each for each in log.local_segments[:-1] if each.end_offset - 1 > copied]


def started_copy(
    local: LocalSegment,
    log: LogSnapshot,
    *,
    segment_id: RemoteSegmentId,
    broker_id: NodeId,
    has_empty_transaction_index: bool,
    now_ms: int,
) -> RemoteSegment:
    """Return the metadata of a copied segment whose upload is about to begin."""
    return RemoteSegment(
        id=segment_id,
        start_offset=local.base_offset,
        end_offset=Offset(local.end_offset - 1),
        broker_id=broker_id,
        max_timestamp_ms=local.max_timestamp_ms,
        event_timestamp_ms=now_ms,
        size_bytes=local.size_bytes,
        leader_epochs=epochs_of(local, log.epochs),
        has_empty_transaction_index=has_empty_transaction_index,
    )


def next_state(
    segment_id: RemoteSegmentId, state: RemoteSegmentState, *, broker_id: NodeId, now_ms: int
) -> RemoteSegmentUpdate:
    """Return the metadata record that changes the state of a copied segment."""
    return RemoteSegmentUpdate(
        id=segment_id,
        event_timestamp_ms=now_ms,
        custom_metadata=None,
        state=state,
        broker_id=broker_id,
    )


def expiry_steps(
    log: LogSnapshot,
    metadata: RemoteMetadata,
    settings: LogConfig,
    *,
    being_copied: Collection[RemoteSegmentId],
    now_ms: int,
) -> list[ExpiryStep]:
    """Return the steps, in order, by which a leader deletes expired copied segments."""
    return plan_expiry(
        ExpiryInput(
            metadata=metadata,
            epochs=log.epochs,
            local_segments=log.local_segments,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            end_offset=log.end_offset,
            retention_ms=settings.retention_ms,
            retention_bytes=settings.retention_bytes,
            now_ms=now_ms,
            being_copied=being_copied,
        )
    )


def steps_of_deletion(metadata: RemoteMetadata) -> list[RemoteSegment]:
    """Return all copied segments of a deleted partition. The caller must delete each segment."""
    return list(metadata.all_segments())


PERMANENT_MS = 3_600_000
"""Maximum pause in milliseconds after failures that would repeat, such as a copy of a damaged
segment. Each attempt writes three records to the metadata topic."""


class Backoff:
    """Pauses after failures. The pause doubles with each consecutive failure, from 1 s up to a
    maximum."""

    __slots__ = ("_failures", "max_ms")

    def __init__(self, max_ms: int) -> None:
        self._failures = 0
        self.max_ms = max_ms

    def on_success(self) -> None:
        """Reset the pause after a failure to its minimum of 1 s."""
        self._failures = 0

    def on_failure(self, *, is_permanent: bool = False) -> int:
        """Count a failure, and return the pause after it in milliseconds. With `is_permanent` (a
        further attempt will probably fail too), the pause may exceed the maximum, up to
        PERMANENT_MS."""
        self._failures += 1
        max_ms = max(self.max_ms, PERMANENT_MS) if is_permanent else self.max_ms
        return int(min(max_ms, 1_000 * 2 ** min(self._failures - 1, 20)))
