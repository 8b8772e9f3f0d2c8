"""One client's connection, without its socket: bytes in, requests taken up in order, chunks out.

Sans-I/O: the epoll driver and the simulated world drive the same object.  It parses frames, takes
requests up, keeps answers in request order, and bounds everything it holds: the length of a frame
before memory is taken, frames per turn, requests in flight, bytes waiting to be written, and,
through `RequestMemory`, what all connections hold together.

Take-up goes on past an unanswered request only if it is a Produce that has done its append, an
OffsetCommit that is decided (what comes after it is decided after it, and written after it), or a
client's own metrics, on which nothing after them depends; so order and sequences hold.
Invariants: AnswersKeepRequestOrder, OneAwaitedRequestAtATime.
"""

from collections.abc import Coroutine
from struct import Struct
from typing import Any, Protocol, TypeAlias

from ottla.broker.network.buffers import HeldBytes, Output
from ottla.broker.network.connection_limits import ConnectionLimits
from ottla.broker.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.broker.network.guard import GuardPost
from ottla.broker.network.parted import PARTED_HOST
from ottla.broker.network.request_memory import MemoryShare, RequestMemory
from ottla.broker.network.request_traces import RequestTrace
from ottla.broker.network.response_queue import ResponseQueue, ResponseSlot
from ottla.broker.network.steps import Answer, Apart
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ProtocolError
from ottla.model.limits import FRAME_LENGTH_BYTES, KIB
from ottla.wire.apis import OFFSET_COMMIT, PRODUCE, PUSH_TELEMETRY
from ottla.wire.codec_types import Message
from ottla.wire.headers import decode_request_header

FRAME_BYTES_MIN = 8
"""Size of the shortest request: a header v0 is api key, version and correlation id."""

HELD_WHILE_PAUSED_BYTES_MAX = 64 * KIB
"""Bytes read ahead of a request that pauses take-up.  Lower stops reading sooner, which costs a
system call each way; higher holds more memory for clients that send far ahead."""

OVERTAKEN = (PRODUCE, OFFSET_COMMIT, PUSH_TELEMETRY)
"""What may wait for its answer while the next request is taken up, once a handler has returned."""

Pending: TypeAlias = Coroutine[Any, Any, Message | None] | Answer | Apart[Any]
"""What a handler left unfinished; see `dispatch.py`."""

read_length = Struct(">i").unpack_from


