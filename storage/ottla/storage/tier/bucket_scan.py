"""Collects the uploaded segments from the listing of a bucket. Pure.

A bucket may contain any object. Objects that belong to no segment are counted and ignored. The
number of segments is bounded, because the list of a bucket's objects may be larger than this
process's memory.
"""

from typing import NamedTuple

from ottla.storage.tier.cluster_marker import MARKER_KEY
from ottla.storage.tier.object_names import (
    SegmentNames,
    SegmentObject,
    heartbeat_key,
    parse_group_offsets_key,
    parse_object_key,
)
from ottla.storage.tier.store_seam import ObjectEntry, StoreError

SEGMENTS_MAX = 500_000
"""Maximum number of segments in a scan. Each segment needs about 1 KiB of memory. With segments of
1 GiB, the maximum is 500 TB."""
OBJECTS_MAX = 10_000_000
"""Maximum number of objects in a scan. A listing of that size takes an hour, and indicates that
others have filled the bucket with objects that belong to no segment."""
GROUP_OFFSETS_MAX = 10_000
"""Maximum number of objects with committed offsets of groups in a scan. A cluster has one object
for each partition of `__consumer_offsets`, and a few of former leader epochs."""
UNKNOWN_SAMPLE_MAX = 5


class BucketTooLargeError(StoreError):
    """The bucket contains more segments than a scan collects."""

    is_retriable = False


class ListedSegment:
    """An upload of a segment, described by a listing of the bucket."""

    __slots__ = ("modified_ms", "names", "sizes")

    def __init__(self, names: SegmentNames) -> None:
        self.names = names
        self.sizes: dict[SegmentObject, int] = {}
        """Sizes in bytes of the segment's objects, by their kinds."""
        self.modified_ms = 0
        """Time at which the segment's newest object was written, by the store's clock, in ms since
        1970."""

    @property
    def has_manifest(self) -> bool:
        """True if the listing contains the manifest, so that the upload was completed."""
        return SegmentObject.MANIFEST in self.sizes

    @property
    def size_bytes(self) -> int:
        """Size in bytes of all objects of the segment."""
        return sum(self.sizes.values())

    @property
    def log_bytes(self) -> int:
        """Size in bytes of the object with the records, or 0 if the listing does not contain it."""
        return self.sizes.get(SegmentObject.LOG, 0)


class TopicKey(NamedTuple):
    """Name and id of a topic. A topic that was created again has another id."""

    topic: str
    topic_id: str
    """Topic id as 32 hexadecimal digits with hyphens."""


class BucketScan:
    """Scan of a bucket: the uploaded segments of one cluster, collected from a listing."""

    def __init__(
        self,
        cluster_id: str,
        *,
        segments_max: int = SEGMENTS_MAX,
        objects_max: int = OBJECTS_MAX,
    ) -> None:
        self.cluster_id = cluster_id
        self._segments_max = segments_max
        self._objects_max = objects_max
        self._segments: dict[SegmentNames, ListedSegment] = {}
        self.object_count = 0
        """Number of objects in the listing."""
        self.newest_ms = 0
        """Time at which the newest object was written, by the store's clock, in ms since 1970."""
        self.heartbeat_ms = 0
        """Time of the last heartbeat of the cluster, by the store's clock, in ms since 1970, or 0
        without a heartbeat."""
        self.group_offsets: list[ObjectEntry] = []
        """Objects with committed offsets of groups."""
        self.unknown_count = 0
        """Number of objects that belong to no segment of the cluster."""
        self.unknown_sample: list[str] = []
        """Keys of the first few objects that belong to no segment of the cluster."""

    def add(self, entry: ObjectEntry) -> None:
        """Add an object of the listing. Raises BucketTooLargeError if there are too many
        segments."""
        self.object_count += 1
        if self.object_count > self._objects_max:
            raise BucketTooLargeError(
                f"the bucket contains more than {self._objects_max:,} objects of the cluster"
            )
        if entry.key == MARKER_KEY:
            return
        if entry.key == heartbeat_key(self.cluster_id):
            self.heartbeat_ms = entry.modified_ms
            return
        if parse_group_offsets_key(self.cluster_id, entry.key) is not None:
            if len(self.group_offsets) >= GROUP_OFFSETS_MAX:
                raise BucketTooLargeError(
                    f"the bucket contains more than {GROUP_OFFSETS_MAX:,} objects with offsets"
                )
            self.group_offsets.append(entry)
            return
        name = parse_object_key(entry.key)
        if name is None or name.names.cluster_id != self.cluster_id:
            self.unknown_count += 1
            if len(self.unknown_sample) < UNKNOWN_SAMPLE_MAX:
                self.unknown_sample.append(entry.key)
            return
        segment = self._segments.get(name.names)
        if segment is None:
            if len(self._segments) >= self._segments_max:
                raise BucketTooLargeError(
                    f"the bucket contains more than {self._segments_max:,} segments"
                )
            segment = self._segments[name.names] = ListedSegment(name.names)
        segment.sizes[name.kind] = entry.size_bytes
        segment.modified_ms = max(segment.modified_ms, entry.modified_ms)
        self.newest_ms = max(self.newest_ms, entry.modified_ms)

    @property
    def segments(self) -> list[ListedSegment]:
        """All segments, in the order of topic, topic id, partition and start offset."""
        return sorted(self._segments.values(), key=_place)

    def by_topic(self) -> dict[TopicKey, dict[int, list[ListedSegment]]]:
        """Return the completely uploaded segments by topic and by partition, in the order of their
        start offsets."""
        found: dict[TopicKey, dict[int, list[ListedSegment]]] = {}
        for segment in self.segments:
            if segment.has_manifest:
                names = segment.names
                topic = found.setdefault(TopicKey(names.topic, str(names.topic_id)), {})
                topic.setdefault(names.partition, []).append(segment)
        return found

    def incomplete(self) -> list[ListedSegment]:
        """Return the segments without a manifest: their upload is in progress, or was
        interrupted."""
        return [segment for segment in self.segments if not segment.has_manifest]


def _place(segment: ListedSegment) -> tuple[str, str, int, int, str]:
    names = segment.names
    return (
        names.topic,
        str(names.topic_id),
        names.partition,
        names.start_offset,
        str(names.segment_id),
    )
