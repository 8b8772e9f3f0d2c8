"""A controller that gets the requests of the gRPC oracles, and the true objects of its cluster.

A `GrpcCaller` blocks its thread: it calls a controller at an address, and fills a cluster there
with objects to lose: registered brokers and a topic of many partitions.
"""

import contextlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ottla.metadata.features import SUPPORTED
from ottla.model.errors import RefusedError
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.rpc import controller_methods as methods
from ottla.rpc.blocking_driver import BlockingChannel
from ottla.rpc.cluster_id import CLUSTER_ID
from ottla.rpc.method import RpcMethod
from ottla.wire.codec import decode, encode
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from tests.jepsen.oracles.grpc_requests import Truth, forward_request
from tests.jepsen.oracles.kafka_values import ClusterNames, ExistingTopic

CREATE_TOPICS_VERSION = 7
BROKERS = (1, 2, 3)
SMALL_TOPICS, SMALL_TOPIC_PARTITIONS = 100, 10
ANSWER_S_MAX = 30.0
CALL_S_MAX = 3.0
"""Time-out of a request that need not be answered: one that waits by its nature is left then."""


class GrpcCaller:
    """One gRPC connection to a controller, for a thread that waits."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._channel = BlockingChannel(address)

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def outcome(self, path: str, data: bytes, *, timeout_s: float = CALL_S_MAX) -> str:
        """Call a method; return its outcome: "answered", or the error code of the refusal."""
        try:
            self._channel.call_bytes(path, data, timeout_s=timeout_s)
        except RefusedError as refusal:
            return refusal.code.name
        return "answered"

    def ask(self, method: RpcMethod[Any, Any], request: Any) -> Any:
        """Ask something that must be answered.  Raises RefusedError if it is not."""
        return self._channel.call(method, request, timeout_s=ANSWER_S_MAX)


def fill(caller: GrpcCaller, *, large_topic_partitions: int) -> tuple[Truth, ClusterNames]:
    """Register brokers and create topics; return the resulting objects."""
    cluster_id = caller.ask(CLUSTER_ID, CLUSTER_ID.request_class()).value
    epochs = [_register(caller, cluster_id, broker) for broker in BROKERS]
    names = ["a-large", *(f"small-{number:03}" for number in range(SMALL_TOPICS))]
    counts = [large_topic_partitions, *[SMALL_TOPIC_PARTITIONS] * SMALL_TOPICS]
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=len(BROKERS))
        for name, count in zip(names, counts, strict=True)
    ]
    body = encode(CreateTopicsRequest(topics=topics), CREATE_TOPICS_VERSION)
    request = pb.ForwardRequest.FromString(
        forward_request(CreateTopicsRequest.API_KEY, CREATE_TOPICS_VERSION, body)
    )
    answer = caller.ask(methods.FORWARD, request)
    made = decode(CreateTopicsResponse, CREATE_TOPICS_VERSION, answer.body).topics
    assert not any(topic.error_code for topic in made), made[0].error_message
    ids = [topic.topic_id for topic in made]
    truth = Truth(
        {
            "cluster_id": [cluster_id],
            "broker_id": BROKERS[:1],
            "broker_epoch": epochs[:1],
            "topic_id": [one.bytes for one in ids],
            "replica_id": [2],
            "leader_id": [2],
            "leader_epoch": [0],
            "partition_epoch": [0],
            "bytes_max": [1 << 20],
            "api_key": [CreateTopicsRequest.API_KEY],
            "api_version": [CREATE_TOPICS_VERSION],
            "body": [body],
        }
    )
    known = [
        ExistingTopic(name=name, id=one, partition_count=count)
        for name, one, count in zip(names, ids, counts, strict=True)
    ]
    return truth, ClusterNames(topics=known, groups=["group-1"], brokers=BROKERS)


def _register(caller: GrpcCaller, cluster_id: str, broker: int) -> int:
    registered = caller.ask(
        methods.REGISTER,
        pb.RegisterRequest(
            cluster_id=cluster_id,
            broker_id=broker,
            incarnation_id=UUID(int=broker + 1_000).bytes,
            listeners=[metadata_pb2.Endpoint(name="PLAINTEXT", host="localhost", port=9092)],
            features=[
                metadata_pb2.FeatureRange(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in SUPPORTED.items()
            ],
            log_dirs=[UUID(int=broker + 2_000).bytes],
            previous_broker_epoch=-1,
        ),
    )
    epoch: int = registered.broker_epoch
    caller.ask(
        methods.HEARTBEAT,
        pb.HeartbeatRequest(
            broker_id=broker, broker_epoch=epoch, current_metadata_offset=epoch + 1_000
        ),
    )
    return epoch


@contextlib.contextmanager
def open_caller(address: str) -> Iterator[GrpcCaller]:
    """Open a connection for the length of the `with`."""
    caller = GrpcCaller(address)
    try:
        yield caller
    finally:
        caller.close()
