"""Ports (interfaces to disk and network) for a broker core that has its logs on one simulated disk
and follows no leader."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any
from uuid import UUID

from ottla.broker.broker_core import ReplicaPorts
from ottla.broker.replicas.partition import Partition
from ottla.jepsen.world.disk import SimulatedDisk, brought_in
from ottla.jepsen.world.walk.now import ImmediateLogWork
from ottla.model.ids import Offset, ProducerId, TopicIdPartition, TopicPartition
from ottla.model.limits import KIB
from ottla.storage.log.log import Log, open_log
from ottla.storage.losses.log_losses import LogLoss
from ottla.storage.segments.log_config import LogConfig


class SequentialIds:
    """Unlimited source of producer ids for a broker core, which needs no controller."""

    has_some = True

    def __init__(self) -> None:
        self._given_count = 0

    def take(self) -> ProducerId:
        """Return the next producer id: the previous one plus one."""
        self._given_count += 1
        return ProducerId(self._given_count)

    async def wait(self, timeout_s: float) -> None:
        """Return at once, since producer ids are always available."""


class OneDisk:
    """The partition logs of a broker core, on one disk in memory."""

    offline: Mapping[TopicPartition, str] = MappingProxyType({})
    losses: Mapping[TopicIdPartition, LogLoss] = MappingProxyType({})

    def __init__(self, disk: SimulatedDisk, wall_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._wall_ms = wall_ms
        self._logs: dict[TopicPartition, Log] = {}

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield each partition log on the disk with its partition."""
        return iter(self._logs.items())

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Do nothing, because no log on this disk ever loses records."""

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, or None if it was not created."""
        return self._logs.get(partition)

    async def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        directory_id: UUID | None = None,
        holds_nothing: bool = True,
    ) -> Log:
        """Return the partition's log. If it is missing, create it with a small index."""
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = await open_log(
                self._disk,
                f"/data/{partition.topic}-{partition.partition}",
                config=replace(config, segment_index_bytes=4 * KIB),
                topic_id=topic_id,
                is_clean=True,
                recovery_point=Offset(0),
                log_start_offset=Offset(0),
                now_ms=self._wall_ms(),
            )
        return log

    async def delete(self, partition: TopicPartition) -> None:
        """Delete a partition's log."""
        self._logs.pop(partition, None)

    def directory_of(self, partition: TopicPartition) -> None:
        """Return None in place of a log directory's id, because there is only one disk."""

    def apply_retention_soon(self) -> None:
        """Do nothing, since all records are retained."""


class NoFetchers:
    """Replica fetchers that do nothing, because no records come from another broker."""

    def follow(self, partition: Partition) -> None:
        """Do nothing, because no records come from another broker."""

    def leave(self, partitions: Iterable[TopicIdPartition]) -> dict[TopicIdPartition, Any]:
        """Return an empty mapping, because there are no fetches to wait for."""
        return {}


def ports_on(disk: SimulatedDisk, wall_ms: Callable[[], int]) -> ReplicaPorts:
    """Return the ports (interfaces to disk and network) of a broker core whose logs are on `disk`.
    Disk work is done immediately."""
    return ReplicaPorts(
        logs=OneDisk(disk, wall_ms),
        fetchers=NoFetchers(),
        work=ImmediateLogWork(),
        on_flush_due=lambda partition: None,
        on_isr_due=lambda partition: None,
        on_placed=lambda key, directory: None,
        bring_in=brought_in,
    )
