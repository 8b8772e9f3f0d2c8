"""Delays requests for partitions whose logs are not open yet.

Pure except for awaiting the creation of logs. Clients see a topic as soon as the metadata contains
it, but the brokers create its logs a little later. A request is not delayed if all of its
partitions have logs.
"""

from collections.abc import Awaitable, Callable, Collection, Container, Coroutine, Iterable
from itertools import islice
from typing import Any
from uuid import UUID

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.ids import ZERO_UUID, TopicPartition
from ottla.node.network.dispatch import HandlerResult, RequestContext

WAIT_S_MAX = 2.0
"""Maximum seconds that a request waits for a log that is not open yet. A shorter time makes clients
retry while a disk is busy. A longer time delays the next requests of the connection."""

LOOKED_AT_MAX = 5_000
"""Maximum number of topics and partitions in one request that are checked for logs that are not
open yet. With a larger value, a client can block the event loop longer with one request. With a
smaller value, partitions of a large request may be refused although their logs would soon have been
open."""

Handle = Callable[[RequestContext, Any], HandlerResult]
Named = Iterable[tuple[str, UUID, Iterable[int]]]
"""Topics that a request names: topic name, topic id (or the zero id), and partition indexes."""

UntilDone = Callable[[Collection[TopicPartition], float], Awaitable[None]]
"""Function that waits until the logs of some partitions are open, or until a timeout. Its arguments
are the partitions and the timeout in seconds."""


class EarlyRequests:
    """Wrapper of request handlers. It delays requests for logs that this broker is opening for the
    first time."""

    def __init__(self, table: PartitionTable, until_done: UntilDone) -> None:
        self._table = table
        self._until_done = until_done

    def behind(self, handle: Handle, named: Callable[[Any], Named]) -> Handle:
        """Return a handler that waits for the logs of the partitions that a request names, and then
        calls `handle`."""
        table = self._table

        def serve(context: RequestContext, request: Any) -> HandlerResult:
            if table.opening:
                later = self.wait(context, request, handle, named(request))
                if later is not None:
                    return later
            return handle(context, request)

        return serve

    def wait(
        self, context: RequestContext, request: Any, handle: Handle, named: Named
    ) -> Coroutine[Any, Any, Any] | None:
        """Return a coroutine that waits for the logs of the partitions that a request names and
        then calls `handle`.

        Returns None if all of these logs are open.
        """
        missing = self._missing(named)
        return self._serve_later(context, request, handle, missing) if missing else None

    def _missing(self, named: Named) -> list[TopicPartition]:
        """Return the named partitions that this broker leads, but whose logs are not open yet."""
        table = self._table
        missing: list[TopicPartition] = []
        left = LOOKED_AT_MAX
        for name, topic_id, indexes in named:
            left -= 1
            if left <= 0:
                break
            by_id = table.by_id.get(topic_id) if topic_id != ZERO_UUID else None
            found = by_id or table.by_name.get(name)
            if not found:
                continue
            topic = next(iter(found.values())).topic
            opening = table.opening.get(topic)
            if opening is not None:
                for index in islice(indexes, left):
                    left -= 1
                    if _is_to_lead(found.get(index), opening):
                        missing.append(TopicPartition(topic, index))
        return missing

    async def _serve_later(
        self, context: RequestContext, request: Any, handle: Handle, missing: list[TopicPartition]
    ) -> Any:
        await self._until_done(missing, WAIT_S_MAX)
        return handle(context, request)


def _is_to_lead(partition: Partition | None, opening: Container[Partition]) -> bool:
    return (
        partition is not None and partition.leader_id == partition.local_id and partition in opening
    )


def named_by_produce(request: Any) -> Named:
    """Yield the partitions that a Produce request names."""
    for topic in request.topic_data:
        yield topic.name, topic.topic_id, (data.index for data in topic.partition_data)


def named_by_index(request: Any) -> Named:
    """Yield the partitions that a ListOffsets or DeleteRecords request names."""
    for topic in request.topics:
        yield topic.name, ZERO_UUID, (each.partition_index for each in topic.partitions)


def named_by_leader_epochs(request: Any) -> Named:
    """Yield the partitions that an OffsetForLeaderEpoch request names."""
    for topic in request.topics:
        yield topic.topic, ZERO_UUID, (each.partition for each in topic.partitions)
