"""The end-of-process oracle: whatever a stranger sends, processes live and neighbours are served.

`hunt` sends the frames of `hostile_frames.py` to the brokers of a real cluster, each on its own
connection, while a well-behaved client per broker asks, produces and fetches on another.
Violations: a process ended; a neighbour lost its connection or waited longer than
`ANSWER_S_MAX`; a broker was fenced; the controllers had no leader for `LEADERLESS_S_MAX`.  Errors
that were caught at an edge (`BrokerHuntReport.unforeseen`, from the nodes' logs) are defects, too,
though each cost one request only.

The same seed makes the same frames for each broker; the last ones before a violation are kept, and
`replay` sends them again.
"""

import json
import math
import socket
import struct
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic

import trio

from ottla.client.admin import Admin, open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.groups.coordinator import open_coordinator
from ottla.client.network.cluster import open_cluster
from ottla.client.network.connection import BrokerConnection, ConnectionLostError, open_connection
from ottla.client.network.tls import TLS
from ottla.client.network.transport import TcpStream
from ottla.jepsen.oracles.hostile_frames import Frame, FrameMaker, Manner
from ottla.jepsen.oracles.kafka_values import ClusterNames, ExistingTopic
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

SETTINGS = {
    # A fence is to be the doing of a request, not of a slow machine.
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "1000",
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
}
ANSWER_S_MAX = 30.0
"""How long a neighbour may wait: less finds more, and on a busy machine the machine."""
LEADERLESS_S_MAX = 30.0
LOOK_S = 1.0
STRANGER_WAIT_S = 0.5
"""How long an answer to a stranger is waited for; some requests wait by their nature."""
SLOW_S = 3.0
HELD_S = 2.0
STRANGERS = 8
"""Connections at a time to each broker whose answers are waited for."""
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


@dataclass(frozen=True, slots=True)
class BrokerPort:
    """Where one broker of the cluster listens."""

    name: str
    id: int
    address: str


@dataclass(frozen=True, slots=True)
class Prey:
    """The cluster that is hunted."""

    brokers: Sequence[BrokerPort]
    deaths: Callable[[], Sequence[str]]
    """Says which processes ended, each with its last words."""

    @property
    def addresses(self) -> list[str]:
        """All brokers' addresses."""
        return [broker.address for broker in self.brokers]


@dataclass(slots=True)
class BrokerHuntReport:
    """What a hunt did and found."""

    seed: int
    violations: list[str] = field(default_factory=list)
    unforeseen: list[str] = field(default_factory=list)
    """Tracebacks in the nodes' logs, as (node: line)."""
    sent: Counter[int] = field(default_factory=Counter)
    """Frames by API key."""
    answered_count: int = 0
    neighbour_answers: int = 0
    neighbour_wait_s_max: float = 0.0
    last_frames: dict[str, deque[Frame]] = field(default_factory=dict)
    """The last ones before the first violation, by the broker they went to."""

    def add_violation(self, sentence: str) -> None:
        """Note one violation; each is told once."""
        if sentence not in self.violations:
            self.violations.append(sentence)

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
            f"{self.answered_count:,} answered; neighbours had {self.neighbour_answers:,} answers, "
            f"the last of them after {self.neighbour_wait_s_max:.2f} s",
            *self.violations,
            *(f"unforeseen: {line}" for line in self.unforeseen),
        ]
        if self.violations:
            for node, frames in self.last_frames.items():
                lines += [f"  to {node}: {frame}" for frame in list(frames)[-10:]]
        return "\n".join(lines)


async def hunt(
    prey: Prey, *, seed: int, seconds: float, frame_count: int | None = None
) -> BrokerHuntReport:
    """Send frames to every broker of a cluster for some seconds; return what they did.

    With a `frame_count` it ends earlier: at this count, once every API had a frame.
    """
    report = BrokerHuntReport(seed)
    async with open_admin(",".join(prey.addresses)) as admin:
        names = await _prepare(admin, prey)
        steady = await admin.describe_topic(STEADY_TOPIC)
        led = {one.leader: one.partition for one in steady.partitions}
        served = await _served(prey.brokers[0])
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                if frame_count is not None:
                    nursery.start_soon(_end_when_sent, frame_count, report, nursery.cancel_scope)
                for node in prey.brokers:
                    report.last_frames[node.name] = deque(maxlen=FRAMES_KEPT)
                    partition = led.get(NodeId(node.id), 0)
                    neighbour = Neighbour(node, partition, report, len(prey.brokers))
                    nursery.start_soon(neighbour.run)
                    maker = FrameMaker(Random(f"{seed} {node.name}"), names, served)
                    nursery.start_soon(_send_all, node, maker, report)
                nursery.start_soon(watch_processes, prey.deaths, report, nursery.cancel_scope)
                nursery.start_soon(_watch_controllers, prey, report)
                nursery.start_soon(_restore, admin)
    return report


async def _end_when_sent(
    frame_count: int, report: BrokerHuntReport, scope: trio.CancelScope
) -> None:
    while report.sent.total() < frame_count or not report.sent.keys() >= API.keys():
        await trio.sleep(0.1)
    scope.cancel()


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
        self, node: BrokerPort, partition: int, report: BrokerHuntReport, broker_count: int
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
        report = self._report
        report.neighbour_answers += 4
        report.neighbour_wait_s_max = max(report.neighbour_wait_s_max, monotonic() - began_s)

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


async def _send_all(node: BrokerPort, maker: FrameMaker, report: BrokerHuntReport) -> None:
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
    """Send one frame on a connection of its own; return whether something was answered.

    Where the task has TLS it is sent in that, without a login: by anybody.
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


async def watch_processes(
    deaths: Callable[[], Sequence[str]], report: BrokerHuntReport, everything: trio.CancelScope
) -> None:
    """Note each process that has ended, with its last words, and end the hunt then."""
    while True:
        for death in deaths():
            report.add_violation(f"a process ended: {death}")
            everything.cancel()
        await trio.sleep(LOOK_S)


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
    """Make what requests deleted, and delete what they made: there is something to hit."""
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
    """Make topics and groups; return what there is then."""
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
    """Make a group of each protocol with a member that nobody plays; return the members' ids."""
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
