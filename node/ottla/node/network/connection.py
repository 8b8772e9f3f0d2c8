"""One client connection without its socket: it receives bytes, serves requests in order, and
produces output chunks.

Performs no I/O itself: the epoll driver and the simulation drive the same object. It parses frames,
starts requests and keeps responses in request order. All its memory is bounded: the length of a
frame before memory is allocated, frames per event-loop iteration, requests in flight, and bytes to
be written. `RequestMemory` bounds the request memory of all connections together.

The next request starts before an earlier one is answered in three cases only: the earlier one is a
Produce that has been appended, an OffsetCommit that has been decided, or a PushTelemetry. Commits
are written in the order of their decisions, and no request depends on a client's own metrics. Order
and sequences are therefore preserved. Invariants: AnswersKeepRequestOrder,
OneAwaitedRequestAtATime.
"""

from collections.abc import Coroutine
from struct import Struct
from typing import Any, Protocol, TypeAlias

from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ProtocolError
from ottla.model.limits import FRAME_LENGTH_BYTES, KIB
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer, RequestContext
from ottla.node.network.guard import GuardState
from ottla.node.network.memory.buffers import InputWindow, OutputBuffer
from ottla.node.network.memory.request_memory import MemoryShare, RequestMemory
from ottla.node.network.request_traces import RequestTrace
from ottla.node.network.response_queue import Charge, ResponseQueue, ResponseSlot
from ottla.node.network.server.closed_hosts import CLOSED_HOST
from ottla.node.network.steps import Answer, ThreadWork
from ottla.wire.apis import OFFSET_COMMIT, PRODUCE, PUSH_TELEMETRY
from ottla.wire.codec_types import Message
from ottla.wire.headers import HeaderDecoder, correlation_id_of

FRAME_BYTES_MIN = 8
"""Size in bytes of the shortest request: a header of version 0 has API key, version and correlation
id."""

HELD_WHILE_PAUSED_BYTES_MAX = 64 * KIB
"""Maximum number of bytes that are read ahead while one request prevents the connection from
starting the next request. With a smaller number, reading stops sooner, and each stop and restart
costs a system call. With a larger one, clients that send far ahead occupy more memory."""

OVERTAKEN = (PRODUCE, OFFSET_COMMIT, PUSH_TELEMETRY)
"""APIs whose waiting requests do not block the connection: the next request may start before such a
request is answered."""

Pending: TypeAlias = Coroutine[Any, Any, Message | None] | Answer | ThreadWork[Any]
"""Work that a request handler has not finished when it returns: a coroutine, steps, or work for a
thread. See `dispatch.py`."""

read_length = Struct(">i").unpack_from


