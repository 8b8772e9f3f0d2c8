"""The metadata workload, performed with Ottla's own client: every write is one request, and every
read goes to one broker.

Ottla's Admin retries safe requests. This client retries nothing, so that each request is one
operation of a history.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from ottla.client.network.answer_checks import only
from ottla.client.network.cluster import Cluster, open_cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.jepsen.clients.completions import failed, ok, troubled, unknown
from ottla.jepsen.clients.own import OwnClient
from ottla.jepsen.clients.own_producer_ids import beginning_elsewhere
from ottla.jepsen.clients.own_sending import DEADLINE_MS, REQUEST_TIMEOUT_MS
from ottla.jepsen.clients.renewable import Renewable
from ottla.jepsen.history import EventKind, Json
from ottla.jepsen.workloads.load import Completion, LoadPlan, Note, Op
from ottla.jepsen.workloads.metadata import CONFIG
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.resources import AlterOperation, ConfigKind, ConfigSource
from ottla.wire.apis import DELETE_TOPICS_STATES_FROM
from ottla.wire.messages.create_partitions_request import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_partitions_response import CreatePartitionsResponse
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest
from ottla.wire.messages.delete_topics_response import DeleteTopicsResponse
from ottla.wire.messages.describe_configs_request import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from ottla.wire.messages.describe_configs_response import DescribeConfigsResponse
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.incremental_alter_configs_response import IncrementalAlterConfigsResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse

DELETE_BY_NAME_VERSION = DELETE_TOPICS_STATES_FROM - 1
NEVER_DONE: Mapping[str, frozenset[ErrorCode]] = {
    "create": frozenset({ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.INVALID_CONFIG}),
    "delete": frozenset({ErrorCode.TOPIC_DELETION_DISABLED}),
    "partitions": frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}),
    "set-config": frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_CONFIG}),
}
"""Error codes, by operation, that prove that the operation had no effect. None of them can be
caused by an earlier attempt whose response was lost."""


LOOK_EVERY = 100
"""Number of requests after which the client refreshes its list of brokers."""

REFUSALS = frozenset(
    {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Error codes from a reachable controller that show that the request did not fit the state of the
cluster."""


class Brokers:
    """Rotation over all brokers that a view of the cluster has ever contained. Each broker receives
    requests in turn."""

    def __init__(self, cluster: Cluster, turn: int) -> None:
        self.cluster = cluster
        self._addresses: dict[NodeId, tuple[str, int]] = {}
        self._turn = turn

    async def next(self) -> NodeId:
        """Return the id of the next broker in the rotation. The broker may be unreachable."""
        self._turn += 1
        if not self._addresses or self._turn % LOOK_EVERY == 0:
            for broker in (await self.cluster.metadata([])).brokers:
                self._addresses[NodeId(broker.node_id)] = broker.host, broker.port
        if not self._addresses:
            raise ConnectionLostError("no broker is known")
        node = sorted(self._addresses)[self._turn % len(self._addresses)]
        # Other brokers do not list a fenced broker, but it still answers, so it is asked too.
        self.cluster.learn_address(node, *self._addresses[node])
        return node


@asynccontextmanager
async def open_brokers(bootstrap: str, turn: int) -> AsyncIterator[Brokers]:
    """Open a view of the cluster, and yield the rotation over its brokers. `turn` is the index of
    the broker that receives the first request."""
    async with open_cluster(
        beginning_elsewhere(bootstrap, turn),
        client_id="jepsen",
        request_timeout_s=2 * REQUEST_TIMEOUT_MS / 1_000,
    ) as cluster:
        yield Brokers(cluster, turn)


