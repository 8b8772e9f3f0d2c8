"""The answers of one connection, sent in the order of its requests.

Pure.  Every request taken up gets a `ResponseSlot` at the tail; it may be completed at any time
and by anyone who holds it; its bytes move to the output when every slot before it is done.
Invariant AnswersKeepRequestOrder.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from ottla.broker.network.request_times import Times
from ottla.broker.network.request_traces import RequestTrace
from ottla.broker.network.steps import Answer
from ottla.model.compiled import mypyc_attr
from ottla.wire.answers import encode_answer, framed_answer
from ottla.wire.codec_types import Chunk, Message
from ottla.wire.headers import RequestHeader, answer_start, frame


class SlotOwner(Protocol):
    """Whoever must hear that a slot was completed: the connection."""

    def on_slot_completed(self, slot: "ResponseSlot") -> None:
        """Move on: answers may leave and take-up may resume."""
        ...

    def on_answer_failed(self, fault: Exception) -> None:
        """End the connection: one of its answers cannot be written."""
        ...

    def mute_until(self, deadline_ms: int) -> None:
        """Read no further until then."""
        ...

    def on_steps(self, slot: "ResponseSlot", steps: Answer) -> None:
        """Have the steps done, one in a turn of the loop, and the slot completed."""
        ...


class Charge(Protocol):
    """What a request is charged to its client's quotas; see `broker/quotas`."""

    used_ns: int
    """Time that it took besides its handler's first turn, on the loop or in threads."""

    is_exempt: bool
    """True if it is a request between brokers: its time is counted, and no client pays."""

    def fetch_bytes_max(self, bytes_max: int) -> int:
        """Return the most bytes that a fetch may be given: more is throttled for certain."""
        ...

    def may_give(self, byte_count: int, slot: "ResponseSlot") -> bool:
        """Charge a fetch for its records; return whether it is to be given them."""
        ...

    def may_give_all(self, byte_count: int) -> bool:
        """Charge a fetch for records that its client has the credit for; else charge nothing."""
        ...

    def settle(self, slot: "ResponseSlot") -> int:
        """Charge the request's time; return for how many ms its client is throttled in all."""
        ...

    def note_apart(self, used_ns: int) -> None:
        """Count time that a thread took for the request; the loop did not wait for it."""
        ...

    def complete(self, slot: "ResponseSlot", now_ns: int) -> None:
        """Count what making the answer took since the charge was settled: time, and bytes."""
        ...

    def note_written(self, used_ns: int) -> None:
        """Count time that the loop took to write answers of the client."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class ResponseSlot:
    """The place of one answer in its connection's order.

    Completed exactly once, by one of the `complete…` methods; completing a slot whose connection
    has closed does nothing.  `on_abandoned` is called once if the connection closes first: whoever
    waits on behalf of this slot drops its entry there.
    """

    __slots__ = (
        "_owner",
        "amend",
        "answered_ns",
        "charge",
        "chunks",
        "closes_connection",
        "error_code",
        "handled_ns",
        "header",
        "is_done",
        "on_abandoned",
        "started_ns",
        "times",
        "trace",
    )

    def __init__(
        self,
        owner: SlotOwner,
        header: RequestHeader,
        started_ns: int = 0,
    ) -> None:
        self._owner: SlotOwner | None = owner
        self.header = header
        self.chunks: list[Chunk] = []
        self.is_done = False
        self.closes_connection = False
        self.on_abandoned: Callable[[], None] | None = None
        self.times: Times | None = None
        """Where its time is counted; None for what nobody serves."""
        self.trace: RequestTrace | None = None
        """Its trace, if it has one."""
        self.charge: Charge | None = None
        """What its client is charged, where a quota is set at all."""
        self.amend: Callable[[Any], None] | None = None
        """Puts into the answer what was kept from its handler: the parts that are not allowed."""
        self.error_code = 0
        """Why the answer is a refusal as a whole, if it is one."""
        self.started_ns = started_ns
        self.handled_ns = 0
        """When its handler left it waiting; 0 until then."""
        self.answered_ns = 0
        """When it was answered, if answers before it were not there yet."""

    @property
    def is_abandoned(self) -> bool:
        """Whether the connection closed before the answer: nobody waits for it."""
        return self._owner is None

    def complete(self, response: Message) -> None:
        """Answer with a message of the request's API, encoded now in the request's version."""
        self.complete_as(response, self.header.api_version)

    def complete_as(self, response: Message, version: int) -> None:
        """Answer in another version than asked: only ApiVersions does, when it knows no such.

        What cannot be encoded ends this connection, never whoever completed the slot.
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
            chunks = encode_answer(response, header.api_key, version, header.correlation_id)
        except Exception as fault:
            owner.on_answer_failed(fault)
            return
        self._finish(chunks)

    def finish_answer(self, response: Message) -> None:
        """Complete the answer with refused parts, and charge the client, before it is encoded.

        Where no authorizer and no quota is, nothing is to be done.
        """
        if self.amend is not None:
            self.amend(response)
        throttle_ms = self.settle_charge()
        if throttle_ms and hasattr(response, "throttle_time_ms"):
            response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)

    def settle_charge(self) -> int:
        """Charge the client for the request's time, right before it is answered.

        Return for how many ms the client is throttled, which the answer has to tell.
        """
        if self.charge is None or self._owner is None:
            return 0
        return self.charge.settle(self)

    def complete_by(self, steps: Answer) -> None:
        """Answer with what the steps come to, which are done in turn with all others."""
        if self._owner is not None:
            self._owner.on_steps(self, steps)

    def complete_begun(self, result: Message | Answer) -> None:
        """Answer with what `begun` returned: a message, or the steps that are left."""
        if isinstance(result, Message):
            self.complete(result)
        else:
            self.complete_by(result)

    def complete_large(self, response: Message) -> None:
        """Answer with a message of very many entries, which is encoded apart from the loop."""
        self.complete_by(_made(response))

    def complete_encoded(self, response: Message, body: list[Chunk]) -> None:
        """Answer with a message that was encoded in the request's version."""
        header = self.header
        self.error_code = getattr(response, "error_code", 0)
        if self.trace is not None:
            self.trace.note_answer(response)
        self._finish(framed_answer(body, header.api_key, header.api_version, header.correlation_id))

    def complete_body(self, body: bytes) -> None:
        """Answer with a body that is encoded already, and charged."""
        header = self.header
        start = answer_start(header.api_key, header.api_version, header.correlation_id, len(body))
        self._finish([start + body])

    def complete_frame(self, data: bytes) -> None:
        """Answer with a whole frame, which is charged already."""
        self._finish([data])

    def complete_pieces(self, chunks: list[Chunk]) -> None:
        """Answer with a whole frame in pieces, which is charged already."""
        self._finish(chunks)

    def complete_raw(self, data: bytes) -> None:
        """Answer with bytes that have no header: a token after SaslHandshake 0."""
        self._finish(frame([data]))

    def complete_silently(self) -> None:
        """Finish without an answer: a Produce of acks=0 that went well."""
        self._finish([])

    def complete_and_close(self) -> None:
        """Close the connection once the answers before this one have left.

        The only way to tell an acks=0 producer of an error.
        """
        self.closes_connection = True
        self._finish([])

    def fail(self, fault: Exception) -> None:
        """Close the connection: whoever was to answer met a bug of ours."""
        if self._owner is not None:
            self._owner.on_answer_failed(fault)

    def mute_until(self, deadline_ms: int) -> None:
        """Keep the connection from being read until then (monotonic): its client is throttled."""
        if self._owner is not None:
            self._owner.mute_until(deadline_ms)

    def abandon(self) -> None:
        """Part from the connection, which has closed."""
        self._owner = None
        if self.on_abandoned is not None and not self.is_done:
            on_abandoned, self.on_abandoned = self.on_abandoned, None
            on_abandoned()

    def _finish(self, chunks: list[Chunk]) -> None:
        owner = self._owner
        if owner is None:
            return
        assert not self.is_done, f"answered twice: {self.header}"
        self.chunks = chunks
        self.is_done = True
        self.on_abandoned = None
        owner.on_slot_completed(self)


