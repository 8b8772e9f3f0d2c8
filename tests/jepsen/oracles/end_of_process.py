"""The end-of-process oracle: no frame of a stranger ends a process or disturbs another client.

`hunt` is the one hunt of all levels: strangers send hostile bytes, neighbours must be served
meanwhile, and the first end of a process ends it. `grpc_end_of_process` and `tls_end_of_process`
have the strangers and neighbours of gRPC and of TLS records. `hunt_brokers` has those of Kafka: it
sends the frames of `hostile_frames.py` to the brokers of a real cluster, each on its own
connection, while a well-behaved client per broker asks, produces and fetches on another.
Violations: a process ended; a neighbour lost its connection or waited longer than `ANSWER_S_MAX`; a
broker was fenced; the controllers had no leader for `LEADERLESS_S_MAX`. Unexpected errors in the
nodes' logs (`BrokerHuntReport.unforeseen`) are defects, too, though each cost one request only.

The same seed makes the same frames for each broker; the last ones before a violation are stored,
and `replay` sends them again.
"""

import json
import math
import socket
import struct
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from subprocess import Popen
from time import monotonic

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.groups.coordinator import open_coordinator
from ottla.client.network.cluster import open_cluster
from ottla.client.network.connection import BrokerConnection, ConnectionLostError, open_connection
from ottla.client.network.tls import TLS
from ottla.client.network.transport import TcpStream
from ottla.jepsen.processes.cluster_view import NoAnswerError, ask_quorum
from ottla.model.errors import OttlaError, ProtocolError
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.seams import ByteStream
from ottla.model.settings.endpoints import parse_address
from ottla.model.settings.resources import ConfigKind
from ottla.wire.apis import API
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersionsResponse
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.join_group_response import JoinGroupResponse
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse
from tests.jepsen.oracles.hostile_frames import Frame, FrameMaker, Manner
from tests.jepsen.oracles.kafka_values import ClusterNames, ExistingTopic

