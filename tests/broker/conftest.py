"""A broker's request handling without its sockets: real logs, real purgatory, a clock set by
hand."""

import threading
from collections import defaultdict
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from ottla.broker.logs.cold_reads import Done
from ottla.broker.logs.fetch import FetchApi
from ottla.broker.logs.fetch_session import FetchSessionCache
from ottla.broker.logs.produce import ProduceApi
from ottla.broker.logs.transactional_appends import TransactionalAppends
from ottla.broker.logs.verification_requests import Outcome, TransactionOperation
from ottla.broker.quotas.replication_quota import ReplicationQuota
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_port import PartitionPort
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.jepsen.world.disk_waits import bytes_of
from ottla.metadata.image import (
    BrokerRegistration,
    Endpoint,
    MetadataImage,
    PartitionState,
    RecoveryState,
    Topic,
)
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.limits import INT64_MAX
from ottla.model.quotas.rates import WindowShape
from ottla.model.run_now import run_now
from ottla.model.security.acls import AclOperation, ResourceType
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.authorization.authorization import Authorization
from ottla.node.network.dispatch import Peer, RequestContext
from ottla.node.network.purgatory import Purgatory
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.steps import Answer, ThreadWork, run_through
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.disk.slice import FileSlice
from ottla.storage.log.log import Log, open_log
from ottla.storage.segments.log_config import LogConfig
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader, decode_response_header

M = TypeVar("M", bound=Message)

WALL_MS = 1_700_000_000_000
LOCAL = NodeId(1)
PEER = Peer(
    connection_id=1,
    listener_name="PLAINTEXT",
    peer_host="10.0.0.9",
    peer_port=40_000,
    local_host="10.0.0.1",
    local_port=9092,
)


class HandClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms


class HandRng:
    """Deals 0, 1, 2, …"""

    def __init__(self) -> None:
        self.dealt = -1

    def random(self) -> float:
        return 0.5

    def below(self, bound: int) -> int:
        self.dealt += 1
        return self.dealt % bound

    def uuid(self) -> UUID:
        self.dealt += 1
        return UUID(int=(1 << 64) + self.dealt)


class Call:
    """One request's way through a handler: its context, and the answer once there is one."""

    def __init__(self, api_key: int, version: int, peer: Peer, arrived_ms: int) -> None:
        header = RequestHeader(api_key, version, "test", 0)
        self.slot = self.context = RequestContext(self, header, 7, 0, peer, arrived_ms)
        self.is_completed = False
        self.is_in_steps = False
        """Set if the response was given as steps, which are encoded apart from the loop."""

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        self.is_completed = True

    def mute_until(self, deadline_ms: int) -> None:
        raise AssertionError("no handler throttles")

    def on_steps(self, slot: ResponseSlot, steps: Answer) -> None:
        self.is_in_steps = True
        answer = run_through(steps)
        if answer is not None:
            slot.complete(answer)

    def on_answer_failed(self, *arguments: object) -> None:
        raise AssertionError(f"an answer failed: {arguments}")

    def response(self, kind: type[M]) -> M:
        """Decode the response to the client."""
        assert self.is_completed
        chunks = []
        for chunk in self.slot.chunks:
            if isinstance(chunk, FileSlice):
                chunks.append(bytes_of(chunk))
            else:
                assert isinstance(chunk, bytes | bytearray | memoryview)
                chunks.append(bytes(chunk))
        data = b"".join(chunks)
        assert int.from_bytes(data[:4]) == len(data) - 4
        header = self.slot.header
        _, body_at = decode_response_header(header.api_key, header.api_version, data[4:])
        return decode(kind, header.api_version, data[4:], body_at)


class AskedCoordinators:
    """The coordinators of transactions: each question is answered by hand, at once or by a
    coroutine."""

    def __init__(self) -> None:
        self.is_verifying = True
        self.is_at_once = False
        self.codes: dict[tuple[str, int], ErrorCode] = {}
        """Error code for one partition; NONE for all others."""
        self.asked: list[
            tuple[str, int, int, TransactionOperation, list[tuple[str, int]], int]
        ] = []
        self.on_asked: Callable[[], None] = lambda: None
        """Called while a question is out."""

    def ask(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        epoch: int,
        operation: TransactionOperation,
        partitions: Iterable[tuple[str, int]],
        timeout_ms: int,
    ) -> Outcome | Coroutine[Any, Any, Outcome]:
        named = list(partitions)
        self.asked.append((transactional_id, producer_id, epoch, operation, named, timeout_ms))

        def answer() -> Outcome:
            self.on_asked()
            return {each: self.codes.get(each, ErrorCode.NONE) for each in named}

        async def answer_later() -> Outcome:
            return answer()

        return answer() if self.is_at_once else answer_later()


