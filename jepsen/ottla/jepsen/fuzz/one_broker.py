"""One broker in memory, connected to the client's transport. Its responses are correct. From a
chosen request on, they can be delayed or omitted.

The broker has one topic and coordinates one group of a single member, in the virtual time of the
test. `asked` contains the requests that it received.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import trio

from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.fuzz.answering import AnsweringStream, api_versions, framed_answer
from ottla.wire import apis, codec
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.leave_group_response import LeaveGroupResponse
from ottla.wire.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_fetch_response import OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.wire.messages.produce_response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.wire.messages.sync_group_response import SyncGroupResponse

PartitionRow = TypeVar("PartitionRow")

TOPIC = "t"
TOPIC_ID = UUID(int=7)
PARTITION_COUNT = 2
BOOTSTRAP = (("broker", 9092),)
NO_LEADER = -1
LEADER_NOT_AVAILABLE = 5
MEMBER_ID_REQUIRED = 79
JOIN_DELAY_S = 3.0
"""Virtual delay in seconds of the first rebalance of a group, as configured by
group.initial.rebalance.delay.ms."""


class OneBroker:
    """A broker in memory. It is also a transport: its method `connect` opens a connection to the
    broker."""

    def __init__(self, *, silent_from: int | None = None, never_connects: bool = False) -> None:
        self.silent_from = silent_from
        """Index (from 0) of the first request without a response. No later request gets a response
        either. If it is None, every request gets a response."""
        self.never_connects = never_connects
        self.leaderless: frozenset[int] = frozenset()
        self.asked: list[Message] = []

    async def connect(self, host: str, port: int) -> "OneStream":
        """Return a new connection to the broker. Never returns if `never_connects` is set."""
        await trio.lowlevel.checkpoint()
        if self.never_connects:
            await trio.sleep_forever()
        return OneStream(self)

    def use(self) -> None:
        """Make this broker the transport of all clients that the current task or its child tasks
        open."""
        TRANSPORT.set(self)

    def answer(self, api_key: int, version: int, body: memoryview) -> tuple[bytes, float] | None:
        """Return the body of the response to a request and its delay in seconds, or None if the
        request gets no response."""
        request = codec.decode(apis.request_class(api_key), version, body)
        self.asked.append(request)
        if self.silent_from is not None and len(self.asked) > self.silent_from:
            return None
        if api_key == apis.API_VERSIONS:
            return api_versions(version), 0
        answer, delay_s = ANSWERS[apis.API[api_key].name](self, request)
        return codec.encode(answer, version), delay_s

    def _metadata(self, request: Any) -> tuple[Message, float]:
        partitions = [
            MetadataResponsePartition(
                error_code=LEADER_NOT_AVAILABLE if index in self.leaderless else 0,
                partition_index=index,
                leader_id=NO_LEADER if index in self.leaderless else 1,
                leader_epoch=3,
            )
            for index in range(PARTITION_COUNT)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
            cluster_id="c",
            topics=[MetadataResponseTopic(name=TOPIC, topic_id=TOPIC_ID, partitions=partitions)],
        ), 0

    def _find_coordinator(self, request: Any) -> tuple[Message, float]:
        rows = [
            Coordinator(key=key, node_id=1, host="broker", port=9092)
            for key in request.coordinator_keys
        ]
        return FindCoordinatorResponse(coordinators=rows), 0

    def _join_group(self, request: Any) -> tuple[Message, float]:
        if not request.member_id:
            return JoinGroupResponse(error_code=MEMBER_ID_REQUIRED, member_id="m"), 0
        first = request.protocols[0]
        return JoinGroupResponse(
            generation_id=1,
            protocol_type="consumer",
            protocol_name=first.name,
            leader="m",
            member_id="m",
            members=[JoinGroupResponseMember(member_id="m", metadata=first.metadata)],
        ), JOIN_DELAY_S

    def _sync_group(self, request: Any) -> tuple[Message, float]:
        return SyncGroupResponse(
            protocol_type="consumer",
            protocol_name=request.protocol_name,
            assignment=request.assignments[0].assignment,
        ), 0

    def _consumer_heartbeat(self, request: Any) -> tuple[Message, float]:
        assignment = None
        if request.member_epoch == 0:
            rows = [TopicPartitions(topic_id=TOPIC_ID, partitions=list(range(PARTITION_COUNT)))]
            assignment = Assignment(topic_partitions=rows)
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=min(request.member_epoch, 0) or 1,
            heartbeat_interval_ms=1_000,
            assignment=assignment,
        ), 0

    def _offset_fetch(self, request: Any) -> tuple[Message, float]:
        rows = [OffsetFetchResponseGroup(group_id=one.group_id) for one in request.groups]
        return OffsetFetchResponse(groups=rows), 0

    def _offset_commit(self, request: Any) -> tuple[Message, float]:
        rows = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=_each_of(topic, OffsetCommitResponsePartition),
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(topics=rows), 0

    def _list_offsets(self, request: Any) -> tuple[Message, float]:
        at_start = partial(ListOffsetsPartitionResponse, offset=0)
        rows = [
            ListOffsetsTopicResponse(name=topic.name, partitions=_each_of(topic, at_start))
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=rows), 0

    def _fetch(self, request: Any) -> tuple[Message, float]:
        return FetchResponse(session_id=9), request.max_wait_ms / 1_000

    def _produce(self, request: Any) -> tuple[Message, float]:
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(index=one.index, base_offset=0)
                        for one in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        ), 0


def _each_of(topic: Any, row: Callable[..., PartitionRow]) -> list[PartitionRow]:
    """Return one response row, made by `row`, for each partition of a topic in the request."""
    return [row(partition_index=one.partition_index) for one in topic.partitions]


ANSWERS: dict[str, Callable[[OneBroker, Any], tuple[Message, float]]] = {
    "Metadata": OneBroker._metadata,
    "FindCoordinator": OneBroker._find_coordinator,
    "JoinGroup": OneBroker._join_group,
    "SyncGroup": OneBroker._sync_group,
    "Heartbeat": lambda _, __: (HeartbeatResponse(), 0),
    "LeaveGroup": lambda _, __: (LeaveGroupResponse(), 0),
    "ConsumerGroupHeartbeat": OneBroker._consumer_heartbeat,
    "OffsetFetch": OneBroker._offset_fetch,
    "OffsetCommit": OneBroker._offset_commit,
    "ListOffsets": OneBroker._list_offsets,
    "Fetch": OneBroker._fetch,
    "InitProducerId": lambda _, __: (InitProducerIdResponse(producer_id=5), 0),
    "Produce": OneBroker._produce,
}


class OneStream(AnsweringStream):
    """One client connection to the broker. Requests are answered in order, as by a real broker."""

    closed_error = trio.ClosedResourceError

    def __init__(self, broker: OneBroker) -> None:
        super().__init__()
        self._broker = broker
        self._answers: deque[tuple[float, bytes]] = deque()
        self._received = bytearray()
        self._free_s = 0.0
        self._news = trio.lowlevel.ParkingLot()

    def take(self, asked: RequestHeader, correlation_id: int, body: memoryview) -> None:
        """Send the response to a request when all earlier responses are sent. A request that gets
        no response also blocks the responses to all later requests."""
        answered = self._broker.answer(asked.api_key, asked.api_version, body)
        if answered is None:
            self._free_s = float("inf")
            return
        answer, delay_s = answered
        self._free_s = max(self._free_s, trio.current_time()) + delay_s
        self._answers.append((self._free_s, framed_answer(asked, correlation_id, answer)))
        self._news.unpark_all()

    async def receive_some(self, max_bytes: int, /) -> bytes:
        """Return bytes of the broker's responses. Waits until a response is due."""
        await trio.lowlevel.checkpoint()
        while not self._received:
            if self.is_closed:
                raise trio.ClosedResourceError
            if not self._answers:
                await self._news.park()
                continue
            at_s, answer = self._answers[0]
            with trio.move_on_at(at_s):
                await self._news.park()
            if trio.current_time() >= at_s and self._answers:
                self._answers.popleft()
                self._received += answer
        data = bytes(self._received[:max_bytes])
        del self._received[:max_bytes]
        return data

    def abort(self) -> None:
        """Close the client's connection to the broker."""
        super().abort()
        self._news.unpark_all()
