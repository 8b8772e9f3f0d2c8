"""Interfaces through which a broker's replicas use logs, followers and disk workers."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Protocol
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.model.ids import TopicIdPartition, TopicPartition
from ottla.storage.log.log import Log
from ottla.storage.losses.log_losses import LogLoss
from ottla.storage.segments.log_config import LogConfig

Left = Callable[[], Awaitable[None]]
"""Function that waits until no disk work changes the log of a partition that is no longer
followed."""


class ReplicaDirectory(Protocol):
    """Properties of a log directory that replicas use."""

    @property
    def directory_id(self) -> UUID | None:
        """Id of the log directory, or None if it has none."""
        ...


class ReplicaLogs(Protocol):
    """The methods of the log manager that replicas call."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition whose log is online, with that log."""
        ...

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """Partitions whose logs are offline, each with the reason."""
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
        """Return the log of a partition, or None if there is none. Raises RefusedError if it is
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
        """Return the log of a partition. If the log does not exist, it is created, unless a
        directory that might contain it is missing."""
        ...

    async def delete(self, partition: TopicPartition) -> None:
        """Delete the log of a partition."""
        ...

    def directory_of(self, partition: TopicPartition) -> ReplicaDirectory | None:
        """Return the log directory that contains a partition's log, or None if there is no log."""
        ...

    def apply_retention_soon(self) -> None:
        """Request a check for segments beyond their retention, which runs soon."""
        ...


class Fetchers(Protocol):
    """The methods of the followers that the replica manager calls."""

    def follow(self, partition: Partition) -> None:
        """Start to follow a partition's leader. Has no effect if it is followed already."""
        ...

    def leave(self, partitions: Iterable[TopicIdPartition]) -> Mapping[TopicIdPartition, Left]:
        """Stop following partitions. For each partition whose log is still being changed, returns a
        function that waits for that change."""
        ...


class DiskWork(Protocol):
    """The methods of the disk workers that the replica manager calls."""

    def add(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Add a step that runs after the earlier steps of the same partition."""
        ...

    def add_later(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Add a step as `add` does, but start it later, since no caller waits for it."""
        ...

    def start_delayed(self, partitions: Iterable[TopicPartition]) -> None:
        """Start the delayed steps of the given partitions now, because a caller waits for them."""
        ...

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until no steps for the given partitions are left, or until the timeout."""
        ...

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return whether a partition has unfinished steps."""
        ...

    async def yield_to_loop(self) -> None:
        """Let other tasks run during one iteration of the event loop."""
        ...