class HandAuthorizer:
    """An authorizer that allows the operations a test lists, and records each question."""

    is_active = True
    logs_allowed = False

    def __init__(self) -> None:
        self.allowed: set[tuple[str, str, str]] = set()
        """(operation, type of resource, name), as the names of their codes."""
        self.asked: list[tuple[str, str, str]] = []
        self.logged: list[tuple[str, str, str]] = []
        """Topics requested by name."""

    def allow(self, *resources: str) -> None:
        """Allow operations such as `READ TOPIC orders`."""
        for resource in resources:
            operation, kind, name = resource.split()
            self.allowed.add((operation, kind, name))

    def is_allowed(
        self,
        principal: str,
        host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        question = (operation.name, resource_type.name, name)
        self.asked.append(question)
        if is_logged:
            self.logged.append(question)
        return question in self.allowed

    def is_allowed_somewhere(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return any(one[:2] == (operation.name, resource_type.name) for one in self.allowed)


@pytest.fixture
def authorizer() -> HandAuthorizer:
    return HandAuthorizer()


class World:
    """The partitions of broker 1 and the APIs over them."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self.disk: Disk = RealDisk([str(directory)]) if disk is None else disk
        self.clock = HandClock()
        self.peer = replace(PEER)
        """The client of all requests."""
        self.purgatory = Purgatory()
        self.table = PartitionTable(
            MetadataImage(
                brokers=PersistentMap(
                    {
                        NodeId(node_id): BrokerRegistration(
                            id=NodeId(node_id),
                            epoch=10,
                            incarnation_id=UUID(int=1000 + node_id),
                            endpoints=(Endpoint("PLAINTEXT", f"host{node_id}", 9090 + node_id, 0),),
                            is_fenced=False,
                        )
                        for node_id in (1, 2, 3)
                    }
                )
            )
        )
        self.refusals: list[tuple[int, ErrorCode]] = []
        """Refused parts of requests: API key and code."""
        self.authorization = Authorization(
            self.topic_name, lambda key, code: self.refusals.append((key, code))
        )
        self.flushes_due: list[Partition] = []
        self.ranges_due: list[tuple[FileSlice, Done]] = []
        self.isrs_due: list[Partition] = []
        self.port = PartitionPort(
            self.purgatory.wake, self.flushes_due.append, self.isrs_due.append
        )
        self.coordinators = AskedCoordinators()
        self.produce_api = ProduceApi(
            table=self.table,
            purgatory=self.purgatory,
            clock=self.clock,
            transactions=TransactionalAppends(
                table=self.table, clock=self.clock, coordinators=self.coordinators
            ),
        )
        self.sessions = FetchSessionCache(10, HandRng())
        self.replication_quota = ReplicationQuota(WindowShape(), INT64_MAX, self.clock.monotonic_ms)
        self.fetch_api = FetchApi(
            table=self.table,
            purgatory=self.purgatory,
            sessions=self.sessions,
            fetch_bytes_max=50_000_000,
            bring_in=self.bring_in,
            replication_quota=self.replication_quota,
        )

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.table.image.topics.get(topic_id)
        return None if topic is None else topic.name

    def bring_in(self, piece: FileSlice, done: Done) -> bool:
        """Note a range that a fetch waits for."""
        self.ranges_due.append((piece, done))
        return False

    async def add(
        self,
        topic: str,
        *,
        index: int = 0,
        replicas: tuple[int, ...] = (1,),
        leader: int = 1,
        config: TopicConfig | None = None,
        is_log_there: bool = True,
        lag_ms_max: int = 30_000,
    ) -> Partition:
        """Make the cluster know a partition; this broker holds it if it is a replica."""
        state = partition_state(replicas=replicas, leader=leader)
        topic_id = self.know(topic, state, index)
        partition = Partition(
            topic,
            topic_id,
            index,
            local_id=LOCAL,
            is_eligible=lambda replica, epoch: True,
            port=self.port,
            lag_ms_max=lag_ms_max,
        )
        if LOCAL not in replicas:
            return partition
        self.table.add(partition)
        settings = config or TopicConfig()
        partition.apply(state, settings, self.clock.now_ms)
        if is_log_there:
            partition.attach(await self.open_log(partition, settings), self.clock.now_ms)
        return partition

    def know(self, topic: str, state: PartitionState, index: int = 0) -> UUID:
        """Put a partition's state into the metadata image; return the topic's id."""
        image = self.table.image
        topic_id = image.topic_ids.get(topic) or UUID(int=500 + len(image.topics))
        known = image.topics.get(topic_id) or Topic(topic, topic_id)
        self.table.image = MetadataImage(
            brokers=image.brokers,
            topic_ids=image.topic_ids.set(topic, topic_id),
            topics=image.topics.set(
                topic_id, Topic(topic, topic_id, known.partitions.set(index, state))
            ),
        )
        return topic_id

    async def open_log(self, partition: Partition, config: TopicConfig) -> Log:
        return await open_log(
            self.disk,
            str(self.directory / f"{partition.topic}-{partition.index}"),
            config=LogConfig.of_topic(config),
            topic_id=partition.topic_id,
            is_clean=True,
            recovery_point=Offset(0),
            log_start_offset=Offset(0),
            now_ms=self.clock.wall_ms(),
        )

    def call(self, api_key: int, version: int) -> Call:
        return Call(api_key, version, self.peer, self.clock.now_ms)

    def run(self, handle: Callable[..., Any], call: Call, request: Message) -> Call:
        """Handle a request, and its result, as a connection does."""
        if self.authorization.is_active:
            response: Any = self.authorization.serve(call.context, request, handle)
        else:
            response = handle(call.context, request)
        while isinstance(response, Generator | ThreadWork | Coroutine):
            if isinstance(response, ThreadWork):
                response = response.then(response.work())
            elif isinstance(response, Coroutine):
                response = run_now(response)
            else:
                response = run_through(response)
        if response is not None:
            call.slot.complete(response)
        return call

    def produce(self, request: Message, *, version: int = 13) -> Call:
        return self.run(self.produce_api.handle, self.call(0, version), request)

    def fetch(self, request: Message, *, version: int = 18) -> Call:
        return self.run(self.fetch_api.handle, self.call(1, version), request)

    @staticmethod
    def state(**changes: Any) -> PartitionState:
        return partition_state(**changes)

    @staticmethod
    def batch(*values: bytes, **changes: Any) -> memoryview:
        return batch(*values, **changes)

    def pass_time(self, elapsed_ms: int) -> None:
        self.clock.now_ms += elapsed_ms
        self.purgatory.expire(self.clock.now_ms)


def partition_state(
    *,
    replicas: tuple[int, ...] = (1,),
    isr: tuple[int, ...] | None = None,
    leader: int = 1,
    leader_epoch: int = 3,
    partition_epoch: int = 0,
    recovery_state: RecoveryState = RecoveryState.RECOVERED,
) -> PartitionState:
    return PartitionState(
        replicas=tuple(NodeId(replica) for replica in replicas),
        directories=tuple(UUID(int=1) for _ in replicas),
        isr=tuple(NodeId(replica) for replica in (replicas if isr is None else isr)),
        leader=NodeId(leader),
        leader_epoch=Epoch(leader_epoch),
        partition_epoch=partition_epoch,
        recovery_state=recovery_state,
    )


def batch(*values: bytes, **changes: Any) -> memoryview:
    """Build one record batch with a record per value."""
    records = [(WALL_MS, None, value) for value in values or (b"v",)]
    return memoryview(bytearray(build_batch(records, **changes)))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    for partition in made.table:
        log = partition.remove()
        if log is not None:
            log.abandon()


class Collector:
    """An OTLP/HTTP collector that stores requests by path."""

    def __init__(self) -> None:
        self.bodies: defaultdict[str, list[bytes]] = defaultdict(list)
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies[self.path].append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,))
        self.thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @property
    def metrics(self) -> list[ExportMetricsServiceRequest]:
        """Every request with metrics, in order."""
        return [
            ExportMetricsServiceRequest.FromString(body)
            for body in list(self.bodies["/v1/metrics"])
        ]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    yield collector
    collector.close()
