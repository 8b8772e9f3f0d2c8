"""Serves the calls that brokers keep open while they are alive, and ends the sessions of brokers
whose process has ended.

`attendances` decides on the consequence of a call's end. This module waits for calls, probes
addresses and measures time.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from ottla.controller.broker_epochs import registered
from ottla.controller.controller_driver import Controller, not_controller
from ottla.controller.membership.attendances import Attendance, Attendances, Suspicion
from ottla.controller.membership.sessions import SILENCE_MS
from ottla.model.log_events import event
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.address_probe import Probe, ProbeResult
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_methods import ATTEND_MS

_LOGGER = logging.getLogger(__name__)

A = TypeVar("A")

PROBES_MAX = 8
"""Maximum number of broker addresses that are probed at a time. With fewer, failover takes longer
after the loss of a rack. With more, the controller opens a burst of connections."""

PROBE_PAUSES_MS = (0, 30, 100)
"""Pauses in ms before the probes of a broker's address, after the broker's long-running call was
cut off. A single probe may be too early: when a process ends, the kernel closes its connections one
by one, and the listening socket may be the last."""

LOOK_MS = 50
"""Interval, in ms, between checks whether a silent broker has opened a new call to this
controller."""

STALL_MS = 3 * LOOK_MS
"""Maximum duration in ms of a check for silent brokers. The result of a longer check is ignored:
the process was suspended during the check, so sockets may contain unread requests of brokers."""


class AttendanceKeeper:
    """Manager of the calls that brokers keep open at this controller while they are alive, and of
    the tasks that handle the end of each call."""

    def __init__(
        self,
        controller: Controller,
        probe: Probe,
        *,
        clock: Clock,
        errors: UnexpectedErrors,
        is_early: bool,
    ) -> None:
        self._controller = controller
        self._probe = probe
        self._clock = clock
        self._errors = errors
        self._is_early = is_early
        """True if the session of a dead broker may be ended before its timeout
        (`ottla.early.failover`)."""
        self._attendances = Attendances(controller.sessions)
        self._ends: dict[Attendance, trio.Event] = {}
        """Events of the calls that brokers keep open. Setting the event of a call ends the call."""
        self._probing = trio.CapacityLimiter(PROBES_MAX)
        self._nursery: trio.Nursery | None = None

    async def attend(self, request: pb.AttendRequest) -> pb.AttendResponse:
        """Keep a broker's call open for a minute, until the broker calls again, or until this
        controller is no longer active.  Returns an empty response.

        Raises RefusedError if the controller is not active, or if the broker is not registered.
        """
        epoch = self._controller.epoch
        if epoch is None:
            raise not_controller()
        image = self._controller.image
        broker = registered(image, request.broker_id, request.broker_epoch)
        earlier = self._attendances.latest_of(broker.id)
        attendance = self._attendances.arrive(broker, request.listener_name, epoch)
        if earlier is not None and earlier in self._ends:
            self._ends[earlier].set()
        ended = self._ends[attendance] = trio.Event()
        self._start(self._probe_while_alive, attendance)
        try:
            with trio.move_on_after(ATTEND_MS / 1000):
                await ended.wait()
        except trio.Cancelled:
            self._on_cut_off(attendance)
            raise
        finally:
            del self._ends[attendance]
        self._attendances.leave(attendance)
        if self._controller.epoch != epoch:
            raise not_controller()
        return pb.AttendResponse()

    async def run(self) -> None:
        """Run the background tasks that handle the calls of brokers. Ends all calls whenever this
        controller becomes active or inactive."""
        controller = self._controller
        async with trio.open_nursery() as self._nursery:
            try:
                while True:
                    turn = controller.turn
                    self._attendances.begin_turn(controller.epoch, self._clock.monotonic_ms())
                    for ended in self._ends.values():
                        ended.set()
                    await turn.wait()
            finally:
                self._nursery = None

    # --- while the broker is alive ------------------------------------------------------------

    async def _probe_while_alive(self, attendance: Attendance) -> None:
        """Check repeatedly whether a broker's address accepts connections, while the broker is
        alive.

        A refused connection is evidence of the broker's death only if the address has accepted a
        connection before.
        """
        while attendance in self._ends:
            now_ms = self._clock.monotonic_ms()
            wait_ms = self._attendances.first_probe_wait_ms(attendance, now_ms)
            if wait_ms is None:
                return
            if wait_ms:
                with trio.move_on_after(wait_ms / 1000):
                    await self._ends[attendance].wait()
                continue
            if await self._try_address(attendance) is ProbeResult.ACCEPTED:
                self._attendances.note_accepting(attendance)
            return

    # --- after the broker's call was cut off --------------------------------------------------

    def _on_cut_off(self, attendance: Attendance) -> None:
        controller = self._controller
        suspicion = None
        if self._is_early:
            now_ms = controller.session_time_ms()
            suspicion = self._attendances.suspect(
                attendance, controller.image, controller.epoch, now_ms
            )
        if suspicion is None:
            self._attendances.leave(attendance)
            return
        self._start(self._probe_address, suspicion)

    async def _probe_address(self, suspicion: Suspicion) -> None:
        if await self._is_refused(suspicion) and await self._is_silent(suspicion):
            self._end_session(suspicion)
        self._attendances.leave(suspicion.attendance)

    async def _is_refused(self, suspicion: Suspicion) -> bool:
        for pause_ms in PROBE_PAUSES_MS:
            await trio.sleep(pause_ms / 1000)
            if not self._is_suspected(suspicion):
                return False
            probed = await self._try_address(suspicion.attendance)
            if probed is not ProbeResult.ACCEPTED:
                return probed is ProbeResult.REFUSED
        return False

    async def _is_silent(self, suspicion: Suspicion) -> bool:
        """Wait for a broker whose call was cut off to call again. Returns True if the broker stays
        silent. Time during which this process was suspended does not count."""
        silent_ms = 0
        while silent_ms < SILENCE_MS:
            before_ms = self._clock.monotonic_ms()
            await trio.sleep(LOOK_MS / 1000)
            if not self._is_suspected(suspicion):
                return False
            if self._clock.monotonic_ms() - before_ms < STALL_MS:
                silent_ms += LOOK_MS
        return True

    def _is_suspected(self, suspicion: Suspicion) -> bool:
        controller = self._controller
        now_ms = controller.session_time_ms()
        return self._attendances.is_suspected(suspicion, controller.image, controller.epoch, now_ms)

    def _end_session(self, suspicion: Suspicion) -> None:
        attendance = suspicion.attendance
        left_ms = self._controller.end_session(attendance.broker)
        endpoint = attendance.endpoint
        _LOGGER.info(
            "broker %s is gone: its connection closed and %s:%s refuses connections; its session"
            " ends %s ms early",
            attendance.broker,
            endpoint.host,
            endpoint.port,
            left_ms,
            extra=event("broker.gone", broker=int(attendance.broker), early_ms=left_ms),
        )

    # --- tasks --------------------------------------------------------------------------------

    async def _try_address(self, attendance: Attendance) -> ProbeResult:
        async with self._probing:
            self._attendances.note_probe(attendance, self._clock.monotonic_ms())
            return await self._probe(attendance.endpoint.host, attendance.endpoint.port)

    def _start(self, work: Callable[[A], Awaitable[None]], about: A) -> None:
        if self._is_early and self._nursery is not None:
            self._nursery.start_soon(self._guard, work, about)

    async def _guard(self, work: Callable[[A], Awaitable[None]], about: A) -> None:
        try:
            await work(about)
        except Exception as error:
            self._errors.note("task", "early failover", error)
