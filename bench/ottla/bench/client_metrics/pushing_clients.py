"""Many clients that push metrics. Each has its own socket. All run in one process with one
selector.

Each client requests its subscription, and then pushes at the interval in the response.  The first
push is after 0.5 to 1.5 intervals, as with real clients.  The payload has the metrics of
librdkafka's producer and consumer, and is prepared in advance.
"""

import heapq
import random
import resource
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from selectors import EVENT_READ, DefaultSelector

import zstandard

from ottla.bench.client_metrics.telemetry_payload import payload_of
from ottla.bench.requests import SILENCE_S, dial, frame_of
from ottla.model.errors import ConfigError, ErrorCode, OttlaError
from ottla.model.ids import ZERO_UUID
from ottla.wire import codec, headers
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse

API_VERSIONS_VERSION = 3
GET_VERSION = PUSH_VERSION = 0
ZSTD = 4
HELLO_AT_ONCE = 200
"""Number of client connections that are opened before their responses are awaited. It is the size
of a listener's backlog."""
FILES_SPARE = 100
FIRST_INTERVALS = 0.5, 1.5
"""Shortest and longest time before a client's first push of metrics, in multiples of its push
interval."""
LATE_INTERVALS = 1.05
"""Largest random factor on the interval between a client's metric pushes. It simulates jitter of
the timer and of the network. Without it, clients that were once delayed together would continue to
push at the same moment."""
RECEIVE_BYTES = 65_536

Address = tuple[str, int]
Progress = Callable[[int], None]


@dataclass(slots=True)
class PushOutcomes:
    """Outcomes of all pushes of metrics: counts, error codes and latencies."""

    codes: Counter[str] = field(default_factory=Counter)
    latencies_ms: list[float] = field(default_factory=list)
    late_ms_max: float = 0.0
    """Largest delay of the load generator itself in ms. Above some tens of ms, the results show the
    generator rather than the broker."""
    sent: int = 0
    sent_bytes: int = 0
    hung_up: int = 0
    asked_again: int = 0


class PushingClients:
    """All benchmark clients that push metrics, and the outcomes of their pushes."""

    def __init__(self, address: Address) -> None:
        self.outcome = PushOutcomes()
        self.interval_ms = 0
        self._address = address
        self._clients: list[PushingClient] = []
        self._selector = DefaultSelector()
        self._due: list[tuple[float, int]] = []

    @property
    def count(self) -> int:
        """Number of connected clients that push metrics."""
        return len(self._clients)

    @contextmanager
    def opened(self, count: int) -> Iterator[None]:
        """Connect `count` clients and request their subscriptions to metrics. All sockets are
        closed at the end of the block."""
        with ExitStack() as stack:
            for begin in range(0, count, HELLO_AT_ONCE):
                lot = range(begin, min(count, begin + HELLO_AT_ONCE))
                clients = [PushingClient(self._address, index) for index in lot]
                for client in clients:
                    stack.enter_context(client.socket)
                    client.send_api_versions()
                for client in clients:
                    client.ask()
                for client in clients:
                    client.prepare()
                    client.socket.setblocking(False)
                    self._selector.register(client.socket, EVENT_READ, client)
                self._clients += clients
            yield
            self._selector.close()

    def check_is_asked(self) -> None:
        """Raise ConfigError if the broker requests no metrics from any client."""
        intervals = {client.interval_ms for client in self._clients}
        if not all(client.is_asked for client in self._clients):
            raise _not_asked()
        self.interval_ms = max(intervals)

    def begin(self, first_intervals: tuple[float, float] = FIRST_INTERVALS) -> None:
        """Choose a random time for each client's first push of metrics, within the given fractions
        of its push interval."""
        now = time.perf_counter()
        self._due = [
            (now + random.uniform(*first_intervals) * client.interval_ms / 1e3, index)
            for index, client in enumerate(self._clients)
        ]
        heapq.heapify(self._due)

    def push_for(self, seconds: float, progress: Progress) -> None:
        """Push metrics at each client's interval for `seconds` seconds."""
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            self._send_due(now)
            wait_s = min(end, self._due[0][0]) - time.perf_counter() if self._due else end - now
            self._receive(max(0.0, wait_s))
            progress(int(seconds - max(0.0, end - now)))

    def rest(self, seconds: float) -> None:
        """Push no metrics for `seconds` seconds. All later pushes are delayed by that time."""
        end = time.perf_counter() + seconds
        while (now := time.perf_counter()) < end:
            self._receive(end - now)
        self._due = [(at + seconds, index) for at, index in self._due]  # still in order

    def finish(self) -> None:
        """Wait for the outstanding responses to all clients' pushes of metrics."""
        patience = time.perf_counter() + SILENCE_S
        while any(client.is_open for client in self._clients) and time.perf_counter() < patience:
            self._receive(0.1)

    def _send_due(self, now: float) -> None:
        while self._due and self._due[0][0] <= now:
            at, index = heapq.heappop(self._due)
            client = self._clients[index]
            self.outcome.late_ms_max = max(self.outcome.late_ms_max, (now - at) * 1e3)
            if client.push():
                self.outcome.sent += 1
                self.outcome.sent_bytes += client.push_bytes

    def _receive(self, wait_s: float) -> None:
        for key, _ in self._selector.select(wait_s):
            client: PushingClient = key.data
            try:
                answer = client.receive()
            except OttlaError:
                self._selector.unregister(client.socket)
                self.outcome.hung_up += 1
                continue
            if answer is None:
                continue
            latency_ms, error = answer
            self.outcome.latencies_ms.append(latency_ms)
            self.outcome.codes[error.name] += 1
            if error is ErrorCode.UNKNOWN_SUBSCRIPTION_ID:
                self._selector.unregister(client.socket)
                client.socket.setblocking(True)
                client.ask()
                client.prepare()
                client.socket.setblocking(False)
                self._selector.register(client.socket, EVENT_READ, client)
                self.outcome.asked_again += 1
            # librdkafka also starts a client's next interval when the response arrives.
            wait_s = client.interval_ms / 1e3 * random.uniform(1, LATE_INTERVALS)
            heapq.heappush(self._due, (time.perf_counter() + wait_s, client.index))


