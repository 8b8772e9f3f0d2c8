"""Fuzz target: requests of brokers and clients to the active controller.

The records of the controller's decision must be writable, and must apply to the metadata. Any error
other than a refusal would end the controller.
"""

from collections.abc import Callable, Iterator
from copy import copy
from functools import cache
from random import Random
from typing import Any

from google.protobuf.message import DecodeError, Message

from ottla.controller import producer_ids
from ottla.controller.client_requests import DECISIONS as FORWARDED
from ottla.controller.decision import Decision
from ottla.controller.membership import brokers
from ottla.controller.membership.sessions import BrokerSessions
from ottla.controller.replication import partitions
from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.fuzz.target import FuzzTarget, number_of, numbered
from ottla.jepsen.fuzz.targets.metadata import check_image
from ottla.jepsen.in_memory_controller import (
    IDENTITY,
    CountingRng,
    InMemoryController,
    registration,
)
from ottla.model.errors import ProtocolError, RefusedError
from ottla.model.ids import NodeId
from ottla.model.limits import MIB
from ottla.proto import controller_pb2 as pb
from ottla.wire.apis import API, request_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_examples import example
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)

FORWARDED_VERSIONS = tuple(
    (key, version)
    for key in sorted(FORWARDED)
    for version in range(API[key].lowest, API[key].highest + 1)
)


@cache
def _cluster() -> InMemoryController:
    """Return the controller of a cluster with three brokers and two topics, the same for every
    input."""
    cluster = InMemoryController()
    cluster.start(1, 2, 3)
    for name in ("t", "topic-1"):
        assignments = [
            CreatableReplicaAssignment(partition_index=at, broker_ids=[1 + at, 2 + at])
            for at in range(2)
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        cluster.forward(CreateTopicsRequest(topics=[topic]))
    return cluster


def _as_it_was() -> InMemoryController:
    cluster = copy(_cluster())
    cluster.rng = CountingRng(drawn=cluster.rng.drawn)
    cluster.sessions = BrokerSessions(cluster.config.session_timeout_ms)
    cluster.sessions.reset(cluster.image, cluster.now_ms)
    return cluster


def _register(cluster: InMemoryController, request: pb.RegisterRequest) -> Decision[Any]:
    return brokers.register(
        cluster.image,
        cluster.config,
        cluster.sessions,
        request,
        identity=IDENTITY,
        next_offset=cluster.next_offset,
        now_ms=cluster.now_ms,
    )


def _heartbeat(cluster: InMemoryController, request: pb.HeartbeatRequest) -> Decision[Any]:
    brokers.steady_heartbeat(cluster.image, cluster.sessions, request, now_ms=cluster.now_ms)
    return brokers.heartbeat(
        cluster.image,
        cluster.config,
        cluster.sessions,
        request,
        next_offset=cluster.next_offset,
        now_ms=cluster.now_ms,
    )


BROKER_CALLS: tuple[
    tuple[type[Message], Callable[[InMemoryController, Any], Decision[Any]]], ...
] = (
    (pb.RegisterRequest, _register),
    (pb.HeartbeatRequest, _heartbeat),
    (
        pb.AlterPartitionRequest,
        lambda cluster, request: partitions.alter_partition(cluster.image, cluster.config, request),
    ),
    (
        pb.AllocateProducerIdsRequest,
        lambda cluster, request: producer_ids.allocate_producer_ids(cluster.image, request),
    ),
    (
        pb.AssignReplicasToDirsRequest,
        lambda cluster, request: partitions.assign_replicas_to_dirs(
            cluster.image, cluster.config, request
        ),
    ),
    (
        pb.UnregisterRequest,
        lambda cluster, request: brokers.unregister(
            cluster.image, cluster.config, request.broker_id
        ),
    ),
)
CHOICES = len(BROKER_CALLS) + len(FORWARDED_VERSIONS)


def _decide(data: bytes) -> None:
    cluster = _as_it_was()
    number = number_of(data, CHOICES)
    if number < len(BROKER_CALLS):
        kind, call = BROKER_CALLS[number]
        answer = cluster.take(call(cluster, kind.FromString(data[2:])))
        if answer is not None:
            answer.SerializeToString()
    else:
        api_key, version = FORWARDED_VERSIONS[number - len(BROKER_CALLS)]
        request = decode(request_class(api_key), version, data, min(2, len(data)))
        encode(cluster.forward(request, version), version)
    check_image(cluster.image)


def broker_requests() -> Iterator[Message]:
    """Yield one valid request for each RPC of a broker to the controller, in the order of the
    RPCs."""
    epoch = _cluster().image.brokers[NodeId(1)].epoch
    topic = _cluster().image.topic("t")
    assert topic is not None
    who: dict[str, Any] = {"broker_id": 1, "broker_epoch": epoch}
    proposal = pb.AlterPartitionProposal(
        partition_id=0,
        leader_epoch=topic.partitions[0].leader_epoch,
        partition_epoch=topic.partitions[0].partition_epoch,
        new_isr=[pb.BrokerState(broker_id=1, broker_epoch=epoch)],
    )
    directory = pb.DirectoryAssignment(
        directory_id=_cluster().image.brokers[NodeId(1)].log_dirs[0].bytes,
        topics=[pb.DirectoryTopic(topic_id=topic.id.bytes, partitions=[0])],
    )
    yield registration(4)
    yield pb.HeartbeatRequest(**who, current_metadata_offset=1, want_shut_down=True)
    yield pb.AlterPartitionRequest(
        **who, topics=[pb.AlterPartitionTopic(topic_id=topic.id.bytes, partitions=[proposal])]
    )
    yield pb.AllocateProducerIdsRequest(**who)
    yield pb.AssignReplicasToDirsRequest(**who, directories=[directory])
    yield pb.UnregisterRequest(broker_id=3)


def _seeds(random: Random) -> Iterator[bytes]:
    rows: list[list[bytes]] = [[request.SerializeToString()] for request in broker_requests()]
    rng = FuzzRng(random)
    for api_key, version in FORWARDED_VERSIONS:
        kind = request_class(api_key)
        found = [encode(kind(), version)]
        found += [encode(example(kind, version, rng), version) for _ in range(6)]
        rows.append([data for data in found if len(data) < 2_000])
    return numbered(rows)


def _name_of(data: bytes) -> str:
    number = number_of(data, CHOICES)
    if number < len(BROKER_CALLS):
        return BROKER_CALLS[number][0].__name__
    api_key, version = FORWARDED_VERSIONS[number - len(BROKER_CALLS)]
    return f"{API[api_key].name} v{version}"


DECISIONS = FuzzTarget(
    name="decisions",
    sentence="requests of brokers and clients to the active controller",
    check=_decide,
    seeds=_seeds,
    refusals=(ProtocolError, RefusedError, DecodeError),
    name_of=_name_of,
    allocation_free_bytes=2 * MIB,
)
