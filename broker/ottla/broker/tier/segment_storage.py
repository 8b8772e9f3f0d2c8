"""Interfaces between a broker's tiered storage and the metadata of copied segments and the object
store. Tests replace the implementations."""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from ottla.model.ids import TopicIdPartition
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteRecord, RemoteSegment
from ottla.storage.tier.segment_source import SegmentSource
from ottla.storage.tier.store_seam import ObjectEntry


class TieredTopic(NamedTuple):
    """Properties of a tiered topic that are stored in manifests: its name, number of partitions and
    settings."""

    name: str
    partition_count: int
    settings: tuple[tuple[str, str], ...]
    """Settings of the topic itself, by Kafka's keys."""


class SegmentMetadata(Protocol):
    """Metadata of the copied segments of all tiered partitions, which the brokers share."""

    def metadata_of(self, partition: TopicIdPartition) -> RemoteMetadata | None:
        """Return the metadata of a tiered partition, or None while it is not loaded."""
        ...

    async def wait_ready(self, partition: TopicIdPartition) -> RemoteMetadata:
        """Wait until the metadata of an assigned tiered partition is loaded, and return it."""
        ...

    async def write(self, topic: str, record: RemoteRecord) -> None:
        """Write a record about a copied segment of the topic named `topic`, and wait until this
        broker has applied it. Raises RefusedError if the record is refused, or if the outcome is
        unknown."""
        ...

    def assign(self, partition: TopicIdPartition) -> None:
        """Load the metadata of a tiered partition, and keep it up to date."""
        ...

    def unassign(self, partition: TopicIdPartition) -> None:
        """Drop the metadata of a tiered partition, and stop reading it."""
        ...


OBJECTS_MAX = 300_000
"""Maximum number of objects of one partition that are listed, enough for 100,000 segments."""


class SegmentStorage(Protocol):
    """Interface to the copied segments in an object store."""

    async def require_usable(self) -> None:
        """Check the object store if the last call to it has failed. The caller does this before a
        copy is announced in the metadata. Raises StoreError if the store is not usable."""
        ...

    async def upload(
        self, source: SegmentSource, segment: RemoteSegment, topic: TieredTopic
    ) -> None:
        """Store all objects of a segment. Raises StoreError, or OSError if the local disk fails.
        After an error, some of the objects may exist."""
        ...

    async def delete(self, segment: RemoteSegment, topic: str) -> None:
        """Delete all objects of a segment that exist. Raises StoreError if the object store
        fails."""
        ...

    async def objects_of(self, partition: TopicIdPartition, topic: str) -> list[ObjectEntry]:
        """Return at most OBJECTS_MAX objects of a partition, in any order. Raises StoreError if the
        object store fails."""
        ...

    def all_objects(self) -> AsyncIterator[ObjectEntry]:
        """Yield all objects of the cluster, in any order. Raises StoreError if the object store
        fails."""
        ...

    async def delete_objects(self, keys: Sequence[str]) -> None:
        """Delete the objects with these keys, in this order. Raises StoreError if the object store
        fails."""
        ...
