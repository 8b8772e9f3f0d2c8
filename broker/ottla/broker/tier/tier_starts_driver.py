"""Search for the copied segment after which a follower's log begins; implements `TierStarts`."""

import trio

from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.tier_start import TierStart
from ottla.broker.tier.segment_storage import SegmentMetadata
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, TopicIdPartition
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader

TIMEOUT_S = 60.0
"""Timeout in seconds of one search for the copied segment. After a timeout, the follower repeats
the search later."""


class StoreStarts:
    """Finds the copied segment after which a follower's log begins, from the metadata of copied
    segments and the object store."""

    def __init__(
        self,
        table: PartitionTable,
        topic: SegmentMetadata,
        reader: RemoteReader,
        *,
        is_after_last: bool = False,
    ) -> None:
        self.is_after_last = is_after_last
        self._table = table
        self._topic = topic
        self._reader = reader

    async def find(self, partition: TopicIdPartition, offset: Offset, epoch: Epoch) -> TierStart:
        """Return the state of the log at the end of the copied segment that contains a record, as
        `TierStarts` describes."""
        name = self._table.topic_name(partition.topic_id) or ""
        self._topic.assign(partition)
        with trio.move_on_after(TIMEOUT_S):
            metadata = await self._topic.wait_ready(partition)
            segment = metadata.find(epoch, offset)
            if segment is None:
                raise RefusedError(
                    ErrorCode.OFFSET_NOT_AVAILABLE,
                    f"no copied segment has offset {offset} with leader epoch {epoch}",
                )
            return TierStart(
                Offset(segment.end_offset + 1),
                await self._reader.epochs(name, segment),
                await self._reader.producer_snapshot(name, segment),
            )
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, "the object store does not answer in time")