SETTINGS = {
    # A fence is to be the doing of a request, not of a slow machine.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "1000",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}
ANSWER_S_MAX = 30.0
"""Longest time a neighbour may wait: less finds more, and on a busy machine false alarms."""
LEADERLESS_S_MAX = 30.0
LOOK_S = 1.0
ENOUGH_LOOK_S = 0.1
LAST_WORDS_CHARS = 2_000
STRANGER_WAIT_S = 0.5
"""Time to wait for the response to a stranger; some requests wait by their nature."""
SLOW_S = 3.0
HELD_S = 2.0
STRANGERS = 8
"""Concurrent connections to each broker on which a response is awaited."""
DAWDLERS = 4
"""Connections at a time to each broker that are slow, or announce more than they send."""
FRAMES_KEPT = 60
FRAMES_AHEAD = 20
TOPICS_MAX = 60
"""More than these, which requests made, are deleted again."""

STEADY_TOPIC = "steady"
TOPICS = tuple(f"topic-{number}" for number in range(8))
TOPIC_PARTITIONS = 10
GROUPS = tuple(f"group-{number}" for number in range(4))
CLASSIC_GROUP, CONSUMER_GROUP, MEMBER = "classic", "modern", "member-1"
SESSION_MS = 300_000
SUBSCRIPTION = "all"
RECORD_MS = 1_700_000_000_000
PRODUCE_BY_NAME, FETCH_BY_NAME, METADATA_VERSION = 9, 12, 12
RESET = struct.pack("ii", 1, 0)
"""A linger of nothing: closing resets the connection."""


Deaths = Callable[[], Sequence[str]]
"""Returns the processes that ended, each with the end of its log."""
HuntPart = Callable[[], Awaitable[object]]
"""A stranger, a neighbour or a watcher. It runs until it is cancelled."""


@dataclass(slots=True)
class HuntReport:
    """Violations that a hunt found, and the answers that neighbours had."""

    seed: int
    violations: list[str] = field(default_factory=list)
    unforeseen: list[str] = field(default_factory=list)
    """Tracebacks in the nodes' logs, as (node: line)."""
    neighbour_answers: int = 0
    neighbour_wait_s_max: float = 0.0

    def add_violation(self, sentence: str) -> None:
        """Record one violation; each is reported once."""
        if sentence not in self.violations:
            self.violations.append(sentence)

    def add_answers(self, count: int, wait_s: float) -> None:
        """Record answers that a neighbour had, and the time that it waited for them."""
        self.neighbour_answers += count
        self.neighbour_wait_s_max = max(self.neighbour_wait_s_max, wait_s)

    @property
    def neighbours_text(self) -> str:
        """The neighbours' figures as text."""
        return (
            f"neighbours had {self.neighbour_answers:,} answers, the last of them after "
            f"{self.neighbour_wait_s_max:.2f} s"
        )

    @property
    def findings(self) -> list[str]:
        """The violations and unexpected errors as lines of text."""
        return [*self.violations, *(f"unforeseen: {line}" for line in self.unforeseen)]


async def hunt(
    report: HuntReport,
    parts: Sequence[HuntPart],
    deaths: Deaths,
    *,
    seconds: float,
    is_enough: Callable[[], bool] = lambda: False,
) -> None:
    """Run all parts for some seconds, until `is_enough`, or until a process has ended."""
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for part in parts:
                nursery.start_soon(part)
            nursery.start_soon(_watch_processes, deaths, report, nursery.cancel_scope)
            while not is_enough():
                await trio.sleep(ENOUGH_LOOK_S)
            nursery.cancel_scope.cancel()
    _note_deaths(deaths, report)


async def _watch_processes(deaths: Deaths, report: HuntReport, scope: trio.CancelScope) -> None:
    while not _note_deaths(deaths, report):
        await trio.sleep(LOOK_S)
    scope.cancel()


def _note_deaths(deaths: Deaths, report: HuntReport) -> bool:
    """Record each process that has ended; return whether one has."""
    ended = deaths()
    for death in ended:
        report.add_violation(f"a process ended: {death}")
    return bool(ended)


def deaths_among(running: Mapping[str, "Popen[bytes]"], log_of: Callable[[str], Path]) -> list[str]:
    """Return the processes that ended, each with the end of its log."""
    return [
        f"{name} ({process.returncode}): "
        f"{log_of(name).read_text(errors='replace')[-LAST_WORDS_CHARS:]}"
        for name, process in running.items()
        if process.poll() is not None
    ]


@dataclass(frozen=True, slots=True)
class BrokerPort:
    """Address of one broker of the cluster."""

    name: str
    id: int
    address: str


@dataclass(frozen=True, slots=True)
class Prey:
    """The cluster that is hunted."""

    brokers: Sequence[BrokerPort]
    deaths: Deaths

    @property
    def addresses(self) -> list[str]:
        """All brokers' addresses."""
        return [broker.address for broker in self.brokers]


@dataclass(slots=True)
class BrokerHuntReport(HuntReport):
    """Frames of a hunt for brokers, and the violations it found."""

    sent: Counter[int] = field(default_factory=Counter)
    """Frames by API key."""
    answered_count: int = 0
    last_frames: dict[str, deque[Frame]] = field(default_factory=dict)
    """The last ones before the first violation, by the broker they went to."""

    def keep(self, folder: Path) -> Path:
        """Write the seed and the last frames to a file; return its path."""
        path = folder / f"end-of-process-{self.seed}.json"
        kept = {
            "seed": self.seed,
            "violations": self.violations,
            "unforeseen": self.unforeseen,
            "frames": {
                node: [frame.to_json() for frame in frames]
                for node, frames in self.last_frames.items()
            },
        }
        path.write_text(json.dumps(kept, indent=1) + "\n")
        return path

    def __str__(self) -> str:
        lines = [
            f"seed {self.seed}: {self.sent.total():,} frames of {len(self.sent)} APIs, "
            f"{self.answered_count:,} answered; {self.neighbours_text}",
            *self.findings,
        ]
        if self.violations:
            for node, frames in self.last_frames.items():
                lines += [f"  to {node}: {frame}" for frame in list(frames)[-10:]]
        return "\n".join(lines)


async def hunt_brokers(
    prey: Prey, *, seed: int, seconds: float, frame_count: int | None = None
) -> BrokerHuntReport:
    """Send frames to every broker of a cluster for some seconds; return counts and violations.

    With a `frame_count` it ends earlier: at this count, once every API had a frame.
    """
    report = BrokerHuntReport(seed)
    async with open_admin(",".join(prey.addresses)) as admin:
        names = await _prepare(admin, prey)
        steady = await admin.describe_topic(STEADY_TOPIC)
        led = {one.leader: one.partition for one in steady.partitions}
        served = await _served(prey.brokers[0])
        parts: list[HuntPart] = [
            partial(_watch_controllers, prey, report),
            partial(_restore, admin),
        ]
        for node in prey.brokers:
            report.last_frames[node.name] = deque(maxlen=FRAMES_KEPT)
            partition = led.get(NodeId(node.id), 0)
            parts.append(Neighbour(node, partition, report, len(prey.brokers)).run)
            maker = FrameMaker(Random(f"{seed} {node.name}"), names, served)
            parts.append(partial(send_frames, node, maker, report))

        def is_enough() -> bool:
            is_sent = frame_count is not None and report.sent.total() >= frame_count
            return is_sent and report.sent.keys() >= API.keys()

        await hunt(report, parts, prey.deaths, seconds=seconds, is_enough=is_enough)
    return report


async def _served(broker: BrokerPort) -> frozenset[int]:
    host, _, port = broker.address.rpartition(":")
    async with open_connection(host, int(port)) as connection:
        answer = await connection.request(ApiVersionsRequest(), ApiVersionsResponse, 0)
    return frozenset(row.api_key for row in answer.api_keys)


def kept_frames(path: Path) -> dict[str, list[Frame]]:
    """Return the frames that a report kept, by the broker they were sent to."""
    kept = json.loads(path.read_text())["frames"]
    return {node: [Frame.from_json(frame) for frame in frames] for node, frames in kept.items()}


async def replay(node: BrokerPort, frames: Sequence[Frame]) -> None:
    """Send frames to one broker, one after the other."""
    for frame in frames:
        await _send(node, frame)


class Neighbour:
    """A well-behaved client of one broker, on one connection that it never closes."""

    def __init__(
        self, node: BrokerPort, partition: int, report: HuntReport, broker_count: int
    ) -> None:
        self._node = node
        self._partition = partition
        self._report = report
        self._broker_count = broker_count
        self._missing_count = 0

    async def run(self) -> None:
        """Ask, produce and fetch without an end; note whatever goes wrong."""
        host, _, port = self._node.address.rpartition(":")
        try:
            async with open_connection(
                host, int(port), client_id="neighbour", timeout_s=ANSWER_S_MAX
            ) as connection:
                while True:
                    await self._round(connection)
                    await trio.sleep(0.05)
        except (ConnectionLostError, ProtocolError) as error:
            self._report.add_violation(f"a neighbour at {self._node.name} was lost: {error}")
        except trio.TooSlowError:
            self._report.add_violation(
                f"a neighbour at {self._node.name} waited for {ANSWER_S_MAX:g} s"
            )

    async def _round(self, connection: BrokerConnection) -> None:
        began_s = monotonic()
        with trio.fail_after(ANSWER_S_MAX):
            await connection.request(ApiVersionsRequest(), ApiVersionsResponse, 0)
        with trio.fail_after(ANSWER_S_MAX):
            topic = MetadataRequestTopic(name=STEADY_TOPIC)
            request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
            answer = await connection.request(request, MetadataResponse, METADATA_VERSION)
        self._judge_fences(len(answer.brokers))
        with trio.fail_after(ANSWER_S_MAX):
            await connection.request(self._produce(), ProduceResponse, PRODUCE_BY_NAME)
        with trio.fail_after(ANSWER_S_MAX):
            await connection.request(self._fetch(), FetchResponse, FETCH_BY_NAME)
        self._report.add_answers(4, monotonic() - began_s)

    def _judge_fences(self, unfenced_count: int) -> None:
        self._missing_count = self._missing_count + 1 if unfenced_count < self._broker_count else 0
        if self._missing_count == 2:
            self._report.add_violation(
                f"{self._node.name} knows {unfenced_count} of {self._broker_count} brokers unfenced"
            )

    def _produce(self) -> ProduceRequest:
        batch = build_batch([RecordToBuild(RECORD_MS, None, b"steady")])
        data = PartitionProduceData(index=self._partition, records=batch)
        topics = [TopicProduceData(name=STEADY_TOPIC, partition_data=[data])]
        return ProduceRequest(acks=1, timeout_ms=5_000, topic_data=topics)

    def _fetch(self) -> FetchRequest:
        partition = FetchPartition(partition=self._partition, fetch_offset=0)
        return FetchRequest(
            max_wait_ms=10,
            min_bytes=1,
            max_bytes=1_000,
            session_epoch=-1,
            topics=[FetchTopic(topic=STEADY_TOPIC, partitions=[partition])],
        )


async def send_frames(node: BrokerPort, maker: FrameMaker, report: BrokerHuntReport) -> None:
    """Send frames to one node until cancelled, several at a time."""
    last = report.last_frames[node.name]
    strangers, dawdlers = trio.Semaphore(STRANGERS), trio.Semaphore(DAWDLERS)

    async def send(frame: Frame, slot: trio.Semaphore) -> None:
        try:
            if await _send(node, frame):
                report.answered_count += 1
        finally:
            slot.release()

    frames_in, frames = trio.open_memory_channel[Frame](FRAMES_AHEAD)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_make_frames, maker, frames_in)
        async for frame in frames:
            is_quick = frame.manner in (Manner.WHOLE, Manner.ABANDONED)
            slot = strangers if is_quick else dawdlers
            await slot.acquire()
            report.sent[frame.api_key] += 1
            if not report.violations:
                last.append(frame)
            nursery.start_soon(send, frame, slot)


