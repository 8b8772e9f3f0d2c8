"""Queue of one connection's responses, which are sent in the order of its requests.

Pure. Every started request gets a `ResponseSlot` at the tail. The owner of the slot may complete it
at any time. The response bytes are moved to the output when every earlier slot is complete.
Invariant AnswersKeepRequestOrder.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ottla.model.compiled import mypyc_attr
from ottla.node.network.memory.buffers import OutputBuffer
from ottla.node.network.request_times import Times
from ottla.node.network.request_traces import RequestTrace
from ottla.node.network.steps import Answer
from ottla.wire.answers import encode_answer, framed_answer
from ottla.wire.codec_types import Chunk, Message
from ottla.wire.headers import RequestHeader, answer_start, frame

NO_CHUNKS: list[Chunk] = []
"""Empty list of chunks, for a response that is not ready; never modified."""


class SlotOwner(Protocol):
    """Owner of response slots, usually the connection. The owner is notified when a slot is
    completed."""

    def on_slot_completed(self, slot: "ResponseSlot") -> None:
        """Send the completed responses that are next in request order, and resume serving
        requests."""
        ...

    def on_answer_failed(self, fault: Exception) -> None:
        """Close the connection, because a response cannot be encoded."""
        ...

    def mute_until(self, deadline_ms: int) -> None:
        """Stop reading from the connection until the monotonic time `deadline_ms`, because its
        client is throttled."""
        ...

    def on_steps(self, slot: "ResponseSlot", steps: Answer) -> None:
        """Run steps that build a response, one per event-loop iteration, and complete the response
        slot."""
        ...


class Charge(Protocol):
    """Interface of the charge of a request to its client's quotas; see `node/quotas`."""

    used_ns: int
    """Nanoseconds of processing time, on the event loop or in threads, that the request used after
    the first call of its handler returned."""

    is_exempt: bool
    """True for a request between brokers. Its time is counted, but charged to no client."""

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return the number of record bytes that a fetch may return under its client's quota, at
        most `bytes_max`."""
        ...

    def may_give(self, byte_count: int, slot: "ResponseSlot") -> bool:
        """Charge the client of a fetch for the records that the response would contain. Returns
        True if the response may contain the records."""
        ...

    def settle(self, slot: "ResponseSlot") -> int:
        """Charge the request's time to its client. Returns the total throttle time of the client,
        in milliseconds."""
        ...

    def note_thread_time(self, used_ns: int) -> None:
        """Count time that a thread used for the request, while the event loop continued."""
        ...

    def complete(self, slot: "ResponseSlot", now_ns: int) -> None:
        """Charge the client for the time and bytes of building the response, which were used after
        `settle` was called."""
        ...

    def note_written(self, used_ns: int) -> None:
        """Count time that the event loop used to write responses to the client."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class ResponseSlot:
    """Slot for one response, in the order of its connection's requests.

    It is completed exactly once, by one of the `complete…` methods. Completing a slot whose
    connection has closed has no effect. If the connection closes first, `on_abandoned` is called
    once, to remove the waiting request from its purgatory.
    """

    __slots__ = (
        "_owner",
        "amend",
        "answered_ns",
        "charge",
        "chunks",
        "closes_connection",
        "correlation_id",
        "error_code",
        "handled_ns",
        "header",
        "is_done",
        "on_abandoned",
        "queued_ns",
        "started_ns",
        "times",
        "trace",
    )

    def __init__(
        self,
        owner: SlotOwner,
        header: RequestHeader,
        correlation_id: int,
        started_ns: int = 0,
    ) -> None:
        self._owner: SlotOwner | None = owner
        self.header = header
        self.correlation_id = correlation_id
        """Number of the request, chosen by the client, which the response repeats."""
        self.chunks = NO_CHUNKS
        self.is_done = False
        self.closes_connection = False
        self.on_abandoned: Callable[[], None] | None = None
        self.times: Times | None = None
        """Counters in which the times of this request are counted; None if no handler serves the
        request."""
        self.trace: RequestTrace | None = None
        """Trace of the request, or None if the request is not traced."""
        self.charge: Charge | None = None
        """Charge of the request to its client's quotas; None without quotas."""
        self.amend: Callable[[Any], None] | None = None
        """Function that adds errors for the elements that authorization removed from the request.
        None if no element was removed."""
        self.error_code = 0
        """Error code of the response as a whole, or 0 for no error."""
        self.started_ns = started_ns
        self.queued_ns = 0
        """Time in nanoseconds from the start of the event-loop iteration to `started_ns`; 0 until
        the handler leaves the request waiting."""
        self.handled_ns = 0
        """Time in nanoseconds at which the handler returned and left the request waiting; 0 until
        then."""
        self.answered_ns = 0
        """Time in nanoseconds at which the response was ready, if it had to wait for earlier
        responses of the connection."""

    @property
    def is_abandoned(self) -> bool:
        """True if the connection closed before the response was complete."""
        return self._owner is None

    def complete(self, response: Message) -> None:
        """Answer the request with a message, which is encoded now in the request's version."""
        self.complete_as(response, self.header.api_version)

    def complete_as(self, response: Message, version: int) -> None:
        """Answer the request in another version than the requested one, as ApiVersions does for an
        unknown version.

        A response that cannot be encoded closes this connection, and raises no exception in the
        caller.
        """
        owner = self._owner
        if owner is None:
            return
        header = self.header
        if self.amend is not None or self.charge is not None:
            self.finish_answer(response)
        if self.trace is not None:
            self.trace.note_answer(response)
        try:
            self.error_code = getattr(response, "error_code", 0)
            chunks = encode_answer(response, header.api_key, version, self.correlation_id)
        except Exception as fault:
            owner.on_answer_failed(fault)
            return
        self.complete_frame(chunks)

    def finish_answer(self, response: Message) -> None:
        """Add the errors of refused elements to the response, and charge the client, before the
        response is encoded.

        Does nothing without an authorizer and quotas.
        """
        if self.amend is not None:
            self.amend(response)
        throttle_ms = self.settle_charge()
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)

    def settle_charge(self) -> int:
        """Charge the client for the time of its request, immediately before the response is sent.

        Returns the client's throttle time in milliseconds, which the response reports.
        """
        if self.charge is None or self._owner is None:
            return 0
        return self.charge.settle(self)

    def complete_by(self, steps: Answer) -> None:
        """Answer the request with the result of a handler's steps. The event loop alternates
        between these steps and the steps of all other requests."""
        if self._owner is not None:
            self._owner.on_steps(self, steps)

    def complete_begun(self, result: Message | Answer) -> None:
        """Answer the request with the result of `steps.begun`: a response, or the remaining steps
        that build it."""
        if isinstance(result, Message):
            self.complete(result)
        else:
            self.complete_by(result)

    def complete_large(self, response: Message) -> None:
        """Answer the request with a message that has very many entries. The message is encoded off
        the event loop."""
        self.complete_by(_finished_steps(response))

    def complete_encoded(self, response: Message, body: list[Chunk]) -> None:
        """Answer the request with a message that is already encoded in the request's version."""
        header = self.header
        self.error_code = getattr(response, "error_code", 0)
        if self.trace is not None:
            self.trace.note_answer(response)
        self.complete_frame(
            framed_answer(body, header.api_key, header.api_version, self.correlation_id)
        )

    def complete_body(self, body: bytes) -> None:
        """Answer the request with a response body that is already encoded, and for which the client
        is already charged."""
        header = self.header
        start = answer_start(header.api_key, header.api_version, self.correlation_id, len(body))
        self.complete_frame([start + body])

    def complete_raw(self, data: bytes) -> None:
        """Answer the request with bytes that have no response header: a SASL token after
        SaslHandshake version 0."""
        self.complete_frame(frame([data]))

    def complete_silently(self) -> None:
        """Complete the request without a response, for a successful Produce with acks=0."""
        self.complete_frame([])

    def complete_and_close(self) -> None:
        """Close the client's connection once the responses to earlier requests are sent.

        This is the only way to report an error to a producer with acks=0.
        """
        self.closes_connection = True
        self.complete_frame([])

    def fail(self, fault: Exception) -> None:
        """Close the client's connection after an unexpected error in the handler of the request."""
        if self._owner is not None:
            self._owner.on_answer_failed(fault)

    def mute_until(self, deadline_ms: int) -> None:
        """Stop reading from the connection until the monotonic time `deadline_ms`, because its
        client is throttled."""
        if self._owner is not None:
            self._owner.mute_until(deadline_ms)

    def abandon(self) -> None:
        """Detach the response slot from its connection, which has closed."""
        self._owner = None
        if self.on_abandoned is not None and not self.is_done:
            on_abandoned, self.on_abandoned = self.on_abandoned, None
            on_abandoned()

    def complete_frame(self, chunks: list[Chunk]) -> None:
        """Answer the request with a complete response frame, divided into chunks. The client has
        already been charged for it."""
        owner = self._owner
        if owner is None:
            return
        assert not self.is_done, f"answered twice: {self.header}"
        self.chunks = chunks
        self.is_done = True
        self.on_abandoned = None
        owner.on_slot_completed(self)


