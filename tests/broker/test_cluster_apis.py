"""The APIs that are answered from the metadata image, or passed on to the controller."""

import random
import types
from collections.abc import Callable, Coroutine, Generator
from copy import copy
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.admin_api import SEEN_HERE_MS_MAX
from ottla.broker.cluster_apis import (
    CLUSTER_API_KEYS,
    LIST_CONFIG_RESOURCES,
    register_cluster_apis,
    register_early_apis,
)
from ottla.broker.connection import Connection, ConnectionLimits
from ottla.broker.describe_node import DescribeNodeApi, DirectoryRecovery
from ottla.broker.dispatch import Dispatcher, Peer
from ottla.broker.metadata_cache import ImageWatch, MetadataCache
from ottla.broker.purgatory import Purgatory
from ottla.broker.refusals import REFUSALS
from ottla.broker.request_memory import RequestMemory
from ottla.broker.response_queue import ResponseSlot
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
from ottla.model.settings.endpoints import Endpoint as ConfiguredEndpoint
from ottla.proto import controller_pb2 as pb
from ottla.wire.apis import API, request_class, response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_examples import example
from ottla.wire.codec_types import Message
from ottla.wire.frames import frame
from ottla.wire.headers import decode_response_header, encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.describe_node_request import DescribeNodeRequest
from ottla.wire.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from ottla.wire.messages.unregister_broker_response import UnregisterBrokerResponse

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
    """Hand control back once to whoever steps the coroutine."""
    yield


class Controller:
    """Answers forwarded requests with what the test put in; keeps them."""

    def __init__(self) -> None:
        self.requests: list[Message] = []
        self.pause = False
        self.metadata_offset = Offset(78)
        """Where the records of an answer end: just after the first image."""
        self.answer: Callable[[Any], Message] | RefusedError = RefusedError(
            ErrorCode.REQUEST_TIMED_OUT
        )

    async def forward(self, request: pb.ForwardRequest, *, deadline_ms: int) -> pb.ForwardResponse:
        kind = request_class(request.api_key)
        message = decode(kind, request.api_version, request.body)
        self.requests.append(message)
        if self.pause:
            await one_step()
        if isinstance(self.answer, RefusedError):
            raise self.answer
        is_dry = getattr(message, "validate_only", False)
        return pb.ForwardResponse(
            body=encode(self.answer(message), request.api_version),
            metadata_offset=0 if is_dry else self.metadata_offset,
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
        self.metadata = MetadataCache()
        self.metadata.image = make_image()
        self.purgatory = Purgatory()
        self.watch = ImageWatch(self.purgatory)
        self.controller = Controller()
        self.dispatcher = Dispatcher()
        self.pending: list[tuple[ResponseSlot, Coroutine[Any, Any, Message | None]]] = []
        self.faults: list[Exception] = []
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
            coming=CLUSTER_API_KEYS | {0, 1},
        )
        register_cluster_apis(
            self.dispatcher,
            config=self.config,
            cluster_id=CLUSTER_ID,
            metadata=self.metadata,
            purgatory=self.purgatory,
            controller=self.controller,
            followed=lambda: self.metadata.image,
        )
        self.connect()

    def connect(self) -> None:
        self.connection = Connection(
            PEER,
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

    def wake_at(self, connection: Connection, deadline_ms: int) -> None:
        pass

    def run(
        self,
        connection: Connection,
        slot: ResponseSlot,
        pending: Coroutine[Any, Any, Message | None],
    ) -> None:
        self.pending.append((slot, pending))

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

    @property
    def is_answered(self) -> bool:
        return self.connection.output.byte_count > 0


def named(*names: str) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


# ApiVersions


@pytest.mark.parametrize("version", range(6))
async def test_every_version_of_api_versions_lists_what_is_served_and_what_is_coming(
    version: int,
) -> None:
    answer = await Client().ask(
        ApiVersionsRequest(client_software_name="t", client_software_version="1.0"), version
    )
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert answer.error_code == 0
    assert rows[0] == (0, 13)  # librdkafka wants to see the oldest Produce (KAFKA-18659)
    assert rows[3] == (0, 13)
    assert rows[18] == (0, 5)
    assert not rows.keys() & {52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 71, 72, 73, 82, 20000}
    if version >= 3:
        finalized = {f.name: f.max_version_level for f in answer.finalized_features}
        assert finalized == {"metadata.version": 30, "kraft.version": 1}
        assert answer.finalized_features_epoch == 77
        lowest = {f.name: f.min_version for f in answer.supported_features}
        assert lowest["metadata.version"] == 30
        assert (0 in lowest.values()) == (version >= 4)


async def test_an_unknown_version_of_api_versions_is_told_the_versions_of_it() -> None:
    client = Client()
    header = encode_request_header(18, 3, 1, "test")
    data = bytearray(b"".join(frame([header + b"anything at all"])))  # type: ignore[arg-type]
    data[6:8] = (99).to_bytes(2, "big")
    client.connection.on_bytes(memoryview(data), 0)
    answer = client.take_answer(ApiVersionsRequest(), 99)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(row.api_key, row.max_version) for row in answer.api_keys] == [(18, 5)]