async def _make_frames(maker: FrameMaker, frames: trio.MemorySendChannel[Frame]) -> None:
    # In a thread: some take long to make, and the neighbours are served by this loop.
    while True:
        frame = await trio.to_thread.run_sync(maker.next)
        await frames.send(frame)


async def _send(node: BrokerPort, frame: Frame) -> bool:
    """Send one frame on a connection of its own; return whether there was a response.

    At a listener with TLS it is sent over TLS, without a login, as any stranger could.
    """
    host, _, port = node.address.rpartition(":")
    tls = TLS.get()
    try:
        plain = TcpStream(await trio.open_tcp_stream(host, int(port)))
        stream: ByteStream = plain if tls is None else await tls.encrypted(plain, host)
    except OSError:
        await trio.sleep(STRANGER_WAIT_S)
        return False
    is_answered = False
    try:
        with suppress(trio.BrokenResourceError, OSError):
            if frame.manner is Manner.SLOW:
                await _dribble(stream, frame.data)
                return False
            with trio.move_on_after(STRANGER_WAIT_S):
                await stream.send_all(frame.data)
                if frame.manner is Manner.HELD:
                    await trio.sleep(HELD_S)
                elif frame.manner is Manner.WHOLE:
                    is_answered = len(await stream.receive_some(65_536)) > 0
            if frame.manner is Manner.ABANDONED:
                plain.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                stream.abort()
    finally:
        await stream.aclose()
    return is_answered


