"""Metadata of the tiered partitions that have replicas on this broker, as it is loaded. Pure.

The metadata topic has fewer partitions than a cluster has tiered ones, so each of its partitions is
read for several tiered partitions. Records of partitions without a replica here are skipped. If a
replica is added, its part of the topic is read again from the start; partitions that were loaded
before ignore what they have applied already (Kafka lost records there: KAFKA-16105).

A tiered partition is *ready* when everything was applied that the topic contained after its
assignment. Until then its metadata may lack segments, and is not shown.
"""

import logging
from collections.abc import Iterable, Iterator

from ottla.broker.tier.metadata_topic import metadata_partition_of
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicIdPartition
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_records import decode_record
from ottla.storage.tier.remote_segment import RemoteRecord

logger = logging.getLogger("ottla.broker.tier")


class LoadedPartition:
    """Metadata of one tiered partition, and how far it is loaded."""

    __slots__ = ("metadata", "next_offset", "ready_offset")

    def __init__(self) -> None:
        self.metadata = RemoteMetadata()
        self.next_offset = Offset(0)
        """Offset in the metadata topic below which all records of the partition are applied."""
        self.ready_offset: Offset | None = None
        """End of the metadata topic's partition after this assignment, or None if it has not been
        looked up yet."""

    @property
    def is_ready(self) -> bool:
        """True if the metadata is complete up to the moment of the assignment."""
        return self.ready_offset is not None and self.next_offset >= self.ready_offset


class RemoteStates:
    """Metadata of all tiered partitions that are assigned to this broker, by the partition of the
    metadata topic that stores it."""

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count
        """Number of partitions of the metadata topic."""
        self._stores: dict[int, dict[TopicIdPartition, LoadedPartition]] = {}
        self.refused_count = 0
        """Number of records of the metadata topic that contradict earlier ones."""
        self.corrupt_count = 0
        """Number of records of the metadata topic that cannot be read."""

    def __len__(self) -> int:
        return sum(map(len, self._stores.values()))

    def __iter__(self) -> Iterator[TopicIdPartition]:
        for store in self._stores.values():
            yield from store

    def store_of(self, partition: TopicIdPartition) -> int:
        """Return the index of the metadata topic's partition that stores a tiered partition."""
        return metadata_partition_of(partition, self.partition_count)

    def assign(self, partition: TopicIdPartition) -> bool:
        """Add a tiered partition. Returns False if it is assigned already. The caller then looks
        up the end of its part of the metadata topic, and calls `begin`."""
        store = self._stores.setdefault(self.store_of(partition), {})
        if partition in store:
            return False
        store[partition] = LoadedPartition()
        return True

    def unassign(self, partition: TopicIdPartition) -> None:
        """Remove a tiered partition and its metadata."""
        index = self.store_of(partition)
        store = self._stores.get(index, {})
        store.pop(partition, None)
        if not store:
            self._stores.pop(index, None)

    def reset(self, partition_count: int) -> None:
        """Restart with an empty metadata topic, because it was created again."""
        partitions = list(self)
        self.partition_count = partition_count
        self._stores.clear()
        for partition in partitions:
            self.assign(partition)

    @property
    def stores(self) -> frozenset[int]:
        """Partitions of the metadata topic that must be read."""
        return frozenset(self._stores)

    def new_stores(self) -> list[int]:
        """Return the partitions of the metadata topic that have new tiered partitions, for which
        `begin` was not called yet."""
        return sorted(
            index
            for index, store in self._stores.items()
            if any(loaded.ready_offset is None for loaded in store.values())
        )

    def begin(self, index: int, end_offset: Offset, partitions: Iterable[TopicIdPartition]) -> None:
        """Begin to load tiered partitions from a partition of the metadata topic, whose end offset
        was looked up after they were assigned. It is read from its start from now on."""
        store = self._stores.get(index, {})
        for partition in partitions:
            loaded = store.get(partition)
            if loaded is not None and loaded.ready_offset is None:
                loaded.ready_offset = end_offset

    def unknown_ends(self, index: int) -> list[TopicIdPartition]:
        """Return the new tiered partitions of a partition of the metadata topic."""
        store = self._stores.get(index, {})
        return [each for each, loaded in store.items() if loaded.ready_offset is None]

    def is_loading(self, index: int) -> bool:
        """Return whether a tiered partition waits for records of a partition of the metadata
        topic."""
        return any(not loaded.is_ready for loaded in self._stores.get(index, {}).values())

    def on_record(self, index: int, offset: Offset, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the metadata topic. A record that cannot be read, or contradicts
        earlier ones, is counted and changes nothing."""
        try:
            record = decode_record(key, value)
        except CorruptDataError as error:
            self.corrupt_count += 1
            logger.error("a record of the metadata topic is skipped: %s", error)
            return
        if record is None:
            return
        loaded = self._stores.get(index, {}).get(_partition_of(record))
        if loaded is None or loaded.ready_offset is None or offset < loaded.next_offset:
            return
        loaded.next_offset = Offset(offset + 1)
        reason = loaded.metadata.apply(record)
        if reason is not None:
            self.refused_count += 1
            logger.info("a record of the metadata topic is refused: %s", reason)

    def on_position(self, index: int, position: Offset) -> None:
        """Record that a partition of the metadata topic was read up to a position, from the start
        after the last call of `begin`."""
        for loaded in self._stores.get(index, {}).values():
            if loaded.ready_offset is not None:
                loaded.next_offset = max(loaded.next_offset, position)

    def metadata_of(self, partition: TopicIdPartition) -> RemoteMetadata | None:
        """Return the metadata of a tiered partition, or None if it is not assigned or not ready."""
        loaded = self._stores.get(self.store_of(partition), {}).get(partition)
        return loaded.metadata if loaded is not None and loaded.is_ready else None


def _partition_of(record: RemoteRecord) -> TopicIdPartition:
    return TopicIdPartition(record.id.topic_id, record.id.partition)