async def test_a_client_that_does_not_name_itself_properly_is_refused() -> None:
    answer = await Client().ask(ApiVersionsRequest(client_software_name="spaces no"), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        (None, -1, 0),
        (CLUSTER_ID, 1, 0),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
        (CLUSTER_ID, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
    ],
)
async def test_a_client_that_wanted_another_cluster_or_node_must_bootstrap_again(
    cluster_id: str | None, node_id: int, code: int
) -> None:
    request = ApiVersionsRequest(
        client_software_name="t",
        client_software_version="1",
        cluster_id=cluster_id,
        node_id=node_id,
    )
    assert (await Client().ask(request, 5)).error_code == code


# Metadata


@pytest.mark.parametrize("version", range(14))
async def test_every_version_of_metadata_describes_all_topics(version: int) -> None:
    answer = await Client().ask(MetadataRequest(topics=None if version else []), version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [
        (1, "broker1", 9092),
        (2, "broker2", 9092),
    ]
    assert [topic.name for topic in answer.topics] == ["audit", "orders"]
    orders = answer.topics[1]
    assert [p.leader_id for p in orders.partitions] == [2, 1, -1]
    assert [p.error_code for p in orders.partitions] == [0, 0, ErrorCode.LEADER_NOT_AVAILABLE]
    assert orders.partitions[0].replica_nodes == [2, 1]
    if version >= 1:
        assert answer.controller_id == 1
        assert answer.brokers[0].rack == "rack1"
    if version >= 2:
        assert answer.cluster_id == CLUSTER_ID
    if version >= 5:
        assert [p.offline_replicas for p in orders.partitions] == [[], [3], [3]]
    if version >= 7:
        assert orders.partitions[0].leader_epoch == 4
    if version >= 10:
        assert orders.topic_id == ORDERS_ID


async def test_no_topics_asked_for_are_none_answered() -> None:
    assert (await Client().ask(MetadataRequest(topics=[]), 1)).topics == []


async def test_topics_are_found_by_their_ids() -> None:
    request = MetadataRequest(
        topics=[
            MetadataRequestTopic(topic_id=ORDERS_ID, name=None),
            MetadataRequestTopic(topic_id=UUID(int=9), name=None),
        ]
    )
    found, unknown = (await Client().ask(request, 12)).topics
    assert found.name == "orders"
    assert len(found.partitions) == 3
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert unknown.topic_id == UUID(int=9)


async def test_topic_ids_before_version_12_are_an_invalid_request() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(topic_id=ORDERS_ID, name="")])
    (topic,) = (await Client().ask(request, 10)).topics
    assert topic.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ü", "x" * 250])
async def test_a_name_no_topic_may_have_is_said_to_be_invalid(name: str) -> None:
    client = Client()
    (topic,) = (await client.ask(MetadataRequest(topics=named(name)), 9)).topics
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert client.controller.requests == []


