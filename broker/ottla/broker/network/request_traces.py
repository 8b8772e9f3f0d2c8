"""Traces of some requests: received, handled, waiting, answered.

Pure.  Which requests is decided by counting down to the next one: what is not traced costs one
subtraction, and with tracing off one comparison.  The instants are the stopwatch's of
`request_times`.  Kafka's protocol carries no trace of the client's, so every trace begins here.

    Produce ├─receive─┼─append─┼─replicate─┼─answer─┤

`receive` is until the request is taken up, `append` (of others: `handle`) its handler's work,
`replicate` (`wait`) what it waits for, `answer` until its bytes are with the kernel.
"""

from collections import deque
from collections.abc import Callable
from math import log
from typing import Protocol

from ottla.model.seams import Rng
from ottla.telemetry.spans import TraceSpan
from ottla.wire.apis import API, PRODUCE
from ottla.wire.headers import RequestHeader

TRACES_HELD_MAX = 2_000
"""Finished traces that wait to be sent; beyond it the newest are dropped and counted."""

SPAN_ID_BYTES = 8


class TracedPeer(Protocol):
    """What is said of who asks."""

    listener_name: str
    peer_host: str
    peer_port: int


class RequestTrace:
    """The instants of one request, on the stopwatch, and what is said of it."""

    __slots__ = (
        "answered_ns",
        "handled_ns",
        "header",
        "peer",
        "received_ns",
        "sent_ns",
        "taken_ns",
    )

    def __init__(
        self, header: RequestHeader, peer: TracedPeer, *, received_ns: int, taken_ns: int
    ) -> None:
        self.header = header
        self.peer = peer
        self.received_ns = received_ns
        self.taken_ns = taken_ns
        self.handled_ns = 0
        """When its handler left it waiting; 0 where it did not wait."""
        self.answered_ns = 0
        self.sent_ns = 0


class RequestTraces:
    """Chooses requests, and holds their traces until somebody takes them."""

    def __init__(self, ratio: float, rng: Rng, *, now_ns: Callable[[], int]) -> None:
        """Trace a part `ratio` of all requests, above 0 and at most 1."""
        assert 0 < ratio <= 1
        self._ratio = ratio
        self._rng = rng
        self._now_ns = now_ns
        self._finished: deque[RequestTrace] = deque()
        self.dropped_count = 0
        self._until_next = self._gap()

    def begin(
        self, header: RequestHeader, peer: TracedPeer, *, received_ns: int, taken_ns: int
    ) -> RequestTrace | None:
        """Return a trace of this request if it is its turn."""
        self._until_next -= 1
        if self._until_next > 0:
            return None
        self._until_next = self._gap()
        return RequestTrace(header, peer, received_ns=received_ns, taken_ns=taken_ns)

    def answered(self, trace: RequestTrace, handled_ns: int) -> None:
        """Note that the answer is ready; `handled_ns` as in `RequestTimes.note`."""
        trace.handled_ns = handled_ns
        trace.answered_ns = self._now_ns()

    def finish(self, trace: RequestTrace) -> None:
        """Keep a trace whose answer is on its way."""
        trace.sent_ns = self._now_ns()
        if len(self._finished) >= TRACES_HELD_MAX:
            self.dropped_count += 1
        else:
            self._finished.append(trace)

    def take(self, *, count_max: int, wall_offset_ns: int) -> list[TraceSpan]:
        """Take finished traces as spans; `wall_offset_ns` is wall time less the stopwatch's."""
        spans: list[TraceSpan] = []
        while self._finished and count_max > 0:
            count_max -= 1
            spans += self._spans(self._finished.popleft(), wall_offset_ns)
        return spans

    def _gap(self) -> int:
        """Return how many requests until the next one: chance, so that no rhythm is missed."""
        if self._ratio == 1:
            return 1
        return 1 + int(log(1 - self._rng.random()) / log(1 - self._ratio))

    def _spans(self, trace: RequestTrace, offset_ns: int) -> list[TraceSpan]:
        header, peer = trace.header, trace.peer
        trace_id = self._rng.uuid().bytes
        root_id = self._span_id()
        is_produce = header.api_key == PRODUCE
        root = TraceSpan(
            trace_id=trace_id,
            span_id=root_id,
            parent_id=b"",
            name=API[header.api_key].name,
            start_ns=trace.received_ns + offset_ns,
            end_ns=trace.sent_ns + offset_ns,
            is_server=True,
            attributes=(
                ("rpc.system", "kafka"),
                ("rpc.method", API[header.api_key].name),
                ("kafka.api.version", str(header.api_version)),
                ("kafka.client.id", header.client_id or ""),
                ("client.address", peer.peer_host),
                ("client.port", str(peer.peer_port)),
                ("kafka.listener", peer.listener_name),
            ),
        )
        left_ns = trace.handled_ns or trace.answered_ns
        parts = [
            ("receive", trace.received_ns, trace.taken_ns),
            ("append" if is_produce else "handle", trace.taken_ns, left_ns),
            ("replicate" if is_produce else "wait", left_ns, trace.answered_ns),
            ("answer", trace.answered_ns, trace.sent_ns),
        ]
        if not trace.handled_ns:
            del parts[2]
        return [
            root,
            *(
                TraceSpan(
                    trace_id=trace_id,
                    span_id=self._span_id(),
                    parent_id=root_id,
                    name=name,
                    start_ns=start_ns + offset_ns,
                    end_ns=end_ns + offset_ns,
                )
                for name, start_ns, end_ns in parts
            ),
        ]

    def _span_id(self) -> bytes:
        return self._rng.uuid().bytes[:SPAN_ID_BYTES]
