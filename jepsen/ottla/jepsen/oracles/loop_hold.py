"""The loop-hold oracle: no request may hold a broker's loop, or take memory, beyond a bound.

A broker of 2,000 partitions and 1,000 groups, with its controller, runs in the caller's trio loop;
a thread sends it one request after the other over real sockets.  Between two turns of the loop its
thread may use `HOLD_MS_MAX` of CPU time and the process may grow by `GROWTH_BYTES_MAX`.  Wall time
is only reported: another process on the machine makes it longer.
"""

import gc
import re
import resource
import socket
import struct
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import trio
import trio.lowlevel

from ottla.broker.broker_driver import Broker
from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.in_process import LISTENER, open_in_process_cluster
from ottla.jepsen.oracles.kafka_requests import DESTRUCTIVE_API_KEYS, requests_of
from ottla.jepsen.oracles.kafka_values import ClusterNames, KnownTopic
from ottla.model.limits import KIB, MIB
from ottla.wire.apis import API
from ottla.wire.codec import encode
from ottla.wire.codec_types import Message
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.find_coordinator_request import FindCoordinatorRequest
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

HOLD_MS_MAX = 100
GROWTH_BYTES_MAX = 64 * MIB

LARGE_TOPIC_PARTITIONS = 1_000
SMALL_TOPICS, SMALL_TOPIC_PARTITIONS = 100, 10
GROUPS = 1_000
ANSWER_WAIT_S = 0.5
"""How long an answer is waited for; a request that waits by its nature has none."""

SETTLED_WAIT_S = 60.0
READ_BYTES = MIB
_LENGTH = struct.Struct(">i")
_PEAK = re.compile(r"VmHWM:\s+(\d+) kB")
_RESIDENT = re.compile(r"VmRSS:\s+(\d+) kB")


class LoopWatch(trio.abc.Instrument):
    """Measures the CPU time of the loop's thread from one turn to the next."""

    def __init__(self) -> None:
        self.hold_ns = 0
        self.wall_ns = 0
        self.holder = ""
        """The task whose step was the longest."""
        self._step_ns = 0
        self._turn_cpu_ns = self._turn_wall_ns = self._step_start_ns = 0

    def reset(self) -> None:
        """Forget what was measured."""
        self.hold_ns = self.wall_ns = self._step_ns = 0
        self.holder = ""

    def after_io_wait(self, timeout: float) -> None:
        """Begin a turn."""
        self._turn_cpu_ns, self._turn_wall_ns = time.thread_time_ns(), time.perf_counter_ns()

    def before_io_wait(self, timeout: float) -> None:
        """End a turn."""
        self.hold_ns = max(self.hold_ns, time.thread_time_ns() - self._turn_cpu_ns)
        self.wall_ns = max(self.wall_ns, time.perf_counter_ns() - self._turn_wall_ns)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Begin a task's step."""
        self._step_start_ns = time.thread_time_ns()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """End a task's step."""
        took_ns = time.thread_time_ns() - self._step_start_ns
        if took_ns > self._step_ns:
            self._step_ns, self.holder = took_ns, task.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one request cost the broker."""

    api_key: int
    version: int
    number: int
    """Its place among the requests that the seed gives for its API and version."""
    request_bytes: int
    answer_bytes: int
    hold_ms: float
    wall_ms: float
    growth_bytes: int
    holder: str

    @property
    def is_too_much(self) -> bool:
        """Whether a bound is broken."""
        return self.hold_ms > HOLD_MS_MAX or self.growth_bytes > GROWTH_BYTES_MAX

    def __str__(self) -> str:
        return (
            f"{API[self.api_key].name} v{self.version} #{self.number} "
            f"({self.request_bytes:,} B, answer {self.answer_bytes:,} B): "
            f"{self.hold_ms:.1f} ms CPU, {self.wall_ms:.1f} ms wall, "
            f"{self.growth_bytes / MIB:.1f} MiB in {self.holder}"
        )


class Target:
    """A broker under test, and what is in its cluster."""

    def __init__(self, broker: Broker, names: ClusterNames, watch: LoopWatch) -> None:
        self.names = names
        self.api_keys = sorted(broker.dispatcher.api_keys)
        self._address = broker.addresses[LISTENER]
        self._watch = watch
        self._side = Client(self._address)

    def close(self) -> None:
        """Close what the target holds open itself."""
        self._side.close()

    def ask(self, message: Message, version: int) -> bytes:
        """Send one request on the side and return its answer."""
        answer = self._side.exchange(framed(message, version), SETTLED_WAIT_S)
        assert answer is not None, f"{message.__class__.__name__} was not answered"
        return answer

    def measure(self, request: Message, version: int, number: int) -> Cost:
        """Send a request on a connection of its own; wait until the broker has settled."""
        frame = framed(request, version)
        self._settle()
        gc.collect()
        with closing(Client(self._address)) as client:
            with open("/proc/self/clear_refs", "w") as peak:
                peak.write("5")
            before = _memory(_RESIDENT)
            self._watch.reset()
            answer = client.exchange(frame, ANSWER_WAIT_S)
            self._settle()
        return Cost(
            api_key=request.API_KEY,
            version=version,
            number=number,
            request_bytes=len(frame),
            answer_bytes=0 if answer is None else len(answer),
            hold_ms=self._watch.hold_ns / 1e6,
            wall_ms=self._watch.wall_ns / 1e6,
            growth_bytes=max(0, _memory(_PEAK) - before),
            holder=self._watch.holder,
        )

    def _settle(self) -> None:
        """Let the loop turn a few times: an answer may leave before its work is done."""
        for _ in range(3):
            self.ask(ApiVersionsRequest(), 0)


class Client:
    """A connection that blocks its thread."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address)
        self._room = memoryview(bytearray(READ_BYTES))

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def exchange(self, frame: bytes, wait_s: float) -> bytes | None:
        """Send a frame and return the answer's beginning; None without one.

        The answer's length is true, its bytes beyond the room are passed over.
        """
        self._socket.settimeout(wait_s)
        try:
            self._socket.sendall(frame)
            head = self._receive(4)
            if len(head) < 4:
                return None
            (length,) = _LENGTH.unpack(head)
            return bytes(self._receive(length))
        except (TimeoutError, ConnectionError):
            return None

    def _receive(self, size: int) -> memoryview:
        """Read so many bytes, fewer at the stream's end; those beyond the room replace others."""
        done = 0
        while done < size:
            at = done % READ_BYTES
            count = self._socket.recv_into(self._room[at : at + size - done])
            if not count:
                break
            done += count
        return self._room[:done]