async def _dribble(stream: ByteStream, data: bytes) -> None:
    step = max(1, math.ceil(len(data) / 20))
    for at in range(0, len(data), step):
        await stream.send_all(data[at : at + step])
        await trio.sleep(SLOW_S / 20)


async def _watch_controllers(prey: Prey, report: BrokerHuntReport) -> None:
    seen_s = trio.current_time()
    while True:
        with suppress(NoAnswerError):
            if (await ask_quorum(prey.addresses)).leader >= 0:
                seen_s = trio.current_time()
        if trio.current_time() - seen_s > LEADERLESS_S_MAX:
            report.add_violation(f"the controllers had no leader for {LEADERLESS_S_MAX:g} s")
        await trio.sleep(LOOK_S)


async def _restore(admin: Admin) -> None:
    """Create again the objects that requests deleted, and delete those they created, as further
    targets."""
    while True:
        await trio.sleep(5)
        with suppress(OttlaError):
            topics = set(await admin.list_topics())
            made = sorted(topics - {*TOPICS, STEADY_TOPIC})
            for name in [one for one in made if not one.startswith("__")][TOPICS_MAX:]:
                await admin.delete_topic(name)
            for name in set(TOPICS) - topics:
                await admin.create_topic(name, partition_count=TOPIC_PARTITIONS)


async def _prepare(admin: Admin, prey: Prey) -> ClusterNames:
    """Create topics and groups; return their names."""
    ids = [broker.id for broker in prey.brokers]
    for name in (STEADY_TOPIC, *TOPICS):
        await admin.create_topic(name, partition_count=TOPIC_PARTITIONS)
    known = []
    for name in TOPICS:
        topic = await admin.describe_topic(name)
        known.append(ExistingTopic(name=name, id=topic.topic_id, partition_count=TOPIC_PARTITIONS))
    for group in GROUPS:
        await admin.alter_group_offsets(group, {TopicPartition(TOPICS[0], 0): 0})
    subscription = ConfigResource(ConfigKind.CLIENT_METRICS, SUBSCRIPTION)
    await admin.alter_configs(subscription, {"metrics": "*", "interval.ms": "1000"})
    return ClusterNames(
        topics=known,
        groups=(*GROUPS, CLASSIC_GROUP, CONSUMER_GROUP),
        members=await _join_groups(prey),
        brokers=ids,
        subscriptions=(SUBSCRIPTION,),
    )


async def _join_groups(prey: Prey) -> tuple[str, ...]:
    """Make a group of each protocol with a member that no client plays; return the members' ids."""
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0" + bytes(8))]
    join = JoinGroupRequest(
        group_id=CLASSIC_GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="consumer",
        protocols=protocols,
    )
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=CONSUMER_GROUP,
        member_id=MEMBER,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=list(TOPICS),
        topic_partitions=[],
    )
    addresses = [parse_address(one) for one in prey.addresses]
    async with open_cluster(addresses) as cluster:
        async with open_coordinator(cluster, CLASSIC_GROUP, client_id="oracle") as classic:
            joined = await classic.request(join, JoinGroupResponse, timeout_s=30, version=3)
        async with open_coordinator(cluster, CONSUMER_GROUP, client_id="oracle") as consumer:
            await consumer.request(heartbeat, ConsumerGroupHeartbeatResponse, timeout_s=30)
    return (joined.member_id, MEMBER)