async def test_a_missing_topic_is_not_made_when_the_client_does_not_want_it() -> None:
    client = Client()
    request = MetadataRequest(topics=named("new"), allow_auto_topic_creation=False)
    (topic,) = (await client.ask(request, 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.controller.requests == []


async def test_a_missing_topic_is_not_made_when_the_broker_does_not_allow_it() -> None:
    client = Client(BrokerConfig(node_id=NodeId(1), auto_create_topics_enable=False))
    (topic,) = (await client.ask(MetadataRequest(topics=named("new")), 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.controller.requests == []


def created(request: CreateTopicsRequest) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=topic.name) for topic in request.topics]
    )


async def test_a_missing_topic_is_made_and_the_answer_waits_until_it_is_seen_here() -> None:
    client = Client()
    client.controller.answer = created
    request = MetadataRequest(topics=named("new", "orders"))
    await client.send(request, 9)
    assert not client.is_answered
    (forwarded,) = client.controller.requests
    assert isinstance(forwarded, CreateTopicsRequest)
    assert [topic.name for topic in forwarded.topics] == ["new"]
    assert forwarded.topics[0].num_partitions == -1
    new = Topic("new", UUID(int=3000), PersistentMap({0: partition(1, 1)}))
    await client.publish(with_topic(client.metadata.image, new))
    topics = client.take_answer(request, 9).topics
    assert [(t.name, t.error_code, len(t.partitions)) for t in topics] == [
        ("new", 0, 1),
        ("orders", 0, 3),
    ]
    assert client.purgatory.waiting_count == 0


async def test_a_topic_that_could_not_be_made_is_unknown() -> None:
    client = Client()
    (topic,) = (await client.ask(MetadataRequest(topics=named("new")), 9)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_clients_that_want_the_same_new_topic_share_one_request_and_its_refusal() -> None:
    first, request = Client(), MetadataRequest(topics=named("new"))
    second = first.another()
    first.send_without_running(request, 9)
    slot, asking = first.pending.pop()
    first.controller.pause = True
    asking.send(None)
    await second.send(request, 9)
    assert not second.is_answered
    with pytest.raises(StopIteration):
        asking.send(None)
    first.connection.on_coroutine_ended(slot, None)
    assert len(first.controller.requests) == 1
    for client in (first, second):
        (topic,) = client.take_answer(request, 9).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_made_topic_that_is_never_seen_is_unknown_at_the_deadline() -> None:
    client = Client()
    client.controller.answer = created
    request = MetadataRequest(topics=named("new"))
    await client.send(request, 9)
    deadline_ms = client.purgatory.next_deadline_ms
    assert deadline_ms is not None
    client.purgatory.expire(deadline_ms)
    (topic,) = client.take_answer(request, 9).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_client_that_leaves_while_its_topic_is_made_leaves_nothing_behind() -> None:
    client = Client()
    client.controller.answer = created
    await client.send(MetadataRequest(topics=named("new")), 9)
    assert client.purgatory.waiting_count == 1
    client.connection.close()
    assert client.purgatory.waiting_count == 0


async def test_with_no_advertised_address_a_client_is_told_the_one_it_reached() -> None:
    client = Client(BrokerConfig(node_id=NodeId(1)))
    answer = await client.ask(MetadataRequest(topics=[]), 9)
    assert [(b.host, b.port) for b in answer.brokers] == [("10.0.0.1", 9092), ("broker2", 9092)]


async def test_a_listener_with_a_host_is_told_as_all_brokers_tell_it() -> None:
    """Else one broker would go by two names, and a client hold two connections to it."""
    listeners = (ConfiguredEndpoint("PLAINTEXT", "broker1", 9092),)
    client = Client(BrokerConfig(node_id=NodeId(1), listeners=listeners))
    answer = await client.ask(MetadataRequest(topics=[]), 9)
    assert [(b.host, b.port) for b in answer.brokers] == [("broker1", 9092), ("broker2", 9092)]


@pytest.mark.parametrize("version", [8, 9, 10, 12])
async def test_authorized_operations_are_told_when_asked_for(version: int) -> None:
    request = MetadataRequest(
        topics=named("orders"),
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=version <= 10,
    )
    answer = await Client().ask(request, version)
    assert answer.topics[0].topic_authorized_operations == 3576
    if version <= 10:
        assert answer.cluster_authorized_operations == 8096


# DescribeCluster, DescribeTopicPartitions


@pytest.mark.parametrize("version", range(3))
async def test_describe_cluster_names_the_live_brokers(version: int) -> None:
    answer = await Client().ask(DescribeClusterRequest(), version)
    assert [(b.broker_id, b.host) for b in answer.brokers] == [(1, "broker1"), (2, "broker2")]
    assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, 1)


async def test_describe_cluster_names_fenced_brokers_when_asked() -> None:
    answer = await Client().ask(DescribeClusterRequest(include_fenced_brokers=True), 2)
    assert [(b.broker_id, b.is_fenced) for b in answer.brokers] == [
        (1, False),
        (2, False),
        (3, True),
    ]


@pytest.mark.parametrize(
    ("endpoint_type", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_a_broker_does_not_describe_controllers(endpoint_type: int, code: int) -> None:
    answer = await Client().ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert answer.error_code == code


async def test_topic_partitions_come_in_pages() -> None:
    client = Client()
    seen = []
    cursor = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        answer = await client.ask(request, 0)
        assert sum(len(topic.partitions) for topic in answer.topics) <= 2
        seen += [(t.name, p.partition_index) for t in answer.topics for p in t.partitions]
        if answer.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=answer.next_cursor.topic_name,
            partition_index=answer.next_cursor.partition_index,
        )
    assert seen == [("audit", 0), ("orders", 0), ("orders", 1), ("orders", 2)]


async def page(client: Client, name: str, index: int, *topics: str) -> list[Any]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=topic) for topic in topics],
        response_partition_limit=100,
        cursor=Cursor(topic_name=name, partition_index=index),
    )
    return [
        (topic.name, topic.error_code, [p.partition_index for p in topic.partitions])
        for topic in (await client.ask(request, 0)).topics
    ]


