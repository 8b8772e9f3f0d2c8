"""Paths through the modules, as docs/ARCHITECTURE.md describes them: their lengths.

Requests, changes of the metadata from the controller to a broker, and pushes of clients' metrics.

A longer path is harder to read. Raise a count only with a reason; lower it when you can. A path
also names the function that decides its request: a walk that misses it measures something else.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import pytest
import trio
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData
from trio.testing import MockClock

from ottla.bench.requests import frame_of
from ottla.broker.metrics.telemetry_driver import ClientTelemetry
from ottla.controller.controller_driver import Controller
from ottla.controller.upkeep_driver import Upkeep
from ottla.jepsen.fuzz.mini_broker import CONFIG, LOCAL, TOPIC, FrozenClock, MiniBroker, id_of
from ottla.jepsen.in_memory_controller import registration
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.metadata.image import EMPTY
from ottla.metadata.publisher import Publisher
from ottla.model.ids import NodeId
from ottla.model.limits import MIB
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.model.settings.storage.disks import DiskConfig
from ottla.model.settings.telemetry.exporters import ExporterConfig, parse_otlp_endpoints
from ottla.model.settings.telemetry.metrics import MetricsConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.identity import prepare_controller_directory, quorum_identity
from ottla.node.quorum.quorum_driver import open_quorum_member
from ottla.proto import controller_pb2 as pb
from ottla.storage.directories.free_space_driver import FreeSpaceMonitor
from ottla.telemetry.exporters import otlp_exporter_driver
from ottla.telemetry.exporters.export_queue import ExportOutcome, ExportVerdict
from ottla.wire.apis import CREATE_TOPICS, response_class
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import decode_response_header
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest

LABORATORY = ("ottla.jepsen.", "ottla.bench.")
WARM_UP = 2
"""Requests before the one that is traced: codecs are compiled at the first."""


@dataclass
class Walk:
    """The calls of our functions within a block."""

    modules: set[str] = field(default_factory=set)
    entered: set[str] = field(default_factory=set)
    """Names of the functions, with their modules and classes."""

    def check(self, handlers: tuple[str, ...], most: int) -> None:
        """Assert that the path enters its handlers, and passes through `most` modules at most."""
        assert set(handlers) <= self.entered, "\n".join(sorted(self.entered))
        assert len(self.modules) <= most, "\n".join(sorted(self.modules))


@contextmanager
def tracing() -> Iterator[Walk]:
    """Record the calls of this thread, of all its tasks."""
    found = Walk()

    def note(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and is_ours(module):
            found.modules.add(module)
            found.entered.add(f"{module}.{frame.f_code.co_qualname}")

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def walk(broker: MiniBroker, message: Message, version: int) -> Walk:
    """Trace one request through a broker."""
    data = frame_of(message, version)
    for _ in range(WARM_UP):
        broker.take(data, MIB)
    with tracing() as found:
        answer = broker.take(data, MIB)
    assert answer, "it was answered within the trace"
    return found


def is_ours(module: str) -> bool:
    return module.startswith("ottla.") and not module.startswith(LABORATORY)


def produce() -> tuple[Message, int]:
    data = [PartitionProduceData(index=0, records=build_batch([(1, None, b"v")]))]
    topic = TopicProduceData(name=TOPIC, partition_data=data)
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 12


def produce_to_two() -> tuple[Message, int]:
    """A request that the flat codec leaves to the generated one."""
    message, version = produce()
    assert isinstance(message, ProduceRequest)
    (topic,) = message.topic_data
    topic.partition_data += [PartitionProduceData(index=1, records=topic.partition_data[0].records)]
    return message, version


def fetch_by_id() -> tuple[Message, int]:
    """As current clients ask: a few records are answered on a shorter way."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchTopic(topic_id=id_of(TOPIC), partitions=[asked])
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], max_bytes=MIB), 17


def fetch() -> tuple[Message, int]:
    """As old clients ask, who name topics: the flat codec leaves it to the generated one."""
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    topic = FetchTopic(topic=TOPIC, partitions=[asked])
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], max_bytes=MIB), 12


def create_topics() -> tuple[Message, int]:
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=True), 7


def commit() -> tuple[Message, int]:
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=parts)]
    return OffsetCommitRequest(group_id="committers", topics=topics), 9


PRODUCE = "ottla.broker.logs.produce.ProduceApi._append"
COMMIT = "ottla.broker.groups.shard.GroupShard.commit"
FETCH = "ottla.broker.logs.fetch.FetchApi.handle"


