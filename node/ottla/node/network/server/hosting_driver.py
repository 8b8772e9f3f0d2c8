"""Tasks for a server's connections: pending work of handlers, deadlines, idle connections, and
checks of request memory.

This module also runs TLS handshakes in steps, limits the event-loop time that they use, and ends
handshakes that take too long.
"""

import time
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from ottla.model.background_driver import keep_running
from ottla.model.compiled import mypyc_attr
from ottla.model.limits import MIB
from ottla.model.log_limiter import LogLimiter
from ottla.model.seams import Clock
from ottla.model.visible_text import visible
from ottla.node.network.alarm_driver import Alarm
from ottla.node.network.connection import Pending
from ottla.node.network.connection_limits import ConnectionLimits
from ottla.node.network.dispatch import Dispatcher, Peer
from ottla.node.network.listener import HandshakeFailedError, ListenerTls
from ottla.node.network.memory.memory_sweep_driver import sweep_periodically
from ottla.node.network.memory.request_memory import RequestMemory
from ottla.node.network.paced_driver import PacedWork, RunInThread
from ottla.node.network.response_queue import ResponseSlot
from ottla.node.network.server.hosting import ConnectionHosting, HostedChannel
from ottla.node.network.tls.handshakes import TURN_NS, Handshakes
from ottla.wire.codec_types import Message

IDLE_CHECKS_PER_PERIOD = 20
"""Number of checks for idle connections per idle period. An idle connection is closed late by at
most a twentieth of the period."""

REQUEST_MEMORY_BYTES_MAX = 256 * MIB
"""Size of the pool of request memory, in bytes, if `queued.max.request.bytes` is not set."""

C = TypeVar("C", bound=HostedChannel)


