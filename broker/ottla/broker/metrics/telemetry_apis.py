"""GetTelemetrySubscriptions and PushTelemetry: clients report their own metrics (KIP-714).

Pure.  A push is judged inline by everything but its content; an accepted one is answered when its
content has been taken in, which happens elsewhere.  Unlike Kafka's, our answer to a request that
comes too early says so in `throttle_time_ms` too.
"""

from collections.abc import Callable
from typing import TypeAlias

from ottla.broker.network.dispatch import Dispatcher, RequestContext
from ottla.model.errors import ErrorCode
from ottla.telemetry.instances import ClientInstance, ClientInstances
from ottla.telemetry.subscriptions import ALL_METRICS, ClientTraits
from ottla.wire.apis import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from ottla.wire.compression import Codec
from ottla.wire.messages.get_telemetry_subscriptions_request import (
    GetTelemetrySubscriptionsRequest,
)
from ottla.wire.messages.get_telemetry_subscriptions_response import (
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.messages.push_telemetry_request import PushTelemetryRequest
from ottla.wire.messages.push_telemetry_response import PushTelemetryResponse

CODECS_BY_PREFERENCE = [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]
"""What clients are told that they may compress with: they take the first they have.  Not to
compress is always allowed, and not listed."""

CLIENT_ID_CHARS_MAX = 256
"""What is kept of a client's id, and what subscriptions choose it by: the protocol allows 32 KiB,
and thousands of clients are known at once."""

THROTTLE_TOLD_MS_MAX = 1_000
"""Longest throttle time that is told, as long as any quota's window.  Java's clients and librdkafka
go by their interval alone; but franz-go sends nothing at all on a connection while it is throttled,
and would stand still for what is left of an interval of minutes."""

ALL_BY_THE_LETTER = [""]
"""How KIP-714 writes "every metric".  Kafka itself tells "*", and its own clients and librdkafka
wait for that; franz-go knows the KIP's form alone, and reports nothing when it is told "*"."""

BY_THE_LETTER = frozenset({"kgo"})
"""The software, by the name it gives, that is told so."""

Done: TypeAlias = Callable[[ErrorCode | None], None]

Take: TypeAlias = Callable[[ClientInstance, int, bytes, Done], None]
"""Takes in what a client pushed (its codec, its payload) and calls `done` once, now or later: with
None when the content was understood, else with the error that the client is answered with."""


class TelemetryApis:
    """Serves GetTelemetrySubscriptions 0 and PushTelemetry 0.

    Where telemetry is not offered, both are answered with UNSUPPORTED_VERSION; but a connection
    that was offered it is served until it closes.
    """

    def __init__(
        self,
        instances: ClientInstances,
        *,
        payload_bytes_max: int,
        take: Take,
        is_offered: Callable[[], bool],
    ) -> None:
        self._instances = instances
        self._is_offered = is_offered
        self._payload_bytes_max = payload_bytes_max
        self._take = take

    def register(self, dispatcher: Dispatcher) -> None:
        """Serve both, and forget clients with their connections."""
        dispatcher.register(GET_TELEMETRY_SUBSCRIPTIONS, self.handle_get)
        dispatcher.register(PUSH_TELEMETRY, self.handle_push)
        dispatcher.on_closed.append(lambda peer: self._instances.on_disconnect(peer.connection_id))

    def handle_get(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Answer with what a client is asked for, and its id."""
        if not self._serves(context):
            return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        error, throttle_ms, instance = self._instances.get_subscriptions(
            traits_of(context, request),
            connection_id=context.peer.connection_id,
            now_ms=context.arrived_ms,
        )
        if error is not ErrorCode.NONE:
            return GetTelemetrySubscriptionsResponse(
                error_code=error, throttle_time_ms=min(throttle_ms, THROTTLE_TOLD_MS_MAX)
            )
        effective = instance.effective
        metrics = list(effective.metrics)
        if effective.metrics == (ALL_METRICS,) and context.peer.software_name in BY_THE_LETTER:
            metrics = ALL_BY_THE_LETTER
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance.id,
            subscription_id=effective.subscription_id,
            accepted_compression_types=list(CODECS_BY_PREFERENCE),
            push_interval_ms=effective.interval_ms,
            telemetry_max_bytes=self._payload_bytes_max,
            delta_temporality=True,
            requested_metrics=metrics,
        )

    def handle_push(
        self, context: RequestContext, request: PushTelemetryRequest
    ) -> PushTelemetryResponse | None:
        """Judge a push, and hand on what it brings."""
        if not self._serves(context):
            return PushTelemetryResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        payload = request.metrics
        error, throttle_ms, instance = self._instances.push(
            traits_of(context, request),
            connection_id=context.peer.connection_id,
            subscription_id=request.subscription_id,
            is_terminating=request.terminating,
            codec=request.compression_type,
            payload_bytes=len(payload),
            now_ms=context.arrived_ms,
        )
        # A client that has none of the metrics it is asked for pushes nothing at all.
        if error is not ErrorCode.NONE or instance is None or not payload:
            return PushTelemetryResponse(
                error_code=error, throttle_time_ms=min(throttle_ms, THROTTLE_TOLD_MS_MAX)
            )
        # When there is no room for a push: the next one of this client is due no sooner.
        full_ms = min(instance.effective.interval_ms, THROTTLE_TOLD_MS_MAX)

        def done(failure: ErrorCode | None) -> None:
            error = failure or ErrorCode.NONE
            self._instances.on_ingested(instance, error)
            is_full = error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            context.slot.complete(
                PushTelemetryResponse(error_code=error, throttle_time_ms=full_ms if is_full else 0)
            )

        self._take(instance, request.compression_type, payload, done)
        return None

    def _serves(self, context: RequestContext) -> bool:
        return self._is_offered() or context.peer.was_offered_telemetry


def traits_of(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest
) -> ClientTraits:
    """Return what is known of the client that sent a request."""
    peer = context.peer
    client_id = context.client_id
    return ClientTraits(
        request.client_instance_id,
        None if client_id is None else client_id[:CLIENT_ID_CHARS_MAX],
        peer.software_name,
        peer.software_version,
        peer.peer_host,
        peer.peer_port,
    )
