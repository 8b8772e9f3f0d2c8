"""Sends the messages that `lifecycle` decides to the controller: one registration, then heartbeats
until the broker stops.

A heartbeat is sent at once if it reports a change: readiness to serve, a failed directory, a stop
or a drain. Without a change, a heartbeat is sent every `broker.heartbeat.interval.ms`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from uuid import UUID

import trio

from ottla.broker.cluster.membership.attendance_driver import AttendanceDriver
from ottla.broker.cluster.membership.lifecycle import BrokerState, Lifecycle
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.clock_driver import RealClock
from ottla.node.part_registry import PartRegistry
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.rpc.controller_client import ControllerClient
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.kafka_families import gauge

logger = logging.getLogger("ottla.broker.lifecycle")

REGISTRATION_RETRY_MS = 200
"""Milliseconds between attempts of this broker to register at the controller. With a smaller value,
the broker registers earlier after the session of its previous incarnation has expired. With a
larger value, the controller gets fewer requests."""

SHUTDOWN_HEARTBEAT_TIMEOUT_MS = 1_000
SHUTDOWN_POLL_MS = 50
CONTROLLED_SHUTDOWN_MS_MAX = 30_000
"""Maximum milliseconds that a stopping broker waits until its leaderships have moved. Afterwards it
stops, and new leaders are elected when its session has expired."""

FAILURES_BETWEEN_WARNINGS = 30
"""Number of failed heartbeats between two warnings in the log. The first failure is logged at once.
Later failures are logged once a minute at Kafka's heartbeat interval."""

DELAYS_KEPT = 1_000
"""Number of recent heartbeats whose delays the metrics report: the last half hour at Kafka's
interval."""


