"""The heartbeat of a cluster and the committed offsets of its groups are written to the store."""

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import trio

from ottla.broker.groups.offsets.committed_offsets import CommittedOffset, LedOffsets, OffsetTable
from ottla.broker.groups.offsets.offsets_upload_driver import RETRY_S, OffsetsUpload
from ottla.broker.groups.offsets.uploaded_offsets import (
    OBJECT_BYTES_MAX,
    OffsetsObject,
    decode_offsets,
)
from ottla.broker.tier.cluster_objects_driver import HEARTBEAT_S, ClusterObjects
from ottla.broker.tier.tier_figures import TierFigures
from ottla.metadata.image import BrokerRegistration, MetadataImage, Topic
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.ids import NodeId
from ottla.node.clock_driver import RealClock
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.object_names import group_offsets_key, heartbeat_key
from ottla.storage.tier.store_seam import StoreError

CLUSTER_ID = "rVyN6nEfTFCY4mGkyA7S8w"
ORDERS = UUID(int=1)


def image_of(*brokers: int) -> MetadataImage:
    """Return an image with a tiered topic and some brokers that serve."""
    return MetadataImage(
        brokers=PersistentMap(
            {
                NodeId(node): BrokerRegistration(
                    id=NodeId(node),
                    epoch=1,
                    incarnation_id=UUID(int=node),
                    endpoints=(),
                    is_fenced=False,
                )
                for node in brokers
            }
        ),
        topics=PersistentMap({ORDERS: Topic(name="orders", id=ORDERS, partitions=PersistentMap())}),
        topic_ids=PersistentMap({"orders": ORDERS}),
        configs=PersistentMap(
            {(TOPIC_RESOURCE, "orders"): PersistentMap({"remote.storage.enable": "true"})}
        ),
    )


class CountingStore(MemoryObjectStore):
    """A store that counts its puts, and can be down."""

    put_count = 0
    is_down = False

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        if self.is_down:
            raise StoreError("the store is down")
        self.put_count += 1
        await super().put(key, content, only_new=only_new)


@dataclass
class Rig:
    """The objects of a cluster with one partition of `__consumer_offsets` on this broker."""

    store: CountingStore = field(default_factory=CountingStore)
    table: OffsetTable = field(default_factory=OffsetTable)
    image: MetadataImage = field(default_factory=lambda: image_of(1, 2))
    epoch: int = 3
    figures: TierFigures = field(default_factory=TierFigures)
    is_leader: bool = True

    def opened(self, node: int = 1) -> OffsetsUpload:
        return OffsetsUpload(
            self.objects(node),
            interval_ms=300_000,
            image=lambda: self.image,
            led_offsets=lambda: [LedOffsets(7, self.epoch, self.table)] * self.is_leader,
        )

    def objects(self, node: int) -> ClusterObjects:
        async def require_usable() -> None:
            await trio.lowlevel.checkpoint()

        return ClusterObjects(
            self.store,
            cluster_id=CLUSTER_ID,
            node_id=NodeId(node),
            require_usable=require_usable,
            image=lambda: self.image,
            clock=RealClock(),
            figures=self.figures,
        )

    def commit(self, number: int, offset: int) -> None:
        one = CommittedOffset(offset, commit_timestamp_ms=offset, topic_id=ORDERS)
        self.table.put("billing", "orders", number, one)

    async def keys(self) -> list[str]:
        return sorted([entry.key async for entry in self.store.entries("")])

    async def read(self) -> OffsetsObject:
        key = group_offsets_key(CLUSTER_ID, 7, self.epoch)
        data = await self.store.get(key, 0, OBJECT_BYTES_MAX)
        return decode_offsets(data, cluster_id=CLUSTER_ID, key=key)


async def test_offsets_are_written_only_if_they_changed() -> None:
    rig = Rig()
    objects = rig.opened()
    await objects.write_all()
    assert rig.store.put_count == 0
    for number in range(1_200):
        rig.commit(number, 10)
    for _ in range(3):
        await objects.write_all()
    assert len((await rig.read()).offsets) == 1_200
    rig.table = OffsetTable()
    rig.commit(0, 12)
    for _ in range(3):
        await objects.write_all()
    assert rig.store.put_count == 2
    assert [one.offset for one in (await rig.read()).offsets] == [12]
    rig.table = OffsetTable()
    await objects.write_all()
    assert (await rig.read()).offsets == []