class ConnectionHost(Protocol):
    """Interface by which a connection calls its host: the server that owns the socket, or a
    simulation."""

    def on_work(self, connection: "Connection") -> None:
        """Schedule a call of the connection's `resume`, because the connection has output or can
        start more requests."""

    def run(self, connection: "Connection", slot: ResponseSlot, pending: Pending) -> None:
        """Finish a request handler's pending work (a coroutine or steps), then call
        `on_coroutine_ended` of the connection with the result."""

    def on_fault(self, connection: "Connection", fault: Exception) -> None:
        """Close the connection and log the error, since a response of the connection cannot be
        written."""

    def give_up(self, connection: "Connection", reason: str) -> None:
        """Close the connection and log the reason, because the client exceeds a memory or time
        limit."""
        ...

    def wake_at(self, connection: "Connection", deadline_ms: int) -> None:
        """Call `on_work` for the connection when the monotonic clock reaches `deadline_ms`, in
        milliseconds."""
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection:
    """Client connection that parses frames, starts requests, orders responses and bounds its
    memory."""

    __slots__ = (
        "_awaited",
        "_awaits_memory",
        "_charged_bytes",
        "_clock",
        "_coroutine_count",
        "_dispatcher",
        "_frame_bytes_max",
        "_guard",
        "_has_ended",
        "_headers",
        "_held",
        "_held_answer_bytes",
        "_host",
        "_is_ending",
        "_is_serving",
        "_lent_bytes",
        "_limits",
        "_muted_until_ms",
        "_requests_in_flight_max",
        "_responses",
        "_share",
        "_stalled_ns",
        "_traced",
        "_write_backlog_bytes_max",
        "charge",
        "frame_bytes",
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
        peer.disconnect = self.give_up
        self._dispatcher = dispatcher
        self._clock = dispatcher.clock
        self._host = host
        self._share = MemoryShare(self)
        self._limits = limits
        self._frame_bytes_max = limits.frame_bytes_max
        self._requests_in_flight_max = limits.requests_in_flight_max
        self._write_backlog_bytes_max = limits.write_backlog_bytes_max
        self._responses = ResponseQueue()
        self._headers = HeaderDecoder()
        self._held = InputWindow()
        self.output = OutputBuffer()
        self.charge: Charge | None = None
        """Quota charge of the request whose response was last added to the output; None without a
        charge. The time for writing is charged to the client of that request."""
        self.last_active_ms = now_ms
        self.request_count = 0
        self.is_closed = False
        # Set for the driver: a coroutine keeps views into the read buffer, so that it must be
        # replaced.
        self.has_lent_buffer = False
        # Set for the driver: the limit of frames per iteration was reached; call `resume` in the
        # next one.
        self.has_more_to_take_up = False
        self._is_serving = False
        self._is_ending = False
        self._has_ended = False
        self._awaited: ResponseSlot | None = None
        self._coroutine_count = 0
        # Traced requests whose responses are ready but not completely sent.
        self._traced: list[ResponseSlot] = []
        # Iteration in which the socket left output behind, in nanoseconds; 0 while it accepts all
        # output.
        self._stalled_ns = 0
        self._muted_until_ms: int | None = None
        self._awaits_memory = False
        self.frame_bytes = 0
        """Size in bytes of the frame at the front of the held bytes, including its length field; 0
        while unknown. `window` returns None if it is 0."""
        # Memory charged to the pool: that of `_held`, and of buffers lent to coroutines.
        self._charged_bytes = 0
        self._lent_bytes = 0
        # Unread response bytes reported to the response pool.
        self._held_answer_bytes = 0
        make_guard = dispatcher.guards.get(peer.listener_name)
        # Authenticates the client, until it has logged in.
        self._guard = None if make_guard is None else GuardState(make_guard(peer))
        self.memory = memory if self._guard is None else memory.unauthenticated or memory

    # Interface for the driver.

    def on_bytes(self, data: memoryview, now_ms: int, size: int = -1) -> None:
        """Process bytes received from the client: the first `size` bytes of `data`, or all of them
        if `size` is negative. `data` may be reused after the call if `has_lent_buffer` is not set.

        Raises ProtocolError if the bytes violate Kafka's protocol. The caller must then close the
        connection.
        """
        self.last_active_ms = now_ms
        end = len(data) if size < 0 else size
        if self._held.end:
            self._hold(data[:end])
            self._serve_held_frames(now_ms)
            return
        consumed = self._serve_frames(data, end, now_ms)
        if consumed < end and not self._is_ending:
            self._hold(data[consumed:end])
            self._make_room()

    def window(self) -> memoryview | None:
        """Return the buffer space into which to receive the rest of a large frame. Returns None if
        the socket is to be read into the shared read buffer.

        After receiving bytes into the space, the caller passes their number to `on_window_filled`.
        The space is not empty while `wants_bytes` is True.
        """
        if self.frame_bytes and self.frame_bytes > len(self._held):
            return self._held.window(self.frame_bytes)
        return None

    def on_window_filled(self, size: int, now_ms: int) -> None:
        """Process bytes received into the space that `window` has returned. Raises ProtocolError as
        `on_bytes` does."""
        self.last_active_ms = now_ms
        self._held.advance(size)
        self._share.arrived_bytes += size
        if len(self._held) >= self.frame_bytes:
            self._serve_held_frames(now_ms)
        else:
            self._make_room()

    def resume(self, now_ms: int) -> None:
        """Start requests of this connection that were delayed, after a limit, a pause or throttling
        has ended. Raises ProtocolError as `on_bytes` does."""
        if self._muted_until_ms is not None and now_ms >= self._muted_until_ms:
            self._muted_until_ms = None
        if self._guard is not None:
            self._guard.part(now_ms)
        if self._held.end and not self.is_closed:
            self._serve_held_frames(now_ms)

    def on_eof(self) -> None:
        """Handle the end of the client's stream. Requests that were received completely are still
        served.

        The requests of a producer with acks=0 that closes its connection right after sending are
        therefore not lost.
        """
        self._has_ended = True

    @property
    def is_finished(self) -> bool:
        """True if the client has closed its stream and all of its requests have been served."""
        return self._has_ended and (self._is_ending or not self._holds_whole_frame)

    @property
    def wants_bytes(self) -> bool:
        """True if the connection's socket should be read now; False while limits delay further
        requests."""
        if self._muted_until_ms is not None or self._awaits_memory:
            return False
        if self._is_ending or self._has_ended:
            return False
        if not self._held.end:
            return True
        # A frame that is partly received is always read to its end.  Its length is bounded, and its
        # memory reserved.
        if len(self._held) < HELD_WHILE_PAUSED_BYTES_MAX or len(self._held) < self.frame_bytes:
            return True
        return self._may_take_up()

    def is_quiescent(self) -> bool:
        """Return whether every request of the connection is answered, every response sent, and the
        connection only waits for more bytes.

        This is a method, not a property: Python calls a method in half the time, and this one is
        called after each read.
        """
        return not (
            self.output.byte_count
            or self._held.end
            or self.has_more_to_take_up
            or self._is_ending
            or self._has_ended
            or self._awaits_memory
            or self._muted_until_ms is not None
        )

    @property
    def is_closing(self) -> bool:
        """True if the last response of the connection is in the output. The connection closes when
        that response is sent."""
        return self._responses.is_closing

    @property
    def awaits_resume(self) -> bool:
        """True if `resume` must be called, because the connection has work other than the sending
        of output."""
        is_parting = self._guard is not None and self._guard.is_parting
        return self._held.end > 0 or self._muted_until_ms is not None or is_parting

    @property
    def in_flight_count(self) -> int:
        """Number of the connection's requests that wait for their own response, or for the response
        to an earlier request."""
        return len(self._responses)

    def on_sent(self, size: int, now_ms: int) -> None:
        """Count sent bytes of the output. Resumes delayed requests once all output is sent."""
        self.last_active_ms = now_ms
        output = self.output
        left_before = output.byte_count
        output.on_sent(size)
        left = output.byte_count
        has_read_answers = False
        if left:
            self.on_stalled()
            if self._held_answer_bytes:
                self._settle_answers(has_read=True)
        else:
            if self._stalled_ns:
                self._note_sent()
                # Only a full socket leaves responses in memory.
                if self._held_answer_bytes:
                    has_read_answers = True
                    self._settle_answers(has_read=True)
            if self._traced:
                self._finish_traces()
        if self._held.end:
            bound = self._write_backlog_bytes_max
            if left < bound and (has_read_answers or left_before >= bound):
                self._host.on_work(self)

    def on_stalled(self) -> None:
        """Record that output of the connection is left unsent, because the socket is full or the
        event-loop iteration has ended."""
        if not self._stalled_ns:
            self._stalled_ns = self._clock.turn_ns or 1
            self._settle_answers()

    def _settle_answers(self, *, has_read: bool = False) -> None:
        """Report the unsent response bytes of this connection to the pool of response memory.
        `has_read` is True if the client has read some of these bytes.

        Responses with file slices are not counted, since their records are in files.
        """
        held_bytes = min(self.output.one_piece_bytes, self.output.byte_count)
        if held_bytes != self._held_answer_bytes or has_read:
            self._held_answer_bytes = held_bytes
            self.memory.answers.settle(self, held_bytes, has_read=has_read)

    def _note_sent(self) -> None:
        """Record the time in which the socket accepted the output. No time is recorded if the
        socket accepted the whole output in one event-loop iteration."""
        stalled_ns, self._stalled_ns = self._stalled_ns, 0
        if stalled_ns != self._clock.turn_ns and self._responses.last_times is not None:
            self._responses.last_times.answer_sent.observe(self._clock.now_ns() - stalled_ns)

    def on_coroutine_ended(self, slot: ResponseSlot, response: Message | None) -> None:
        """Complete a request with the result of its handler's coroutine. If the result is None, the
        handler completes the response slot itself."""
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
        """Abandon every open request of the connection and release its memory. A second call has no
        effect."""
        if self.is_closed:
            return
        self.is_closed = self._is_ending = True
        self.peer.disconnect = None
        self._awaited = None
        self._traced.clear()
        self.output.clear()
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
            self._host = CLOSED_HOST

    # Interface for handlers, through their slot and context.

    def on_slot_completed(self, slot: ResponseSlot) -> None:
        """Move the completed responses that are next in request order to the output, and resume
        serving requests."""
        responses = self._responses
        # Responses behind a request that is not answered yet stay where they are.
        is_next = responses.slots[0] is slot
        charge = slot.charge
        if slot.handled_ns or charge is not None or not is_next:
            now_ns = self._clock.now_ns()
            if slot.handled_ns and slot.times is not None:
                slot.times.note_waited(slot.queued_ns, slot.started_ns, slot.handled_ns, now_ns)
            if not is_next:
                slot.answered_ns = now_ns
            if charge is not None:
                charge.complete(slot, now_ns)
                self.charge = charge
        if slot.error_code:
            self._dispatcher.times.note_refusal(slot.header.api_key, slot.error_code)
        if self._awaited is slot:
            self._awaited = None
        if slot.closes_connection:
            self._is_ending = True
        output = self.output
        # Unsent output is sent soon, and wakes this connection.
        is_host_due = self._is_serving or (output.byte_count > 0 and not self._held.end)
        if is_next:
            responses.take_ready(output)
        if self._stalled_ns:
            self._settle_answers()
        if responses.late:
            self._note_late()
        if slot.trace is not None:
            self._note_answered(slot, slot.trace)
        if not is_host_due:
            self._host.on_work(self)

    def on_steps(self, slot: ResponseSlot, steps: Answer) -> None:
        """Start a coroutine on the server of this connection. The coroutine performs the steps that
        build the response to a waiting request."""
        self._coroutine_count += 1
        self._host.run(self, slot, steps)

    def _note_late(self) -> None:
        """Record for how long each late response waited for responses to earlier requests of the
        connection."""
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
        """Finish the traces of all requests whose responses are in the output, which has been sent
        completely."""
        traces = self._dispatcher.traces
        assert traces is not None
        open_ones = [slot for slot in self._traced if slot in self._responses]
        for slot in self._traced:
            if slot not in open_ones and slot.trace is not None:
                traces.finish(slot.trace)
        self._traced = open_ones

    def on_answer_failed(self, fault: Exception) -> None:
        """Ask the server to close this connection, since a response cannot be written."""
        self._host.on_fault(self, fault)

    def mute_until(self, deadline_ms: int) -> None:
        """Stop reading and starting requests of this connection until `deadline_ms` (monotonic),
        because the client is throttled. The latest of several deadlines applies.

        Responses are still sent, and received bytes stay unparsed.
        """
        if self._muted_until_ms is None or deadline_ms > self._muted_until_ms:
            self._muted_until_ms = deadline_ms
            self._host.wake_at(self, deadline_ms)

    # Frames.

    def _may_take_up(self) -> bool:
        """Return whether the next request may be served now. With earlier output unsent, the output
        must be below its limit, and response memory must be left."""
        unsent_bytes = self.output.byte_count
        return (
            self._awaited is None
            and len(self._responses.slots) < self._requests_in_flight_max
            and (
                not unsent_bytes
                or (
                    unsent_bytes < self._write_backlog_bytes_max
                    and not self.memory.answers.is_used_up
                )
            )
            and self._muted_until_ms is None
            and not self._is_ending
        )

    @property
    def _holds_whole_frame(self) -> bool:
        held = self._held
        if len(held) < FRAME_LENGTH_BYTES:
            return False
        return len(held) >= FRAME_LENGTH_BYTES + self._frame_length(held.view, 0)

    def _serve_frames(self, data: memoryview, end: int, now_ms: int) -> int:
        """Serve the complete frames in the first `end` bytes of `data` that may be started now.
        Returns their total size in bytes."""
        at = started_ns = 0
        limits = self._limits
        frames_left = limits.frames_per_turn_max
        turn_ends_ns = self._clock.turn_ns + limits.turn_ns_max
        self.has_more_to_take_up = False
        self._is_serving = True
        try:
            while end - at >= FRAME_LENGTH_BYTES:
                if not self._may_take_up():
                    break
                length: int = read_length(data, at)[0]
                if (
                    self._guard is not None
                    or not FRAME_BYTES_MIN <= length <= self._frame_bytes_max
                ):
                    self._check_length(length, data, at)
                body_at = at + FRAME_LENGTH_BYTES
                frame_end = body_at + length
                if frame_end > end:
                    break
                # The first is served however late it is in the iteration; otherwise it might never
                # be.
                if not at:
                    started_ns = self._clock.now_ns()
                elif not frames_left or started_ns >= turn_ends_ns:
                    self.has_more_to_take_up = True
                    break
                frames_left -= 1
                at = frame_end
                started_ns = self._serve(data[body_at:frame_end], started_ns, now_ms)
        finally:
            self._is_serving = False
        return at

    def _serve_held_frames(self, now_ms: int) -> None:
        consumed = self._serve_frames(self._held.view, len(self._held), now_ms)
        if self._is_ending:
            self._held.clear()
        elif consumed:
            self._held.consume(consumed)
        if not len(self._held) or consumed:
            self.frame_bytes = self._share.age_ms = 0
            self._settle()
        self._make_room()

    def _serve(self, frame: memoryview, started_ns: int, now_ms: int) -> int:
        """Serve the request in a frame, from the time `started_ns` on. Returns the time at which
        its handler returned, when the next request may be started, in nanoseconds."""
        if self._guard is not None and self._is_guarded(self._guard, frame, now_ms):
            return self._clock.now_ns()
        headers = self._headers
        header = headers.decode(frame)
        context = RequestContext(
            self, header, headers.correlation_id, started_ns, self.peer, now_ms
        )
        self._responses.slots.append(context)
        self.request_count += 1
        result = self._dispatcher.dispatch(context, frame)
        if result is not None and isinstance(result, Message):
            context.complete_as(result, header.api_version)
            result = None
        ended_ns = self._clock.now_ns()
        if context.is_done:
            if context.times is not None:
                context.times.note_prompt(started_ns - self._clock.turn_ns, ended_ns - started_ns)
        else:
            self._await(context, result, ended_ns)
        return ended_ns

    def _await(self, slot: ResponseSlot, pending: Pending | None, handled_ns: int) -> None:
        """Leave a request waiting whose handler returned at `handled_ns` without a response, and
        start the handler's pending work."""
        slot.queued_ns = slot.started_ns - self._clock.turn_ns
        slot.handled_ns = handled_ns or 1
        api_key = slot.header.api_key
        if pending is None:
            if api_key not in OVERTAKEN:
                self._awaited = slot
            return
        assert self._awaited is None
        self._awaited = slot
        self._coroutine_count += 1
        # Only a Produce keeps views into its frame (its records).  Everything else was copied, or
        # is about to be.
        if api_key == PRODUCE or isinstance(pending, ThreadWork):
            self._transfer_buffer()
        self._host.run(self, slot, pending)

    def _is_guarded(self, guard: GuardState, frame: memoryview, now_ms: int) -> bool:
        """Pass a frame to the connection's guard, which receives frames until the client has logged
        in. Returns True if the guard processes the frame, False if it is to be passed to the
        dispatcher."""
        answer = guard.on_frame(frame, now_ms)
        if guard.has_logged_in:
            self.memory = self.memory.move_to_authenticated(self._share, self)
        if guard.is_done:
            self._guard = None
        if answer is None:
            return False
        # A raw token has no header, and its response none either.
        has_header = answer.message is not None
        slot = ResponseSlot(self, answer.header, correlation_id_of(frame) if has_header else 0)
        self._responses.slots.append(slot)
        if (parts_at_ms := guard.answer(slot, answer)) is not None:
            self._is_ending = True
            self._host.wake_at(self, parts_at_ms)
        return True

    def _frame_length(self, data: memoryview, at: int) -> int:
        """Return the length in bytes of the frame that starts at `at`, checked before any memory is
        allocated for the frame."""
        length: int = read_length(data, at)[0]
        self._check_length(length, data, at)
        return length

    def _check_length(self, length: int, data: memoryview, at: int) -> None:
        """Raise ProtocolError if the frame that starts at `at` may not have this length in
        bytes."""
        least, most = FRAME_BYTES_MIN, self._frame_bytes_max
        if self._guard is not None:
            least, most = self._guard.frame_bounds(least, most)
        if least <= length <= most:
            return
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
        """Read the length of the frame at the start of the received bytes, and enlarge the buffer
        for the rest of the frame."""
        held = self._held
        if not self.frame_bytes:
            if len(held) < FRAME_LENGTH_BYTES:
                return
            self.frame_bytes = FRAME_LENGTH_BYTES + self._frame_length(held.view, 0)
        if len(held) >= self.frame_bytes:
            return
        capacity_bytes = held.capacity_for(self.frame_bytes)
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
        """Report the present request memory of this connection to the pool that bounds request
        memory."""
        capacity_bytes = self._held.capacity_bytes
        charged_bytes, self._charged_bytes = self._charged_bytes, capacity_bytes
        if capacity_bytes > charged_bytes:
            self.memory.charge(self._share, capacity_bytes - charged_bytes)
        elif capacity_bytes < charged_bytes:
            self.memory.release(self._share, charged_bytes - capacity_bytes)

    @property
    def unfinished_frame_bytes(self) -> int:
        """Size in bytes of the partly received frame, or 0 if no frame is incomplete."""
        if len(self._held) < FRAME_LENGTH_BYTES:
            return FRAME_LENGTH_BYTES if len(self._held) else 0
        return self.frame_bytes if len(self._held) < self.frame_bytes else 0

    def on_memory_available(self) -> None:
        """Retry a refused request for memory, since the pool of request memory may have free memory
        now."""
        self._awaits_memory = False
        if not self.is_closed:
            self._make_room()
            self._host.on_work(self)

    def give_up(self, reason: str) -> None:
        """Ask the server to close this connection, because other connections need its memory."""
        if not self.is_closed:
            self._host.give_up(self, reason)

    def _transfer_buffer(self) -> None:
        """Transfer a frame's buffer, and its charge to the pool of request memory, to the coroutine
        that reads the frame."""
        self.has_lent_buffer = True
        self._lent_bytes += self._charged_bytes
        self._charged_bytes = 0