class LifecycleDriver:
    """Driver of one broker's `Lifecycle`: sends registrations and heartbeats to the controller."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        config: BrokerConfig,
        controller: ControllerClient,
        *,
        metadata_offset: Callable[[], Offset],
        produce_p99_us: Callable[[], int | None] = lambda: None,
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
        """Driver of the call that stays open at the active controller. It must run as soon as the
        broker is registered."""
        self._metadata_offset = metadata_offset
        self._produce_p99_us = produce_p99_us
        self._clock = clock or RealClock()
        self._errors = errors or UnexpectedErrors()
        self._is_due = trio.Event()
        self._has_changed = trio.Event()
        self._asked_at = 0.0
        self._heartbeat_count = 0
        self._delays_ms: deque[float] = deque(maxlen=DELAYS_KEPT)

    async def register(self, requests: Sequence[pb.RegisterRequest]) -> int:
        """Register this broker at the controller, and return its broker epoch. Raises RefusedError
        if the registration does not succeed in time.

        If many replicas have lost records, several requests of the same incarnation name them. The
        controller cannot unfence this broker between these requests, because heartbeats begin after
        the last request.
        """
        config = self._config
        ends_at = trio.current_time() + config.initial_registration_timeout_ms / 1000
        epochs = [await self._register(request, ends_at) for request in requests]
        self.lifecycle.on_registered(epochs[-1])
        return self.lifecycle.broker_epoch

    async def amend(self, requests: Sequence[pb.RegisterRequest]) -> None:
        """Report further replicas that lost records to the controller, before the registered broker
        requests to be unfenced.

        Raises RefusedError if the controller does not accept the report in time.
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
        """Send heartbeats to the controller until cancelled. Raises RefusedError if another
        incarnation (process run) of this broker replaces this one."""
        due_at = trio.current_time()
        while True:
            self._is_due = trio.Event()
            try:
                await self._send_heartbeat()
            except RefusedError:
                raise  # This incarnation must end.
            except Exception as error:
                self._errors.note("task", "heartbeats", error)
            self._heartbeat_count += 1
            self._delays_ms.append((trio.current_time() - due_at) * 1000)
            due_at = trio.current_time() + self._pause_seconds()
            with trio.move_on_at(due_at) as pause:
                await self._is_due.wait()
            if not pause.cancelled_caught:
                due_at = self._asked_at

    def send_heartbeat_now(self) -> None:
        """Send the next heartbeat to the controller at once."""
        if not self._is_due.is_set():
            self._asked_at = trio.current_time()
            self._is_due.set()

    def metrics(self) -> dict[str, float]:
        """Return the delays of heartbeats in milliseconds (from due time to response), the broker
        epoch and the wall clock.

        With the wall clock, an operator can compare the clocks of brokers.
        """
        delays = sorted(self._delays_ms) or [0.0]
        return {
            "broker.epoch": self.lifecycle.broker_epoch,
            "clock.wall.ms": self._clock.wall_ms(),
            "heartbeats": self._heartbeat_count,
            "heartbeat.delay.p99.ms": delays[(len(delays) - 1) * 99 // 100],
            "heartbeat.delay.longest.ms": delays[-1],
        }

    def register_with(self, parts: PartRegistry) -> None:
        """Register the metric families of this driver: broker state, heartbeats and their
        delays."""
        parts.figures(self.metrics)
        parts.families(self.families)

    def families(self) -> Iterator[Family]:
        """Yield the metric families for the broker's state and the delays of its heartbeats."""
        yield gauge(
            "kafka.server:type=KafkaServer,name=BrokerState",
            "0 not running, 1 starting, 2 recovery, 3 running, 6 controlled shutdown, "
            "7 shutting down; 100 draining, 101 drained.",
            int(self.lifecycle.state),
        )
        delays = self.metrics()
        for name, kind, text, value in (
            (
                "ottla_broker_heartbeats_total",
                MetricKind.COUNTER,
                "Heartbeats that the controller answered.",
                delays["heartbeats"],
            ),
            (
                "ottla_broker_heartbeat_delay_p99_seconds",
                MetricKind.GAUGE,
                "99th percentile of the delays of the last thousand heartbeats.",
                delays["heartbeat.delay.p99.ms"] / 1_000,
            ),
            (
                "ottla_broker_heartbeat_delay_longest_seconds",
                MetricKind.GAUGE,
                "Longest delay of the last thousand heartbeats.",
                delays["heartbeat.delay.longest.ms"] / 1_000,
            ),
        ):
            yield Family(name, kind, text, (), (((), value),))

    async def wait_unfenced(self) -> None:
        """Request that the controller unfences this broker, and return when the controller has
        agreed.

        A broker that was asked to stop during recovery does not serve requests. This method then
        waits until the broker's startup is cancelled.
        """
        if self.lifecycle.is_leaving:
            await trio.sleep_forever()
        self.lifecycle.become(BrokerState.RUNNING)
        self.send_heartbeat_now()
        while self.lifecycle.is_fenced:
            await self._has_changed.wait()

    async def leave(self) -> None:
        """Wait while the controller moves this broker's leaderships to other brokers. Returns when
        the broker may stop, or after CONTROLLED_SHUTDOWN_MS_MAX."""
        if not self.lifecycle.may_leave:
            return
        self.lifecycle.become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        self.send_heartbeat_now()
        with trio.move_on_after(CONTROLLED_SHUTDOWN_MS_MAX / 1000) as scope:
            while not self.lifecycle.is_leave_granted:
                await self._has_changed.wait()
        if scope.cancelled_caught:
            logger.warning("the controller did not let this broker go in time; it stops anyway")

    async def drain(self) -> None:
        """Drain this broker: the controller moves its leaderships to other brokers. Returns when
        the controller has fenced this broker."""
        self.lifecycle.drain()
        self.send_heartbeat_now()
        await self._wait_until(
            lambda: self.lifecycle.state is not BrokerState.DRAINING,
            "the controller has not moved all leaderships yet; the drain goes on",
        )
        # The controller has closed our session as for a stop, so that another process could take
        # our id.
        self.send_heartbeat_now()

    async def undo_drain(self) -> None:
        """Undo a drain of this broker. Returns when the controller has unfenced the broker."""
        self.lifecycle.undo_drain()
        self.send_heartbeat_now()
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
        """Report failed log directories to the controller at once."""
        self.lifecycle.offline_directories = directories
        self.send_heartbeat_now()

    def report_cordoned_directories(self, directories: tuple[UUID, ...]) -> None:
        """Report to the controller at once the log directories that accept no new replica."""
        self.lifecycle.cordoned_directories = directories
        self.send_heartbeat_now()

    async def _send_heartbeat(self) -> None:
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
            produce_p99_us=self._produce_p99_us(),
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
            # Our own registration is not applied yet, which takes only milliseconds.
            lifecycle.state is BrokerState.RUNNING and lifecycle.is_fenced
        )
        interval_ms = self._config.heartbeat_interval_ms
        return (min(SHUTDOWN_POLL_MS, interval_ms) if is_waiting else interval_ms) / 1000