class ResponseQueue:
    """Response slots of one connection in request order. Responses that may be sent are moved to
    the output."""

    __slots__ = ("is_closing", "last_times", "late", "slots")

    def __init__(self) -> None:
        self.slots: deque[ResponseSlot] = deque()
        """Slots of the connection's requests whose responses are not in the output yet, the oldest
        first."""
        self.is_closing = False
        self.last_times: Times | None = None
        """Counters for the times of the last response that was moved to the output; None before the
        first response."""
        self.late: list[ResponseSlot] = []
        """Slots whose responses were sent after waiting for responses to earlier requests; cleared
        when they are counted."""

    def __len__(self) -> int:
        """Return the number of requests whose responses are not in the output yet."""
        return len(self.slots)

    def __contains__(self, slot: ResponseSlot) -> bool:
        """Return whether a request's response is not in the output yet."""
        return slot in self.slots

    def take_ready(self, output: OutputBuffer) -> None:
        """Move the chunks of every completed response that is next in request order to `output`.

        Moves nothing more after a response that closes the connection.
        """
        slots = self.slots
        if self.is_closing:
            return
        while slots and (slot := slots[0]).is_done:
            slots.popleft()
            self.last_times = slot.times
            if slot.answered_ns:
                self.late.append(slot)
            chunks = slot.chunks
            if len(chunks) == 1:
                chunk = chunks[0]
                output.chunks.append(chunk)
                size = len(chunk)
                output.one_piece_bytes += size
                output.byte_count += size
            elif chunks:
                output.has_slices = True
                output.chunks.extend(chunks)
                for chunk in chunks:
                    output.byte_count += len(chunk)
            if slot.closes_connection:
                self.is_closing = True
                break

    def take_open(self) -> "deque[ResponseSlot]":
        """Remove and return every slot whose response is not in the output yet, after the
        connection has closed."""
        slots, self.slots = self.slots, deque()
        return slots


def _finished_steps(response: Message) -> Answer:
    """Return a generator in the form of a handler's steps that returns `response` at once."""
    yield
    return response
