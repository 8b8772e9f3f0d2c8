"""Uploads and deletes segments in the object store of this cluster; implements `SegmentStorage`."""

from collections.abc import AsyncIterator, Sequence
from functools import partial

import trio

from ottla.broker.tier.segment_storage import OBJECTS_MAX, TieredTopic
from ottla.broker.tier.store_check_driver import StoreCheck
from ottla.model.ids import NodeId, TopicIdPartition
from ottla.storage.tier.cluster_marker import claim_prefix
from ottla.storage.tier.object_names import SegmentNames, cluster_prefix, partition_prefix
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader
from ottla.storage.tier.remote_segment import RemoteSegment
from ottla.storage.tier.segment_source import SegmentSource
from ottla.storage.tier.segment_upload_driver import (
    SegmentUpload,
    Throttle,
    delete_segments,
    upload_segment,
)
from ottla.storage.tier.store_seam import ObjectEntry, ObjectStore

DELETE_TIMEOUT_S = 60.0
"""Maximum time in seconds for the deletion of one segment's objects. A longer deletion is cancelled
and repeated later."""

KEYS_PER_DELETION = 300
"""Maximum number of objects that one call of the object store deletes."""


class StoreSegments:
    """The copied segments of a cluster in its object store. Implements `SegmentStorage`."""

    def __init__(
        self,
        store: ObjectStore,
        reader: RemoteReader,
        *,
        cluster_id: str,
        node_id: NodeId,
        throttle: Throttle,
        is_claimed: bool,
    ) -> None:
        """Create the segment storage. `is_claimed` is True if the cluster has already reserved its
        prefix of the store. Otherwise the first check reserves the prefix."""
        self._store = store
        self._reader = reader
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._throttle = throttle
        # The claim is a conditional write, so that it also shows whether the store accepts writes.
        self._check = StoreCheck(partial(claim_prefix, store, cluster_id), is_usable=is_claimed)

    async def require_usable(self) -> None:
        """Check the store if its last call has failed, or if the cluster has not reserved its
        prefix yet."""
        await self._check.require_usable()

    async def refusal(self) -> str:
        """Return the reason for which the store refuses this broker, or an empty text if the store
        accepts it."""
        return await self._check.refusal()

    async def upload(
        self, source: SegmentSource, segment: RemoteSegment, topic: TieredTopic
    ) -> None:
        """Store all objects of a segment."""
        is_complete = False
        try:
            await upload_segment(
                self._store,
                source,
                SegmentUpload(
                    cluster_id=self._cluster_id,
                    topic=topic.name,
                    topic_id=segment.id.topic_id,
                    partition=segment.id.partition,
                    segment_id=segment.id.segment_id,
                    partition_count=topic.partition_count,
                    topic_settings=dict(topic.settings),
                    broker_id=self._node_id,
                    event_timestamp_ms=segment.event_timestamp_ms,
                ),
                throttle=self._throttle,
            )
            is_complete = True
        finally:
            if not is_complete:
                self._check.on_failure()

    async def delete(self, segment: RemoteSegment, topic: str) -> None:
        """Delete all objects of a segment."""
        with trio.fail_after(DELETE_TIMEOUT_S):
            await self._reader.forget(segment.id)
            names = names_of(self._cluster_id, segment, topic)
            await delete_segments(self._store, [names])

    async def objects_of(self, partition: TopicIdPartition, topic: str) -> list[ObjectEntry]:
        """Return the objects of a partition, in any order."""
        prefix = partition_prefix(self._cluster_id, topic, *partition)
        found: list[ObjectEntry] = []
        async for entry in self._store.entries(prefix):
            found.append(entry)
            if len(found) == OBJECTS_MAX:
                break
        return found

    def all_objects(self) -> AsyncIterator[ObjectEntry]:
        """Yield all objects of the cluster, in any order."""
        return self._store.entries(cluster_prefix(self._cluster_id))

    async def delete_objects(self, keys: Sequence[str]) -> None:
        """Delete the objects with these keys, in this order."""
        for at in range(0, len(keys), KEYS_PER_DELETION):
            with trio.fail_after(DELETE_TIMEOUT_S):
                await self._store.delete(keys[at : at + KEYS_PER_DELETION])


def names_of(cluster_id: str, segment: RemoteSegment, topic: str) -> SegmentNames:
    """Return the names of a segment's objects in the object store of a cluster."""
    return SegmentNames(
        cluster_id=cluster_id,
        topic=topic,
        topic_id=segment.id.topic_id,
        partition=segment.id.partition,
        start_offset=segment.start_offset,
        segment_id=segment.id.segment_id,
    )
