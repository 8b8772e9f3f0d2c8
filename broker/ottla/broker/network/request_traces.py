"""Traces of some requests: received, handled, waiting, answered.

Pure.  Which requests is decided by counting down to the next one: what is not traced costs one
subtraction, and with tracing off one comparison.  The instants are the stopwatch's of
`request_times`.  A trace begins here, unless the request's header names a span that it belongs to:
then it is the client that chose to trace, and every such request is.

    Produce ├─receive─┼─append─┼─replicate─┼─answer─┤

`receive` is until the request is taken up, `append` (of others: `handle`) its handler's work,
`replicate` (`wait`) what it waits for, `answer` until its bytes are with the kernel.
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
"""Finished traces that wait to be sent, in one second; beyond it the newest are dropped and
counted.  Each takes some 0.2 ms to become spans, in the loop and in the thread that sends them: as
clients may ask for traces, this also bounds what they cost."""

CLIENT_ID_CHARS_MAX = 256
"""What a trace tells of a client's name for itself, which may have 32 KiB."""

_SAMPLED = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf]")
"""A `traceparent` of a span that is recorded.  One that is not changes nothing."""


PARTITIONS_OF = {PRODUCE: "partition_responses", FETCH: "partitions"}
"""The field of a topic in an answer with its partitions, whose errors count as the request's."""


class TracedPeer(Protocol):
    """What is said of who asks."""

    listener_name: str
    peer_host: str
    peer_port: int


class RequestTrace:
    """The instants of one request, on the stopwatch, and what is said of it."""

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
        """The `traceparent` of the client's span, if it named one."""
        self.received_ns = received_ns
        self.taken_ns = taken_ns
        self.handled_ns = 0
        """When its handler left it waiting; 0 where it did not wait."""
        self.answered_ns = 0
        self.sent_ns = 0
        self.error_code = 0
        """The first error of the answer, as a whole or of a partition of Produce and Fetch; or
        that of a part which is not allowed."""

    @property
    def name(self) -> str:
        """The API's name."""
        return API[self.header.api_key].name

    @property
    def error(self) -> str | None:
        """The name of the error, if the request was answered with one."""
        return code_of(self.error_code).name if self.error_code else None

    def note_answer(self, response: Message) -> None:
        """Take the error of an answer; what was noted before stays."""
        if not self.error_code:
            self.error_code = error_in(response)

    @property
    def attributes(self) -> dict[str, str | int]:
        """What is said of the request, by OpenTelemetry's names where it has them."""
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
        """Return the parts as names with their first and last instants, without a gap."""
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
        self,
        header: RequestHeader,
        peer: TracedPeer,
        *,
        context: bytes | None,
        received_ns: int,
        taken_ns: int,
    ) -> RequestTrace | None:
        """Return a trace of this request if it is its turn, or that of the span it belongs to.

        `context` is the `traceparent` in its header, if there is one.
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

    def take(self, count_max: int) -> list[RequestTrace]:
        """Take the oldest finished traces."""
        count = min(count_max, len(self._finished))
        return [self._finished.popleft() for _ in range(count)]

    def _gap(self) -> int:
        """Return how many requests until the next one: chance, so that no rhythm is missed."""
        if self._ratio == 1:
            return 1
        return 1 + int(log(1 - self._rng.random()) / log(1 - self._ratio))


def error_in(response: Message) -> int:
    """Return the first error that an answer is counted for; 0 without one."""
    code: int = getattr(response, "error_code", 0)
    field = PARTITIONS_OF.get(response.API_KEY)
    if code or field is None:
        return code
    answer: Any = response
    found = (one.error_code for topic in answer.responses for one in getattr(topic, field))
    return next((one for one in found if one), int(ErrorCode.NONE))
