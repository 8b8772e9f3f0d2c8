"""Objects of a partition in the store that belong to no copied segment: orphans. Pure.

An upload that was ended may still have its effect after its objects were deleted, and a broker may
die before it deletes them. Such objects are no part of the metadata, and cost storage permanently.
"""

from collections.abc import Collection, Iterable
from uuid import UUID

from ottla.model.ids import TopicIdPartition
from ottla.storage.tier.object_names import SegmentObject, parse_object_key
from ottla.storage.tier.store_seam import ObjectEntry

ORPHAN_AGE_MS = 24 * 60 * 60 * 1000
"""Age in ms, by the store's clock, from which an unknown object counts as an orphan. If it is
shorter than the longest upload, objects are deleted before their segment is finished."""

_ORDER = (SegmentObject.MANIFEST, SegmentObject.INDEXES, SegmentObject.LOG)


def orphans_among(
    entries: Iterable[ObjectEntry],
    *,
    partition: TopicIdPartition,
    segment_ids: Collection[UUID],
    now_ms: int,
) -> list[str]:
    """Return the keys of orphans among objects of a partition, manifests first. `segment_ids` are
    those of all segments in the metadata, in any state, which must be loaded.

    Objects whose keys are not ours, or name another partition, are no orphans.
    """
    found: list[tuple[int, str]] = []
    for entry in entries:
        name = parse_object_key(entry.key)
        if name is None:
            continue
        names = name.names
        if TopicIdPartition(names.topic_id, names.partition) != partition:
            continue
        is_old = now_ms - entry.modified_ms >= ORPHAN_AGE_MS
        if is_old and names.segment_id not in segment_ids:
            found.append((_ORDER.index(name.kind), entry.key))
    return [key for _, key in sorted(found)]
