"""A broker of node id 1 that knows one cluster's metadata, and a client that asks it."""

import types
from collections.abc import Callable, Coroutine, Generator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.broker_core import make_auto_create, register_metadata_apis
from ottla.broker.cluster.cluster_apis import (
    register_early_apis,
)
from ottla.broker.cluster.describe_node import DescribeNodeApi, DirectoryRecovery
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import (
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionState,
    Provenance,
    Topic,
)
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ZERO_UUID, Epoch, NodeId, Offset
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.endpoints import ListenAddress as ConfiguredEndpoint
from ottla.node.admin.metadata_cache import ImageWatch, MetadataCache
from ottla.node.network.connection import Connection, Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import ThreadWork, run_through
from ottla.proto import controller_pb2 as pb
from ottla.wire.apis import API, BROKER_KEYS, request_class, response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import decode_response_header, encode_request_header, frame
from ottla.wire.messages.create_topics_request import CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse

CLUSTER_ID = "0123456789abcdefghijkl"
ORDERS_ID, AUDIT_ID = UUID(int=1000), UUID(int=2000)
PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="10.0.0.9",
    peer_port=40_000,
    local_host="10.0.0.1",
    local_port=9092,
)


def broker(node_id: int, *, is_fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(
        id=NodeId(node_id),
        epoch=10 + node_id,
        incarnation_id=UUID(int=node_id + 500),
        endpoints=(Endpoint("PLAINTEXT", f"broker{node_id}", 9092, 0),),
        rack=f"rack{node_id}",
        is_fenced=is_fenced,
    )


def partition(leader: int, *replicas: int) -> PartitionState:
    nodes = tuple(NodeId(node_id) for node_id in replicas)
    return PartitionState(
        replicas=nodes,
        directories=(ZERO_UUID,) * len(nodes),
        isr=nodes[:1],
        leader=NodeId(leader),
        leader_epoch=Epoch(4),
        elr=nodes[1:2],
    )


def with_topic(image: MetadataImage, topic: Topic) -> MetadataImage:
    return replace(
        image,
        topics=image.topics.set(topic.id, topic),
        topic_ids=image.topic_ids.set(topic.name, topic.id),
    )


def make_image() -> MetadataImage:
    image = MetadataImage(
        provenance=Provenance(Offset(77), Epoch(3), 0),
        features=PersistentMap({"metadata.version": 30, "kraft.version": 1, "group.version": 0}),
        brokers=PersistentMap(
            {
                NodeId(1): broker(1),
                NodeId(2): broker(2),
                NodeId(3): broker(3, is_fenced=True),
            }
        ),
    )
    orders = Topic(
        "orders",
        ORDERS_ID,
        PersistentMap({0: partition(2, 2, 1), 1: partition(1, 1, 3), 2: partition(-1, 3)}),
    )
    audit = Topic("audit", AUDIT_ID, PersistentMap({0: partition(1, 1)}))
    return with_topic(with_topic(image, orders), audit)


@types.coroutine
def one_step() -> Generator[None]:
    """Yield once to the caller that steps the coroutine."""
    yield


class Controller:
    """Answers forwarded requests with the responses of the test, and records the requests."""

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.principals: list[str] = []
        """Principals of the forwarded requests."""
        self.pause = False
        self.throttle_time_ms = 0
        self.metadata_offset = Offset(78)
        """End offset of the records in a response: just after the first image."""
        self.answer: Callable[[Any], Message] | RefusedError = RefusedError(
            ErrorCode.REQUEST_TIMED_OUT
        )

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        kind = request_class(request.api_key)
        message = decode(kind, request.api_version, request.body)
        self.requests.append(message)
        self.principals.append(request.principal)
        if self.pause:
            await one_step()
        if isinstance(self.answer, RefusedError):
            raise self.answer
        is_dry = getattr(message, "validate_only", False)
        return pb.ForwardResponse(
            body=encode(self.answer(message), request.api_version),
            metadata_offset=0 if is_dry else self.metadata_offset,
            throttle_time_ms=self.throttle_time_ms,
        )


class Client:
    """A connection to a broker of node id 1; asks one request at a time."""

    def __init__(self, config: BrokerConfig | None = None) -> None:
        self.config = config or BrokerConfig(
            node_id=NodeId(1),
            advertised_listeners=(ConfiguredEndpoint("PLAINTEXT", "broker1", 9092),),
            request_timeout_ms=1000,
            texts={"num.partitions": "3", "log.retention.hours": "2"},
        )
        self.now_ms = 0
        self.opening: set[str] = set()
        """Topics whose logs are being opened on this broker."""
        self.metadata = MetadataCache(is_opening=lambda topic: topic in self.opening)
        self.metadata.image = make_image()
        self.metadata.followed_offset = self.metadata.image.provenance.offset
        self.purgatory = Purgatory()
        self.watch = ImageWatch(self.purgatory, self.metadata)
        self.controller = Controller()
        self.dispatcher = Dispatcher()
        self.pending: list[tuple[ResponseSlot, Coroutine[Any, Any, Message | None]]] = []
        self.faults: list[Exception] = []
        self.stepped_count = 0
        """Number of requests whose steps were not all done at once."""
        self.apart_count = 0
        """Works that were done apart from the loop."""
        register_early_apis(
            self.dispatcher,
            config=self.config,
            cluster_id=CLUSTER_ID,
            metadata=self.metadata,
            describe_node=DescribeNodeApi(
                node_id=NodeId(1),
                state=lambda: "RECOVERY",
                recovery=lambda: [DirectoryRecovery("/data", 3, 7, 1000, 400)],
                problems=lambda: ["t-0 is offline: no space left"],
                metric_sources=[lambda: {"b": 2.0}, lambda: {"a": 1}],
            ),
            coming=BROKER_KEYS,
            offers_telemetry=lambda: False,
        )
        register_metadata_apis(
            self.dispatcher,
            config=self.config,
            cluster_id=CLUSTER_ID,
            metadata=self.metadata,
            purgatory=self.purgatory,
            controller=self.controller,
            auto_create=make_auto_create(self.config, self.controller, self.purgatory),
            followed=lambda: self.metadata.image,
            now_ms=lambda: self.now_ms,
        )
        self.connect()

    def connect(self) -> None:
        self.connection = Connection(
            replace(PEER),
            self.dispatcher,
            self,
            memory=RequestMemory(None),
            limits=ConnectionLimits(),
            now_ms=0,
        )

    def another(self) -> "Client":
        """Return a second client of the same broker."""
        client = copy(self)
        client.pending = []
        client.connect()
        return client

    def on_work(self, connection: Connection) -> None:
        pass

    def on_fault(self, connection: Connection, fault: Exception) -> None:
        self.faults.append(fault)

    def give_up(self, connection: Connection, reason: str) -> None:
        raise AssertionError(f"given up: {reason}")

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        pass

    def run(
        self,
        connection: Connection,
        slot: ResponseSlot,
        pending: Pending,
    ) -> None:
        result: Any = pending
        while isinstance(result, Generator | ThreadWork):
            if isinstance(result, ThreadWork):
                self.apart_count += 1
                result = result.then(result.work())
            else:
                self.stepped_count += 1
                result = run_through(result)
        if isinstance(result, Coroutine):
            self.pending.append((slot, result))
        else:
            connection.on_coroutine_ended(slot, result)

    def send_without_running(self, request: Message, version: int) -> None:
        header = encode_request_header(request.API_KEY, version, 1, "test")
        chunks = frame([header + encode(request, version)])
        data = b"".join(chunks)  # type: ignore[arg-type]
        self.connection.on_bytes(memoryview(bytearray(data)), 0)

    async def send(self, request: Message, version: int) -> None:
        self.send_without_running(request, version)
        while self.pending:
            slot, pending = self.pending.pop()
            self.connection.on_coroutine_ended(slot, await pending)
        assert not self.faults

    def take_answer(self, request: Message, version: int) -> Any:
        output = self.connection.output
        data = b"".join(output.chunks)  # type: ignore[arg-type]
        output.on_sent(len(data))
        assert data, "not answered yet"
        version = 0 if version not in API[request.API_KEY].advertised else version
        if request.API_KEY == 20000:
            version = 0
        _, body_at = decode_response_header(request.API_KEY, version, data[4:])
        return decode(response_class(request.API_KEY), version, data[4:], body_at)

    async def ask(self, request: Message, version: int) -> Any:
        await self.send(request, version)
        return self.take_answer(request, version)

    async def publish(self, image: MetadataImage) -> None:
        """Bring an image that is a record further."""
        offset = self.metadata.image.provenance.offset
        image = replace(image, provenance=Provenance(Offset(offset + 1), Epoch(3), 0))
        delta = MetadataDelta(self.metadata.image)
        await self.metadata.publish(delta, image)
        await self.watch.publish(delta, image)

    def image_with(self, name: str, *, leaders: Sequence[int]) -> MetadataImage:
        """Return the image with one more topic, whose partitions have the given leaders."""
        partitions = {index: partition(leader, leader) for index, leader in enumerate(leaders)}
        topic_id = UUID(int=3000 + len(self.metadata.image.topics))
        topic = Topic(name, topic_id, PersistentMap(partitions))
        return with_topic(self.metadata.image, topic)

    @staticmethod
    def topics_made(request: CreateTopicsRequest) -> CreateTopicsResponse:
        """Answer, for the controller, that all topics are made."""
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name) for topic in request.topics]
        )

    @property
    def cluster_id(self) -> str:
        return CLUSTER_ID

    @property
    def is_answered(self) -> bool:
        return self.connection.output.byte_count > 0


@pytest.fixture
def new_client() -> Callable[..., Client]:
    """Return a function that creates a client of a new broker with the given settings."""
    return Client