async def test_a_page_begins_where_the_cursor_says_whatever_became_of_it() -> None:
    client = Client()
    assert await page(client, "b-deleted", 3) == [("orders", 0, [0, 1, 2])]
    assert await page(client, "orders", 9) == [("orders", 0, [])]
    assert await page(client, "orders", 1, "orders", "audit") == [("orders", 0, [1, 2])]
    assert await page(client, "zzz", 0) == []


async def test_a_cursor_before_the_first_partition_is_an_invalid_request() -> None:
    """Kafka: "DescribeTopicPartitionsRequest cursor partition must be valid"."""
    found = await page(Client(), "audit", -1, "orders", "audit")
    assert found == [(name, ErrorCode.INVALID_REQUEST, []) for name in ("audit", "orders")]


async def test_topic_partitions_tell_the_eligible_leaders() -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name="orders"), TopicRequest(name="nowhere")]
    )
    answer = await Client().ask(request, 0)
    assert [(t.name, t.error_code) for t in answer.topics] == [
        ("nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 0),
    ]
    first = answer.topics[1].partitions[0]
    assert (first.isr_nodes, first.eligible_leader_replicas) == ([2], [1])


# ListConfigResources


async def resources(client: Client, *types: int, version: int = 1) -> tuple[int, list[Any]]:
    request: Any = request_class(LIST_CONFIG_RESOURCES)()
    request.resource_types = list(types)
    answer = await client.ask(request, version)
    return answer.error_code, [
        (one.resource_type, one.resource_name) for one in answer.config_resources
    ]


def with_settings(client: Client) -> Client:
    image = client.metadata.image
    setting = PersistentMap({"interval.ms": "1000"})
    configs = image.configs.set((16, "lag"), setting).set((32, "workers"), setting)
    client.metadata.image = replace(image, configs=configs)
    return client


async def test_resources_are_listed_by_their_types() -> None:
    """KIP-1142: every topic, every live broker twice (its settings, its loggers), what is set."""
    client = with_settings(Client())
    everything = [
        (2, "audit"),
        (2, "orders"),
        *((4, node) for node in "12"),
        *((8, node) for node in "12"),
        (16, "lag"),
        (32, "workers"),
    ]
    assert await resources(client) == (ErrorCode.NONE, everything)
    assert await resources(client, 32, 2) == (
        ErrorCode.NONE,
        [(32, "workers"), (2, "audit"), (2, "orders")],
    )


async def test_version_0_knows_client_metrics_only() -> None:
    """As ListClientMetricsResources, which it was called before."""
    assert await resources(with_settings(Client()), version=0) == (ErrorCode.NONE, [(16, "lag")])


@pytest.mark.parametrize("kind", [0, 3, 99])
async def test_a_type_nobody_knows_is_an_unsupported_version(kind: int) -> None:
    assert await resources(Client(), 2, kind) == (ErrorCode.UNSUPPORTED_VERSION, [])


# DescribeConfigs


async def describe(
    client: Client, kind: int, name: str, keys: list[str] | None = None, version: int = 4
) -> Any:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        ],
        include_synonyms=True,
        include_documentation=version >= 3,
    )
    return (await client.ask(request, version)).results[0]


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_settings_come_with_their_source_and_synonyms(version: int) -> None:
    client = Client()
    image = client.metadata.image
    configs = image.configs.set(
        (2, "orders"), PersistentMap({"min.insync.replicas": "2", "cleanup.policy": "compact"})
    ).set((4, ""), PersistentMap({"min.insync.replicas": "1"}))
    client.metadata.image = replace(image, configs=configs)
    result = await describe(client, 2, "orders", version=version)
    found = {config.name: config for config in result.configs}
    isr = found["min.insync.replicas"]
    assert (isr.value, isr.config_source, isr.read_only) == ("2", 1, False)
    assert [(s.name, s.value, s.source) for s in isr.synonyms] == [
        ("min.insync.replicas", "2", 1),
        ("min.insync.replicas", "1", 3),
        ("min.insync.replicas", "1", 5),
    ]
    assert (found["cleanup.policy"].value, found["cleanup.policy"].config_source) == ("compact", 1)
    segment = found["segment.bytes"]
    assert (segment.value, segment.config_source) == ("1073741824", 5)
    retention = found["retention.ms"]
    assert (retention.value, retention.config_source) == ("7200000", 4)
    assert retention.synonyms[0].name == "log.retention.hours"
    if version >= 3:
        assert retention.config_type == 5
        assert retention.documentation


