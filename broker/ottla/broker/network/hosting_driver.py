"""The tasks of a server's connections: handlers that wait, deadlines, idleness, fair memory.

And the handshakes of those with TLS: their steps, their share of the loop's time, their ends.
"""

import time
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import trio

from ottla.broker.network.alarm_driver import Alarm
from ottla.broker.network.connection import Pending
from ottla.broker.network.connection_limits import ConnectionLimits
from ottla.broker.network.dispatch import Dispatcher, Peer
from ottla.broker.network.hosting import ConnectionHosting, HostedChannel
from ottla.broker.network.listener import HandshakeFailedError, ListenerTls
from ottla.broker.network.memory_sweep_driver import keep_memory_fair
from ottla.broker.network.paced_driver import PacedWork, RunApart
from ottla.broker.network.request_memory import RequestMemory
from ottla.broker.network.response_queue import ResponseSlot
from ottla.broker.network.tls.handshakes import TURN_NS, Handshakes
from ottla.model.background_driver import keep_running
from ottla.model.compiled import mypyc_attr
from ottla.model.limits import MIB
from ottla.model.log_limiter import LogLimiter
from ottla.model.seams import Clock
from ottla.model.visible_text import visible
from ottla.wire.codec_types import Message

IDLE_CHECKS_PER_PERIOD = 20
"""How finely idleness is told: a silent connection lives at most a twentieth longer."""

REQUEST_MEMORY_BYTES_MAX = 256 * MIB
"""The pool of unfinished requests where `queued.max.request.bytes` is not set."""

C = TypeVar("C", bound=HostedChannel)


class EncryptingChannel(Protocol):
    """What a channel with TLS has beside what every channel has."""

    tls: ListenerTls
    is_shaking: bool
    """Whether its handshake has not ended."""

    def shake_hands(self) -> None:
        """Take one step; with the last one `is_shaking` ends, and the user is on the peer.

        Raises HandshakeFailedError when it has failed, OSError when the client has gone.
        """
        ...


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionServer(ConnectionHosting[C]):
    """The connections of a server on a loop; a transport extends it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        *,
        clock: Clock,
        limits: ConnectionLimits | None,
        request_memory_bytes_max: int,
        idle_ms_max: int,
        nursery: trio.Nursery,
        run_apart: RunApart | None = None,
        now_ns: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        """`now_ns` is the stopwatch that says what handshakes cost the loop."""
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
        self._paced = PacedWork(run_apart, clock=dispatcher.clock)
        self._wake_alarm = Alarm(clock, self._next_wake_ms, self._on_wakes_due)

    def start_tasks(self) -> None:
        """Start what runs beside the turns."""
        for name, work in (
            ("alarm of connections", self._wake_alarm.run),
            ("idle connections", self._close_idle_connections),
            ("request memory", partial(keep_memory_fair, self.memory, self._clock)),
        ):
            self._nursery.start_soon(keep_running, name, work, self._errors)

    def _rearm(self) -> None:
        self._wake_alarm.rearm()

    @abstractmethod
    def _part_from(self, channel: Any, now_ms: int) -> None:
        """Forget a channel whose handshake has failed, in such a way that its client reads why."""

    # Handshakes.

    def _begin_handshake(self, channel: C, now_ms: int) -> None:
        """Have a new connection closed whose handshake takes too long."""
        deadline_ms = self._handshakes.begin(channel, now_ms)
        if deadline_ms is not None:
            self.call_at(deadline_ms, self._end_overdue_handshakes)

    def _end_overdue_handshakes(self) -> None:
        """Close the connections whose handshakes take too long."""
        overdue, next_ms = self._handshakes.overdue(self._clock.monotonic_ms())
        for channel in overdue:
            self.give_up(channel, "its TLS handshake takes too long")
        if next_ms is not None:
            self.call_at(next_ms, self._end_overdue_handshakes)

    @property
    def _may_shake_hands(self) -> bool:
        return self._handshakes.has_queue and not self._awaits_handshake_share

    def _shake_hands(self, now_ms: int) -> None:
        """Take steps of handshakes, for a small part of the turn and of all time."""
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
        if wait_ms and handshakes.has_queue and not self._awaits_handshake_share:
            self._awaits_handshake_share = True
            self.call_at(now_ms + wait_ms, self._resume_handshakes)

    def _resume_handshakes(self) -> None:
        self._awaits_handshake_share = False
        self._have_turn()

    def _shake_hand(self, channel: Any, _: int, now_ms: int) -> None:
        """Take one step of one handshake."""
        shaking: EncryptingChannel = channel
        try:
            shaking.shake_hands()
        except HandshakeFailedError as error:
            self._note_failed_handshake(channel.connection.peer, shaking.tls, error, now_ms)
            self._part_from(channel, now_ms)
            return
        if not shaking.is_shaking:
            shaking.tls.counts.successes += 1
            self._handshakes.end(channel)
            if channel.has_unread:
                # What came with the last words of the handshake is no event of the transport.
                self.on_work(channel)
        self._watch(channel)

    def _note_failed_handshake(
        self, peer: Peer, tls: ListenerTls, error: HandshakeFailedError, now_ms: int
    ) -> None:
        """Count and log it."""
        tls.counts.failures += 1
        self._log(
            self._handshake_lines,
            now_ms,
            f"TLS handshake of {peer.label} on {peer.listener_name} failed: {visible(error.where)}",
        )

    # Tasks.

    def run_pending(self, channel: C, slot: ResponseSlot, pending: Pending) -> None:
        """Run a handler's coroutine in the nursery."""
        self._nursery.start_soon(self._await_pending, channel, slot, pending)

    async def _result_of(self, slot: ResponseSlot, pending: Pending) -> Message | None:
        return await self._paced.result_of(slot, pending)

    async def _close_idle_connections(self) -> None:
        """Close who has been silent for too long; wakes when the next one may have been."""
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
