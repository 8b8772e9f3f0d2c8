"""A replica manager over a real disk, with fetchers that only record their calls."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, NamedTuple
from uuid import UUID

import trio

from ottla.broker.replicas.log_work_driver import LogWork
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.replica_seams import Left
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage, Provenance, Topic
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.ids import Epoch, NodeId, Offset, TopicIdPartition
from ottla.node.network.purgatory import Purgatory
from ottla.storage.manager.log_manager_driver import LogManager

World = Any  # the class of the `world` fixture, in conftest.py

FIRST = UUID(int=901)
SECOND = UUID(int=902)


class HandFetchers:
    """Fetchers that record the followed partitions, and the state of each when it is left."""

    def __init__(self) -> None:
        self.followed: dict[TopicIdPartition, tuple[NodeId, Epoch]] = {}
        self.left: list[TopicIdPartition] = []
        self.busy: dict[TopicIdPartition, trio.Event] = {}
        """Partitions whose logs a duty changes, with the event of its end."""

    def follow(self, partition: Partition) -> None:
        assert partition.log is not None
        assert not partition.is_leader
        key = partition.key
        self.followed[key] = (partition.leader_id, partition.leader_epoch)

    def leave(self, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, Left]:
        busy: dict[TopicIdPartition, Left] = {}
        for key in partitions:
            self.left.append(key)
            self.followed.pop(key, None)
            if key in self.busy:
                busy[key] = self.busy.pop(key).wait
        return busy


class ManagerBench(NamedTuple):
    manager: ReplicaManager
    table: PartitionTable
    logs: LogManager
    purgatory: Purgatory
    placed: dict[TopicIdPartition, UUID]
    fetchers: HandFetchers
    flush_due: list[Partition]
    work: LogWork
    led: list[Partition]


def image_with(world: World, *topics: tuple[str, UUID], **changes: Any) -> MetadataImage:
    state = world.state(**changes)
    return MetadataImage(
        provenance=Provenance(Offset(1), Epoch(1), 0),
        topics=PersistentMap(
            {id_: Topic(name, id_, PersistentMap({0: state})) for name, id_ in topics}
        ),
        topic_ids=PersistentMap(dict(topics)),
    )


def with_setting(image: MetadataImage, key: str, value: str) -> MetadataImage:
    """Return an image in which topic t has a setting of its own."""
    configs = image.configs.set((TOPIC_RESOURCE, "t"), PersistentMap({key: value}))
    return replace(image, configs=configs)


async def publish(managed: ManagerBench, image: MetadataImage) -> None:
    """Publish an image, and wait for the disk work that follows."""
    await begin_publish(managed, image)
    await managed.work.wait_done()


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until a worker thread of the disk has made a condition true."""
    with trio.fail_after(60):
        while not is_so():
            await trio.sleep(0.001)


async def begin_publish(managed: ManagerBench, image: MetadataImage) -> None:
    await managed.manager.publish(MetadataDelta.between(managed.table.image, image), image)
