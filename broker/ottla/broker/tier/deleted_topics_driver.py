"""Deletes objects of deleted topics that remain in the object store.

One broker of the cluster searches the whole store, at intervals of hours: the leader of partition 0
of `__remote_log_metadata`. It resumes deletions that were interrupted by the death of a broker. It
also deletes the copies of topics that had no running replica when they were deleted.

A complete copy is deleted only if the metadata topic has its segment. If the metadata topic was
lost, or if a restore left out some topics, the bucket contains the only copy of their records.
"""

import logging

import trio

from ottla.broker.tier.deleted_topics import DeletedTopicPartition, DeletedTopicScan
from ottla.broker.tier.metadata_topic import REMOTE_METADATA_TOPIC
from ottla.broker.tier.orphans import orphans_among
from ottla.broker.tier.partition_tier_driver import TierPorts, delete_copy
from ottla.broker.tier.remote_log_manager import steps_of_deletion
from ottla.model.errors import ErrorCode, OttlaError, RefusedError

logger = logging.getLogger("ottla.broker.tier")

FIRST_SEARCH_S = 10 * 60.0
"""Seconds from the start of a broker until its first search for objects of deleted topics. With a
smaller value, a broker that restarts often lists the whole store often."""

SEARCH_S = 6 * 60 * 60.0
"""Seconds between two searches for objects of deleted topics. A search sends one request to the
store for 1000 objects."""

IMAGE_AGE_MS_MAX = 5 * 60 * 1000
"""Maximum age in milliseconds of the newest metadata record that this broker has applied. An older
image may lack topics, because this broker may have lost its connection to the controllers."""

LOAD_S = 120.0
"""Maximum time in seconds to load the metadata of one partition."""


class DeletedTopics:
    """Background task that deletes objects of deleted topics from the object store."""

    def __init__(self, ports: TierPorts) -> None:
        self._ports = ports

    async def run(self) -> None:
        """Search the store for objects of deleted topics at intervals, until cancelled."""
        await trio.sleep(FIRST_SEARCH_S)
        while True:
            try:
                await self.search()
            except (OttlaError, OSError, trio.TooSlowError) as error:
                logger.warning("copies of deleted topics remain: %s", error or "it took too long")
            except Exception as error:
                self._ports.errors.note("tiered storage", "deleted topics", error)
            await trio.sleep(SEARCH_S)

    async def search(self) -> None:
        """Search the store once for objects of deleted topics, and delete them. Has no effect
        if another broker is responsible. Raises OttlaError if the store or the metadata topic
        fails."""
        ports = self._ports
        if not self._is_responsible():
            return
        scan = DeletedTopicScan(ports.image().topics)
        async for entry in ports.storage.all_objects():
            scan.add(entry)
        for partition in scan.partitions(ports.image().topics, ports.clock.wall_ms()):
            if not self._is_responsible():
                return
            await self._delete(partition)

    def _is_responsible(self) -> bool:
        """Return whether this broker leads partition 0 of the metadata topic, according to a recent
        image."""
        image = self._ports.image()
        topic = image.topic(REMOTE_METADATA_TOPIC)
        if topic is None or topic.partitions[0].leader != self._ports.node_id:
            return False
        age_ms = self._ports.clock.wall_ms() - image.provenance.timestamp_ms
        return age_ms <= IMAGE_AGE_MS_MAX

    async def _delete(self, partition: DeletedTopicPartition) -> None:
        ports, key = self._ports, partition.key
        ports.topic.assign(key)
        try:
            with trio.move_on_after(LOAD_S) as patience:
                metadata = await ports.topic.wait_ready(key)
            if patience.cancelled_caught:
                raise RefusedError(
                    ErrorCode.REQUEST_TIMED_OUT, f"{REMOTE_METADATA_TOPIC} cannot be read"
                )
            segments = steps_of_deletion(metadata)
            if segments:
                logger.info("deleting %d copies of %s", len(segments), partition.topic)
            for segment in segments:
                await delete_copy(ports, partition.topic, segment)
            orphans = orphans_among(
                await ports.storage.objects_of(key, partition.topic),
                partition=key,
                segment_ids={segment.id.segment_id for segment in metadata.all_segments()},
                now_ms=ports.clock.wall_ms(),
            )
            if orphans:
                logger.warning("deleting %d objects of %s", len(orphans), partition.topic)
                await ports.storage.delete_objects(orphans)
                ports.figures.orphan_count += len(orphans)
        finally:
            ports.topic.unassign(key)
