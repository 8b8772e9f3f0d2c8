"""Metadata of the tiered partitions that have replicas on this broker, and the progress of loading
this metadata. Pure.

The metadata topic usually has fewer partitions than the cluster has tiered partitions, so each of
its partitions is read for several tiered partitions. Records of partitions without a replica here
are skipped. If a replica is added, its part of the topic is read again from the start. Partitions
that were loaded before ignore the records that they have already applied (Kafka lost records there:
KAFKA-16105).

A tiered partition is *ready* when all records are applied that the topic contained at the
partition's assignment. Before that, its metadata may lack segments and is not returned.
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
    """Metadata of one tiered partition (its copied segments), and the offset up to which it is
    loaded."""

    __slots__ = ("metadata", "next_offset", "ready_offset")

    def __init__(self) -> None:
        self.metadata = RemoteMetadata()
        self.next_offset = Offset(0)
        """Offset in the metadata topic below which all records about this tiered partition are
        applied."""
        self.ready_offset: Offset | None = None
        """End offset of the metadata topic's partition, looked up after this tiered partition was
        assigned. The metadata is complete once it is loaded up to this offset. None before the
        look-up."""

    @property
    def is_ready(self) -> bool:
        """True if all records are applied that the metadata topic contained when this tiered
        partition was assigned."""
        return self.ready_offset is not None and self.next_offset >= self.ready_offset


class RemoteStates:
    """Metadata of all tiered partitions assigned to this broker, grouped by the partition of the
    metadata topic that contains the metadata."""

    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count
        """Number of partitions of the metadata topic."""
        self._stores: dict[int, dict[TopicIdPartition, LoadedPartition]] = {}
        self.refused_count = 0
        """Number of records in the metadata topic that were ignored, because they contradict
        earlier records."""
        self.corrupt_count = 0
        """Number of records in the metadata topic that were skipped, because they cannot be
        decoded."""

    def __len__(self) -> int:
        return sum(map(len, self._stores.values()))

    def __iter__(self) -> Iterator[TopicIdPartition]:
        for store in self._stores.values():
            yield from store

    def store_of(self, partition: TopicIdPartition) -> int:
        """Return the index of the partition of the metadata topic that contains the metadata of a
        tiered partition."""
        return metadata_partition_of(partition, self.partition_count)

    def assign(self, partition: TopicIdPartition) -> bool:
        """Add a tiered partition, whose metadata is not loaded yet. Returns False if the partition
        is assigned already. The caller then looks up the end offset of the metadata topic's
        partition with this metadata, and calls `begin`."""
        store = self._stores.setdefault(self.store_of(partition), {})
        if partition in store:
            return False
        store[partition] = LoadedPartition()
        return True

    def unassign(self, partition: TopicIdPartition) -> None:
        """Remove a tiered partition with its metadata."""
        index = self.store_of(partition)
        store = self._stores.get(index, {})
        store.pop(partition, None)
        if not store:
            self._stores.pop(index, None)

    def reset(self, partition_count: int) -> None:
        """Drop all metadata, because the metadata topic was created again with `partition_count`
        partitions. The tiered partitions remain assigned, and are loaded from the new topic."""
        partitions = list(self)
        self.partition_count = partition_count
        self._stores.clear()
        for partition in partitions:
            self.assign(partition)

    @property
    def stores(self) -> frozenset[int]:
        """Indexes of the partitions of the metadata topic that must be read. Each contains the
        metadata of at least one assigned tiered partition."""
        return frozenset(self._stores)

    def new_stores(self) -> list[int]:
        """Return the indexes of the partitions of the metadata topic that contain the metadata of
        newly assigned tiered partitions. The caller must call `begin` for each of them."""
        return sorted(
            index
            for index, store in self._stores.items()
            if any(loaded.ready_offset is None for loaded in store.values())
        )

    def begin(self, index: int, end_offset: Offset, partitions: Iterable[TopicIdPartition]) -> None:
        """Begin to load newly assigned tiered partitions from partition `index` of the metadata
        topic. `end_offset` is the end offset of that partition, looked up after the assignment. The
        caller then reads that partition from its start."""
        store = self._stores.get(index, {})
        for partition in partitions:
            loaded = store.get(partition)
            if loaded is not None and loaded.ready_offset is None:
                loaded.ready_offset = end_offset

    def unknown_ends(self, index: int) -> list[TopicIdPartition]:
        """Return the newly assigned tiered partitions whose metadata is in partition `index` of the
        metadata topic. Only partitions for which `begin` was not called yet are returned."""
        store = self._stores.get(index, {})
        return [each for each, loaded in store.items() if loaded.ready_offset is None]

    def is_loading(self, index: int) -> bool:
        """Return whether partition `index` of the metadata topic contains the metadata of a tiered
        partition that is not loaded yet."""
        return any(not loaded.is_ready for loaded in self._stores.get(index, {}).values())

    def on_record(self, index: int, offset: Offset, key: bytes | None, value: bytes | None) -> None:
        """Apply a record of the metadata topic. A record that cannot be decoded, or that
        contradicts earlier records, is only counted."""
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
        """Record that partition `index` of the metadata topic has been read up to `position`. The
        read began at the partition's start, after the last call of `begin`."""
        for loaded in self._stores.get(index, {}).values():
            if loaded.ready_offset is not None:
                loaded.next_offset = max(loaded.next_offset, position)

    def metadata_of(self, partition: TopicIdPartition) -> RemoteMetadata | None:
        """Return the metadata of a tiered partition. Returns None if the partition is not assigned,
        or if its metadata is not completely loaded."""
        loaded = self._stores.get(self.store_of(partition), {}).get(partition)
        return loaded.metadata if loaded is not None and loaded.is_ready else None


def _partition_of(record: RemoteRecord) -> TopicIdPartition:
    return TopicIdPartition(record.id.topic_id, record.id.partition)
