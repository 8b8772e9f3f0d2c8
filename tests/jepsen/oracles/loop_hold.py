"""The loop-hold oracle: no request may hold a broker's loop, or take memory, beyond a bound.

A broker of 2,000 partitions and 1,000 groups, with its controller, runs in the caller's trio loop;
a thread sends it one request after the other over real sockets.  `loop_cost` has the bounds.
"""

import gc
import resource
import select
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random

import trio

from ottla.broker.broker_driver import Broker
from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.model.limits import KIB, MIB
from ottla.model.security.acls import AclOperation, AclPermission, PatternType, ResourceType
from ottla.model.settings.security.authorizer import AUTHORIZER_CLASS, STANDARD_AUTHORIZER
from ottla.testing.in_process import LISTENER, open_in_process_cluster
from ottla.wire.apis import API
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.create_acls_request import AclCreation, CreateAclsRequest
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.jepsen.oracles.kafka_requests import (
    DESTRUCTIVE_API_KEYS,
    numbered_request,
    request_count,
)
from tests.jepsen.oracles.kafka_values import ClusterNames, ExistingTopic
from tests.jepsen.oracles.loop_cost import Cost, Meter

SMALL_TOPIC_PARTITIONS = 10
ANSWER_WAIT_S = 0.5
"""Time to wait for a response once the broker is otherwise idle; a request that waits by its
nature has none."""

WORK_WAIT_S = 60.0
"""Longest time to wait for a response at all: a large one takes many turns."""

SETTLED_WAIT_S = 60.0
ENTRIES_PER_REQUEST = 1_000
PREFIX_CHARS_MAX = 100
"""Prefixed patterns have as many lengths: each of them is looked for in a name."""

READ_BYTES = MIB
_LENGTH = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSize:
    """Objects that a cluster has before the requests."""

    large_topic_partitions: int = 1_000
    small_topics: int = 100
    groups: int = 1_000
    acl_entries: int = 0
    """Access control entries; with any of them every request is decided by them."""


class KafkaTarget:
    """A node under test that speaks Kafka's protocol, and the objects of its cluster."""

    def __init__(
        self,
        address: tuple[str, int],
        api_keys: Iterable[int],
        names: ClusterNames,
        meter: Meter,
    ) -> None:
        self.names = names
        self.api_keys = sorted(api_keys)
        self._address = address
        self._meter = meter
        self._side = BlockingClient(self._address)

    def close(self) -> None:
        """Close the target's own connections."""
        self._side.close()

    def ask(self, message: Message, version: int) -> None:
        """Send one request on the side and wait for its answer."""
        answer_bytes = self._side.exchange(framed(message, version), SETTLED_WAIT_S)
        assert answer_bytes is not None, f"{message.__class__.__name__} was not answered"

    def measure(self, name: str, frame: bytes) -> Cost:
        """Send a request on a connection of its own; wait until the broker has settled."""
        with closing(BlockingClient(self._address)) as client:
            self._settle()
            self._meter.begin()
            answer_bytes = client.exchange(frame, ANSWER_WAIT_S, self._is_working)
            self._settle()
        outcome = "no answer" if answer_bytes is None else f"answer {answer_bytes:,} B"
        return self._meter.cost(name=name, request_bytes=len(frame), outcome=outcome)

    def _is_working(self) -> bool:
        return not self._meter.watch.is_idle

    def _settle(self) -> None:
        """Let the loop turn a few times: an answer may leave before its work is done."""
        for _ in range(3):
            self.ask(ApiVersionsRequest(), 0)


class BrokerTarget(KafkaTarget):
    """A broker under test."""

    def __init__(self, broker: Broker, names: ClusterNames, meter: Meter) -> None:
        super().__init__(broker.addresses[LISTENER], broker.dispatcher.api_keys, names, meter)


class BlockingClient:
    """A connection that blocks its thread."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._room = memoryview(bytearray(READ_BYTES))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def exchange(
        self, frame: bytes, wait_s: float, is_working: Callable[[], bool] = lambda: False
    ) -> int | None:
        """Send a frame and return the answer's size; None without one.

        The answer is waited for as long as `is_working`, and `wait_s` more.
        """
        self._socket.settimeout(WORK_WAIT_S)
        try:
            self._socket.sendall(frame)
            ends_at = time.monotonic() + WORK_WAIT_S
            # Not `select`, which takes no file of a number above 1,023.
            answers = select.poll()
            answers.register(self._socket, select.POLLIN)
            while not answers.poll(wait_s * 1_000):
                if not is_working() or time.monotonic() >= ends_at:
                    return None
            if self._receive(_LENGTH.size) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack_from(self._room)
            return self._receive(length)
        except (TimeoutError, ConnectionError):
            return None

    def _receive(self, size: int) -> int:
        """Read `size` bytes, fewer at the stream's end; bytes beyond the buffer overwrite it."""
        done = 0
        while done < size:
            at = done % READ_BYTES
            count = self._socket.recv_into(self._room[at : at + size - done])
            if not count:
                break
            done += count
        return done


