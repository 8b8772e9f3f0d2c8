"""Reads records of copied segments for the requests of clients; implements `RemoteReads`.

The leader epochs of the replica's log determine the copied segments, and the records in them, that
are read. A segment that was copied before an unclean leader election may contain records that are
not in the log.
"""

import trio

from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.tier.partition_tier_driver import snapshot_of
from ottla.broker.tier.remote_log_manager import highest_copied
from ottla.broker.tier.remote_reads import (
    NOTHING_COPIED,
    RemoteNotFoundError,
    RemoteNotReadyError,
    RemoteRead,
)
from ottla.broker.tier.segment_storage import SegmentMetadata
from ottla.broker.tier.tier_figures import TierFigures
from ottla.model.errors import OttlaError
from ottla.model.ids import NO_EPOCH, Offset, OffsetAndEpoch, TopicIdPartition
from ottla.storage.log.log import Log
from ottla.storage.segments.timestamp_lookup import TimestampedOffset
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteSegment

SEGMENTS_PER_LOOK = 1_000
"""Maximum number of copied segments whose indexes are searched for the aborted transactions of one
read."""


class StoreReads:
    """Reader of copied segments, for all tiered partitions of this broker."""

    def __init__(
        self,
        table: PartitionTable,
        topic: SegmentMetadata,
        reader: RemoteReader,
        figures: TierFigures,
        quota: ReplicationQuota,
    ) -> None:
        """Create the reader of copied segments. Reads wait while the rate of `quota` exceeds its
        limit."""
        self._table = table
        self._topic = topic
        self._reader = reader
        self._figures = figures
        self._quota = quota

    def highest_remote(self, partition: TopicIdPartition) -> OffsetAndEpoch | None:
        """Return the highest copied offset of a partition, and the leader epoch of its record.
        Returns None while the metadata of its copied segments is not loaded."""
        replica = self._table.by_id.get(partition.topic_id, {}).get(partition.partition)
        if replica is None or replica.log is None or not replica.log.is_tiered:
            return NOTHING_COPIED
        metadata = self._topic.metadata_of(partition)
        return None if metadata is None else highest_copied(snapshot_of(replica.log), metadata)

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
        """Read batches of copied segments, as `RemoteReads` describes."""
        metadata, lineage = self._known(partition, log)
        name = self._name(partition)
        while delay_ms := self._quota.delay_ms():
            await trio.sleep(delay_ms / 1_000)
        self._figures.note_request("fetch", name)
        segment: RemoteSegment | None = None
        records, read_end = b"", offset
        aborted: list[tuple[int, Offset]] = []
        try:
            while not records and read_end <= lineage.end_offset:
                offset = read_end
                segment = _segment_at(metadata, lineage, offset)
                if segment is None:
                    raise RemoteNotFoundError(f"no copied segment has offset {offset}")
                shared_end = lineage.shared_end_offset(segment, offset)
                records, read_end = await self._reader.read(
                    name,
                    segment,
                    offset,
                    end_offset=shared_end,
                    bytes_max=bytes_max,
                    at_least_one=at_least_one,
                    following=_segment_at(metadata, lineage, shared_end),
                )
                if read_end <= offset:
                    break  # the first batch is larger than bytes_max
            if read_committed and records and segment is not None:
                aborted = await self._aborted(
                    metadata, lineage, log, name, segment, offset, read_end
                )
        except OttlaError:
            self._figures.note_failure("fetches", name)
            raise
        self._figures.note_bytes("fetch", name, len(records))
        if self._quota.is_limited:
            self._quota.record(len(records))
        return RemoteRead(records, tuple(sorted(set(aborted), key=lambda one: (one[1], one[0]))))

    async def offset_for_timestamp(
        self, partition: TopicIdPartition, log: Log, timestamp_ms: int, *, end_offset: Offset
    ) -> TimestampedOffset | None:
        """Return the first record in the copied segments with a timestamp of at least
        `timestamp_ms`, as `RemoteReads` describes."""
        metadata, lineage = self._known(partition, log)
        name = self._name(partition)
        offset = lineage.start_offset
        for entry, epoch_end in lineage.ranges():
            offset = max(offset, entry.start_offset)
            while offset < min(epoch_end, end_offset):
                segment = metadata.find(entry.epoch, offset)
                if segment is None:
                    break
                if segment.max_timestamp_ms >= timestamp_ms:
                    shared_end = lineage.shared_end_offset(segment, offset)
                    found = await self._reader.offset_for_timestamp(
                        name,
                        segment,
                        timestamp_ms,
                        start_offset=offset,
                        end_offset=min(shared_end, end_offset),
                    )
                    if found is not None:
                        return found
                offset = Offset(segment.end_offset_of(entry.epoch) + 1)
        return None

    def _known(self, partition: TopicIdPartition, log: Log) -> tuple[RemoteMetadata, Lineage]:
        metadata = self._topic.metadata_of(partition)
        if metadata is None:
            raise RemoteNotReadyError("the metadata of the copied segments is not loaded yet")
        return metadata, snapshot_of(log).lineage

    def _name(self, partition: TopicIdPartition) -> str:
        return self._table.topic_name(partition.topic_id) or ""

    async def _aborted(
        self,
        metadata: RemoteMetadata,
        lineage: Lineage,
        log: Log,
        name: str,
        segment: RemoteSegment,
        offset: Offset,
        end_offset: Offset,
    ) -> list[tuple[int, Offset]]:
        """Return the aborted transactions among the records `[offset, end_offset)`, as producer id
        and first offset.

        The abort marker of a transaction, and its index entry, may be in a later segment, or only
        in the local log."""
        found: list[tuple[int, Offset]] = []
        at: RemoteSegment | None = segment
        for _ in range(SEGMENTS_PER_LOOK):
            if at is None:
                break
            in_segment = await self._reader.aborted(name, at, offset, end_offset)
            found += [(each.producer_id, each.first_offset) for each in in_segment.transactions]
            if in_segment.is_complete:
                return found
            at = _segment_at(metadata, lineage, Offset(at.end_offset + 1))
        return found + log.aborted_transactions(offset, end_offset)


def _segment_at(metadata: RemoteMetadata, lineage: Lineage, offset: Offset) -> RemoteSegment | None:
    """Return the copied segment that contains the log's record at an offset, or None if no copied
    segment contains it."""
    epoch = lineage.epoch_of(offset)
    return None if epoch == NO_EPOCH else metadata.find(epoch, offset)