@pytest.mark.parametrize(
    ("way", "handler", "most"),
    [
        (produce, PRODUCE, 19),
        (produce_to_two, PRODUCE, 26),
        (fetch_by_id, FETCH, 19),
        (fetch, FETCH, 27),
        (commit, COMMIT, 40),
        (create_topics, "ottla.controller.replication.topics.create_topics", 35),
    ],
)
def test_no_way_through_the_house_gets_longer(
    way: Callable[[], tuple[Message, int]], handler: str, most: int
) -> None:
    broker = MiniBroker(frame_bytes_max=MIB)
    broker.take(frame_of(*produce()), MIB)  # there is a record to be fetched
    walk(broker, *way()).check((handler,), most)


# --- changes of the metadata -------------------------------------------------------------------

CONTROLLER, LEADER, OTHER_LEADER = NodeId(101), NodeId(2), NodeId(3)
SESSION_MS = 600_000
"""No session expires by itself: a path ends one."""


class VirtualClock:
    """Trio's clock."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1_000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


@dataclass
class MetadataPath:
    """An active controller with a log of its own, and a broker that applies what it commits."""

    broker: MiniBroker
    controller: Controller
    cluster_id: str

    async def start(self, node: NodeId) -> None:
        """Register a broker and unfence it."""
        request = registration(node)
        request.cluster_id = self.cluster_id
        epoch = (await self.controller.register(request)).broker_epoch
        heartbeat = pb.HeartbeatRequest(
            broker_id=node, broker_epoch=epoch, current_metadata_offset=epoch + 1
        )
        await self.controller.heartbeat(heartbeat)

    async def create(self, name: str, *replicas: NodeId) -> None:
        """Create a topic of one partition, and wait until the broker has its log."""
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
        )
        body = encode(CreateTopicsRequest(topics=[topic]), 7)
        await self.controller.decide_client_request(CREATE_TOPICS, 7, body)
        await self.until(lambda: self.has_log(name))

    async def fail(self, node: NodeId, name: str) -> None:
        """End a broker's session, and wait until this broker leads its partition."""
        self.controller.end_session(node)
        await self.until(lambda: self.leads(name))

    async def until(self, is_applied: Callable[[], bool]) -> None:
        while not is_applied():
            await trio.sleep(0.001)

    def has_log(self, name: str) -> bool:
        return any(one.topic == name and one.log for one in self.broker.table)

    def leads(self, name: str) -> bool:
        return any(one.topic == name and one.is_leader for one in self.broker.table)


class NoRpc:
    """Remote procedures of a lone voter, which has no peers."""

    async def serve(self, *arguments: Any, **options: Any) -> int:
        raise NotImplementedError

    async def channel(self, address: str) -> Any:
        raise NotImplementedError

    async def stop_serving(self) -> None:
        raise NotImplementedError


@asynccontextmanager
async def metadata_path() -> AsyncIterator[MetadataPath]:
    clock, rng, rpc, errors = VirtualClock(), SeededRng(1), NoRpc(), UnexpectedErrors()
    disk = SimulatedDisk(rng)
    voter = ConfiguredVoter(CONTROLLER, "127.0.0.1", 1)
    config = ControllerConfig(
        node_id=CONTROLLER,
        metadata_log_dir="/metadata",
        controller_quorum_voters=(voter,),
        session_timeout_ms=SESSION_MS,
    )
    directory = config.metadata_log_dir
    properties = await prepare_controller_directory(disk, config, rng, wall_ms=0)
    identity = await quorum_identity(disk, directory, properties, (voter,))
    opened = open_quorum_member(
        disk=disk,
        metadata_log_dir=directory,
        identity=identity,
        config=config.quorum,
        rpc=rpc,
        clock=clock,
        rng=rng,
        free_space=FreeSpaceMonitor(disk, directory, DiskConfig()),
        errors=errors,
    )
    async with opened as member, trio.open_nursery() as nursery:
        controller = Controller(member, config, identity, clock, rng)
        nursery.start_soon(Upkeep(controller, config, errors).run)
        await controller.wait_active()
        broker = MiniBroker(image=EMPTY)
        core = broker.core
        publishers: list[Publisher] = [core.metadata, core.replicas, *core.coordinators]
        for publisher in publishers:
            member.add_publisher(publisher)
        path = MetadataPath(broker, controller, identity.cluster_id)
        for node in (LOCAL, LEADER, OTHER_LEADER):
            await path.start(node)
        yield path
        assert not errors.counts, errors.counts
        nursery.cancel_scope.cancel()


APPLIED = (
    "ottla.controller.controller_driver.Controller._append",
    "ottla.node.quorum.quorum_driver.QuorumMember.append",
    "ottla.raft.performer.perform",
    "ottla.node.quorum.image_loader_driver.ImageLoader._publish",
    "ottla.broker.replicas.replica_manager.ReplicaManager.publish",
    "ottla.broker.replicas.partition.Partition.apply",
)
"""Functions of every change of a partition, from the controller's decision to the broker."""


