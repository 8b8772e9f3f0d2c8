"""Uploads the groups' committed offsets in tiered topics to the object store, for `ottla tier
restore`."""

from collections.abc import AsyncGenerator, Callable, Iterable
from uuid import UUID

import trio

from ottla.broker.groups.offsets.committed_offsets import LedOffsets
from ottla.broker.groups.offsets.uploaded_offsets import (
    BATCH_COUNT,
    StoredOffset,
    encoded_parts,
    limited,
    tiered_offsets_of,
)
from ottla.broker.tier.cluster_objects_driver import ClusterObjects
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.internal_topics import OFFSETS_TOPIC
from ottla.model.settings.storage.tiered_topics import is_tiered_text
from ottla.model.settings.storage.topic import REMOTE_STORAGE_ENABLE
from ottla.node.part_registry import PartRegistry
from ottla.storage.tier.object_names import (
    group_offsets_key,
    group_offsets_prefix,
    parse_group_offsets_key,
)
from ottla.wire.crc import crc32c

TOPICS_PER_TURN = 1_000
"""Number of topics that are examined before other tasks run. A larger value blocks the event loop
longer."""


RETRY_S = 30.0
"""Maximum seconds between an upload that fails and the next one. With a larger value, the alarm of
a store that works again lasts longer."""


class OffsetsUpload:
    """Background task of one broker. It uploads the committed offsets of the groups that the broker
    coordinates."""

    def __init__(
        self,
        objects: ClusterObjects,
        *,
        interval_ms: int,
        image: Callable[[], MetadataImage],
        led_offsets: Callable[[], Iterable[LedOffsets]],
    ) -> None:
        """Create the task. `led_offsets` returns the committed offsets of the groups that this
        broker coordinates."""
        self._objects = objects
        self._interval_s = interval_ms / 1_000
        self._image = image
        self._led_offsets = led_offsets
        self._written: dict[tuple[int, int], int] = {}
        """CRC of the last written object, by partition of `__consumer_offsets` and leader epoch."""

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task, if the interval is not 0."""
        if self._interval_s:
            parts.task("group offsets in the object store", self.run)

    async def run(self) -> None:
        """Upload the committed offsets of groups in tiered topics at an interval, until cancelled.
        Unchanged offsets are not uploaded again. A failed upload is repeated within RETRY_S."""
        wait_s = self._interval_s
        while True:
            await trio.sleep(wait_s)
            is_done = await self.write_all()
            wait_s = self._interval_s if is_done else min(self._interval_s, RETRY_S)

    async def write_all(self) -> bool:
        """Write one object for each partition of `__consumer_offsets` that this broker leads. An
        object is skipped if its content is the same as in the last write. Returns whether no write
        failed."""
        is_done = True
        topic_ids = await self._tiered_topics()
        led_now = list(self._led_offsets()) if topic_ids or self._written else []
        current = {(led.partition, led.leader_epoch) for led in led_now}
        self._written = {at: crc for at, crc in self._written.items() if at in current}
        self._objects.end_failures_except("group offsets", {led.partition for led in led_now})
        for led in led_now:

            async def write(led: LedOffsets = led) -> None:
                found: list[StoredOffset] = []
                for group in list(led.table.group_ids):
                    found += tiered_offsets_of(led.table, group, topic_ids)
                    await trio.lowlevel.checkpoint()
                await self._write(led, found)

            is_done &= await self._objects.guarded("group offsets", led.partition, write)
        return is_done

    async def _tiered_topics(self) -> dict[str, UUID]:
        """Return the ids of the tiered topics by name. The search yields to other tasks after every
        TOPICS_PER_TURN topics."""
        image = self._image()
        found: dict[str, UUID] = {}
        for number, topic in enumerate(image.topics.values()):
            if number % TOPICS_PER_TURN == 0:
                await trio.lowlevel.checkpoint()
            texts = image.config(TOPIC_RESOURCE, topic.name)
            if is_tiered_text(texts.get(REMOTE_STORAGE_ENABLE)):
                found[topic.name] = topic.id
        return found

    async def _write(self, led: LedOffsets, found: list[StoredOffset]) -> None:
        at = led.partition, led.leader_epoch
        if not found and at not in self._written:
            return
        kept = limited(found)
        parts = []
        for part in encoded_parts(
            kept,
            cluster_id=self._objects.cluster_id,
            place=at,
            partition_count=self._partition_count(led.partition),
            left_out_count=len(found) - len(kept),
        ):
            parts.append(part)
            await trio.lowlevel.checkpoint()
        crc = 0
        for part in parts:
            crc = crc32c(part, crc)
        before = self._written.get(at)
        if before == crc:
            return
        key = group_offsets_key(self._objects.cluster_id, *at)
        if len(kept) <= BATCH_COUNT:
            await self._objects.store.put(key, b"".join(parts))
        else:
            await self._objects.store.put_stream(key, _parts_of(parts))
        if before is None:
            await self._delete_older(*at)
        self._written[at] = crc

    def _partition_count(self, partition: int) -> int:
        topic = self._image().topic(OFFSETS_TOPIC)
        return partition + 1 if topic is None else len(topic.partitions)

    async def _delete_older(self, partition: int, leader_epoch: int) -> None:
        """Delete the objects that former leaders of a partition have written."""
        store, cluster_id = self._objects.store, self._objects.cluster_id
        older = []
        async for entry in store.entries(group_offsets_prefix(cluster_id)):
            place = parse_group_offsets_key(cluster_id, entry.key)
            if place is not None and place[0] == partition and place[1] < leader_epoch:
                older.append(entry.key)
        if older:
            await store.delete(older)


async def _parts_of(parts: list[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the encoded parts of an object. The store takes them as an async generator."""
    for part in parts:
        yield part