@pytest.mark.parametrize(("kind", "source"), [(16, 7), (32, 8)])
async def test_client_metrics_and_groups_have_sources_of_their_own(kind: int, source: int) -> None:
    """Kafka's ConfigSource: CLIENT_METRICS_CONFIG 7, GROUP_CONFIG 8."""
    client = Client()
    configs = {(kind, "mine"): PersistentMap({"interval.ms": "1000"})}
    client.metadata.image = replace(client.metadata.image, configs=PersistentMap(configs))
    (found,) = (await describe(client, kind, "mine")).configs
    assert (found.name, found.value, found.config_source) == ("interval.ms", "1000", source)


async def test_a_brokers_setting_tells_every_place_that_sets_it() -> None:
    client = Client(BrokerConfig(node_id=NodeId(1), texts={"message.max.bytes": "3"}))
    configs = {
        (4, "1"): PersistentMap({"message.max.bytes": "1"}),
        (4, ""): PersistentMap({"message.max.bytes": "2"}),
    }
    client.metadata.image = replace(client.metadata.image, configs=PersistentMap(configs))
    (found,) = (await describe(client, 4, "1", ["message.max.bytes"])).configs
    assert (found.value, found.config_source, found.read_only) == ("1", 2, False)
    assert [(s.value, s.source) for s in found.synonyms] == [
        ("1", 2),
        ("2", 3),
        ("3", 4),
        ("1048588", 5),
    ]
    (default,) = (await describe(client, 4, "")).configs
    assert (default.value, default.config_source) == ("2", 3)


async def test_only_the_settings_asked_for_are_told() -> None:
    result = await describe(Client(), 2, "orders", ["retention.ms", "nonsense"])
    assert [config.name for config in result.configs] == ["retention.ms"]


