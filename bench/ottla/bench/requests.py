"""Small requests over raw sockets: the cost of one request to a broker, without the cost of a
client library.

One process opens several connections, with several requests in flight on each. The frames are
prepared in advance, so that the loop only sends and receives.
"""

import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import NamedTuple
from uuid import UUID

from ottla.bench.result import Result
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.wire import codec, headers
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.codec_types import Message
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import MetadataResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

FETCH_VERSION = 17
"""Version of the Fetch requests that are sent. It identifies topics by their ids, as current
clients do."""
PRODUCE_VERSION = 9
METADATA_VERSION = 12
RECORD_BYTES = 100
SILENCE_S = 10.0
BENCH_CLIENT_ID = "ottla-bench"


class SmallRequest(NamedTuple):
    """A request that a load sends repeatedly: its encoded frame, and the number of bytes of records
    that one request transfers."""

    frame: bytes
    payload_bytes: int
    answer: bytes | None = None
    """Expected bytes of every response to the request, or None if responses differ."""
    before: tuple[bytes, ...] = ()
    """Frames of the requests that are sent first on each connection, such as a login. Each request
    is sent after the previous response."""


class RequestLatency(NamedTuple):
    """Send time and latency of one small request, in seconds."""

    sent_at: float
    seconds: float


def small_request(kind: str, topic: str, topic_id: UUID) -> SmallRequest:
    """Return a small request of the kind produce, fetch or metadata."""
    message: Message
    if kind == "produce":
        batch = build_batch([RecordToBuild(time.time_ns() // 1_000_000, None, b"x" * RECORD_BYTES)])
        data = [PartitionProduceData(index=0, records=batch)]
        message = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        return SmallRequest(frame_of(message, PRODUCE_VERSION), RECORD_BYTES)
    if kind == "fetch":
        wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
        message = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
        )
        return SmallRequest(frame_of(message, FETCH_VERSION), RECORD_BYTES)
    message = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    return SmallRequest(frame_of(message, METADATA_VERSION), 0)


def run_requests(
    address: tuple[str, int],
    *,
    kind: str,
    topic: str,
    count: int,
    connections: int,
    in_flight: int,
    progress: Callable[[int], None],
) -> Result:
    """Send `count` small requests and wait for every response. Returns a result with the latency of
    a request."""
    topic_id = topic_id_of(address, topic)
    if kind == "fetch":
        # Writes a record at offset 0, which the fetch requests read.
        answer_to(address, small_request("produce", topic, topic_id).frame)
    small = small_request(kind, topic, topic_id)
    return repeat(
        address,
        f"requests {kind}",
        [small] * connections,
        count=count,
        in_flight=in_flight,
        progress=progress,
    )


def repeat(
    address: tuple[str, int],
    what: str,
    smalls: Sequence[SmallRequest],
    *,
    count: int,
    in_flight: int,
    progress: Callable[[int], None],
) -> Result:
    """Send `count` small requests over several connections, one connection for each request in
    `smalls`. Returns a result with the latency of a request."""
    clients = [_Client(address, small) for small in smalls]
    selector = DefaultSelector()
    for client in clients:
        selector.register(client.socket, EVENT_READ, client)
    latencies: list[float] = []
    sent = done = 0
    started = time.perf_counter()
    for client in clients:
        lot = min(in_flight, count - sent)
        client.send(lot)
        sent += lot
    while done < count:
        ready = selector.select(SILENCE_S)
        if not ready:
            raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"no answer in {SILENCE_S:g} s")
        for key, _ in ready:
            client = key.data
            answered = client.receive(latencies)
            done += answered
            lot = min(answered, count - sent)
            client.send(lot)
            sent += lot
        progress(done)
    seconds = time.perf_counter() - started
    for client in clients:
        client.socket.close()
    return Result(what, count, count * smalls[0].payload_bytes, seconds, latencies)


class _Client:
    """One connection of a load of small requests, and the state of its requests in flight."""

    def __init__(self, address: tuple[str, int], small: SmallRequest) -> None:
        self.socket = dial(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for frame in small.before:
            exchanged(self.socket, frame)
        self._frame = small.frame
        self._answer = small.answer
        self._received = bytearray()
        self._sent_at: deque[float] = deque()

    def send(self, lot: int) -> None:
        if lot:
            now = time.perf_counter()
            self._sent_at.extend([now] * lot)
            self.socket.sendall(self._frame * lot)

    def receive(self, latencies: list[float]) -> int:
        data = self.socket.recv(262_144)
        if not data:
            raise OttlaError("the broker hung up")
        self._received += data
        now = time.perf_counter()
        at = answered = 0
        received = self._received
        while len(received) - at >= 4:
            end = at + 4 + int.from_bytes(received[at : at + 4], "big")
            if end > len(received):
                break
            if self._answer is not None and received[at + 4 : end] != self._answer:
                raise OttlaError("the broker answered otherwise than at first")
            at = end
            answered += 1
            latencies.append((now - self._sent_at.popleft()) * 1e3)
        del received[:at]
        return answered


def topic_id_of(address: tuple[str, int], topic: str) -> UUID:
    """Return the id of the topic with the given name, as the server at `address` reports it."""
    answer = answer_to(address, small_request("metadata", topic, UUID(int=0)).frame)
    _, at = headers.decode_response_header(MetadataRequest.API_KEY, METADATA_VERSION, answer)
    found = codec.decode(MetadataResponse, METADATA_VERSION, memoryview(answer)[at:])
    return found.topics[0].topic_id


def dial(address: tuple[str, int]) -> socket.socket:
    """Connect to a server, and return the socket. Each later send or receive waits at most
    `SILENCE_S` seconds.

    Raises ConnectionError with the address if the server cannot be reached.
    """
    try:
        return socket.create_connection(address, timeout=SILENCE_S)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConnectionError(f"{address[0]}:{address[1]} cannot be reached: {reason}") from None


def answer_to(address: tuple[str, int], frame: bytes) -> bytes:
    """Send one request to `address` on a new connection. Returns the response without its length
    prefix."""
    with dial(address) as client:
        return exchanged(client, frame)


def exchanged(client: socket.socket, frame: bytes) -> bytes:
    """Send a request on a connection, and return its response without the length prefix. No other
    request may be in flight."""
    client.sendall(frame)
    stream = client.makefile("rb")
    return stream.read(int.from_bytes(stream.read(4), "big"))


def frame_of(message: Message, version: int) -> bytes:
    """Return the bytes of a request, with its length prefix."""
    header = headers.encode_request_header(message.API_KEY, version, 1, BENCH_CLIENT_ID)
    body = codec.encode(message, version)
    return (len(header) + len(body)).to_bytes(4, "big") + header + body