class ResponseQueue:
    """Slots in request order, and the chunks that may leave already."""

    __slots__ = ("is_closing", "last_times", "late", "one_piece_bytes", "slots")

    def __init__(self) -> None:
        self.slots: deque[ResponseSlot] = deque()
        """Requests whose answers have not had their turn, the oldest first."""
        self.is_closing = False
        self.one_piece_bytes = 0
        """Of the answers that moved to the output, those without records: whoever sees the output
        empty sets it back."""
        self.last_times: Times | None = None
        """Where the time of the answer that left last is counted."""
        self.late: list[ResponseSlot] = []
        """Those that left after they had waited for others; whoever counts them clears it."""

    def __len__(self) -> int:
        """Return how many requests still wait for their answer's turn."""
        return len(self.slots)

    def __contains__(self, slot: ResponseSlot) -> bool:
        """Return whether a request still waits for its answer's turn."""
        return slot in self.slots

    def take_ready(self, output: "deque[Chunk]") -> int:
        """Move the bytes of every answer whose turn has come to `output`; return their sum.

        Stops for good behind an answer that closes the connection.
        """
        slots = self.slots
        byte_count = 0
        while slots and not self.is_closing:
            slot = slots[0]
            if not slot.is_done:
                break
            slots.popleft()
            self.last_times = slot.times
            if slot.answered_ns:
                self.late.append(slot)
            chunks = slot.chunks
            if len(chunks) == 1:
                output.append(chunks[0])
                size = len(chunks[0])
                self.one_piece_bytes += size
                byte_count += size
            else:
                output.extend(chunks)
                for chunk in chunks:
                    byte_count += len(chunk)
            self.is_closing = slot.closes_connection
        return byte_count

    def take_open(self) -> "deque[ResponseSlot]":
        """Return every slot and forget it: the connection has closed."""
        slots, self.slots = self.slots, deque()
        return slots


def _made(response: Message) -> Answer:
    """Return an answer that needs no more steps."""
    yield
    return response
