"""The offsets of one partition's groups: committed ones, and those of open transactions.  Pure.

Every change is made in memory and written in the same step; a commit of a transaction is written
first, as a batch of its own, and waits in memory from then on for the transaction's end.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.groups.effects import Outbox, new_tuple
from ottla.broker.groups.group_batches import batches_of
from ottla.broker.groups.group_records import (
    NO_EXPIRY,
    GroupRecord,
    lasting_value,
    offset_key,
    offset_key_end,
)
from ottla.broker.groups.offsets import (
    PENDING,
    UNSTABLE,
    CommittedOffset,
    OffsetTable,
    committed_offset_of,
)
from ottla.broker.groups.pending_offsets import PendingOffsets
from ottla.broker.groups.topic_committer import CommitRow, TopicCommitter
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_PRODUCER_ID, ProducerId
from ottla.wire.messages.offset_commit_key import OffsetCommitKey
from ottla.wire.messages.offset_commit_request import OffsetCommitRequestPartition
from ottla.wire.messages.offset_commit_value import OffsetCommitValue
from ottla.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequestPartition


class TopicCommit:
    """What a commit says of one topic, which exists."""

    __slots__ = ("partitions", "topic", "topic_id")

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        partitions: Sequence[OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition],
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partitions = partitions


class OwnBatch(NamedTuple):
    """Records that are written as batches of their own, for they belong to a transaction."""

    data: bytes
    answer: Any
    """What is answered when they are committed."""
    on_written: Callable[[], None]


class OffsetStore:
    """Committed and pending offsets; owns both."""

    __slots__ = ("_metadata_bytes_max", "_outbox", "committed", "pending")

    def __init__(self, outbox: Outbox, metadata_bytes_max: int) -> None:
        self.committed = OffsetTable()
        self.pending = PendingOffsets()
        self._outbox = outbox
        self._metadata_bytes_max = metadata_bytes_max

    @property
    def group_ids(self) -> Iterator[str]:
        """The groups that have committed anything, be it in a transaction that is open."""
        yield from self.committed.group_ids
        yield from self.pending.group_ids

    def has_group(self, group_id: str) -> bool:
        """Return whether the group has committed anything, be it in a transaction that is open."""
        return self.committed.has_group(group_id) or self.pending.has_group(group_id)

    def _offset_of(
        self,
        topic: TopicCommit,
        asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        wall_ms: int,
        expire_ms: int,
    ) -> CommittedOffset | None:
        """Return an offset as it is kept, None if its metadata is too large."""
        metadata = asked.committed_metadata or ""
        if len(metadata) > self._metadata_bytes_max:
            return None
        return CommittedOffset(
            asked.committed_offset,
            asked.committed_leader_epoch,
            metadata,
            wall_ms,
            expire_ms,
            topic.topic_id,
        )

    def commit(
        self,
        group_id: str,
        topic: TopicCommit,
        asked: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        wall_ms: int,
        expire_ms: int,
    ) -> ErrorCode:
        """Keep an offset of no transaction."""
        offset = self._offset_of(topic, asked, wall_ms, expire_ms)
        if offset is None:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        index = asked.partition_index
        key = offset_key(group_id, topic.topic, index)
        self._outbox.write(new_tuple(GroupRecord, (key, offset.encoded())))
        self.committed.put(group_id, topic.topic, index, offset)
        self.pending.supersede(group_id, topic.topic, index)
        return ErrorCode.NONE

    def commit_rows(
        self, committer: TopicCommitter, rows: list[CommitRow], wall_ms: int
    ) -> list[ErrorCode]:
        """Keep offsets of one topic, of no transaction, as `commit` does."""
        group_id, topic, topic_id = committer.group_id, committer.topic_name, committer.topic_id
        metadata_bytes_max = self._metadata_bytes_max
        codes: list[ErrorCode] = []
        for index, offset, leader_epoch, metadata in rows:
            if len(metadata) > metadata_bytes_max:
                codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                continue
            key = committer.key_start + offset_key_end(index)
            value = lasting_value(offset, leader_epoch, metadata, wall_ms, committer.tags)
            self._outbox.write(new_tuple(GroupRecord, (key, value)))
            kept = CommittedOffset(offset, leader_epoch, metadata, wall_ms, NO_EXPIRY, topic_id)
            self.committed.put(group_id, topic, index, kept)
            self.pending.supersede(group_id, topic, index)
            codes.append(ErrorCode.NONE)
        return codes

    def commit_in_transaction(
        self,
        group_id: str,
        topics: Iterable[TopicCommit],
        *,
        producer_id: int,
        producer_epoch: int,
        wall_ms: int,
        batch_bytes_max: int,
    ) -> OwnBatch:
        """Return what is written of offsets that wait for their transaction's end."""
        codes: list[list[ErrorCode]] = []
        kept: list[tuple[str, int, CommittedOffset]] = []
        for topic in topics:
            codes.append([])
            for asked in topic.partitions:
                offset = self._offset_of(topic, asked, wall_ms, NO_EXPIRY)
                if offset is None:
                    codes[-1].append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    continue
                codes[-1].append(ErrorCode.NONE)
                kept.append((topic.topic, asked.partition_index, offset))
        data = b""
        if kept:
            data = batches_of(
                [
                    [GroupRecord(offset_key(group_id, name, index), one.encoded())]
                    for name, index, one in kept
                ],
                wall_ms,
                batch_bytes_max,
                producer=(ProducerId(producer_id), producer_epoch),
            )

        def wait() -> None:
            for name, index, offset in kept:
                self.pending.put(producer_id, group_id, name, index, offset)

        return OwnBatch(data, codes, wait)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Let what waits for a transaction count, or forget it: its marker is in the log."""
        for (group, topic, index), offset in self.pending.end(producer_id, is_commit=is_commit):
            self.committed.put(group, topic, index, offset)

    def drop(self, group_id: str, topic: str, index: int) -> None:
        """Forget a partition's offset and what waits to become it; what is not there is fine."""
        is_committed = self.committed.find(group_id, topic, index) is not None
        if is_committed or self.pending.is_pending(group_id, topic, index):
            self._outbox.write(GroupRecord(offset_key(group_id, topic, index), None))
            self.committed.remove(group_id, topic, index)
            self.pending.drop(group_id, topic, index)

    def topic_id_of(self, group_id: str, topic: str, index: int) -> UUID | None:
        """Return the id of the topic that a partition's newest offset was committed for."""
        found = self.committed.find(group_id, topic, index)
        if found is None:
            found = self.pending.find(group_id, topic, index)
        return None if found is None else found.topic_id

    def places_of(self, group_id: str) -> list[tuple[str, int]]:
        """Return the partitions of a group that have anything to be dropped."""
        committed = self.committed.of_group(group_id)
        waiting = self.pending.of_group(group_id)
        return list(dict.fromkeys([*committed, *waiting]))

    def find_all(
        self, group_id: str, wanted: Iterable[tuple[str, int]] | None, *, is_stable: bool
    ) -> list[tuple[str, int, CommittedOffset | None]]:
        """Return the offsets of what is wanted, or of all there is.

        Where an open transaction may change one, `is_stable` has UNSTABLE in its place, or PENDING
        if there is no other.
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
        """Take in one record of the log."""
        group, topic, index = named.group, named.topic, named.partition
        if said is None:
            self.committed.remove(group, topic, index)
            self.pending.drop(group, topic, index)
        elif producer_id != NO_PRODUCER_ID:
            self.pending.put(producer_id, group, topic, index, committed_offset_of(said))
        else:
            self.committed.put(group, topic, index, committed_offset_of(said))
            self.pending.supersede(group, topic, index)
