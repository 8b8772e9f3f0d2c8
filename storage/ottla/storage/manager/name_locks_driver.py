"""Locks that serialise changes of a partition's name: creation, move and deletion of its log.

Acquiring a free lock does not yield to other tasks, so that thousands of logs can be created
quickly.
"""

from collections.abc import Iterator
from types import TracebackType

import trio

from ottla.model.ids import TopicPartition


class NameLocks:
    """Locks on the names of partitions whose logs are being created, moved or deleted."""

    def __init__(self) -> None:
        self._locks: dict[TopicPartition, trio.Lock] = {}

    def __iter__(self) -> Iterator[TopicPartition]:
        """Yield the partitions whose names are locked now."""
        return iter(tuple(self._locks))

    def alone_with(self, partition: TopicPartition) -> "_Alone":
        """Return an async context in which no other task creates, moves or deletes a log with the
        partition's name."""
        return _Alone(self._locks, partition)


class _Alone:
    """Async context in which only one task changes logs with a partition's name. The last waiting
    task removes the name's lock."""

    __slots__ = ("_lock", "_locks", "_partition")

    def __init__(self, locks: dict[TopicPartition, trio.Lock], partition: TopicPartition) -> None:
        self._locks = locks
        self._partition = partition
        self._lock: trio.Lock | None = None

    async def __aenter__(self) -> None:
        lock = self._lock = self._locks.get(self._partition)
        if lock is not None:
            await lock.acquire()
            return
        lock = self._lock = self._locks[self._partition] = trio.Lock()
        lock.acquire_nowait()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._lock is not None
        self._lock.release()
        if not self._lock.locked():
            del self._locks[self._partition]
