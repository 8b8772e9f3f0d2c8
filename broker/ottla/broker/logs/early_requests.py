"""Requests that arrive before the logs they name: they wait for these at the partition's edge.

A topic is announced as soon as the metadata has it; its logs are made after that.  Pure but for the
await of the disk's work.  A request that names no such log passes.
"""

from collections.abc import Awaitable, Callable, Collection, Container, Iterable
from itertools import islice
from typing import Any
from uuid import UUID

from ottla.broker.network.dispatch import HandlerResult, RequestContext
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.model.ids import ZERO_UUID, TopicPartition

WAIT_S_MAX = 2.0
"""How long a request waits for a log.  Less has clients ask again while a disk is busy, more keeps
their next requests on the connection waiting."""

LOOKED_AT_MAX = 5_000
"""Topics and partitions of a request that are looked for.  With more a client could hold the loop
with one request; with fewer a large one is refused parts that it could have waited for."""

Handle = Callable[[RequestContext, Any], HandlerResult]
Named = Iterable[tuple[str, UUID, Iterable[int]]]
"""The topics that a request names, each with its id or the zero id, and its partitions."""

UntilDone = Callable[[Collection[TopicPartition], float], Awaitable[None]]
"""Waits until nothing is left to be done for these partitions, or the seconds are over."""


class EarlyRequests:
    """Has handlers wait for logs that are being opened for the first time."""

    def __init__(self, table: PartitionTable, until_done: UntilDone) -> None:
        self._table = table
        self._until_done = until_done

    def behind(self, handle: Handle, named: Callable[[Any], Named]) -> Handle:
        """Return a handler that serves a request once the logs are open that it names."""
        table = self._table

        def serve(context: RequestContext, request: Any) -> HandlerResult:
            if table.opening and (missing := self._missing(named(request))):
                return self._serve_later(context, request, handle, missing)
            return handle(context, request)

        return serve

    def _missing(self, named: Named) -> list[TopicPartition]:
        """Return the partitions that this broker leads, as soon as it has their logs."""
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
    """Yield what a Produce names."""
    for topic in request.topic_data:
        yield topic.name, topic.topic_id, (data.index for data in topic.partition_data)


def named_by_index(request: Any) -> Named:
    """Yield what a ListOffsets or a DeleteRecords names."""
    for topic in request.topics:
        yield topic.name, ZERO_UUID, (each.partition_index for each in topic.partitions)


def named_by_leader_epochs(request: Any) -> Named:
    """Yield what an OffsetForLeaderEpoch names."""
    for topic in request.topics:
        yield topic.topic, ZERO_UUID, (each.partition for each in topic.partitions)
