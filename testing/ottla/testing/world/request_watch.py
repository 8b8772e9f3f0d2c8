"""Observer of the requests of instances: it reads the frames on their simulated connections.

It counts requests by instance and API, and works with every client library. It never changes bytes.
It can only request that a response is lost together with its connection.
"""

from struct import Struct
from typing import Protocol
from uuid import UUID

from ottla.jepsen.world.whole.net.streams import Stream
from ottla.testing.world.plans import When
from ottla.testing.world.request_records import (
    APIS_WITH_RECORDS,
    FRAME_BYTES_MAX,
    RecordRange,
    TopicName,
    records_of_request,
    records_of_response,
)
from ottla.wire.apis import API

REQUEST_HEAD = Struct(">hhi")
"""Start of a request after its length: API key, API version, correlation id."""
CORRELATION = Struct(">i")
LENGTH = Struct(">i")
_NAMES = {key: row.name for key, row in API.items()}


class RequestListener(Protocol):
    """Interface of an object that is notified of each request and response of an instance."""

    def on_request(self, call: "ObservedRequest", when: When) -> None:
        """Handle the arrival of a request at its broker or of a response at its instance."""

    def loses(self, call: "ObservedRequest") -> bool:
        """Return whether the response to a request must be lost together with its connection."""


class ObservedRequest:
    """One request that an instance of the user's program has sent to a broker."""

    __slots__ = ("api", "broker", "correlation_id", "instance", "number", "records", "size_bytes")

    def __init__(
        self,
        instance: str,
        broker: str,
        api: str,
        number: int,
        correlation_id: int,
        size_bytes: int,
    ) -> None:
        self.instance = instance
        """Name of the instance that sent the request."""
        self.broker = broker
        """Host name of the broker that received the request."""
        self.api = api
        """Name of the request in Kafka's protocol."""
        self.number = number
        """Number of this request among the instance's requests with the same name, from 1."""
        self.correlation_id = correlation_id
        self.size_bytes = size_bytes
        """Size of the request in bytes, without its length prefix."""
        self.records: list[RecordRange] = []
        """Records that the request commits, or that its response delivers or acknowledges."""


class FrameHeads:
    """Splits a byte stream into frames and keeps only the first bytes of each."""

    __slots__ = ("_head", "_head_bytes", "_left")

    def __init__(self, head_bytes: int) -> None:
        self._head_bytes = LENGTH.size + head_bytes
        self._head = b""
        self._left = 0
        """Number of bytes of the current frame that have not arrived yet, not counting its head."""

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Accept the next bytes of the stream. Returns the length and the first bytes of each frame
        whose first bytes are complete now."""
        found = []
        at, end = 0, len(data)
        while at < end:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
                continue
            missing = self._head_bytes - len(self._head)
            self._head += data[at : at + missing]
            at += missing
            if len(self._head) == self._head_bytes:
                (length,) = LENGTH.unpack_from(self._head)
                found.append((length, self._head[LENGTH.size :]))
                self._left = max(0, length - (self._head_bytes - LENGTH.size))
                self._head = b""
        return found


class SmallFrames:
    """Splits a byte stream into frames. Frames with more than `FRAME_BYTES_MAX` are left out."""

    __slots__ = ("_data", "_skip")

    def __init__(self) -> None:
        self._data = b""
        self._skip = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Accept the next bytes of the stream. Returns the frames that are complete now, without
        their lengths."""
        found: list[bytes] = []
        self._data += data
        while True:
            if self._skip:
                step = min(self._skip, len(self._data))
                self._data = self._data[step:]
                self._skip -= step
            if self._skip or len(self._data) < LENGTH.size:
                return found
            (length,) = LENGTH.unpack_from(self._data)
            end = LENGTH.size + max(0, length)
            if end > FRAME_BYTES_MAX:
                self._skip = end
            elif len(self._data) < end:
                return found
            else:
                found.append(self._data[LENGTH.size : end])
                self._data = self._data[end:]