@asynccontextmanager
async def open_target(directory: Path | None = None) -> AsyncIterator[Target]:
    """Open a broker with many partitions and groups, in the caller's loop."""
    settings = {
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "4",
        "broker.session.timeout.ms": "60000",
    }
    # Every partition has files open.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with (
        open_in_process_cluster(directory=directory, settings=settings) as cluster,
        AsyncExitStack() as stack,
    ):
        (broker,) = cluster.brokers.values()
        watch = LoopWatch()
        groups = [f"group-{number:04}" for number in range(GROUPS)]
        target = stack.enter_context(
            closing(Target(broker, ClusterNames(topics=[], groups=groups), watch))
        )
        await trio.to_thread.run_sync(_fill, target)
        image = broker.member.image
        target.names = ClusterNames(
            topics=[
                KnownTopic(name=topic.name, id=topic.id, partition_count=len(topic.partitions))
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
        trio.lowlevel.add_instrument(watch)
        try:
            yield target
        finally:
            trio.lowlevel.remove_instrument(watch)
            gc.unfreeze()


def costs_of(
    target: Target,
    seed: int,
    *,
    api_keys: Iterable[int] | None = None,
    bytes_max: int = 64 * KIB,
    requests_per_version: int | None = None,
) -> Iterator[Cost]:
    """Send the requests that a seed gives, and yield what each of them cost.

    Of `requests_per_version` requests another part is sent with each version of an API.
    """
    keys = sorted(api_keys or target.api_keys, key=lambda key: (key in DESTRUCTIVE_API_KEYS, key))
    for api_key in keys:
        api = API[api_key]
        for version in range(api.lowest, api.latest_stable + 1):
            rng = FuzzRng(Random(f"{seed}/{api_key}/{version}"))
            requests = list(requests_of(api_key, version, rng, target.names, bytes_max=bytes_max))
            for number in _turn_of(len(requests), version + seed, requests_per_version):
                cost = target.measure(requests[number], version, number)
                if cost.is_too_much and api_key not in DESTRUCTIVE_API_KEYS:
                    # Another task, or the garbage collector, may have had its turn with it.
                    again = target.measure(requests[number], version, number)
                    cost = min(cost, again, key=lambda one: (one.is_too_much, one.hold_ms))
                yield cost


def _turn_of(count: int, turn: int, size: int | None) -> Iterator[int]:
    """Yield the numbers of a turn's requests: each turn others, round and round."""
    size = count if size is None else min(size, count)
    step = max(1, count // size)
    yield from sorted({(turn + step * at) % count for at in range(size)})


def framed(message: Message, version: int, correlation_id: int = 7) -> bytes:
    """Return a request as it goes over the wire."""
    header = encode_request_header(message.API_KEY, version, correlation_id, "oracle")
    body = header + encode(message, version)
    return _LENGTH.pack(len(body)) + body


def _fill(target: Target) -> None:
    """Make the topics and the groups."""
    names = ["a-large", *(f"small-{number:03}" for number in range(SMALL_TOPICS))]
    counts = [LARGE_TOPIC_PARTITIONS, *[SMALL_TOPIC_PARTITIONS] * SMALL_TOPICS]
    for name, count in zip(names, counts, strict=True):
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        target.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
    for group_id in target.names.groups:
        request = FindCoordinatorRequest(coordinator_keys=[group_id])
        if group_id.endswith("000"):
            target.ask(request, 4)
        commits = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=index)
            for index in range(LARGE_TOPIC_PARTITIONS if group_id.endswith("000") else 10)
        ]
        topic_commits = OffsetCommitRequestTopic(name=names[0], partitions=commits)
        target.ask(OffsetCommitRequest(group_id=group_id, topics=[topic_commits]), 9)


def _memory(pattern: re.Pattern[str]) -> int:
    found = pattern.search(Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * KIB
