"""Durable state of one share partition: its checks, and the record that each request adds. Pure.

The outcome of a request is a record. `apply_snapshot` and `apply_update` then change the state in
the same way as a replay of that record. The order of the checks is Kafka's.

Invariants: SettledStaysSettled (the start offset never decreases within a state epoch, and no write
lowers the rank of an offset), FencedWritesNothing (a request from an older leader, or with an older
state epoch, changes nothing).
"""

from collections.abc import Sequence
from typing import NamedTuple

from ottla.broker.coordinators.share_persister import (
    NO_DELIVERY_COUNT,
    NO_START_OFFSET,
    ShareState,
    ShareSummary,
    StateBatch,
    settled_count,
)
from ottla.broker.share_state.state_batches import merge
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.limits import INT32_MAX

DELIVERY_STATES = frozenset((0, 2, 3, 4))
"""Delivery states that a share partition's durable state contains: available, acknowledged, being
archived, archived. An acquired record (1) is stored with the state that it had before."""

CHANGED_BATCHES_MAX = 10_000
"""Maximum number of state batches in one write, equal to the highest limit of records in flight. A
larger write would block the event loop for longer than 50 ms."""

NO_STATE_EPOCH = -1
"""State epoch of a share partition whose log contains no snapshot."""


class Snapshot(NamedTuple):
    """Content of a ShareSnapshot record: the whole state of a share partition."""

    snapshot_epoch: int
    """Number of snapshots of the share partition before this one."""
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_ms: int
    """Wall time in milliseconds at which this content of the share partition's state was first
    written. A later snapshot of an idle share partition has the same time."""
    write_ms: int
    """Wall time in milliseconds at which this snapshot record was written."""
    batches: tuple[StateBatch, ...]


class Update(NamedTuple):
    """Content of a ShareUpdate record, which has only the changed state batches of a share
    partition."""

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


class SharePartitionState:
    """State of one share partition, as the log of `__share_group_state` contains it."""

    __slots__ = (
        "batches",
        "create_ms",
        "delivery_complete_count",
        "leader_epoch",
        "snapshot_epoch",
        "start_offset",
        "state_epoch",
        "update_count",
        "write_ms",
    )

    def __init__(self) -> None:
        self.snapshot_epoch = 0
        self.state_epoch = NO_STATE_EPOCH
        self.leader_epoch = 0
        self.start_offset = NO_START_OFFSET
        self.delivery_complete_count = NO_DELIVERY_COUNT
        self.create_ms = 0
        self.write_ms = 0
        self.batches: list[StateBatch] = []
        self.update_count = 0
        """Number of update records since the share partition's last snapshot."""

    @property
    def is_idle(self) -> bool:
        """True if the share partition's last snapshot was written because it was idle."""
        return self.create_ms != self.write_ms

    @property
    def _next_snapshot_epoch(self) -> int:
        return min(self.snapshot_epoch + 1, INT32_MAX)

    # ---- records

    def apply_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the state of this share partition by the content of a snapshot record."""
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = max(self.leader_epoch, snapshot.leader_epoch)
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.create_ms = snapshot.create_ms
        self.write_ms = snapshot.write_ms
        self.batches = []
        merge(self.batches, snapshot.batches, snapshot.start_offset)
        self.update_count = 0

    def apply_update(self, update: Update) -> None:
        """Merge the content of an update record into the state of this share partition."""
        if update.start_offset != NO_START_OFFSET:
            self.start_offset = update.start_offset
        self.leader_epoch = max(self.leader_epoch, update.leader_epoch)
        self.delivery_complete_count = update.delivery_complete_count
        merge(self.batches, update.batches, self.start_offset)
        self.update_count += 1

    def snapshot(self, now_ms: int, *, create_ms: int | None = None) -> Snapshot:
        """Return a snapshot of the share partition's state, with the next snapshot epoch."""
        return Snapshot(
            snapshot_epoch=self._next_snapshot_epoch,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            create_ms=now_ms if create_ms is None else create_ms,
            write_ms=now_ms,
            batches=tuple(self.batches),
        )

    # ---- requests

    def check_leader(self, leader_epoch: int) -> None:
        """Raise RefusedError if a leader with a newer epoch has read the state of the share
        partition."""
        if leader_epoch < self.leader_epoch:
            raise RefusedError(ErrorCode.FENCED_LEADER_EPOCH)

    def check_state(self, state_epoch: int) -> None:
        """Raise RefusedError if the share partition was initialised in a newer state epoch."""
        if state_epoch < self.state_epoch:
            raise RefusedError(ErrorCode.FENCED_STATE_EPOCH)

    def initial_snapshot(
        self, *, state_epoch: int, start_offset: int, now_ms: int, is_new: bool
    ) -> Snapshot:
        """Return the first snapshot of a share partition's state after its initialisation.

        The snapshot includes the leader epoch, so that an older leader stays fenced after earlier
        records are deleted. Kafka stores 0, and fences by the highest epoch in the log.
        """
        return Snapshot(
            snapshot_epoch=0 if is_new else self._next_snapshot_epoch,
            state_epoch=state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=(NO_DELIVERY_COUNT if start_offset == NO_START_OFFSET else 0),
            create_ms=now_ms,
            write_ms=now_ms,
            batches=(),
        )

    def update_of_leader(self, leader_epoch: int) -> Update:
        """Return the update record that stores the epoch of a leader. The record fences older
        leaders."""
        return Update(
            snapshot_epoch=self.snapshot_epoch,
            leader_epoch=leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
            batches=(),
        )

    def update_of_write(
        self, *, start_offset: int, delivery_complete_count: int, batches: Sequence[StateBatch]
    ) -> Update:
        """Return the update that a write adds to the log. The epochs in a write are checked and not
        stored.

        A write with a start offset below the stored start offset was overtaken by a later write.
        Its batches are merged, but its start offset and its count are ignored (KIP-1226).
        """
        if start_offset < self.start_offset:
            delivery_complete_count = self.delivery_complete_count
        elif start_offset == self.start_offset:
            delivery_complete_count = max(delivery_complete_count, self.delivery_complete_count)
        start_offset = max(start_offset, self.start_offset)
        changed: list[StateBatch] = []
        merge(changed, batches, start_offset)
        return Update(
            snapshot_epoch=self.snapshot_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            batches=tuple(changed),
        )

    def as_read(self) -> ShareState:
        """Return this share partition's state as the answer to a read."""
        return ShareState(
            ErrorCode.NONE,
            state_epoch=self.state_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=settled_count(self.batches),
            batches=tuple(self.batches),
        )

    def as_summary(self) -> ShareSummary:
        """Return this share partition's state without its batches, as the answer to a ReadSummary
        request."""
        return ShareSummary(
            ErrorCode.NONE,
            state_epoch=self.state_epoch,
            leader_epoch=self.leader_epoch,
            start_offset=self.start_offset,
            delivery_complete_count=self.delivery_complete_count,
        )


def check_batches(batches: Sequence[StateBatch]) -> None:
    """Raise RefusedError if a write has too many state batches, if a batch ends before it begins,
    or if a delivery state cannot be stored.

    Kafka stores such batches, but the leader of the share partition could not load them.
    """
    if len(batches) > CHANGED_BATCHES_MAX:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "A write has too many state batches.")
    for batch in batches:
        is_valid = (
            0 <= batch.first_offset <= batch.last_offset
            and batch.delivery_state in DELIVERY_STATES
            and batch.delivery_count >= 0
        )
        if not is_valid:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST,
                f"The state batch {batch.first_offset}-{batch.last_offset} is invalid.",
            )