async def test_no_way_of_a_failover_gets_longer(autojump_clock: MockClock) -> None:
    """From a session's end at the controller until another broker leads."""
    async with metadata_path() as path:
        await path.create("first", OTHER_LEADER, LOCAL)
        await path.create("second", LEADER, LOCAL)
        await path.fail(OTHER_LEADER, "first")
        assert not path.leads("second")
        with tracing() as found:
            await path.fail(LEADER, "second")
    handlers = (
        "ottla.controller.membership.brokers.fence_expired",
        "ottla.controller.replication.partition_change.elect",
        "ottla.broker.replicas.partition.Partition._begin_leading",
    )
    # Of them three for voters in the log and for levels of records: `record_levels`,
    # `voter_history`, `voter_changes`.
    found.check((*handlers, *APPLIED), 74)


async def test_no_way_of_a_new_topic_gets_longer(autojump_clock: MockClock) -> None:
    """From the controller's queue until the broker has the log."""
    async with metadata_path() as path:
        await path.create("first", LOCAL)
        with tracing() as found:
            await path.create("second", LOCAL)
    handlers = (
        "ottla.controller.replication.topics.create_topics",
        "ottla.broker.replicas.replica_manager.ReplicaManager._open_log",
    )
    found.check((*handlers, *APPLIED), 97)


# --- pushes of clients' metrics ----------------------------------------------------------------


@dataclass
class Collector:
    """Sender of an exporter, and the collector to which it sends."""

    received: list[bytes] = field(default_factory=list)

    async def send(self, body: bytes) -> ExportOutcome:
        self.received.append(body)
        return ExportOutcome(verdict=ExportVerdict.SENT)

    def close(self) -> None:
        """Do nothing, since there is no connection."""


async def run_here(work: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Do a worker thread's work in this thread, which is the one that is traced."""
    return work(*arguments)


def pushed(value: int) -> bytes:
    """Return a push of one metric, as a client sends it."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="sent", unit="1")
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = 1  # type: ignore[assignment]
    metric.sum.data_points.add(start_time_unix_nano=5, time_unix_nano=9, as_int=value)
    return data.SerializeToString()


def asked(broker: MiniBroker, message: Message) -> Any:
    """Return the broker's answer to a request."""
    data = broker.take(frame_of(message, 0), MIB)
    _, start = decode_response_header(message.API_KEY, 0, data[4:])
    return decode(response_class(message.API_KEY), 0, data[4:], start)


@pytest.mark.parametrize(
    ("is_shape_known", "handler", "most"),
    [
        (True, "ottla.telemetry.clients.ingest_driver.Ingest._is_taken_as_known", 31),
        (False, "ottla.telemetry.clients.push_work.Worker.take_in", 38),
    ],
)
async def test_no_way_of_a_push_gets_longer(
    is_shape_known: bool,
    handler: str,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
    nursery: trio.Nursery,
) -> None:
    """From the connection to an exporter's sender."""
    collector = Collector()
    monkeypatch.setattr(otlp_exporter_driver, "open_sender", lambda endpoint, config: collector)
    monkeypatch.setattr(trio.to_thread, "run_sync", run_here)
    endpoints = parse_otlp_endpoints("http://127.0.0.1:4318")
    config = replace(
        CONFIG,
        exporters=ExporterConfig(otlp_endpoints=endpoints),
        metrics=MetricsConfig(prometheus_port=0),
    )
    telemetry = ClientTelemetry(config, clock=FrozenClock(), rng=SeededRng(1))
    telemetry.instances.on_subscriptions({"all": {"metrics": "*", "interval.ms": "1000"}})
    broker = MiniBroker(frame_bytes_max=MIB)
    telemetry.register_apis(broker.dispatcher)
    nursery.start_soon(telemetry.run)

    async def push(given: Any, count: int, *, is_last: bool = False) -> None:
        message = PushTelemetryRequest(
            client_instance_id=given.client_instance_id,
            subscription_id=given.subscription_id,
            terminating=is_last,  # which comes at any time
            metrics=pushed(count),
        )
        assert asked(broker, message).error_code == 0
        while len(collector.received) < count:
            await trio.sleep(0.001)

    first, second = (asked(broker, GetTelemetrySubscriptionsRequest()) for _ in range(2))
    await push(first, 1)
    with tracing() as found:
        await push(first if is_shape_known else second, 2, is_last=is_shape_known)
    handlers = (
        "ottla.broker.metrics.telemetry_apis.TelemetryApis.handle_push",
        "ottla.telemetry.clients.ingest_driver.Ingest.submit",
        "ottla.telemetry.exporters.batching_driver.BatchingExporter.offer",
        "ottla.telemetry.exporters.otlp_exporter_driver.OtlpExporter._deliver",
    )
    found.check((*handlers, handler), most)
