"""Task that reports a client's own metrics to its cluster (KIP-714).

`open_metrics_push` runs the task while the client is open. The task uses the client's connections,
and sends nothing before the client itself has connected. Errors of the task never reach the client.
`telemetry/push_session` selects the requests and their times.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import UUID

import trio

from ottla.client.network.background import WakeUp, now_ms, open_background
from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.telemetry.client_metrics import ClientKind, ClientMetrics
from ottla.client.telemetry.metric_points import AcceptedSums, MetricPoint, is_wanted
from ottla.client.telemetry.push_session import (
    CODECS,
    GetSubscription,
    PushMetrics,
    PushSession,
    PushState,
    TelemetrySubscription,
)
from ottla.model.errors import ConfigError, ErrorCode, OttlaError, ProtocolError, RefusedError
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse

LOG = logging.getLogger("ottla.client.telemetry")

LAST_PUSH_PATIENCE_S = 0.5
"""Maximum time in seconds by which the terminating push may delay the end of a client. A hanging
broker cannot exceed it."""
REQUEST_PATIENCE_S = 30.0
"""Timeout of a telemetry request in seconds, used if the client itself has no timeout."""
ASK_AGAIN_S = 1.0
"""Interval in seconds between requests for a client instance id, while the application waits for
the id."""


class PointSource(Protocol):
    """Interface of the parts of a client that supply metrics for reports."""

    def points(self, elapsed_s: float) -> Iterator[MetricPoint]:
        """Yield the current values of the metrics. Rates cover the last `elapsed_s` seconds, which
        is the time since the previous call."""
        ...


class MetricsPush:
    """Task that reports the metrics of one client to its cluster while the cluster has a
    subscription for them."""

    def __init__(
        self,
        cluster: Cluster,
        common: PointSource,
    ) -> None:
        self._cluster = cluster
        self._sources = [common]
        self._attributes: Callable[[], Mapping[str, str]] = dict
        self._session = PushSession(now_ms())
        self._accepted_sums = AcceptedSums(time.time_ns())
        self._collected_s = trio.current_time()
        self._wake_up = WakeUp()
        self._lock = trio.Lock()
        """Lock that is held while a telemetry request is in flight."""
        self._answered = trio.Event()
        """Event that is set once a broker has assigned the client instance id, or once the brokers
        are known not to support KIP-714."""
        self._is_unsupported = False

    def report(
        self, source: PointSource, attributes: Callable[[], Mapping[str, str]] = dict
    ) -> None:
        """Add a source of metrics to the reports.

        `attributes` is a function that returns OTLP resource attributes, under the names that
        KIP-714 defines.
        """
        self._sources.append(source)
        self._attributes = attributes

    async def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the client instance id that the cluster has assigned to this client. Requests an
        id if the client has none yet.

        Raises RefusedError with REQUEST_TIMED_OUT if no broker responds within `timeout_s` seconds,
        or with UNSUPPORTED_VERSION if the cluster collects no metrics from clients.
        """
        session = self._session
        await trio.lowlevel.checkpoint()
        if not session.is_named:
            self._cluster.is_used.set()
            answered = self._answered
            with trio.move_on_after(timeout_s):
                while not answered.is_set():
                    session.ask_now(now_ms())
                    self._wake_up.set()
                    with trio.move_on_after(ASK_AGAIN_S):
                        await answered.wait()
        if session.is_named:
            return session.client_instance_id
        if self._is_unsupported:
            raise RefusedError(
                ErrorCode.UNSUPPORTED_VERSION, "the cluster collects no metrics of its clients"
            )
        raise RefusedError(
            ErrorCode.REQUEST_TIMED_OUT, f"no broker gave a client instance id in {timeout_s:g} s"
        )

    async def run(self) -> None:
        """Request subscriptions and push metrics until the session of reports ends."""
        await self._cluster.is_used.wait()
        try:
            while self._session.state is not PushState.ENDED:
                async with self._lock:
                    await self._send_due()
                await self._wake_up.wait(self._session.next_at_ms)
        except Exception:
            # The client continues without reporting its metrics.
            LOG.exception("the client reports no metrics any more")
            self._answered.set()

    async def close(self) -> None:
        """Send the terminating push, if the cluster has subscribed to metrics of this client and a
        connection is open."""
        async with self._lock:
            push = self._session.close()
            if push is None or not self._cluster.has_connection:
                return
            try:
                await self._send_push(push)
            except OttlaError as error:
                LOG.debug("the last metrics were not reported: %s", error)

    async def _send_due(self) -> None:
        request = self._session.due(now_ms())
        try:
            with trio.fail_after(REQUEST_PATIENCE_S):
                if request is not None and self._is_unsupported:
                    # Brokers list these requests only once a receiver of client metrics is
                    # configured.
                    await self._cluster.refresh_versions()
                if isinstance(request, GetSubscription):
                    await self._ask(request)
                elif request is not None:
                    await self._send_push(request)
            self._is_unsupported &= request is None
        except (ConnectionLostError, ProtocolError, trio.TooSlowError) as error:
            LOG.debug("no answer about metrics: %s", error)
            # The push may have arrived: its sums must be reported at most once.
            self._accepted_sums.settle()
            self._session.on_lost(now_ms())
        except RefusedError as error:
            self._is_unsupported = error.code is ErrorCode.UNSUPPORTED_VERSION
            if self._is_unsupported:
                self._session.on_unsupported(now_ms())
                self._answered.set()
                self._answered = trio.Event()
            else:
                # The client itself reports a rejected login.
                self._session.on_lost(now_ms())

    async def _ask(self, request: GetSubscription) -> None:
        answer = await self._cluster.request(
            GetTelemetrySubscriptionsRequest(client_instance_id=request.client_instance_id),
            GetTelemetrySubscriptionsResponse,
        )
        now = now_ms()
        if answer.error_code != ErrorCode.NONE:
            self._note_refusal("GetTelemetrySubscriptions", answer.error_code)
            self._session.on_refusal(answer.error_code, answer.throttle_time_ms, now)
            return
        wanted = TelemetrySubscription(
            answer.subscription_id,
            answer.push_interval_ms,
            answer.delta_temporality,
            answer.requested_metrics,
            tuple(CODECS[one] for one in answer.accepted_compression_types if one in CODECS),
            answer.telemetry_max_bytes,
        )
        if self._session.on_subscription(answer.client_instance_id, wanted, now):
            self._accepted_sums.reset()
        if self._session.is_named:
            self._answered.set()

    async def _send_push(self, push: PushMetrics) -> None:
        # Checked before the metrics are collected: without a connection they are left for the next
        # push.
        await self._cluster.version_of(PushTelemetryRequest.API_KEY)
        payload = self._payload(push)
        answer = await self._cluster.request(
            PushTelemetryRequest(
                client_instance_id=push.client_instance_id,
                subscription_id=push.subscription.subscription_id,
                terminating=push.is_last,
                compression_type=push.codec,
                metrics=payload,
            ),
            PushTelemetryResponse,
        )
        if answer.error_code != ErrorCode.NONE:
            self._note_refusal("PushTelemetry", answer.error_code)
        if self._session.on_push_answer(
            answer.error_code, push.codec, answer.throttle_time_ms, now_ms()
        ):
            self._accepted_sums.settle()

    def _payload(self, push: PushMetrics) -> bytes:
        """Return the due metrics as an OTLP message."""
        # Imported on demand: importing OpenTelemetry's messages takes some 25 ms.
        from ottla.client.telemetry.otlp_payload import payload_of

        now_s, now_ns = trio.current_time(), time.time_ns()
        elapsed_s, self._collected_s = now_s - self._collected_s, now_s
        subscription = push.subscription
        points = (point for source in self._sources for point in source.points(elapsed_s))
        return payload_of(
            self._accepted_sums.read(
                (point for point in points if is_wanted(point.name, subscription.prefixes)),
                is_delta=subscription.is_delta,
                now_ns=now_ns,
            ),
            self._attributes(),
            is_delta=subscription.is_delta,
            now_ns=now_ns,
            codec=push.codec,
            bytes_max=subscription.bytes_max,
        )

    def _note_refusal(self, api: str, code: int) -> None:
        name = ErrorCode(code).name if code in set(ErrorCode) else str(code)
        LOG.debug("%s was refused: %s", api, name)


