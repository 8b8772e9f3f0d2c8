"""Tells the controller what `lifecycle` decides: one registration, then heartbeats until the end.

A heartbeat leaves at once when there is something to say (ready to serve, a failed directory, a
wish to stop or to drain), and every `broker.heartbeat.interval.ms` otherwise.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from uuid import UUID

import trio

from ottla.broker.cluster.attendance_driver import AttendanceDriver
from ottla.broker.cluster.lifecycle import BrokerState, Lifecycle
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.clock_driver import RealClock
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.rpc.controller_client import ControllerClient

logger = logging.getLogger("ottla.broker.lifecycle")

REGISTRATION_RETRY_MS = 200
"""Lower registers sooner after the old session ended; higher spares the controller."""

SHUTDOWN_HEARTBEAT_TIMEOUT_MS = 1_000
SHUTDOWN_POLL_MS = 50
CONTROLLED_SHUTDOWN_MS_MAX = 30_000
"""How long leaderships may take to move; then the broker stops and they fail over instead."""

FAILURES_BETWEEN_WARNINGS = 30
"""The first is told at once, then one a minute at Kafka's interval."""

DELAYS_KEPT = 1_000
"""Heartbeats whose delays the metrics tell; at Kafka's interval the last half hour."""


class LifecycleDriver:
    """Runs one broker's `Lifecycle` against the controller."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        config: BrokerConfig,
        controller: ControllerClient,
        *,
        metadata_offset: Callable[[], Offset],
        clock: Clock | None = None,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        self.lifecycle = lifecycle
        self._config = config
        self._controller = controller
        self.attendance = AttendanceDriver(
            config.node_id,
            controller,
            broker_epoch=lambda: lifecycle.broker_epoch,
            listener_name=config.inter_broker_listener,
        )
        """To be run from the registration on."""
        self._metadata_offset = metadata_offset
        self._clock = clock or RealClock()
        self._errors = errors or UnexpectedErrors()
        self._is_due = trio.Event()
        self._has_changed = trio.Event()
        self._asked_at = 0.0
        self._beats = 0
        self._delays_ms: deque[float] = deque(maxlen=DELAYS_KEPT)

    async def register(self, requests: Sequence[pb.RegisterRequest]) -> int:
        """Register; return the broker epoch.  RefusedError when it cannot be done in time.

        All requests are of one incarnation: those after the first name more lost replicas.  The
        controller unfences nothing between them, for heartbeats begin after the last.
        """
        config = self._config
        ends_at = trio.current_time() + config.initial_registration_timeout_ms / 1000
        epochs = [await self._register(request, ends_at) for request in requests]
        self.lifecycle.on_registered(epochs[-1])
        return self.lifecycle.broker_epoch

    async def amend(self, requests: Sequence[pb.RegisterRequest]) -> None:
        """Name more lost replicas of a registered broker, before it asks to be unfenced.

        Raises RefusedError when it cannot be done in time.
        """
        ends_at = trio.current_time() + self._config.initial_registration_timeout_ms / 1000
        for request in requests:
            await self._register(request, ends_at)

    async def _register(self, request: pb.RegisterRequest, ends_at: float) -> int:
        config = self._config
        said = ""
        while True:
            try:
                answer = await self._controller.register(
                    request, deadline_ms=config.heartbeat_interval_ms
                )
            except RefusedError as error:
                text = self.lifecycle.judge_registration(
                    error,
                    broker_id=config.node_id,
                    is_late=trio.current_time() >= ends_at,
                )
                if text != said:
                    logger.warning("%s", text)
                    said = text
                await trio.sleep(REGISTRATION_RETRY_MS / 1000)
                continue
            return answer.broker_epoch

    async def run(self) -> None:
        """Send heartbeats until cancelled; RefusedError when this incarnation must end."""
        due_at = trio.current_time()
        while True:
            self._is_due = trio.Event()
            try:
                await self._beat()
            except RefusedError:
                raise  # this incarnation must end
            except Exception as error:
                self._errors.note("task", "heartbeats", error)
            self._beats += 1
            self._delays_ms.append((trio.current_time() - due_at) * 1000)
            due_at = trio.current_time() + self._pause_seconds()
            with trio.move_on_at(due_at) as pause:
                await self._is_due.wait()
            if not pause.cancelled_caught:
                due_at = self._asked_at

    def beat_now(self) -> None:
        """Send the next heartbeat without waiting for its time."""
        if not self._is_due.is_set():
            self._asked_at = trio.current_time()
            self._is_due.set()

    def metrics(self) -> dict[str, float]:
        """Return how long heartbeats took, from when each was due to its answer; and who we are.

        The wall clock is told so that somebody may compare it with the others'.
        """
        delays = sorted(self._delays_ms) or [0.0]
        return {
            "broker.epoch": self.lifecycle.broker_epoch,
            "clock.wall.ms": self._clock.wall_ms(),
            "heartbeats": self._beats,
            "heartbeat.delay.p99.ms": delays[(len(delays) - 1) * 99 // 100],
            "heartbeat.delay.longest.ms": delays[-1],
        }

    async def wait_unfenced(self) -> None:
        """Ask to be unfenced, and return when the controller has agreed.

        A broker that was told to stop while it recovered does not serve any more: it waits here
        until its start is cancelled.
        """
        if self.lifecycle.is_leaving:
            await trio.sleep_forever()
        self.lifecycle.become(BrokerState.RUNNING)
        self.beat_now()
        while self.lifecycle.is_fenced:
            await self._has_changed.wait()

    async def leave(self) -> None:
        """Let the controller move our leaderships; return when we may stop, or waited enough."""
        if not self.lifecycle.may_leave:
            return
        self.lifecycle.become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        self.beat_now()
        with trio.move_on_after(CONTROLLED_SHUTDOWN_MS_MAX / 1000) as scope:
            while not self.lifecycle.is_leave_granted:
                await self._has_changed.wait()
        if scope.cancelled_caught:
            logger.warning("the controller did not let this broker go in time; it stops anyway")

    async def drain(self) -> None:
        """Let the controller move our leaderships, and return when it has fenced us."""
        self.lifecycle.drain()
        self.beat_now()
        await self._wait_until(
            lambda: self.lifecycle.state is not BrokerState.DRAINING,
            "the controller has not moved all leaderships yet; the drain goes on",
        )
        # The controller has closed our session, as of one that leaves: another could take our id.
        self.beat_now()

    async def undo_drain(self) -> None:
        """Come back from a drain, and return when the controller has unfenced us."""
        self.lifecycle.undo_drain()
        self.beat_now()
        await self._wait_until(
            lambda: not self.lifecycle.is_fenced,
            "the controller has not unfenced the broker yet; the broker goes on asking",
        )

    async def _wait_until(self, is_reached: Callable[[], bool], otherwise: str) -> None:
        with trio.move_on_after(CONTROLLED_SHUTDOWN_MS_MAX / 1000):
            while not is_reached():
                await self._has_changed.wait()
            return
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, otherwise)

    def report_offline_directories(self, directories: tuple[UUID, ...]) -> None:
        """Tell the controller at once which directories have failed."""
        self.lifecycle.offline_directories = directories
        self.beat_now()

    def report_cordoned_directories(self, directories: tuple[UUID, ...]) -> None:
        """Tell the controller at once which directories take no new replica."""
        self.lifecycle.cordoned_directories = directories
        self.beat_now()

    async def _beat(self) -> None:
        lifecycle = self.lifecycle
        said = lifecycle.heartbeat(self._metadata_offset())
        request = pb.HeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=said.broker_epoch,
            current_metadata_offset=said.metadata_offset,
            want_fence=said.wants_fence,
            want_shut_down=said.wants_shut_down,
            offline_log_dirs=[one.bytes for one in said.offline_directories],
            cordoned_log_dirs=metadata_pb2.Uuids(
                ids=[one.bytes for one in said.cordoned_directories]
            ),
        )
        deadline_ms = (
            SHUTDOWN_HEARTBEAT_TIMEOUT_MS
            if said.wants_shut_down
            else self._config.heartbeat_interval_ms
        )
        try:
            answer = await self._controller.heartbeat(request, deadline_ms=deadline_ms)
        except RefusedError as error:
            text = lifecycle.on_heartbeat_refused(error, self._config.node_id)
            if lifecycle.failures_in_a_row % FAILURES_BETWEEN_WARNINGS == 1:
                logger.warning("%s", text)
        else:
            if lifecycle.failures_in_a_row:
                logger.warning("heartbeats are answered again")
            lifecycle.on_heartbeat_answer(
                is_fenced=answer.is_fenced, should_shut_down=answer.should_shut_down
            )
        has_changed, self._has_changed = self._has_changed, trio.Event()
        has_changed.set()

    def _pause_seconds(self) -> float:
        lifecycle = self.lifecycle
        is_waiting = lifecycle.is_leaving or (
            # Not caught up with our own registration yet: that is a matter of milliseconds.
            lifecycle.state is BrokerState.RUNNING and lifecycle.is_fenced
        )
        interval_ms = self._config.heartbeat_interval_ms
        return (min(SHUTDOWN_POLL_MS, interval_ms) if is_waiting else interval_ms) / 1000
