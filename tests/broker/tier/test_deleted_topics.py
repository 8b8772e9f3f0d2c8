"""Objects in the store whose topic does not exist any longer."""

from dataclasses import replace
from uuid import UUID

from ottla.broker.tier.deleted_topics import DeletedTopicPartition, DeletedTopicScan
from ottla.broker.tier.deleted_topics_driver import IMAGE_AGE_MS_MAX, DeletedTopics
from ottla.broker.tier.orphans import ORPHAN_AGE_MS
from ottla.model.ids import Offset, TopicIdPartition
from ottla.storage.tier.object_names import SegmentNames
from ottla.storage.tier.store_seam import ObjectEntry
from tests.broker.conftest import World
from tests.broker.tier.tiered_broker import TieredBroker, log_of, open_tiered

NOW_MS = 10 * ORPHAN_AGE_MS
GONE, LIVE = UUID(int=1), UUID(int=2)


def entry(topic_id: UUID, *, partition: int = 0, age_ms: int = ORPHAN_AGE_MS) -> ObjectEntry:
    names = SegmentNames(
        cluster_id="cluster",
        topic="orders",
        topic_id=topic_id,
        partition=partition,
        start_offset=Offset(0),
        segment_id=UUID(int=7),
    )
    return ObjectEntry(names.keys()[0], 10, NOW_MS - age_ms)


def found(*entries: ObjectEntry, created: tuple[UUID, ...] = ()) -> list[DeletedTopicPartition]:
    scan = DeletedTopicScan({LIVE})
    for each in entries:
        scan.add(each)
    return scan.partitions({LIVE, *created}, NOW_MS)


def test_partitions_without_a_topic_are_found() -> None:
    assert found(entry(GONE, partition=3), entry(LIVE)) == [
        DeletedTopicPartition(TopicIdPartition(GONE, 3), "orders")
    ]


def test_a_topic_may_be_younger_than_the_image() -> None:
    assert found(entry(GONE), entry(GONE, age_ms=ORPHAN_AGE_MS - 1)) == []
    assert found(entry(GONE), created=(GONE,)) == []


def test_other_objects_are_ignored() -> None:
    assert found(ObjectEntry("cluster/notes.txt", 1, 0)) == []


async def copy_and_forget(broker: TieredBroker) -> TopicIdPartition:
    """Copy a partition, and delete its topic without a running task."""
    partition = await broker.add()
    broker.fill(partition, 11)
    async with broker.running():
        count = log_of(partition).segment_count - 1
        await broker.until(lambda: len(broker.finished(partition)) == count)
    world = broker.world
    world.table.remove(partition)
    log = partition.remove()
    assert log is not None
    log.abandon()
    await world.add("__remote_log_metadata", replicas=(1, 2), leader=1)
    image = world.table.image
    world.table.image = replace(
        image,
        topics=image.topics.delete(partition.topic_id),
        topic_ids=image.topic_ids.delete(partition.topic),
    )
    see_image(world, age_ms=0)
    world.clock.now_ms += 2 * ORPHAN_AGE_MS
    see_image(world, age_ms=0)
    return partition.key


def see_image(world: World, *, age_ms: int) -> None:
    image = world.table.image
    at_ms = world.clock.wall_ms() - age_ms
    world.table.image = replace(image, provenance=image.provenance._replace(timestamp_ms=at_ms))


async def test_an_interrupted_deletion_is_resumed(world: World) -> None:
    async with open_tiered(world) as broker:
        key = await copy_and_forget(broker)
        assert await broker.keys()
        await DeletedTopics(broker.ports).search()
        assert await broker.keys() == []
        assert list(broker.metadata.metadata[key].all_segments()) == []
        assert key not in broker.metadata.assigned


async def test_a_broker_with_an_old_image_deletes_nothing(world: World) -> None:
    async with open_tiered(world) as broker:
        await copy_and_forget(broker)
        keys = await broker.keys()
        see_image(world, age_ms=IMAGE_AGE_MS_MAX + 1)
        await DeletedTopics(broker.ports).search()
        assert await broker.keys() == keys


async def test_complete_copies_without_metadata_are_kept(world: World) -> None:
    async with open_tiered(world) as broker:
        key = await copy_and_forget(broker)
        keys = await broker.keys()
        broker.metadata.metadata.pop(key)
        incomplete = keys.pop()
        await broker.store.delete([incomplete])
        await DeletedTopics(broker.ports).search()
        rest = await broker.keys()
        assert rest
        assert set(rest) == {each for each in keys if each[:-20] not in incomplete}
