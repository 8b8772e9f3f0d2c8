"""Handles requests for the states of share partitions that one partition of `__share_group_state`
stores. Pure.

A request results in at most one record, which is applied at once in the same way as by a replay.
Every answer waits until all records before it are committed, so that no client sees an uncommitted
state.

Invariants: the invariants of `share_partition_state.py`, and SnapshotFits (after every write, a
snapshot of the state fits into one record of the topic).
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.broker.coordinators.effects import CoordinatorRecord, Instant, Responder, ShardEffects
from ottla.broker.coordinators.share_persister import (
    NO_START_OFFSET,
    SharePartitionKey,
    ShareSummary,
    StateBatch,
)
from ottla.broker.share_state.share_partition_state import (
    SharePartitionState,
    Snapshot,
    Update,
    check_batches,
)
from ottla.broker.share_state.share_state_records import (
    read_share_record,
    record_bytes_of,
    snapshot_record,
    update_record,
)
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset

STATES_PER_STEP = 500
"""Number of share partition states examined per step, before other tasks run. A step takes about a
millisecond."""

Decide: TypeAlias = Callable[[], object]


class ShareWrite(NamedTuple):
    """Record to append to `__share_group_state`, and the share partition that it belongs to."""

    key: SharePartitionKey
    record: CoordinatorRecord
    is_snapshot: bool
    """True if the record is a snapshot or a tombstone, which makes all earlier records of the same
    key redundant."""


ShareEffects: TypeAlias = ShardEffects[ShareWrite]


class RedundantRecords:
    """Superseded records of one `__share_group_state` log, for which later snapshots are committed.
    These are all records below the offset that `end_offset` returns."""

    __slots__ = ("_pending", "_snapshots")

    def __init__(self) -> None:
        self._snapshots: dict[SharePartitionKey, Offset] = {}
        """Offset of the last committed snapshot record of each share partition."""
        self._pending: deque[tuple[Offset, SharePartitionKey, bool]] = deque()
        """Snapshots and tombstones that may be uncommitted, in log order: offset, key, and True for
        a tombstone. If an uncommitted snapshot is truncated, the snapshot before it is needed
        again."""

    def note(self, key: SharePartitionKey, offset: Offset, *, is_tombstone: bool) -> None:
        """Add a snapshot or tombstone that was appended to the log or replayed from it."""
        self._pending.append((offset, key, is_tombstone))

    def settle(self, high_watermark: Offset) -> None:
        """Mark the snapshot records below the high watermark as committed."""
        while self._pending and self._pending[0][0] < high_watermark:
            offset, key, is_tombstone = self._pending.popleft()
            if is_tombstone:
                self._snapshots.pop(key, None)
            else:
                self._snapshots[key] = offset

    def end_offset(self, high_watermark: Offset) -> Offset:
        """Return the offset below which later snapshots supersede all records of the log."""
        self.settle(high_watermark)
        first_pending = self._pending[0][0] if self._pending else high_watermark
        return min(self._snapshots.values(), default=min(first_pending, high_watermark))


class ShareStateShard:
    """States of the share partitions whose keys belong to one partition of
    `__share_group_state`."""

    def __init__(
        self,
        *,
        updates_per_snapshot: int,
        idle_snapshot_ms: int,
        has_partition: Callable[[UUID, int], bool],
        record_bytes_max: Callable[[], int],
    ) -> None:
        """Create a shard of the share coordinator without states.

        `has_partition` returns whether the metadata contains a partition. Its arguments are the
        topic's id and the partition index. `record_bytes_max` returns the maximum size of a record
        in bytes.
        """
        self._updates_per_snapshot = updates_per_snapshot
        self._idle_snapshot_ms = idle_snapshot_ms
        self._has_partition = has_partition
        self._record_bytes_max = record_bytes_max
        self._effects: ShareEffects = ShardEffects()
        self.states: dict[SharePartitionKey, SharePartitionState] = {}
        """States of share partitions by their key (group and topic partition)."""
        self.redundant = RedundantRecords()

    def take_effects(self) -> ShareEffects:
        """Return and clear the effects (records, responses) decided since the last call."""
        effects, self._effects = self._effects, ShardEffects()
        return effects

    # ---- log

    def replay(self, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the shard's log. Raises CorruptDataError if the record cannot be
        read."""
        self.replay_at(Offset(0), key, value)

    def replay_at(self, offset: Offset, key: bytes | None, value: bytes | None) -> None:
        """Apply the record at an offset of the shard's log. Raises CorruptDataError if the record
        cannot be read."""
        found = read_share_record(key, value)
        if found is None:
            raise CorruptDataError("a key of a later version")
        share_partition, content = found
        self._apply(share_partition, content)
        if not isinstance(content, Update):
            self.redundant.note(share_partition, offset, is_tombstone=content is None)

    def on_written(self, write: ShareWrite, offset: Offset) -> None:
        """Store the offset at which a record of the shard was appended to the log."""
        if write.is_snapshot:
            is_tombstone = write.record.value is None
            self.redundant.note(write.key, offset, is_tombstone=is_tombstone)

    def _apply(self, key: SharePartitionKey, content: Snapshot | Update | None) -> None:
        if content is None:
            self.states.pop(key, None)
            return
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = SharePartitionState()
        if isinstance(content, Snapshot):
            state.apply_snapshot(content)
        else:
            state.apply_update(content)

    def _write_snapshot(self, key: SharePartitionKey, snapshot: Snapshot | None) -> None:
        self._effects.writes.append(ShareWrite(key, snapshot_record(key, snapshot), True))
        self._apply(key, snapshot)

    def _write_update(
        self, key: SharePartitionKey, state: SharePartitionState, update: Update, now: Instant
    ) -> None:
        """Write an update of a share partition's state. If a snapshot is due, write a snapshot
        instead."""
        if state.update_count < self._updates_per_snapshot:
            self._effects.writes.append(ShareWrite(key, update_record(key, update), False))
            state.apply_update(update)
        else:
            state.apply_update(update)
            self._write_snapshot(key, state.snapshot(now.wall_ms))

    # ---- requests

    def initialize(
        self,
        key: SharePartitionKey,
        responder: Responder,
        now: Instant,
        *,
        state_epoch: int,
        start_offset: int,
    ) -> None:
        """Create the state of a share partition, or replace it in a higher state epoch. `responder`
        is called with NONE, or the error code of a refusal."""

        def decide() -> ErrorCode:
            _check_not_negative(key, state_epoch=state_epoch)
            state = self.states.get(key)
            is_new = state is None
            if state is None:
                state = SharePartitionState()
            state.check_state(state_epoch)
            self._check_topic(key)
            if is_new or state_epoch > state.state_epoch:
                snapshot = state.initial_snapshot(
                    state_epoch=state_epoch,
                    start_offset=max(NO_START_OFFSET, start_offset),
                    now_ms=now.wall_ms,
                    is_new=is_new,
                )
                self._write_snapshot(key, snapshot)
            return ErrorCode.NONE

        self._answer(responder, decide)

    def read(
        self, key: SharePartitionKey, responder: Responder, now: Instant, *, leader_epoch: int
    ) -> None:
        """Pass the state of a share partition to `responder`. From now on, leaders with older
        epochs are fenced."""

        def decide() -> object:
            _check_not_negative(key, leader_epoch=leader_epoch)
            state = self._initialized(key)
            state.check_leader(leader_epoch)
            self._check_topic(key)
            if leader_epoch != state.leader_epoch:
                self._write_update(key, state, state.update_of_leader(leader_epoch), now)
            return state.as_read()

        self._answer(responder, decide)

    def write(
        self,
        key: SharePartitionKey,
        responder: Responder,
        now: Instant,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """Merge a leader's batches into the state of a share partition. `responder` is called with
        NONE, or the error code of a refusal."""

        def decide() -> ErrorCode:
            _check_not_negative(key, leader_epoch=leader_epoch, state_epoch=state_epoch)
            state = self._initialized(key)
            state.check_leader(leader_epoch)
            state.check_state(state_epoch)
            self._check_topic(key)
            check_batches(batches)
            update = state.update_of_write(
                start_offset=start_offset,
                delivery_complete_count=delivery_complete_count,
                batches=batches,
            )
            # Merging n batches adds at most 2 n + 1 to those that are held.
            batch_count = len(state.batches) + 2 * len(update.batches) + 1
            if record_bytes_of(key, batch_count) > self._record_bytes_max():
                raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, "The state has too many batches")
            self._write_update(key, state, update, now)
            return ErrorCode.NONE

        self._answer(responder, decide)

    def delete(self, key: SharePartitionKey, responder: Responder) -> None:
        """Delete the state of a share partition. `responder` is called with NONE even if the share
        partition has no state."""

        def decide() -> ErrorCode:
            _check_not_negative(key)
            self._check_topic(key)
            if key in self.states:
                self._write_snapshot(key, None)
            return ErrorCode.NONE

        self._answer(responder, decide)

    def read_summary(self, key: SharePartitionKey, responder: Responder) -> None:
        """Pass the epochs and the start offset of a share partition to `responder`. The offset is
        -1 if the share partition has no state."""

        def decide() -> ShareSummary:
            _check_not_negative(key)
            self._check_topic(key)
            state = self.states.get(key)
            return ShareSummary(ErrorCode.NONE) if state is None else state.as_summary()

        self._answer(responder, decide)

    def _answer(self, responder: Responder, decide: Decide) -> None:
        """Pass the result of `decide` to `responder` when all records written so far are committed.
        If `decide` raises a refusal, its error code is passed at once."""
        try:
            answer = decide()
        except RefusedError as refusal:
            self._effects.answers.append((responder, refusal))
        else:
            self._effects.committed_answers.append((responder, answer))

    def _initialized(self, key: SharePartitionKey) -> SharePartitionState:
        state = self.states.get(key)
        if state is None:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "The share partition is not initialized yet."
            )
        return state

    def _check_topic(self, key: SharePartitionKey) -> None:
        if not self._has_partition(key.topic_id, key.partition):
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    # ---- upkeep

    def delete_states_of(self, topics: Collection[UUID]) -> Iterator[None]:
        """Delete the share partition states of deleted topics, in steps."""
        for at, key in enumerate(list(self.states)):
            if key in self.states and key.topic_id in topics:
                self._write_snapshot(key, None)
            if at % STATES_PER_STEP == STATES_PER_STEP - 1:
                yield

    def delete_states_without_topic(self) -> Iterator[None]:
        """Delete, in steps, the states of share partitions that do not exist in the metadata."""
        for at, key in enumerate(list(self.states)):
            if key in self.states and not self._has_partition(key.topic_id, key.partition):
                self._write_snapshot(key, None)
            if at % STATES_PER_STEP == STATES_PER_STEP - 1:
                yield

    def snapshot_idle(self, now: Instant) -> Iterator[None]:
        """Write snapshots of share partitions whose last snapshot is old, in steps.

        Without these snapshots, the broker could not delete any record after the old snapshot of an
        idle share partition. Nothing is written if every state already has an idle snapshot, since
        further snapshots would make no record redundant.
        """
        if all(state.is_idle for state in self.states.values()):
            return
        for at, (key, state) in enumerate(list(self.states.items())):
            is_old = now.wall_ms - state.write_ms >= self._idle_snapshot_ms
            if is_old and self.states.get(key) is state:
                self._write_snapshot(key, state.snapshot(now.wall_ms, create_ms=state.create_ms))
            if at % STATES_PER_STEP == STATES_PER_STEP - 1:
                yield


def _check_not_negative(key: SharePartitionKey, **epochs: int) -> None:
    """Raise RefusedError if the partition index or an epoch in a request is negative."""
    if key.partition < 0:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "The partition id cannot be negative.")
    for name, epoch in epochs.items():
        if epoch < 0:
            text = name.replace("_", " ")
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"The {text} cannot be negative.")