async def test_a_brokers_settings_say_which_cannot_be_changed_while_it_runs() -> None:
    result = await describe(Client(), 4, "1")
    found = {config.name: config for config in result.configs}
    assert found["num.partitions"].value == "3"
    assert found["num.partitions"].config_source == 4
    assert found["num.partitions"].read_only
    assert not found["log.retention.ms"].read_only


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (2, "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (2, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (4, "2", ErrorCode.INVALID_REQUEST),
        (8, "1", ErrorCode.INVALID_REQUEST),
        (99, "1", ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_resource_that_cannot_be_described_is_refused_by_itself(
    kind: int, name: str, code: int
) -> None:
    result = await describe(Client(), kind, name)
    assert (result.error_code, result.configs) == (code, [])


# Coordinators, groups, the node itself


def offsets_topic(leader: int) -> Topic:
    return Topic(
        "__consumer_offsets",
        UUID(int=4000),
        PersistentMap({index: partition(leader, leader) for index in range(50)}),
    )


def coordinators_of(answer: Any, version: int) -> list[Any]:
    return [answer] if version < 4 else list(answer.coordinators)


def find_request(version: int, key_type: int = 0) -> FindCoordinatorRequest:
    if version < 4:
        return FindCoordinatorRequest(key="g", key_type=key_type if version else 0)
    return FindCoordinatorRequest(coordinator_keys=["g", "h"], key_type=key_type)


@pytest.mark.parametrize("version", range(7))
async def test_a_groups_coordinator_leads_its_partition_of_the_offsets_topic(version: int) -> None:
    client = Client()
    client.metadata.image = with_topic(client.metadata.image, offsets_topic(leader=2))
    answer = await client.ask(find_request(version), version)
    found = coordinators_of(answer, version)
    assert {(f.error_code, f.node_id, f.host, f.port) for f in found} == {(0, 2, "broker2", 9092)}
    assert len(found) == (1 if version < 4 else 2)


@pytest.mark.parametrize("leader", [-1, 3])
async def test_a_group_whose_partition_nobody_leads_has_no_coordinator(leader: int) -> None:
    client = Client()
    client.metadata.image = with_topic(client.metadata.image, offsets_topic(leader))
    answer = await client.ask(find_request(2), 2)
    assert (answer.error_code, answer.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)


async def test_the_first_group_has_the_offsets_topic_made_and_waits_for_its_leaders() -> None:
    client = Client()
    client.controller.answer = created
    await client.send(find_request(6), 6)
    assert not client.is_answered
    (asked,) = client.controller.requests
    assert isinstance(asked, CreateTopicsRequest)
    (topic,) = asked.topics
    assert (topic.name, topic.num_partitions) == ("__consumer_offsets", 50)
    assert topic.replication_factor == 3
    assert {(one.name, one.value) for one in topic.configs} >= {("cleanup.policy", "compact")}
    await client.publish(with_topic(client.metadata.image, offsets_topic(leader=1)))
    answer = client.take_answer(find_request(6), 6)
    assert {found.node_id for found in answer.coordinators} == {1}


async def test_without_room_for_the_offsets_topic_there_is_no_coordinator() -> None:
    client = Client()
    client.controller.answer = RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR)
    answer = await client.ask(find_request(6), 6)
    codes = {found.error_code for found in answer.coordinators}
    assert codes == {ErrorCode.COORDINATOR_NOT_AVAILABLE}


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (1, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, 5, ErrorCode.INVALID_REQUEST),
        (9, 6, ErrorCode.INVALID_REQUEST),
    ],
)
async def test_nothing_but_groups_is_coordinated(
    key_type: int, version: int, code: ErrorCode
) -> None:
    answer = await Client().ask(find_request(version, key_type), version)
    assert {found.error_code for found in answer.coordinators} == {code}


async def test_describe_node_tells_the_state_the_recovery_and_the_numbers() -> None:
    answer = await Client().ask(DescribeNodeRequest(), 0)
    assert (answer.node_id, answer.state) == (1, "RECOVERY")
    assert [(r.log_dir, r.remaining_logs, r.bytes_done) for r in answer.recovery] == [
        ("/data", 3, 400)
    ]
    assert [(m.name, m.value) for m in answer.metrics] == [("a", 1.0), ("b", 2.0)]


# Forwarding


@pytest.mark.parametrize("version", range(2, 8))
async def test_create_topics_is_answered_once_this_broker_has_the_topic(version: int) -> None:
    client = Client()
    client.controller.answer = created
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name="new", num_partitions=1, replication_factor=1)]
    )
    await client.send(request, version)
    assert not client.is_answered
    new = Topic("new", UUID(int=3000), PersistentMap({0: partition(1, 1)}))
    await client.publish(with_topic(client.metadata.image, new))
    assert client.take_answer(request, version).topics[0].error_code == 0