READING_APIS = frozenset(
    (
        "ApiVersions",
        "DescribeGroups",
        "Fetch",
        "FindCoordinator",
        "Heartbeat",
        "ListOffsets",
        "Metadata",
        "OffsetFetch",
    )
)
"""Keys of the APIs whose requests change neither a log nor a group."""


class RequestWatch:
    """All observed connections of a run, and the number of requests by instance and API."""

    def __init__(self, listener: RequestListener, topic_name: TopicName | None = None) -> None:
        self._listener = listener
        self.topic_name = topic_name or _id_as_name
        self.change_count = 0
        """Number of requests of instances so far that may change a log or a group."""
        self._counts: dict[tuple[str, str], int] = {}
        self._instances: set[str] = set()

    def add_instance(self, name: str) -> None:
        """Observe all later connections that the instance with this host name opens."""
        self._instances.add(name)

    def on_connection(self, client: Stream, server: Stream) -> None:
        """Observe a new connection if an instance has opened it. `client` is the instance's end of
        the connection."""
        if client.host_name in self._instances:
            connection = _Connection(self, client.host_name, server.host_name)
            server.on_landing = connection.on_request_bytes
            client.on_landing = connection.on_response_bytes

    def count_of(self, instance: str, api: str) -> int:
        """Return the number of requests of the API `api` from an instance that have arrived at
        brokers."""
        return self._counts.get((instance, api), 0)


class _Connection:
    __slots__ = (
        "_broker",
        "_frames",
        "_instance",
        "_request_frames",
        "_requests",
        "_response_frames",
        "_responses",
        "_unanswered",
        "_watch",
    )

    def __init__(self, watch: RequestWatch, instance: str, broker: str) -> None:
        self._watch = watch
        self._instance = instance
        self._broker = broker
        self._requests = FrameHeads(REQUEST_HEAD.size)
        self._responses = FrameHeads(CORRELATION.size)
        self._unanswered: dict[int, ObservedRequest] = {}
        self._request_frames = SmallFrames()
        self._response_frames = SmallFrames()
        self._frames: dict[int, bytes] = {}
        """Frames of unanswered requests that produce, fetch or commit records, by correlation
        id."""

    def on_request_bytes(self, data: bytes) -> bool:
        watch = self._watch
        for frame in self._request_frames.feed(data):
            if len(frame) >= REQUEST_HEAD.size:
                key, _, correlation_id = REQUEST_HEAD.unpack_from(frame)
                if key in APIS_WITH_RECORDS:
                    self._frames[correlation_id] = frame
        for length, head in self._requests.feed(data):
            key, _, correlation_id = REQUEST_HEAD.unpack(head)
            api = _NAMES.get(key, str(key))
            number = watch.count_of(self._instance, api) + 1
            watch._counts[self._instance, api] = number
            if api not in READING_APIS:
                watch.change_count += 1
            call = ObservedRequest(
                self._instance, self._broker, api, number, correlation_id, length
            )
            self._unanswered[correlation_id] = call
            if correlation_id in self._frames:
                call.records = records_of_request(self._frames[correlation_id], watch.topic_name)
            watch._listener.on_request(call, "sent")
        return False

    def on_response_bytes(self, data: bytes) -> bool:
        calls = []
        frames = {
            CORRELATION.unpack_from(frame)[0]: frame
            for frame in self._response_frames.feed(data)
            if len(frame) >= CORRELATION.size
        }
        for _, head in self._responses.feed(data):
            call = self._unanswered.pop(CORRELATION.unpack(head)[0], None)
            if call is not None:
                calls.append(call)
                request = self._frames.pop(call.correlation_id, None)
                response = frames.get(call.correlation_id)
                if request is not None and response is not None and not call.records:
                    call.records = records_of_response(request, response, self._watch.topic_name)
        listener = self._watch._listener
        if sum(listener.loses(call) for call in calls):
            return True
        for call in calls:
            listener.on_request(call, "answered")
        return False


def _id_as_name(topic_id: UUID) -> str:
    return str(topic_id)