class ConnectionHost(Protocol):
    """What a connection needs of whoever drives it."""

    def on_work(self, connection: "Connection") -> None:
        """Note that the connection has output, or may take up more: call `resume` soon."""

    def run(self, connection: "Connection", slot: ResponseSlot, pending: Pending) -> None:
        """Finish what a handler left, then call `on_coroutine_ended` with its result."""

    def on_fault(self, connection: "Connection", fault: Exception) -> None:
        """Close the connection and log why: one of its answers cannot be written."""

    def give_up(self, connection: "Connection", reason: str) -> None:
        """Close the connection: its peer does not hold to what it may ask of us."""
        ...

    def wake_at(self, connection: "Connection", deadline_ms: int) -> None:
        """Call `on_work` when the monotonic clock says `deadline_ms`."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """Parses frames, takes requests up, keeps answers in order, and bounds what it holds."""

    __slots__ = (
        "_awaited",
        "_awaits_memory",
        "_charged_bytes",
        "_clock",
        "_coroutine_count",
        "_dispatcher",
        "_frame_bytes",
        "_frame_bytes_max",
        "_guard",
        "_has_ended",
        "_held",
        "_held_answer_bytes",
        "_host",
        "_is_serving",
        "_lent_bytes",
        "_limits",
        "_muted_until_ms",
        "_requests_in_flight_max",
        "_responses",
        "_share",
        "_stalled_ns",
        "_takes_no_more",
        "_traced",
        "has_lent_buffer",
        "has_more_to_take_up",
        "is_closed",
        "last_active_ms",
        "memory",
        "output",
        "peer",
        "request_count",
    )

    def __init__(
        self,
        peer: Peer,
        dispatcher: Dispatcher,
        host: ConnectionHost,
        *,
        memory: RequestMemory,
        limits: ConnectionLimits,
        now_ms: int,
    ) -> None:
        self.peer = peer
        peer.hang_up = self.give_up
        self._dispatcher = dispatcher
        self._clock = dispatcher.clock
        self._host = host
        self._share = MemoryShare(self)
        self._limits = limits
        self._frame_bytes_max = limits.frame_bytes_max
        self._requests_in_flight_max = limits.requests_in_flight_max
        self._responses = ResponseQueue()
        self._held = HeldBytes()
        self.output = Output()
        self.last_active_ms = now_ms
        self.request_count = 0
        self.is_closed = False
        # Set for the driver: a coroutine keeps views into the buffer it read to; take another.
        self.has_lent_buffer = False
        # Set for the driver: the bound of frames per turn was reached, call `resume` next turn.
        self.has_more_to_take_up = False
        self._is_serving = False
        self._takes_no_more = False
        self._has_ended = False
        self._awaited: ResponseSlot | None = None
        self._coroutine_count = 0
        # Traced requests that are answered, and whose answers have not all left.
        self._traced: list[ResponseSlot] = []
        # The turn in which the socket left output behind; 0 while it takes all.
        self._stalled_ns = 0
        self._muted_until_ms: int | None = None
        self._awaits_memory = False
        # The frame at the front of `_held`, with its length field; 0 while not known.
        self._frame_bytes = 0
        # The memory of `_held` that the pool knows of, and of buffers left to coroutines.
        self._charged_bytes = 0
        self._lent_bytes = 0
        # Unread answers that the other pool knows of.
        self._held_answer_bytes = 0
        make_guard = dispatcher.guards.get(peer.listener_name)
        # What asks the client who it is, until it has answered.
        self._guard = None if make_guard is None else GuardPost(make_guard(peer))
        self.memory = memory if self._guard is None else memory.strangers or memory

    # What the driver calls.

    def on_bytes(self, data: memoryview, now_ms: int) -> None:
        """Take bytes that arrived.  `data` may be reused after the call but for `has_lent_buffer`.

        Raises ProtocolError when they are not Kafka's protocol: the connection must be closed.
        """
        self.last_active_ms = now_ms
        if self._held.end:
            self._hold(data)
            self._take_up_held(now_ms)
            return
        consumed = self._take_up(data, now_ms)
        if consumed < len(data) and not self._takes_no_more:
            self._hold(data[consumed:])
            self._make_room()

    def window(self) -> memoryview | None:
        """Return room of our own for the rest of a large frame, or None for the shared buffer.

        What is received there is told by `on_window_filled`.  It is not empty while `wants_bytes`.
        """
        if self._frame_bytes and self._frame_bytes > len(self._held):
            return self._held.window(self._frame_bytes)
        return None

    def on_window_filled(self, size: int, now_ms: int) -> None:
        """Take bytes that arrived in the window; ProtocolError as `on_bytes`."""
        self.last_active_ms = now_ms
        self._held.advance(size)
        self._share.arrived_bytes += size
        if len(self._held) >= self._frame_bytes:
            self._take_up_held(now_ms)
        else:
            self._make_room()

    def resume(self, now_ms: int) -> None:
        """Go on where a bound, a pause or a mute had stopped; ProtocolError as `on_bytes`."""
        if self._muted_until_ms is not None and now_ms >= self._muted_until_ms:
            self._muted_until_ms = None
        if self._guard is not None:
            self._guard.part(now_ms)
        if self._held.end and not self.is_closed:
            self._take_up_held(now_ms)

    def on_eof(self) -> None:
        """Note that the client sends no longer; what it did send whole is still taken up.

        A producer of acks=0 that closes right after its last request loses none of them.
        """
        self._has_ended = True

    @property
    def is_finished(self) -> bool:
        """Whether the client has ended and nothing of what it sent is left to be done."""
        return self._has_ended and (self._takes_no_more or not self._holds_whole_frame)

    @property
    def wants_bytes(self) -> bool:
        """Whether the socket should be read now."""
        if self._muted_until_ms is not None or self._awaits_memory:
            return False
        if self._takes_no_more or self._has_ended:
            return False
        if not self._held.end:
            return True
        # A frame whose rest is on its way is always read on: its length is bounded, and reserved.
        if len(self._held) < HELD_WHILE_PAUSED_BYTES_MAX or len(self._held) < self._frame_bytes:
            return True
        return self._may_take_up

    @property
    def is_calm(self) -> bool:
        """Whether all is done and sent, and nothing but further bytes is waited for."""
        return not (
            self.output.byte_count
            or self._held.end
            or self.has_more_to_take_up
            or self._takes_no_more
            or self._has_ended
            or self._awaits_memory
            or self._muted_until_ms is not None
        )

    @property
    def is_closing(self) -> bool:
        """Whether the last answer has moved to the output: close when that has been sent."""
        return self._responses.is_closing

    @property
    def awaits_resume(self) -> bool:
        """Whether `resume` has something to do: sending alone would leave it undone."""
        is_parting = self._guard is not None and self._guard.is_parting
        return self._held.end > 0 or self._muted_until_ms is not None or is_parting

    @property
    def in_flight_count(self) -> int:
        """How many requests wait for their answer, or for an answer before theirs."""
        return len(self._responses)

    def on_sent(self, size: int, now_ms: int) -> None:
        """Count output that went out; with the backlog gone, held requests are taken up again."""
        self.last_active_ms = now_ms
        bound = self._limits.write_backlog_bytes_max
        output = self.output
        was_above = output.byte_count >= bound
        output.on_sent(size)
        if output.byte_count:
            self.on_stalled()
            if self._held_answer_bytes:
                self._settle_answers(has_read=True)
        else:
            self._responses.one_piece_bytes = 0
            if self._stalled_ns:
                self._note_sent()
                # Only a socket that stalled leaves answers with us.
                if self._held_answer_bytes:
                    was_above = True
                    self._settle_answers(has_read=True)
            if self._traced:
                self._finish_traces()
        if was_above and output.byte_count < bound and len(self._held):
            self._host.on_work(self)

    def on_stalled(self) -> None:
        """Note that the socket takes no more for now, or not all in this turn."""
        if not self._stalled_ns:
            self._stalled_ns = self._clock.turn_ns or 1
            self._settle_answers()

    def _settle_answers(self, *, has_read: bool = False) -> None:
        """Let the pool know how much of our answers waits in memory.

        Those in one piece count: of the others, records lie in files.
        """
        held_bytes = min(self._responses.one_piece_bytes, self.output.byte_count)
        if held_bytes != self._held_answer_bytes or has_read:
            self._held_answer_bytes = held_bytes
            self.memory.answers.settle(self, held_bytes, has_read=has_read)

    def _note_sent(self) -> None:
        """Count how long the socket took, if that was longer than the turn."""
        stalled_ns, self._stalled_ns = self._stalled_ns, 0
        if stalled_ns != self._clock.turn_ns and self._responses.last_times is not None:
            self._responses.last_times.answer_sent.observe(self._clock.now_ns() - stalled_ns)

    def on_coroutine_ended(self, slot: ResponseSlot, response: Message | None) -> None:
        """Answer with what a handler's coroutine came to; None leaves the slot to its keeper."""
        self._coroutine_count -= 1
        if not self._coroutine_count and self._lent_bytes:
            lent_bytes, self._lent_bytes = self._lent_bytes, 0
            self.memory.release(self._share, lent_bytes)
        if response is not None:
            slot.complete(response)
        elif self._awaited is slot and slot.header.api_key == PRODUCE:
            self._awaited = None
            self._host.on_work(self)

    def close(self) -> None:
        """Part from every open request and give back what is held.  Twice is once."""
        if self.is_closed:
            return
        self.is_closed = self._takes_no_more = True
        self.peer.hang_up = None
        self._awaited = None
        self._traced.clear()
        self.output.clear()
        self._responses.one_piece_bytes = 0
        self._settle_answers()
        self.memory.forget(self._share)
        self._held.clear()
        self._settle()
        for slot in self._responses.take_open():
            try:
                slot.abandon()
            except Exception as fault:
                self._dispatcher.errors.note("request", slot.header.api_key, fault)
        self._dispatcher.closed(self.peer)
        if not self._is_serving:
            self._host = PARTED_HOST

    # What handlers reach through their slot and context.

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        """Move the answers whose turn has come to the output, and let take-up resume."""
        responses = self._responses
        times = slot.times
        if times is not None:
            now_ns = self._clock.now_ns()
            times.note(slot.started_ns, slot.handled_ns, now_ns)
            if responses.slots[0] is not slot:
                slot.answered_ns = now_ns
            if slot.error_code:
                self._dispatcher.times.note_refusal(slot.header.api_key, slot.error_code)
            if (charge := slot.charge) is not None:
                charge.complete(slot, now_ns)
                self.output.charge = charge
        if self._awaited is slot:
            self._awaited = None
        if slot.closes_connection:
            self._takes_no_more = True
        output = self.output
        output.byte_count += responses.take_ready(output.chunks)
        if self._stalled_ns:
            self._settle_answers()
        if responses.late:
            self._note_late()
        if slot.trace is not None:
            self._note_answered(slot, slot.trace)
        if not self._is_serving:
            self._host.on_work(self)

    def on_steps(self, slot: ResponseSlot, steps: Answer) -> None:
        """Have the host finish an answer that a waiting request has begun."""
        self._coroutine_count += 1
        self._host.run(self, slot, steps)

    def _note_late(self) -> None:
        """Count how long answers waited for those before them."""
        now_ns = self._clock.now_ns()
        for slot in self._responses.late:
            if slot.times is not None:
                slot.times.answer_queued.observe(now_ns - slot.answered_ns)
        self._responses.late.clear()

    def _note_answered(self, slot: ResponseSlot, trace: RequestTrace) -> None:
        traces = self._dispatcher.traces
        assert traces is not None
        traces.answered(trace, slot.handled_ns)
        self._traced.append(slot)
        if not self.output.byte_count:
            self._finish_traces()

    def _finish_traces(self) -> None:
        """All output has left: so has every traced answer whose turn had come."""
        traces = self._dispatcher.traces
        assert traces is not None
        open_ones = [slot for slot in self._traced if slot in self._responses]
        for slot in self._traced:
            if slot not in open_ones and slot.trace is not None:
                traces.finish(slot.trace)
        self._traced = open_ones

    def on_answer_failed(self, fault: Exception) -> None:
        """Let the host close us: an answer cannot be written."""
        self._host.on_fault(self, fault)

    def mute_until(self, deadline_ms: int) -> None:
        """Read and take up nothing until then (a throttled client); the latest of several counts.

        Answers still leave, and what has been read stays unparsed.
        """
        if self._muted_until_ms is None or deadline_ms > self._muted_until_ms:
            self._muted_until_ms = deadline_ms
            self._host.wake_at(self, deadline_ms)

    # The way of a frame.

    @property
    def _may_take_up(self) -> bool:
        return (
            self._awaited is None
            and len(self._responses.slots) < self._requests_in_flight_max
            and (not self.output.byte_count or self._may_owe_more)
            and self._muted_until_ms is None
            and not self._takes_no_more
        )

    @property
    def _may_owe_more(self) -> bool:
        """Whether answers may be added to those that have not left."""
        return (
            self.output.byte_count < self._limits.write_backlog_bytes_max
            and not self.memory.answers.is_used_up
        )

    @property
    def _holds_whole_frame(self) -> bool:
        held = self._held
        if len(held) < FRAME_LENGTH_BYTES:
            return False
        return len(held) >= FRAME_LENGTH_BYTES + self._frame_length(held.view, 0)

    def _take_up(self, data: memoryview, now_ms: int) -> int:
        """Serve the whole frames in `data` that may be taken up; return how many bytes they are."""
        at = 0
        end = len(data)
        now_ns = self._clock.now_ns
        frames_left = self._limits.frames_per_turn_max
        turn_ends_ns = self._clock.turn_ns + self._limits.turn_ns_max
        self.has_more_to_take_up = False
        self._is_serving = True
        try:
            while end - at >= FRAME_LENGTH_BYTES:
                if not self._may_take_up:
                    break
                body_at = at + FRAME_LENGTH_BYTES
                frame_end = body_at + self._frame_length(data, at)
                if frame_end > end:
                    break
                started_ns = now_ns()
                # The first is served however late it is in the turn, lest it never is.
                if at and (not frames_left or started_ns >= turn_ends_ns):
                    self.has_more_to_take_up = True
                    break
                frames_left -= 1
                at = frame_end
                self._serve(data[body_at:frame_end], started_ns, now_ms)
        finally:
            self._is_serving = False
        return at

    def _take_up_held(self, now_ms: int) -> None:
        consumed = self._take_up(self._held.view, now_ms)
        if self._takes_no_more:
            self._held.clear()
        elif consumed:
            self._held.consume(consumed)
        if not len(self._held) or consumed:
            self._frame_bytes = self._share.age_ms = 0
            self._settle()
        self._make_room()

    def _serve(self, frame: memoryview, started_ns: int, now_ms: int) -> None:
        if self._guard is not None and self._is_kept_back(self._guard, frame, now_ms):
            return
        header = decode_request_header(frame)
        slot = ResponseSlot(self, header, started_ns)
        self._responses.slots.append(slot)
        self.request_count += 1
        result = self._dispatcher.dispatch(RequestContext(header, self.peer, slot, now_ms), frame)
        if result is None:
            if not slot.is_done:
                slot.handled_ns = self._clock.now_ns()
                if header.api_key not in OVERTAKEN:
                    self._awaited = slot
        elif isinstance(result, Message):
            slot.complete_as(result, header.api_version)
        else:
            slot.handled_ns = self._clock.now_ns()
            assert self._awaited is None
            self._awaited = slot
            self._coroutine_count += 1
            # Only a Produce keeps views into its frame (its records); all else was copied out,
            # or is about to be.
            if header.api_key == PRODUCE or isinstance(result, Apart):
                self._lend()
            self._host.run(self, slot, result)

    def _is_kept_back(self, guard: GuardPost, frame: memoryview, now_ms: int) -> bool:
        """Return whether the guard answers a frame itself."""
        answer = guard.on_frame(frame, now_ms)
        if guard.has_logged_in:
            self.memory = self.memory.welcome(self._share, self)
        if guard.is_done:
            self._guard = None
        if answer is None:
            return False
        slot = ResponseSlot(self, answer.header)
        self._responses.slots.append(slot)
        if (parts_at_ms := guard.answer(slot, answer)) is not None:
            self._takes_no_more = True
            self._host.wake_at(self, parts_at_ms)
        return True

    def _frame_length(self, data: memoryview, at: int) -> int:
        """Read and check a frame's length before anything is made of it."""
        length: int = read_length(data, at)[0]
        least, most = FRAME_BYTES_MIN, self._frame_bytes_max
        if self._guard is not None:
            least, most = self._guard.frame_bounds(least, most)
        if least <= length <= most:
            return length
        start = bytes(data[at : at + FRAME_LENGTH_BYTES])
        if start[:2] == b"\x16\x03":
            raise ProtocolError("frame length: the client speaks TLS to a plain listener")
        if start in (b"GET ", b"POST", b"HEAD", b"PUT "):
            raise ProtocolError("frame length: the client speaks HTTP")
        raise ProtocolError(f"frame length {length}")

    # Memory.

    def _hold(self, data: memoryview) -> None:
        self._held.append(data)
        self._share.arrived_bytes += len(data)
        self._settle()

    def _make_room(self) -> None:
        """Note the length of the frame at the front of what is held, and grow for its rest."""
        held = self._held
        if not self._frame_bytes:
            if len(held) < FRAME_LENGTH_BYTES:
                return
            self._frame_bytes = FRAME_LENGTH_BYTES + self._frame_length(held.view, 0)
        if len(held) >= self._frame_bytes:
            return
        capacity_bytes = held.capacity_for(self._frame_bytes)
        if (missing_bytes := capacity_bytes - self._charged_bytes) > 0:
            if not self.memory.try_grow(self._share, missing_bytes):
                if not self._awaits_memory:
                    self._awaits_memory = True
                    self.memory.wait(self._share)
                return
            self._charged_bytes = capacity_bytes
        held.grow(capacity_bytes)
        self._settle()

    def _settle(self) -> None:
        """Let the pool know how much memory is held now."""
        capacity_bytes = self._held.capacity_bytes
        charged_bytes, self._charged_bytes = self._charged_bytes, capacity_bytes
        if capacity_bytes > charged_bytes:
            self.memory.charge(self._share, capacity_bytes - charged_bytes)
        elif capacity_bytes < charged_bytes:
            self.memory.release(self._share, charged_bytes - capacity_bytes)

    @property
    def unfinished_frame_bytes(self) -> int:
        """Size of the frame whose rest has not arrived; 0 with none."""
        if len(self._held) < FRAME_LENGTH_BYTES:
            return FRAME_LENGTH_BYTES if len(self._held) else 0
        return self._frame_bytes if len(self._held) < self._frame_bytes else 0

    def on_memory_available(self) -> None:
        """Ask the pool for room again."""
        self._awaits_memory = False
        if not self.is_closed:
            self._make_room()
            self._host.on_work(self)

    def give_up(self, reason: str) -> None:
        """Let the host close us: others need what we hold."""
        if not self.is_closed:
            self._host.give_up(self, reason)

    def _lend(self) -> None:
        """Leave the frame's bytes, and their reservation, to the coroutine that reads them."""
        self.has_lent_buffer = True
        self._lent_bytes += self._charged_bytes
        self._charged_bytes = 0
