"""Objects that belong to no copied segment."""

from uuid import UUID

from ottla.broker.tier.orphans import ORPHAN_AGE_MS, orphans_among
from ottla.model.ids import Offset, TopicIdPartition
from ottla.storage.tier.object_names import SegmentNames
from ottla.storage.tier.store_seam import ObjectEntry
from tests.broker.tier.remote_segments import PARTITION, TOPIC_ID

NOW_MS = 10 * ORPHAN_AGE_MS
KNOWN, UNKNOWN = UUID(int=1), UUID(int=2)


def entries(
    segment_id: UUID, *, partition: int = 0, age_ms: int = ORPHAN_AGE_MS
) -> list[ObjectEntry]:
    keys = SegmentNames(
        cluster_id="cluster",
        topic="orders",
        topic_id=TOPIC_ID,
        partition=partition,
        start_offset=Offset(0),
        segment_id=segment_id,
    ).keys()
    return [ObjectEntry(key, 10, NOW_MS - age_ms) for key in keys]


def found(objects: list[ObjectEntry], partition: TopicIdPartition = PARTITION) -> list[str]:
    return orphans_among(objects, partition=partition, segment_ids={KNOWN}, now_ms=NOW_MS)


def test_old_objects_of_unfinished_unknown_segments_are_orphans() -> None:
    orphan = [entry for entry in entries(UNKNOWN) if "manifest" not in entry.key]
    keys = found([*entries(KNOWN), *orphan])
    assert set(keys) == {entry.key for entry in orphan}


def test_complete_copies_are_kept_even_if_the_metadata_was_lost() -> None:
    assert found(entries(UNKNOWN)) == []


def test_a_manifest_alone_is_an_orphan() -> None:
    late = [entry for entry in entries(UNKNOWN) if "manifest" in entry.key]
    assert found(late) == [late[0].key]


def test_young_objects_may_belong_to_an_upload() -> None:
    young = entries(UNKNOWN, age_ms=ORPHAN_AGE_MS - 1)
    assert found([entry for entry in young if "manifest" not in entry.key]) == []


def test_objects_of_others_are_no_orphans() -> None:
    assert found(entries(UNKNOWN, partition=1)) == []
    assert found([ObjectEntry("cluster/orders-x/0/notes.txt", 1, 0)]) == []