class OwnMetadataClient(OwnClient):
    """Load client for one thread of the metadata workload, with Ottla's own client."""

    def __init__(
        self, nursery: trio.Nursery, bootstrap: str, thread: int, note: Note, plan: LoadPlan
    ) -> None:
        super().__init__(nursery, bootstrap, thread, note)
        self._turn = thread
        self._brokers: Renewable[Brokers] = Renewable(
            nursery, lambda: open_brokers(bootstrap, self._turn)
        )
        self.parts = [self._brokers]

    @property
    def operations(self) -> Mapping[str, Callable[[Op], Awaitable[Completion]]]:
        """Functions that perform the workload's operations, by operation name."""
        return {
            "create": self._create,
            "partitions": self._partitions,
            "set-config": self._set_config,
            "delete": self._delete,
            "describe": self._describe,
            "settle": self._settle,
        }

    def on_crash(self) -> None:
        """Start the rotation of brokers with another broker after a crash of this client."""
        self._turn += 1

    async def _create(self, op: Op) -> Completion:
        topic = CreatableTopic(
            name=op.value["topic"], num_partitions=op.value["count"], replication_factor=1
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=DEADLINE_MS)
        cluster = (await self._brokers.get()).cluster
        result = only((await cluster.request(request, CreateTopicsResponse)).topics, "topic")
        done = _judged(op, result.error_code, result.error_message)
        return done or ok({**op.value, "id": str(result.topic_id)})

    async def _partitions(self, op: Op) -> Completion:
        topic = CreatePartitionsTopic(
            name=op.value["topic"], count=op.value["count"], assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=DEADLINE_MS)
        cluster = (await self._brokers.get()).cluster
        result = only((await cluster.request(request, CreatePartitionsResponse)).results, "topic")
        return _judged(op, result.error_code, result.error_message) or ok()

    async def _set_config(self, op: Op) -> Completion:
        changes = [
            AlterableConfig(name=name, config_operation=AlterOperation.SET, value=value)
            for name, value in op.value["config"].items()
        ]
        resource = AlterConfigsResource(
            resource_type=ConfigKind.TOPIC, resource_name=op.value["topic"], configs=changes
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        cluster = (await self._brokers.get()).cluster
        answer = await cluster.request(request, IncrementalAlterConfigsResponse)
        result = only(answer.responses, "resource")
        return _judged(op, result.error_code, result.error_message) or ok()

    async def _delete(self, op: Op) -> Completion:
        request = DeleteTopicsRequest(topic_names=[op.value["topic"]], timeout_ms=DEADLINE_MS)
        cluster = (await self._brokers.get()).cluster
        answer = await cluster.request(
            request, DeleteTopicsResponse, version=DELETE_BY_NAME_VERSION
        )
        result = only(answer.responses, "topic")
        return _judged(op, result.error_code, result.error_message) or ok()

    async def _settle(self, op: Op) -> Completion:
        await trio.sleep(op.value)
        return ok()

    async def _describe(self, op: Op) -> Completion:
        brokers = await self._brokers.get()
        node = await brokers.next()
        ask = _topic_of if op.value["part"] == "topic" else _config_of
        try:
            result = await ask(brokers.cluster, node, op.value["topic"])
        except ConnectionLostError as error:
            return troubled(op, error)
        value = {"topic": op.value["topic"], "broker": int(node)}
        if isinstance(result, int):
            return failed(f"{ErrorCode(result).name}: broker {node}", value)
        return ok({**value, **result})


async def _topic_of(cluster: Cluster, node: NodeId, topic: str) -> dict[str, Json] | int:
    """Return a topic's id and partition count as one broker describes them, or the error code if
    the broker refuses."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    answer = await cluster.request(request, MetadataResponse, node=node)
    result = only(answer.topics, "topic")
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return {"id": None, "count": None}
    if result.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        return int(result.error_code)
    return {"id": str(result.topic_id), "count": len(result.partitions)}


async def _config_of(cluster: Cluster, node: NodeId, topic: str) -> dict[str, Json] | int:
    """Return the value of a topic's setting as one broker describes it, or the error code if the
    broker refuses."""
    asked = DescribeConfigsResource(
        resource_type=ConfigKind.TOPIC, resource_name=topic, configuration_keys=[CONFIG]
    )
    request = DescribeConfigsRequest(resources=[asked])
    answer = await cluster.request(request, DescribeConfigsResponse, node=node)
    result = only(answer.results, "resource")
    if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return {"config": None}
    if result.error_code != ErrorCode.NONE:
        return int(result.error_code)
    found: dict[str, Any] = {
        one.name: one.value if one.config_source == ConfigSource.TOPIC else None
        for one in result.configs
    }
    return {"config": found}


def _judged(op: Op, code: int, message: str | None) -> Completion | None:
    """Return the completion (outcome event) of a write that was refused with `code`, or None if the
    write succeeded."""
    if code == ErrorCode.NONE:
        return None
    refusal = ErrorCode(code)
    text = f"{refusal.name}: {message}"
    extra = {"refused": True} if refusal in REFUSALS else {}
    if refusal in NEVER_DONE[op.f]:
        return Completion(EventKind.FAIL, None, text, extra)
    return unknown(op, text, extra)