@asynccontextmanager
async def open_target(
    directory: Path | None = None, *, size: ClusterSize | None = None
) -> AsyncIterator[BrokerTarget]:
    """Open a broker with many partitions and groups, in the caller's loop."""
    size = size or ClusterSize()
    settings = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "4",
        "broker.session.timeout.ms": "60000",
    }
    if size.acl_entries:
        settings |= {
            AUTHORIZER_CLASS: STANDARD_AUTHORIZER,
            # What no entry is about is served as ever, and that is decided too.
            "allow.everyone.if.no.acl.found": "true",
        }
    # Every partition has files open.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with (
        open_in_process_cluster(directory=directory, settings=settings) as cluster,
        AsyncExitStack() as stack,
    ):
        (broker,) = cluster.brokers.values()
        meter = Meter()
        groups = [f"group-{number:04}" for number in range(size.groups)]
        target = stack.enter_context(
            closing(BrokerTarget(broker, ClusterNames(topics=[], groups=groups), meter))
        )
        await trio.to_thread.run_sync(_fill, target, size)
        image = broker.member.image
        target.names = ClusterNames(
            topics=[
                ExistingTopic(name=topic.name, id=topic.id, partition_count=len(topic.partitions))
                # The largest first: it is the one that duplicates name.
                for topic in sorted(
                    image.topics.values(), key=lambda one: (-len(one.partitions), one.name)
                )
            ],
            groups=groups,
            log_dirs=[one.path for one in broker.logs.directories],
        )
        gc.collect()
        gc.freeze()
        try:
            with meter.watch.watching():
                yield target
        finally:
            gc.unfreeze()


def costs_of(
    target: KafkaTarget,
    seed: int,
    *,
    api_keys: Iterable[int] | None = None,
    bytes_max: int = 64 * KIB,
    is_every_version: bool = True,
    stride: int = 1,
    own_ms_max: float = inf,
) -> Iterator[Cost]:
    """Send the requests of a seed, and yield the cost of each.

    A request that breaks a bound, or takes longer than `own_ms_max`, is sent once more, because
    other work on the machine may have had a part in it. Unless `is_every_version`, the requests of
    an API are divided among its versions. Of these only every `stride`-th is sent, beginning at
    another one in each API.
    """
    keys = sorted(api_keys or target.api_keys, key=lambda key: (key in DESTRUCTIVE_API_KEYS, key))
    for api_key in keys:
        api = API[api_key]
        parts = 1 if is_every_version else api.latest_stable + 1 - api.lowest
        for version in range(api.lowest, api.latest_stable + 1):
            for number in _part_of(request_count(api_key, version), version + seed, parts):
                if (number + api_key + seed) % stride:
                    continue
                rng = FuzzRng(Random(f"{seed}/{api_key}/{version}/{number}"))
                request = numbered_request(
                    number, api_key, version, rng, target.names, bytes_max=bytes_max
                )
                frame = framed(request, version)
                # Hundreds of thousands of objects, whose memory and whose collection of garbage
                # must not pass for the broker's.
                del request
                name = f"{api.name} v{version} #{number}"
                cost = target.measure(name, frame)
                is_doubtful = cost.is_too_much or cost.own_ms > own_ms_max
                if is_doubtful and api_key not in DESTRUCTIVE_API_KEYS:
                    # Another task, or the garbage collector, may have had its turn with it.
                    again = target.measure(name, frame)
                    cost = min(cost, again, key=lambda one: (one.is_too_much, one.own_ms))
                yield cost


def _part_of(count: int, part: int, parts: int) -> Iterator[int]:
    """Yield every `parts`-th number below `count`, from another one for each part."""
    yield from range(part % min(parts, count), count, parts)


def framed(message: Message, version: int, correlation_id: int = 7) -> bytes:
    """Return the bytes of a request on the wire."""
    header = encode_request_header(message.API_KEY, version, correlation_id, "oracle")
    body = header + encode(message, version)
    return _LENGTH.pack(len(body)) + body


def _fill(target: BrokerTarget, size: ClusterSize) -> None:
    """Make the topics and the groups."""
    names = ["a-large", *(f"small-{number:03}" for number in range(size.small_topics))]
    counts = [size.large_topic_partitions, *[SMALL_TOPIC_PARTITIONS] * size.small_topics]
    for name, count in zip(names, counts, strict=True):
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        target.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    for at in range(0, size.acl_entries, ENTRIES_PER_REQUEST):
        target.ask(_entries(at, min(ENTRIES_PER_REQUEST, size.acl_entries - at)), 3)
    for group_id in target.names.groups:
        request = FindCoordinatorRequest(coordinator_keys=[group_id])
        if group_id.endswith("000"):
            target.ask(request, 4)
        commits = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=index)
            for index in range(size.large_topic_partitions if group_id.endswith("000") else 10)
        ]
        topic_commits = OffsetCommitRequestTopic(name=names[0], partitions=commits)
        target.ask(OffsetCommitRequest(group_id=group_id, topics=[topic_commits]), 9)


def _entries(first: int, count: int) -> CreateAclsRequest:
    """Return entries of topics and groups, half of them about the client that asks."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=(ResourceType.TOPIC, ResourceType.GROUP)[number % 2],
                resource_name=f"{number:05}".ljust(5 + number % PREFIX_CHARS_MAX, "x"),
                resource_pattern_type=(PatternType.PREFIXED, PatternType.LITERAL)[number // 4 % 2],
                principal=("User:ANONYMOUS", "User:al")[number // 2 % 2],
                host="*",
                operation=AclOperation.READ,
                permission_type=(AclPermission.ALLOW, AclPermission.DENY)[number // 8 % 2],
            )
            for number in range(first, first + count)
        ]
    )
