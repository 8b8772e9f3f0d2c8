"""A broker's tiered storage over real logs, an object store in memory, and metadata in memory."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import trio

from ottla.broker.quotas.tier_quotas import TierQuotas
from ottla.broker.replicas.partition import Partition
from ottla.broker.tier.partition_tier_driver import TierPorts
from ottla.broker.tier.remote_log_manager_driver import RemoteLogManager
from ottla.broker.tier.segment_storage_driver import StoreSegments
from ottla.broker.tier.store_reads_driver import StoreReads
from ottla.broker.tier.tier_figures import TierFigures
from ottla.model.errors import RefusedError
from ottla.model.ids import NodeId, Offset, TopicIdPartition
from ottla.model.settings.quotas import QuotaConfig
from ottla.model.settings.storage.tier import TierConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.disk.directory_names import REMOTE_INDEX_DIRECTORY
from ottla.storage.log.log import Log
from ottla.storage.tier.memory_store import MemoryObjectStore
from ottla.storage.tier.reads.reader_limits import ReaderLimits
from ottla.storage.tier.reads.remote_reader_driver import RemoteReader, open_remote_reader
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteRecord, RemoteSegment, RemoteSegmentState
from tests.broker.conftest import World, batch, partition_state

CLUSTER_ID = "rVyN6nEfTFCY4mGkyA7S8w"
TIMEOUT_S = 60
SETTINGS = TierConfig(task_interval_ms=10, task_retry_backoff_ms_max=20)


@dataclass
class MetadataInMemory:
    """Metadata of copied segments. A record is applied when it is written."""

    metadata: dict[TopicIdPartition, RemoteMetadata] = field(default_factory=dict)
    assigned: set[TopicIdPartition] = field(default_factory=set)
    records: list[RemoteRecord] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    before_write: Callable[[RemoteRecord], RefusedError | None] = lambda record: None
    """Called with each record before it is applied. A returned error is raised instead."""

    def metadata_of(self, partition: TopicIdPartition) -> RemoteMetadata | None:
        return self.metadata.setdefault(partition, RemoteMetadata())

    async def wait_ready(self, partition: TopicIdPartition) -> RemoteMetadata:
        return self.metadata.setdefault(partition, RemoteMetadata())

    async def write(self, topic: str, record: RemoteRecord) -> None:
        await trio.lowlevel.checkpoint()
        error = self.before_write(record)
        if error is not None:
            raise error
        self.apply(record)

    def apply(self, record: RemoteRecord) -> None:
        self.records.append(record)
        key = TopicIdPartition(record.id.topic_id, record.id.partition)
        reason = self.metadata.setdefault(key, RemoteMetadata()).apply(record)
        if reason is not None:
            self.refused.append(reason)

    def assign(self, partition: TopicIdPartition) -> None:
        self.assigned.add(partition)

    def unassign(self, partition: TopicIdPartition) -> None:
        self.assigned.discard(partition)

    def segments(self, partition: Partition) -> list[RemoteSegment]:
        return list(self.metadata.setdefault(partition.key, RemoteMetadata()).all_segments())


class NumberRng:
    """Deals ids 1, 2, …"""

    def __init__(self) -> None:
        self.dealt = 0

    def random(self) -> float:
        return 0.5

    def below(self, bound: int) -> int:
        return 0

    def uuid(self) -> UUID:
        self.dealt += 1
        return UUID(int=(1 << 100) + self.dealt)


class TieredBroker:
    """A broker with tiered partitions, each of which has some segments of two records."""

    def __init__(self, world: World, store: MemoryObjectStore, reader: RemoteReader) -> None:
        self.world = world
        self.store = store
        self.reader = reader
        self.metadata = MetadataInMemory()
        self.figures = TierFigures()
        self.errors = UnexpectedErrors()
        self.quotas = TierQuotas(QuotaConfig(), world.clock.monotonic_ms)
        self.ports = TierPorts(
            config=SETTINGS,
            node_id=NodeId(1),
            clock=world.clock,
            rng=NumberRng(),
            image=lambda: world.table.image,
            topic=self.metadata,
            storage=StoreSegments(
                self.store,
                reader,
                cluster_id=CLUSTER_ID,
                node_id=NodeId(1),
                throttle=self.quotas.throttle_copy,
                is_claimed=False,
            ),
            figures=self.figures,
            errors=self.errors,
            copy_slots=trio.CapacityLimiter(2),
        )
        self.manager = RemoteLogManager(world.table, self.ports)
        self.reads = StoreReads(world.table, self.metadata, reader, self.figures, self.quotas.fetch)

    async def add(self, topic: str = "orders", *, leader: int = 1, **settings: Any) -> Partition:
        partition = await self.world.add(topic, replicas=(1, 2), leader=leader)
        log = partition.log
        assert log is not None
        tiered = {
            "segment_bytes": 200,
            "is_tiered": True,
            "retention_ms": -1,
            "local_retention_bytes": 0,
        }
        log.config = replace(log.config, **(tiered | settings))
        return partition

    def fill(self, partition: Partition, count: int) -> list[bytes]:
        """Append committed records of 60 bytes, one a batch; return their values."""
        values = [b"%058d" % number for number in range(count)]
        log = log_of(partition)
        for value in values:
            log.append_as_leader(
                batch(value), leader_epoch=partition.leader_epoch, now_ms=self.world.clock.wall_ms()
            )
        log.update_high_watermark(log.end_offset)
        return values

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.manager.run)
            yield
            nursery.cancel_scope.cancel()

    async def until(self, is_done: Callable[[], bool]) -> None:
        """Wait until a condition is true."""
        while not is_done():
            await trio.sleep(0.005)

    def states(self, partition: Partition) -> list[str]:
        return [segment.state.name for segment in self.metadata.segments(partition)]

    def finished(self, partition: Partition) -> list[tuple[int, int]]:
        """Return the first and last offset of each finished copy."""
        return [
            (segment.start_offset, segment.end_offset)
            for segment in self.metadata.segments(partition)
            if segment.state is RemoteSegmentState.COPY_FINISHED
        ]

    async def keys(self) -> list[str]:
        """Return the keys of all objects of segments."""
        found = [entry.key async for entry in self.store.entries("")]
        return sorted(key for key in found if key != "cluster.json")


@asynccontextmanager
async def open_tiered(
    world: World, store: MemoryObjectStore | None = None, *, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[TieredBroker]:
    """Yield a broker with tiered storage, whose tasks do not run yet. Fails after `timeout_s`."""
    store = MemoryObjectStore() if store is None else store
    with trio.fail_after(timeout_s):
        async with open_remote_reader(
            store,
            world.disk,
            f"{world.directory}/{REMOTE_INDEX_DIRECTORY}",
            cluster_id=CLUSTER_ID,
            limits=ReaderLimits(),
            errors=UnexpectedErrors(),
        ) as reader:
            yield TieredBroker(world, store, reader)


def log_of(partition: Partition) -> Log:
    assert partition.log is not None
    return partition.log


def lead(partition: Partition, leader: int, epoch: int) -> None:
    """Give a partition a leader in a new epoch."""
    state = partition_state(
        replicas=(1, 2), leader=leader, leader_epoch=epoch, partition_epoch=epoch
    )
    partition.apply(state, TopicConfig(), 0)


def offset(number: int) -> Offset:
    return Offset(number)
