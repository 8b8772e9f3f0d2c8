"""Interfaces of a remote log manager: metadata of copied segments, and the object store."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.model.ids import TopicIdPartition
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteRecord, RemoteSegment
from ottla.storage.tier.segment_source import SegmentSource
from ottla.storage.tier.store_seam import ObjectEntry


class TieredTopic(NamedTuple):
    """The topic of a tiered partition, as manifests describe it."""

    name: str
    partition_count: int
    settings: tuple[tuple[str, str], ...]
    """Settings of the topic itself, by Kafka's keys."""


class SegmentMetadata(Protocol):
    """Metadata of copied segments, which all brokers share."""

    def metadata_of(self, partition: TopicIdPartition) -> RemoteMetadata | None:
        """Return the metadata of a tiered partition, or None while it is not loaded."""
        ...

    async def wait_ready(self, partition: TopicIdPartition) -> RemoteMetadata:
        """Return the metadata of an assigned tiered partition, once it is loaded."""
        ...

    async def write(self, topic: str, record: RemoteRecord) -> None:
        """Write a record about a segment of the topic `topic`, and wait until it is applied here.
        Raises RefusedError if the outcome is unknown, or if the record is refused."""
        ...

    def assign(self, partition: TopicIdPartition) -> None:
        """Load the metadata of a tiered partition, and keep it up to date."""
        ...

    def unassign(self, partition: TopicIdPartition) -> None:
        """Drop the metadata of a tiered partition."""
        ...


OBJECTS_MAX = 300_000
"""Maximum number of objects of one partition that are listed: those of 100,000 segments."""


class SegmentStorage(Protocol):
    """Copies of segments in an object store."""

    async def upload(
        self, source: SegmentSource, segment: RemoteSegment, topic: TieredTopic
    ) -> None:
        """Store all objects of a segment. Raises StoreError or OSError; some of the objects may
        exist then."""
        ...

    async def delete(self, segment: RemoteSegment, topic: str) -> None:
        """Delete all objects of a segment. An object that does not exist is no error. Raises
        StoreError."""
        ...

    async def objects_of(self, partition: TopicIdPartition, topic: str) -> list[ObjectEntry]:
        """Return the objects of a partition, in any order, at most OBJECTS_MAX. Raises
        StoreError."""
        ...

    async def delete_objects(self, keys: Sequence[str]) -> None:
        """Delete single objects, in this order. Raises StoreError."""
        ...
