"""A client's view of a cluster: who leads what, and an open connection to whoever is asked.

The view is asked for anew when it proves stale; it is never trusted to be right.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TypeVar

import trio

from ottla.client.connection import Connection, ConnectionLostError, connect
from ottla.model.errors import ErrorCode, OttlaError, ProtocolError, RefusedError, row_of
from ottla.model.ids import NodeId, TopicPartition
from ottla.wire.codec_types import Message
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse

R = TypeVar("R", bound=Message)

RETRY_WAIT_S = 0.1
NEXT_BROKER_AFTER_S = 0.5
"""A first broker that has not answered by then may hang; the next is tried beside it."""


class Cluster:
    """The brokers of one cluster, each connected when first needed."""

    def __init__(self, bootstrap: Iterable[tuple[str, int]], *, client_id: str = "ottla") -> None:
        self._bootstrap = list(bootstrap)
        self._client_id = client_id
        self._addresses: dict[NodeId, tuple[str, int]] = {}
        self._connections: dict[tuple[str, int], Connection] = {}
        self._leaders: dict[TopicPartition, NodeId] = {}

    async def metadata(
        self, topics: Iterable[str] | None = None, *, may_create: bool = False
    ) -> MetadataResponse:
        """Ask any broker for the named topics (all of them for None) and remember the answer."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=may_create,
        )
        answer = await self.request(request, MetadataResponse)
        for broker in answer.brokers:
            self._addresses[NodeId(broker.node_id)] = (broker.host, broker.port)
        for topic in answer.topics:
            for partition in topic.partitions:
                at = TopicPartition(topic.name or "", partition.partition_index)
                self._leaders[at] = NodeId(partition.leader_id)
        return answer

    async def partitions_of(
        self, topic: str, *, may_create: bool = False, deadline_s: float = 10.0
    ) -> list[int]:
        """Return a topic's partition numbers once each has a leader; refuse if there is none."""
        code: int = ErrorCode.NONE
        with trio.move_on_after(deadline_s):
            while True:
                found = (await self.metadata([topic], may_create=may_create)).topics[0]
                code = found.error_code
                waits = {p.error_code for p in found.partitions} - {ErrorCode.NONE}
                if code == ErrorCode.NONE and found.partitions and not waits:
                    return sorted(p.partition_index for p in found.partitions)
                # While a topic is being created it is unknown.
                is_passing = may_create and row_of(code).is_retriable
                if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE) and not is_passing:
                    break
                await trio.sleep(RETRY_WAIT_S)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise_for(code, f"there is no topic {topic!r}")
        if code != ErrorCode.LEADER_NOT_AVAILABLE:
            raise_for(code, f"topic {topic!r}: {row_of(code).meaning}")
        raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"topic {topic!r} has no leader")

    async def leader_of(self, partition: TopicPartition) -> NodeId:
        """Return who leads a partition, asking the cluster when that is not known."""
        if self._leaders.get(partition, -1) < 0:
            await self.partitions_of(partition.topic)
        leader = self._leaders.get(partition, NodeId(-1))
        if leader < 0:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}"
            )
        return leader

    def forget_leaders(self) -> None:
        """Drop what is known of leaders, because an answer said it is stale."""
        self._leaders.clear()

    async def request(
        self,
        message: Message,
        response: type[R],
        *,
        node: NodeId | None = None,
        version: int | None = None,
    ) -> R:
        """Send to `node`, or to any broker that answers; return the decoded answer."""
        connection = await self._any() if node is None else await self._of(node)
        try:
            return await connection.request(message, response, version)
        except (ConnectionLostError, trio.Cancelled):
            # What was cut short leaves an answer under way that the next request would take.
            await self._drop(connection)
            raise

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in list(self._connections.values()):
            await self._drop(connection)

    async def _of(self, node: NodeId) -> Connection:
        if node not in self._addresses:
            await self.metadata([])
        if node not in self._addresses:
            raise ConnectionLostError(f"broker {node} is not known to the cluster")
        return await self._at(self._addresses[node])

    async def _any(self) -> Connection:
        for open_connection in self._connections.values():
            return open_connection
        return await self._first_to_answer([*self._bootstrap, *self._addresses.values()])

    async def _first_to_answer(self, addresses: list[tuple[str, int]]) -> Connection:
        """Connect to whoever answers first; one that hangs only delays the next a little."""
        failure: OttlaError = ConnectionLostError("no bootstrap server is given")
        answered: list[Connection] = []

        async def attempt(address: tuple[str, int], ended: trio.Event) -> None:
            nonlocal failure
            try:
                answered.append(await self._at(address))
                nursery.cancel_scope.cancel()
            except (ConnectionLostError, ProtocolError) as error:
                failure = error
            ended.set()

        async with trio.open_nursery() as nursery:
            for address in dict.fromkeys(addresses):
                ended = trio.Event()
                nursery.start_soon(attempt, address, ended)
                with trio.move_on_after(NEXT_BROKER_AFTER_S):
                    await ended.wait()
        if not answered:
            raise failure
        return answered[0]

    async def _at(self, address: tuple[str, int]) -> Connection:
        if address not in self._connections:
            self._connections[address] = await connect(
                *address, client_id=self._client_id, timeout_s=10.0
            )
        return self._connections[address]

    async def _drop(self, connection: Connection) -> None:
        self._connections = {
            address: kept for address, kept in self._connections.items() if kept is not connection
        }
        await connection.aclose()


@asynccontextmanager
async def open_cluster(
    bootstrap: Iterable[tuple[str, int]], *, client_id: str = "ottla"
) -> AsyncIterator[Cluster]:
    """Open a view of the cluster behind `bootstrap`; close its connections at the end."""
    cluster = Cluster(bootstrap, client_id=client_id)
    try:
        yield cluster
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 1):
            await cluster.aclose()


def raise_for(code: int, message: str | None = None) -> None:
    """Raise RefusedError for an answer's error code unless it is NONE."""
    if code != ErrorCode.NONE:
        row = row_of(code)
        raise RefusedError(ErrorCode(row.code), message or row.meaning)
