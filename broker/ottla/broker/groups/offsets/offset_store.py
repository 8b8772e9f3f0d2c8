"""Stores the committed offsets of the groups in one partition of `__consumer_offsets`, and the
pending offsets of open transactions. Pure.

Every change is applied in memory and written in the same step. A transactional commit is written
first, as a separate batch, and then waits in memory for the end of its transaction.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from ottla.broker.coordinators.effects import CoordinatorRecord, Outbox, new_tuple
from ottla.broker.coordinators.record_batches import batches_of
from ottla.broker.groups.group_records import NO_EXPIRY, lasting_value, offset_key, offset_key_end
from ottla.broker.groups.offsets.committed_offsets import (
    PENDING,
    UNSTABLE,
    CommittedOffset,
    OffsetTable,
    committed_offset_of,
)
from ottla.broker.groups.offsets.pending_offsets import PendingOffsets
from ottla.broker.groups.offsets.topic_commit import TopicCommit
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerId
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_value import OffsetCommitValue

_NO_ERROR: Final = ErrorCode.NONE
"""Constant, because a look-up of an enum's member costs as much as a call."""


class SeparateBatch(NamedTuple):
    """Records of a group coordinator that belong to a transaction and are therefore written as a
    separate batch."""

    data: bytes
    answer: Any
    """Response to send to the client when the batch's records are committed."""
    on_written: Callable[[], None]


