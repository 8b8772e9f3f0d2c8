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
"""Function that waits until disk work has ended on the log of a partition that is no longer
followed."""


class ReplicaDirectory(Protocol):
    """Interface to a log directory: the properties that replicas use."""

    @property
    def directory_id(self) -> UUID | None:
        """Id of the log directory, or None if the directory has no id."""
        ...


class ReplicaLogs(Protocol):
    """The methods of the log manager that the replicas of a broker call."""

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        """Yield every partition whose log is online, with that log."""
        ...

    @property
    def offline(self) -> Mapping[TopicPartition, str]:
        """Partitions whose logs are offline, with the reason for each."""
        ...

    @property
    def losses(self) -> Mapping[TopicIdPartition, LogLoss]:
        """For each replica that has lost acknowledged records and not regained them: a description
        of the loss."""
        ...

    async def forget_losses(self, whole: Collection[TopicIdPartition]) -> None:
        """Delete the records of losses of the replicas in `whole`, which have all records again or
        are deleted."""
        ...

    def get(self, partition: TopicPartition) -> Log | None:
        """Return the log of a partition, or None if this broker has no replica of the partition.
        Raises RefusedError if the log is offline."""
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
        """Return the log of a partition. A missing log is created, except if a log directory that
        might contain it is missing."""
        ...

    async def delete(self, partition: TopicPartition) -> None:
        """Delete the log of a partition from this broker's disks."""
        ...

    def directory_of(self, partition: TopicPartition) -> ReplicaDirectory | None:
        """Return the log directory that contains a partition's log, or None if this broker has no
        log of the partition."""
        ...

    def apply_retention_soon(self) -> None:
        """Request a check for log segments beyond their retention, which runs soon."""
        ...


class Fetchers(Protocol):
    """Interface to the fetchers of this broker's followers, which the replica manager calls."""

    def follow(self, partition: Partition) -> None:
        """Start to fetch a partition from its leader. Has no effect if the partition is followed
        already."""
        ...

    def leave(self, partitions: Iterable[TopicIdPartition]) -> Mapping[TopicIdPartition, Left]:
        """Stop following partitions. Returns a wait function for each partition whose log is still
        being changed by disk work. The function returns when the disk work has ended."""
        ...


class DiskWork(Protocol):
    """Interface to the disk work on logs (such as creation and deletion) that the replica manager
    requests."""

    def add(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Add a step of disk work that runs after the earlier steps of the same partition."""
        ...

    def add_later(self, partition: TopicPartition, step: Callable[[], Awaitable[None]]) -> None:
        """Add a step of disk work as `add` does, but start it later, because no caller waits for
        it."""
        ...

    def start_delayed(self, partitions: Iterable[TopicPartition]) -> None:
        """Start the delayed steps of disk work of these partitions now, because a caller waits for
        them."""
        ...

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until these partitions have no steps of disk work left, or until the timeout in
        seconds."""
        ...

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return whether a partition has unfinished steps of disk work."""
        ...

    async def yield_to_loop(self) -> None:
        """Yield to other tasks for one iteration of the event loop."""
        ...