class EncryptingChannel(Protocol):
    """Interface of a client's connection over TLS, by which the server drives the handshake."""

    tls: ListenerTls
    is_shaking: bool
    """True while the TLS handshake of the connection is unfinished."""

    def shake_hands(self) -> None:
        """Run one step of the TLS handshake. The last step sets `is_shaking` to False, and sets the
        user of the peer.

        Raises HandshakeFailedError if the handshake fails, and OSError if the client has
        disconnected.
        """
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionServer(ConnectionHosting[C]):
    """Client connections of a server that runs on an event loop. Subclasses add the transport."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        limits: ConnectionLimits | None,
        request_memory_bytes_max: int,
        idle_ms_max: int,
        nursery: trio.Nursery,
        run_in_thread: RunInThread | None = None,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """Create the server. `now_ns` is the clock, in nanoseconds, that measures the event-loop
        time of TLS handshakes."""
        if request_memory_bytes_max < 0:
            request_memory_bytes_max = REQUEST_MEMORY_BYTES_MAX
        super().__init__(
            dispatcher,
            clock=clock,
            limits=limits or ConnectionLimits(),
            memory=RequestMemory(request_memory_bytes_max),
        )
        self.addresses: dict[str, tuple[str, int]] = {}
        self._handshakes: Handshakes[Any] = Handshakes(clock.monotonic_ms())
        self._handshake_lines = LogLimiter()
        self._awaits_handshake_share = False
        self._now_ns = now_ns
        self._idle_ms_max = idle_ms_max
        self._nursery = nursery
        self._paced = PacedWork(run_in_thread, clock=dispatcher.clock)
        self._wake_alarm = Alarm(clock, self._next_wake_ms, self._on_wakes_due)

    def start_tasks(self) -> None:
        """Start the server's background tasks: the timer of connections, the closing of idle
        connections, and the upkeep of the memory for requests."""
        for name, work in (
            ("alarm of connections", self._wake_alarm.run),
            ("idle connections", self._close_idle_connections),
            ("request memory", partial(sweep_periodically, self.memory, self._clock)),
        ):
            self._nursery.start_soon(keep_running, name, work, self._errors)

    def _rearm(self) -> None:
        self._wake_alarm.rearm()

    @abstractmethod
    def _drop_after_failed_handshake(self, channel: Any, now_ms: int) -> None:
        """Remove a connection whose TLS handshake has failed. Its socket stays open for a while, so
        that the client can still read the alert."""

    # TLS handshakes.

    def _begin_handshake(self, channel: C, now_ms: int) -> None:
        """Start the timeout for the TLS handshake of a new connection."""
        deadline_ms = self._handshakes.begin(channel, now_ms)
        if deadline_ms is not None:
            self.call_at(deadline_ms, self._end_overdue_handshakes)

    def _end_overdue_handshakes(self) -> None:
        """Close the connections whose TLS handshakes take too long."""
        overdue, next_ms = self._handshakes.overdue(self._clock.monotonic_ms())
        for channel in overdue:
            self.give_up(channel, "its TLS handshake takes too long")
        if next_ms is not None:
            self.call_at(next_ms, self._end_overdue_handshakes)

    @property
    def _may_shake_hands(self) -> bool:
        return bool(self._handshakes.queued) and not self._awaits_handshake_share

    def _shake_hands(self, now_ms: int) -> None:
        """Run steps of TLS handshakes, for a limited time in this iteration and a limited fraction
        of the event loop's total time."""
        handshakes = self._handshakes
        ends_ns = self._now_ns() + TURN_NS
        for channel in handshakes.turn(now_ms):
            began_ns = self._now_ns()
            self._serve(self._shake_hand, channel, 0, now_ms)
            ended_ns = self._now_ns()
            handshakes.spend(ended_ns - began_ns, now_ms)
            if ended_ns >= ends_ns:
                break
        wait_ms = handshakes.wait_ms(now_ms)
        if wait_ms and handshakes.queued and not self._awaits_handshake_share:
            self._awaits_handshake_share = True
            self.call_at(now_ms + wait_ms, self._resume_handshakes)

    def _resume_handshakes(self) -> None:
        self._awaits_handshake_share = False
        self._have_turn()

    def _shake_hand(self, channel: Any, _: int, now_ms: int) -> None:
        """Perform one step of one TLS handshake."""
        shaking: EncryptingChannel = channel
        try:
            shaking.shake_hands()
        except HandshakeFailedError as error:
            self._note_failed_handshake(channel.connection.peer, shaking.tls, error, now_ms)
            self._drop_after_failed_handshake(channel, now_ms)
            return
        if not shaking.is_shaking:
            shaking.tls.counts.successes += 1
            self._handshakes.end(channel)
            if channel.has_unread:
                # Bytes received with the end of the handshake cause no further event of the
                # transport.
                self.on_work(channel)
        self._watch(channel)

    def _note_failed_handshake(
        self, peer: Peer, tls: ListenerTls, error: HandshakeFailedError, now_ms: int
    ) -> None:
        """Count and log a failed TLS handshake."""
        tls.counts.failures += 1
        self._log(
            self._handshake_lines,
            now_ms,
            f"TLS handshake of {peer.label} on {peer.listener_name} failed: {visible(error.where)}",
        )

    # Tasks.

    def run_pending(self, channel: C, slot: ResponseSlot, pending: Pending) -> None:
        """Run a request handler's pending work in a task of the server's nursery."""
        self._nursery.start_soon(self._await_pending, channel, slot, pending)

    async def _result_of(self, slot: ResponseSlot, pending: Pending) -> Message | None:
        return await self._paced.result_of(slot, pending)

    async def _close_idle_connections(self) -> None:
        """Close connections that have been idle for too long, until cancelled. Sleeps until the
        next connection may be due."""
        if self._idle_ms_max < 0:
            return
        granularity_ms = max(self._idle_ms_max // IDLE_CHECKS_PER_PERIOD, 1)
        while True:
            now_ms = self._clock.monotonic_ms()
            longest_idle_ms = 0
            for channel in list(self._hosted):
                idle_ms = now_ms - channel.connection.last_active_ms
                if idle_ms >= self._idle_ms_max:
                    self.closed_for_idleness_count += 1
                    self._close(channel)
                else:
                    longest_idle_ms = max(longest_idle_ms, idle_ms)
            sleep_ms = max(self._idle_ms_max - longest_idle_ms, granularity_ms)
            await trio.sleep(sleep_ms / 1000)