class OffsetStore:
    """Committed and pending offsets of the groups in a coordinator shard."""

    __slots__ = ("_metadata_bytes_max", "_outbox", "committed", "pending")

    def __init__(self, outbox: Outbox, metadata_bytes_max: int) -> None:
        self.committed = OffsetTable()
        self.pending = PendingOffsets()
        self._outbox = outbox
        self._metadata_bytes_max = metadata_bytes_max

    @property
    def group_ids(self) -> Iterator[str]:
        """Ids of the groups with committed offsets, or with offsets that wait for the end of a
        transaction."""
        yield from self.committed.group_ids
        yield from self.pending.group_ids

    def has_group(self, group_id: str) -> bool:
        """Return whether the group has committed offsets, or offsets that wait for the end of a
        transaction."""
        return self.committed.has_group(group_id) or self.pending.has_group(group_id)

    def commit(self, commit: TopicCommit, wall_ms: int, expire_ms: int) -> list[ErrorCode]:
        """Commit a group's offsets without a transaction. Returns an error code for each
        partition."""
        topic = commit.topic
        group_id, name, topic_id = topic.group_id, topic.name, topic.topic_id
        metadata_bytes_max = self._metadata_bytes_max
        codes: list[ErrorCode] = []
        for index, offset, leader_epoch, metadata in commit.rows:
            if len(metadata) > metadata_bytes_max:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            kept = CommittedOffset(offset, leader_epoch, metadata, wall_ms, expire_ms, topic_id)
            value = (
                lasting_value(offset, leader_epoch, metadata, wall_ms, topic.tags)
                if expire_ms == NO_EXPIRY
                else kept.encoded()
            )
            key = topic.key_start + offset_key_end(index)
            self._outbox.write(new_tuple(CoordinatorRecord, (key, value)))
            self.committed.put(group_id, name, index, kept)
            self.pending.supersede(group_id, name, index)
            codes.append(_NO_ERROR)
        return codes

    def commit_in_transaction(
        self,
        topics: Iterable[TopicCommit],
        *,
        producer_id: int,
        producer_epoch: int,
        wall_ms: int,
        batch_bytes_max: int,
    ) -> SeparateBatch:
        """Store a group's offsets as pending until their transaction ends. Returns the batch of
        records to write."""
        codes: list[list[ErrorCode]] = []
        kept: list[tuple[str, str, int, CommittedOffset]] = []
        records: list[list[CoordinatorRecord]] = []
        for commit in topics:
            topic = commit.topic
            codes.append([])
            for index, offset, leader_epoch, metadata in commit.rows:
                if len(metadata) > self._metadata_bytes_max:
                    codes[-1].append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    continue
                codes[-1].append(ErrorCode.NONE)
                one = CommittedOffset(
                    offset, leader_epoch, metadata, wall_ms, NO_EXPIRY, topic.topic_id
                )
                kept.append((topic.group_id, topic.name, index, one))
                key = topic.key_start + offset_key_end(index)
                records.append([CoordinatorRecord(key, one.encoded())])
        data = b""
        if records:
            data = batches_of(
                records,
                wall_ms,
                batch_bytes_max,
                producer=(ProducerId(producer_id), producer_epoch),
            )

        def wait() -> None:
            for group_id, name, index, offset in kept:
                self.pending.put(producer_id, group_id, name, index, offset)

        return SeparateBatch(data, codes, wait)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """End a transaction whose marker is in the log. After a commit the transaction's pending
        offsets become committed; after an abort they are dropped."""
        for (group, topic, index), offset in self.pending.end(producer_id, is_commit=is_commit):
            self.committed.put(group, topic, index, offset)

    def drop(self, group_id: str, topic: str, index: int) -> None:
        """Delete a group's committed and pending offsets of a partition. Has no effect if there are
        no such offsets."""
        is_committed = self.committed.find(group_id, topic, index) is not None
        if is_committed or self.pending.is_pending(group_id, topic, index):
            self._outbox.write(CoordinatorRecord(offset_key(group_id, topic, index), None))
            self.committed.remove(group_id, topic, index)
            self.pending.drop(group_id, topic, index)

    def topic_id_of(self, group_id: str, topic: str, index: int) -> UUID | None:
        """Return the id of the topic for which a group's newest offset of a partition was
        committed, or None if the group has no offset of the partition."""
        found = self.committed.find(group_id, topic, index)
        if found is None:
            found = self.pending.find(group_id, topic, index)
        return None if found is None else found.topic_id

    def places_of(self, group_id: str) -> list[tuple[str, int]]:
        """Return the partitions in which a group has committed or pending offsets."""
        committed = self.committed.of_group(group_id)
        waiting = self.pending.of_group(group_id)
        return list(dict.fromkeys([*committed, *waiting]))

    def find_all(
        self, group_id: str, wanted: Iterable[tuple[str, int]] | None, *, is_stable: bool
    ) -> list[tuple[str, int, CommittedOffset | None]]:
        """Return a group's committed offsets in the partitions `wanted`, or in all partitions if
        `wanted` is None.

        With `is_stable`, an offset that an open transaction may change is replaced by UNSTABLE, or
        by PENDING if only open transactions have committed it.
        """
        found = self.committed.of_group(group_id)
        if not is_stable or not self.pending.has_group(group_id):
            keys = sorted(found) if wanted is None else wanted
            return [(topic, index, found.get((topic, index))) for topic, index in keys]
        keys = sorted(self.places_of(group_id)) if wanted is None else wanted
        return [
            (topic, index, self._stable(group_id, topic, index, found.get((topic, index))))
            for topic, index in keys
        ]

    def _stable(
        self, group_id: str, topic: str, index: int, offset: CommittedOffset | None
    ) -> CommittedOffset | None:
        if not self.pending.is_pending(group_id, topic, index):
            return offset
        return PENDING if offset is None else UNSTABLE

    def replay(
        self,
        named: OffsetCommitKey,
        said: OffsetCommitValue | None,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        """Apply one record of a committed offset from the log. `producer_id` is NO_PRODUCER_ID if
        the record does not belong to a transaction."""
        group, topic, index = named.group, named.topic, named.partition
        if said is None:
            self.committed.remove(group, topic, index)
            self.pending.drop(group, topic, index)
        elif producer_id != NO_PRODUCER_ID:
            self.pending.put(producer_id, group, topic, index, committed_offset_of(said))
        else:
            self.committed.put(group, topic, index, committed_offset_of(said))
            self.pending.supersede(group, topic, index)
