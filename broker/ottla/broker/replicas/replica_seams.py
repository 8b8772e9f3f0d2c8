"""Interfaces of a broker's replicas to its logs, its followers and its disk workers."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.model.ids import TopicIdPartition, TopicPartition
from ottla.storage.log.log import Log
from ottla.storage.losses.log_losses import LogLoss
from ottla.storage.segments.log_config import LogConfig

Left = Callable[[], Awaitable[None]]
"""Callable that waits until no disk work changes the log of a partition that is no longer
followed."""


class ReplicaDirectory(Protocol):
    """Properties of a log directory that replicas use."""

    @property
    def directory_id(self) -> UUID | None:
        """The directory's id."""
        ...


class ReplicaLogs(Protocol):
    """Interface of the log manager for replicas."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition that is online, with its log."""
        ...

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """Offline partitions, each with its reason."""
        ...

    @property
    def losses(self) -> Mapping[TopicIdPartition, LogLoss]:
        """Replicas that lost acknowledged records, until they have all records again."""
        ...

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Clear the losses of the replicas in `whole`, which have all records again or are
        deleted."""
        ...

    def get(self, partition: TopicPartition) -> Log | None:
        """Return a partition's log, or None if there is none.  Raises RefusedError if it is
        offline."""
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
        """Return the partition's log. Creates it if it does not exist, unless a directory that
        might contain it is missing."""
        ...

    async def delete(self, partition: TopicPartition) -> None:
        """Delete a partition's log."""
        ...

    def directory_of(self, partition: TopicPartition) -> ReplicaDirectory | None:
        """Return the directory of a partition's log."""
        ...

    def apply_retention_soon(self) -> None:
        """Request a check for segments beyond their retention."""
        ...


class Fetchers(Protocol):
    """Interface of the followers for the replica manager."""

    def follow(self, partition: Partition) -> None:
        """Start to follow a partition's leader. Has no effect if it is followed already."""
        ...

    def leave(self, partitions: Iterable[TopicIdPartition]) -> Mapping[TopicIdPartition, Left]:
        """Stop following partitions. For each partition whose log is still being changed, returns a
        function that waits for that change."""
        ...


class DiskWork(Protocol):
    """Interface of the disk workers for the replica manager."""

    def add(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Add a step that runs after the earlier steps of the same partition."""
        ...

    def add_later(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Add a step as `add` does, but start it later, since no caller waits for it."""
        ...

    def start_delayed(self, partitions: Iterable[TopicPartition]) -> None:
        """Start the delayed steps of partitions that have a waiter now."""
        ...

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until no steps of these partitions are left, or until the timeout."""
        ...

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return whether a partition has unfinished steps."""
        ...

    async def yield_to_loop(self) -> None:
        """Let other tasks have a turn."""
        ...
