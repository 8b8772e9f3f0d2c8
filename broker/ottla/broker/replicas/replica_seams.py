"""What the replicas of a broker ask of its logs, its followers and its disks' workers."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.model.ids import TopicIdPartition, TopicPartition
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_losses import LogLoss

Left = Callable[[], Awaitable[None]]
"""Waits until nothing touches the log of a partition that was left."""


class ReplicaDirectory(Protocol):
    """What it needs of a log directory."""

    @property
    def directory_id(self) -> UUID | None:
        """Return the directory's id."""
        ...


class ReplicaLogs(Protocol):
    """What it needs of the log manager."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition that serves, with its log."""
        ...

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """The partitions that do not serve, each with its reason."""
        ...

    @property
    def losses(self) -> Mapping[TopicIdPartition, LogLoss]:
        """The replicas that lack what they promised, until they are whole again."""
        ...

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Forget the losses of replicas that are whole again, or deleted."""
        ...

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, None when there is none; RefusedError while it is offline."""
        ...

    async def create(
        self,
        partition: TopicPartition,
        topic_id: UUID,
        config: LogConfig,
        *,
        directory_id: UUID | None = None,
        holds_nothing: bool = True,
    ) -> Log:
        """Return the partition's log, made when it is not there and no other may be missing."""
        ...

    async def delete(self, partition: TopicPartition) -> None:
        """Take a partition's log away."""
        ...

    def directory_of(self, partition: TopicPartition) -> ReplicaDirectory | None:
        """Return the directory a log lies in."""
        ...

    def apply_retention_soon(self) -> None:
        """Look for segments that are kept no longer."""
        ...


class Fetchers(Protocol):
    """What it needs of the followers."""

    def follow(self, partition: Partition) -> None:
        """Follow a partition's leader, unless that is done already."""
        ...

    def leave(self, partitions: Iterable[TopicIdPartition]) -> Mapping[TopicIdPartition, Left]:
        """Follow these no longer; return what to wait for where a log is still being changed."""
        ...


class DiskWork(Protocol):
    """What it needs of whoever does the work of the disks."""

    def add(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Have a step done after those that were asked for of the same partition."""
        ...

    def add_later(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Do what `add` does, for a step without a waiter."""
        ...

    def hurry(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin the steps of partitions for which somebody waits from now on."""
        ...

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until no steps of these partitions are left, or the time is over."""
        ...

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return whether steps of a partition are not done yet."""
        ...

    async def breathe(self) -> None:
        """Let other tasks have a turn."""
        ...