class PushingClient:
    """One client instance that pushes metrics over its own connection."""

    def __init__(self, address: Address, index: int) -> None:
        self.socket = dial(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.interval_ms = 0
        self.is_asked = False
        self.is_open = False
        """True while the response to the client's push of metrics is outstanding."""
        self.push_bytes = 0
        self.index = index
        self._instance_id = ZERO_UUID
        self._subscription_id = 0
        self._frame = b""
        self._sent_at = 0.0
        self._received = bytearray()

    def send_api_versions(self) -> None:
        """Send ApiVersions with the name of the client software. Its response is read together with
        the response to the next request."""
        request = ApiVersionsRequest(
            client_software_name="ottla-bench", client_software_version="1"
        )
        self._send(request, API_VERSIONS_VERSION)

    def ask(self) -> None:
        """Request the client's subscription to metrics, and wait for the response."""
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id)
        self._send(request, GET_VERSION)
        answer = b""
        if self._instance_id == ZERO_UUID:
            self._read_frame()
        answer = self._read_frame()
        _, at = headers.decode_response_header(request.API_KEY, GET_VERSION, answer)
        found = codec.decode(GetTelemetrySubscriptionsResponse, GET_VERSION, answer, at)
        if found.error_code == ErrorCode.UNSUPPORTED_VERSION:
            raise _not_asked()
        if found.error_code:
            raise OttlaError(f"a client that asks what to report gets {found.error_code}")
        self._instance_id = found.client_instance_id
        self._subscription_id = found.subscription_id
        self.interval_ms = found.push_interval_ms
        self.is_asked = bool(found.requested_metrics)

    def prepare(self) -> None:
        """Encode the frame of a push of metrics. All pushes of the client consist of this frame."""
        payload = zstandard.compress(payload_of(self.index))
        self.push_bytes = len(payload)
        self._frame = frame_of(
            PushTelemetryRequest(
                client_instance_id=self._instance_id,
                subscription_id=self._subscription_id,
                compression_type=ZSTD,
                metrics=payload,
            ),
            PUSH_VERSION,
        )

    def push(self) -> bool:
        """Send one push of metrics. Returns False if the broker has closed the connection."""
        self._sent_at = time.perf_counter()
        try:
            sent = self.socket.send(self._frame)
        except OSError:
            self.is_open = False
            return False
        if sent < len(self._frame):
            raise OttlaError("a push does not fit into the socket; the machine is too small")
        self.is_open = True
        return True

    def receive(self) -> tuple[float, ErrorCode] | None:
        """Read the bytes that have arrived from the broker. Returns the latency in ms and the error
        code of the response once it is complete, or None before that."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except OSError:
            data = b""
        if not data:
            self.is_open = False
            raise OttlaError("the broker hung up")
        self._received += data
        received = self._received
        if len(received) < 4 or len(received) - 4 < int.from_bytes(received[:4], "big"):
            return None
        answer = bytes(received[4:])
        received.clear()
        self.is_open = False
        _, at = headers.decode_response_header(PushTelemetryRequest.API_KEY, PUSH_VERSION, answer)
        found = codec.decode(PushTelemetryResponse, PUSH_VERSION, answer, at)
        return (time.perf_counter() - self._sent_at) * 1e3, ErrorCode(found.error_code)

    def _send(self, request: Message, version: int) -> None:
        self.socket.sendall(frame_of(request, version))

    def _read_frame(self) -> bytes:
        length = int.from_bytes(self._read(4), "big")
        return self._read(length)

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise OttlaError("the broker hung up")
            data += more
        return bytes(data)


def allow_files(clients: int) -> None:
    """Raise this process's limit of open files so that it can open a socket for each of `clients`
    clients. Raises ConfigError if the hard limit is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = clients + FILES_SPARE
    if needed > hard:
        raise ConfigError("--connections", f"needs {needed} open files; 'ulimit -Hn' is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, needed), hard))


def _not_asked() -> ConfigError:
    return ConfigError(
        "ottla bench telemetry",
        "asks for a subscription that all clients match; make one with "
        "'ottla metrics subscriptions set bench --metrics \"*\" --interval 1s'",
    )
