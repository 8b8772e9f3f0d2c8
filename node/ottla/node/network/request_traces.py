"""Traces of sampled requests, with the phases receive, handle, wait and answer.

Pure. Sampling counts down to the next traced request. An untraced request costs one subtraction, or
one comparison if tracing is off. The times are from the clock of `request_times`. If a request's
header names a parent span, the client has chosen to trace, and the request is always traced.
Otherwise a trace begins here.

    Produce ├─receive─┼─append─┼─replicate─┼─answer─┤

- `receive` ends when the request is started.
- `append` (for other APIs `handle`) is the work of the handler.
- `replicate` (for other APIs `wait`) is the time for which the request waits.
- `answer` ends when the kernel has accepted the bytes of the response.
"""

import re
from collections import deque
from collections.abc import Callable
from math import log
from typing import Any, Protocol

from ottla.model.errors import ErrorCode, code_of
from ottla.model.seams import Rng
from ottla.wire.apis import API, FETCH, PRODUCE
from ottla.wire.codec_types import Message
from ottla.wire.headers import RequestHeader

TRACES_HELD_MAX = 500
"""Maximum number of finished traces that wait for export, within one second. Further traces are
dropped and counted. Converting a trace to spans takes some 0.2 ms, in the event loop and in the
exporting thread. As clients may request traces, the maximum also bounds their cost."""

CLIENT_ID_CHARS_MAX = 256
"""Maximum characters of a client id that are recorded in a trace; the id itself may have 32 KiB."""

_SAMPLED = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf]")
"""Pattern of a `traceparent` header with the sampled flag. Other values have no effect."""


PARTITIONS_OF = {PRODUCE: "partition_responses", FETCH: "partitions"}
"""Name of the field that contains the partitions in a topic's response, by API key. Errors of
partitions count as errors of the request."""


class TracedPeer(Protocol):
    """Interface of a client, with the properties that are recorded in the traces of its
    requests."""

    listener_name: str
    peer_host: str
    peer_port: int


class RequestTrace:
    """Times of the phases of one traced request, and the request's attributes."""

    __slots__ = (
        "answered_ns",
        "error_code",
        "handled_ns",
        "header",
        "parent",
        "peer",
        "received_ns",
        "sent_ns",
        "taken_ns",
    )

    def __init__(
        self,
        header: RequestHeader,
        peer: TracedPeer,
        *,
        parent: str | None,
        received_ns: int,
        taken_ns: int,
    ) -> None:
        self.header = header
        self.peer = peer
        self.parent = parent
        """Header `traceparent` of the client's span, or None if the request has no such header."""
        self.received_ns = received_ns
        self.taken_ns = taken_ns
        self.handled_ns = 0
        """Time in nanoseconds at which the handler returned and left the request waiting; 0 if the
        request did not wait."""
        self.answered_ns = 0
        self.sent_ns = 0
        self.error_code = 0
        """First error code found in the response: for the response as a whole, for a partition of
        Produce or Fetch, or for an element that the client may not access."""

    @property
    def name(self) -> str:
        """Name of the API of the traced request."""
        return API[self.header.api_key].name

    @property
    def error(self) -> str | None:
        """Name of the error in the response; None if the response has no error."""
        return code_of(self.error_code).name if self.error_code else None

    def note_answer(self, response: Message) -> None:
        """Store the error code of a response if the trace has no error code yet."""
        if not self.error_code:
            self.error_code = error_in(response)

    @property
    def attributes(self) -> dict[str, str | int]:
        """Attributes of the traced request. Attributes that OpenTelemetry defines have
        OpenTelemetry's names."""
        header, peer = self.header, self.peer
        error = self.error
        return {
            **({} if error is None else {"error.type": error}),
            "rpc.system": "kafka",
            "rpc.method": self.name,
            "messaging.system": "kafka",
            "messaging.client.id": (header.client_id or "")[:CLIENT_ID_CHARS_MAX],
            "kafka.api.version": header.api_version,
            "kafka.listener": peer.listener_name,
            "client.address": peer.peer_host,
            "client.port": peer.peer_port,
        }

    def parts(self) -> list[tuple[str, int, int]]:
        """Return the phases of the traced request as (name, start, end) without gaps, in
        nanoseconds."""
        is_produce = self.header.api_key == PRODUCE
        left_ns = self.handled_ns or self.answered_ns
        parts = [
            ("receive", self.received_ns, self.taken_ns),
            ("append" if is_produce else "handle", self.taken_ns, left_ns),
            ("replicate" if is_produce else "wait", left_ns, self.answered_ns),
            ("answer", self.answered_ns, self.sent_ns),
        ]
        if not self.handled_ns:
            del parts[2]
        return parts


class RequestTraces:
    """Traces of sampled requests, stored until they are exported."""

    def __init__(self, ratio: float, rng: Rng, *, now_ns: Callable[[], int]) -> None:
        """Create the traces. `ratio` is the fraction of all requests that is sampled, above 0 and
        at most 1."""
        assert 0 < ratio <= 1
        self._ratio = ratio
        self._rng = rng
        self._now_ns = now_ns
        self._finished: deque[RequestTrace] = deque()
        self.dropped_count = 0
        self._until_next = self._gap()

    def begin(
        self,
        header: RequestHeader,
        peer: TracedPeer,
        *,
        context: bytes | None,
        received_ns: int,
        taken_ns: int,
    ) -> RequestTrace | None:
        """Return a new trace for a request that is sampled or has a parent span. Returns None for
        all other requests.

        `context` is the `traceparent` in the request's header, or None. `received_ns` is the start
        of the event-loop iteration that read the request, and `taken_ns` the time at which the
        request is started.
        """
        if context is not None and _SAMPLED.fullmatch(context):
            parent = str(context, "ascii")
        else:
            parent = None
            self._until_next -= 1
            if self._until_next > 0:
                return None
            self._until_next = self._gap()
        return RequestTrace(header, peer, parent=parent, received_ns=received_ns, taken_ns=taken_ns)

    def answered(self, trace: RequestTrace, handled_ns: int) -> None:
        """Record that the response to a traced request is ready. `handled_ns` is the time in
        nanoseconds at which the handler left the request waiting, or 0 if it returned the response.
        """
        trace.handled_ns = handled_ns
        trace.answered_ns = self._now_ns()

    def finish(self, trace: RequestTrace) -> None:
        """Store a trace whose response has been sent, until it is exported."""
        trace.sent_ns = self._now_ns()
        if len(self._finished) >= TRACES_HELD_MAX:
            self.dropped_count += 1
        else:
            self._finished.append(trace)

    def take(self, count_max: int) -> list[RequestTrace]:
        """Remove and return up to `count_max` finished traces for export, the oldest first."""
        count = min(count_max, len(self._finished))
        return [self._finished.popleft() for _ in range(count)]

    def _gap(self) -> int:
        """Return the number of requests until the next sampled one. The number is random, because
        with a fixed number some requests of a periodic pattern would never be sampled."""
        if self._ratio == 1:
            return 1
        return 1 + int(log(1 - self._rng.random()) / log(1 - self._ratio))


def error_in(response: Message) -> int:
    """Return the first error code of a response that counts as the error of its request, or 0 if
    the response has no such code."""
    code: int = getattr(response, "error_code", 0)
    field = PARTITIONS_OF.get(response.API_KEY)
    if code or field is None:
        return code
    answer: Any = response
    found = (one.error_code for topic in answer.responses for one in getattr(topic, field))
    return next((one for one in found if one), int(ErrorCode.NONE))