async def test_a_new_leader_replaces_the_object_of_its_predecessor() -> None:
    rig = Rig()
    rig.commit(0, 10)
    old = rig.opened()
    await old.write_all()
    rig.epoch = 4
    await rig.opened(node=2).write_all()
    assert await rig.keys() == [group_offsets_key(CLUSTER_ID, 7, 4)]
    rig.epoch = 3  # a deposed leader that does not know of its successor
    rig.commit(0, 9)
    await old.write_all()
    rig.epoch = 4
    assert [one.offset for one in (await rig.read()).offsets] == [10]


async def test_offsets_of_topics_that_are_not_tiered_are_not_written() -> None:
    rig = Rig()
    rig.commit(0, 10)
    rig.image = replace(rig.image, configs=PersistentMap())
    await rig.opened().write_all()
    assert await rig.keys() == []


async def test_the_setting_of_a_tiered_topic_may_be_spelled_in_capitals() -> None:
    rig = Rig()
    rig.commit(0, 10)
    texts = PersistentMap({"remote.storage.enable": "TRUE"})
    rig.image = replace(rig.image, configs=PersistentMap({(TOPIC_RESOURCE, "orders"): texts}))
    await rig.opened().write_all()
    assert [one.offset for one in (await rig.read()).offsets] == [10]


async def test_a_failure_lasts_until_the_store_is_back() -> None:
    rig = Rig()
    rig.commit(0, 10)
    rig.store.is_down = True
    objects = rig.opened()
    await objects.write_all()
    assert any("group offsets" in one for one in rig.figures.alarms.problems(1 << 62))
    rig.store.is_down = False
    await objects.write_all()
    assert list(rig.figures.alarms.problems(1 << 62)) == []
    assert await rig.keys()


async def test_a_failure_ends_when_another_broker_leads_the_partition() -> None:
    rig = Rig()
    rig.commit(0, 10)
    rig.store.is_down = True
    objects = rig.opened()
    await objects.write_all()
    rig.is_leader = False
    await objects.write_all()
    assert list(rig.figures.alarms.problems(1 << 62)) == []


async def test_a_failed_heartbeat_ends_when_another_broker_writes_it(autojump_clock: Any) -> None:
    rig = Rig()
    rig.store.is_down = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.objects(2).run_heartbeat)
        rig.image = image_of(2)
        await trio.sleep(1)
        assert any("heartbeats" in one for one in rig.figures.alarms.problems(1 << 62))
        rig.image = image_of(1, 2)
        await trio.sleep(HEARTBEAT_S)
        assert list(rig.figures.alarms.problems(1 << 62)) == []
        nursery.cancel_scope.cancel()


async def test_a_failed_upload_of_offsets_is_repeated_soon(autojump_clock: Any) -> None:
    rig = Rig()
    rig.commit(0, 10)
    rig.store.is_down = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(rig.opened().run)
        await trio.sleep(301)
        assert list(rig.figures.alarms.problems(1 << 62))
        rig.store.is_down = False
        await trio.sleep(RETRY_S)
        assert list(rig.figures.alarms.problems(1 << 62)) == []
        assert await rig.keys()
        nursery.cancel_scope.cancel()


async def test_the_broker_with_the_lowest_id_writes_the_heartbeat(autojump_clock: Any) -> None:
    rig = Rig()
    async with trio.open_nursery() as nursery:
        for node in (1, 2):
            nursery.start_soon(rig.objects(node).run_heartbeat)
        await trio.sleep(10.5 * HEARTBEAT_S)
        assert await rig.keys() == [heartbeat_key(CLUSTER_ID)]
        assert rig.store.put_count == 11
        rig.image = image_of(2)
        await trio.sleep(10 * HEARTBEAT_S)
        assert rig.store.put_count == 21
        nursery.cancel_scope.cancel()