async def test_a_change_is_answered_once_this_broker_has_its_records() -> None:
    """Whatever they are, and whatever else they came with."""
    client = Client()
    client.controller.answer = lambda _: UnregisterBrokerResponse()
    request = UnregisterBrokerRequest(broker_id=3)
    client.controller.metadata_offset = Offset(79)
    await client.send(request, 0)
    assert not client.is_answered
    await client.publish(client.metadata.image)
    assert client.metadata.image.provenance.offset == 78
    assert not client.is_answered
    await client.publish(client.metadata.image)
    client.take_answer(request, 0)


async def test_what_changed_nothing_is_answered_at_once() -> None:
    client = Client()
    client.controller.answer = lambda _: UnregisterBrokerResponse()
    client.controller.metadata_offset = Offset(0)
    await client.ask(UnregisterBrokerRequest(broker_id=3), 0)


async def test_records_that_do_not_come_hold_an_answer_up_for_a_bounded_time() -> None:
    client = Client()
    client.controller.answer = lambda _: UnregisterBrokerResponse()
    request = UnregisterBrokerRequest(broker_id=3)
    await client.send(request, 0)
    client.purgatory.expire(client.config.request_timeout_ms + SEEN_HERE_MS_MAX)
    client.take_answer(request, 0)


async def test_validating_a_topic_waits_for_nothing() -> None:
    client = Client()
    client.controller.answer = created
    request = CreateTopicsRequest(topics=[CreatableTopic(name="new")], validate_only=True)
    assert (await client.ask(request, 7)).topics[0].name == "new"


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(key, version) for key in sorted(REFUSALS) for version in API[key].advertised],
)
async def test_a_controller_out_of_reach_is_told_in_each_apis_own_form(
    api_key: int, version: int
) -> None:
    client = Client()
    client.controller.answer = RefusedError(ErrorCode.NETWORK_EXCEPTION)
    request = request_class(api_key)()
    match request:
        case CreateTopicsRequest():
            request.topics = [CreatableTopic(name="new")]
        case CreatePartitionsRequest():
            request.topics = [CreatePartitionsTopic(name="orders", count=9)]
        case DeleteTopicsRequest() if version < 6:
            request.topic_names = ["orders"]
    answer = await client.ask(request, version)
    parts = getattr(answer, "topics", None) or getattr(answer, "results", None)
    parts = parts or getattr(answer, "responses", None) or [answer]
    codes = {getattr(part, "error_code", None) for part in parts}
    if request in (request_class(api_key)(),) and not hasattr(answer, "error_code"):
        return  # nothing was asked for, so there is nobody to tell
    if api_key == 43 and version == 0:
        return  # ElectLeaders 0 has an error for each partition only
    assert codes == {ErrorCode.REQUEST_TIMED_OUT}


async def test_the_request_after_a_forwarded_one_waits_for_its_answer() -> None:
    client = Client()
    client.controller.answer = created
    await client.send(CreateTopicsRequest(topics=[CreatableTopic(name="new")]), 7)
    await client.send(MetadataRequest(), 1)
    assert not client.is_answered
    new = Topic("new", UUID(int=3000), PersistentMap({0: partition(1, 1)}))
    await client.publish(with_topic(client.metadata.image, new))
    client.connection.resume(0)
    assert client.connection.request_count == 2


class SeededRng(random.Random):
    """Chance that repeats itself."""

    def below(self, bound: int) -> int:
        return self.randrange(bound)

    def uuid(self) -> UUID:
        return UUID(int=self.getrandbits(128))


@pytest.mark.parametrize("api_key", sorted(CLUSTER_API_KEYS | {18, 20000}))
async def test_random_requests_of_every_version_are_answered(api_key: int) -> None:
    client = Client()
    rng = SeededRng(api_key)
    for version in range(API[api_key].lowest, API[api_key].latest_stable + 1):
        for _ in range(30):
            request = example(request_class(api_key), version, rng)
            await client.send(request, version)
            if not client.is_answered:
                deadline_ms = client.purgatory.next_deadline_ms
                assert deadline_ms is not None
                client.purgatory.expire(deadline_ms)
            client.take_answer(request, version)
