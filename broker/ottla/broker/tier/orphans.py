"""Finds orphans: objects of a partition in the object store that belong to no copied segment. Pure.

An upload that was cancelled may still take effect after its objects were deleted. A broker may also
stop before it deletes them. The metadata does not contain such objects, so they would cost storage
permanently.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from ottla.model.ids import TopicIdPartition
from ottla.storage.tier.object_names import SegmentObject, parse_object_key
from ottla.storage.tier.store_seam import ObjectEntry

ORPHAN_AGE_MS = 24 * 60 * 60 * 1000
"""Minimum age in ms, by the store's clock, of an orphan. With an age shorter than the longest
upload, objects would be deleted while their segment is being uploaded."""

_ORDER = (SegmentObject.MANIFEST, SegmentObject.INDEXES, SegmentObject.LOG)
"""Kinds of objects of a segment, in the order in which they are deleted."""


def orphans_among(
    entries: Iterable[ObjectEntry],
    *,
    partition: TopicIdPartition,
    segment_ids: Collection[UUID],
    now_ms: int,
) -> list[str]:
    """Return the keys of a partition's orphans: objects of segments that the partition's metadata
    does not contain, and whose copies are incomplete.

    `segment_ids` are the ids of all segments in the partition's metadata, in any state. The
    metadata must be loaded completely. Objects of a complete copy are not orphans, because they are
    the only copy of the records if the metadata topic was lost. A manifest without other objects is
    an orphan, because its upload may take effect late, after the segment was deleted. Objects of
    other partitions, and objects whose key does not have the form of a segment's object, are
    ignored.
    """
    found: list[tuple[int, str, UUID]] = []
    kinds: dict[UUID, set[SegmentObject]] = {}
    for entry in entries:
        name = parse_object_key(entry.key)
        if name is None:
            continue
        names = name.names
        if TopicIdPartition(names.topic_id, names.partition) != partition:
            continue
        kinds.setdefault(names.segment_id, set()).add(name.kind)
        is_old = now_ms - entry.modified_ms >= ORPHAN_AGE_MS
        if is_old and names.segment_id not in segment_ids:
            found.append((_ORDER.index(name.kind), entry.key, names.segment_id))
    return [
        key for _, key, segment_id in sorted(found) if len(kinds[segment_id]) < len(SegmentObject)
    ]