@asynccontextmanager
async def open_metrics_push(
    cluster: Cluster,
    kind: ClientKind,
    *,
    is_enabled: bool,
) -> AsyncIterator[MetricsPush | None]:
    """Report the metrics of a client during the `async with` block. Yields None if
    `enable.metrics.push` is false.

    At the end of the block, the terminating push is sent. It takes at most half a second.
    """
    if not is_enabled or cluster.measures is None:
        cluster.measures = None
        yield None
        return
    push = MetricsPush(cluster, ClientMetrics(kind, cluster.measures, cluster.node_at))
    async with open_background() as nursery:
        nursery.start_soon(push.run)
        try:
            yield push
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + LAST_PUSH_PATIENCE_S):
                await push.close()


class ReportingClient:
    """Base class of clients that can report their own metrics to the cluster (KIP-714)."""

    _metrics_push: MetricsPush | None = None
    """Task that reports this client's metrics, or None if `enable.metrics.push` is false."""

    async def client_instance_id(self, timeout_s: float = 60.0) -> UUID:
        """Return the client instance id under which the cluster collects this client's metrics
        (KIP-714).

        Waits at most `timeout_s` seconds for the id. Raises RefusedError with REQUEST_TIMED_OUT if
        no broker responds in time, or with UNSUPPORTED_VERSION if the cluster collects no metrics.
        Raises ConfigError if `enable.metrics.push` is false.
        """
        if self._metrics_push is None:
            raise ConfigError("enable.metrics.push", "is false; an instance id needs true")
        return await self._metrics_push.client_instance_id(timeout_s)
