"""Handlers of GetTelemetrySubscriptions and PushTelemetry, with which clients report their own
metrics (KIP-714).

Pure. A push is checked at once, except for its content. An accepted push is answered when a worker
thread has processed its content (`ottla.telemetry.clients.push_work`). The response to a request
that is too early has a `throttle_time_ms`, unlike Kafka's response.
"""

from collections.abc import Callable
from typing import TypeAlias

from ottla.model.errors import ErrorCode
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.telemetry.clients.instances import ClientInstance, ClientInstances
from ottla.telemetry.clients.subscriptions import ALL_METRICS, ClientTraits
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
"""Compression types that the broker offers to clients for metric pushes. A client uses the first
type that it supports. Uncompressed pushes are always allowed and need no entry."""

CLIENT_ID_CHARS_MAX = 256
"""Maximum number of characters that the broker stores of a client id, by which telemetry
subscriptions select clients. The protocol allows 32 KiB, which would take too much memory for
thousands of clients."""

THROTTLE_TOLD_MS_MAX = 1_000
"""Maximum throttle time in a telemetry response in milliseconds, equal to the window of a quota.
Java's clients and librdkafka ignore the throttle time and use their push interval. franz-go sends
no requests on a throttled connection, so a longer time could pause the connection for minutes."""

ALL_BY_THE_LETTER = [""]
"""Encoding of "every metric" according to KIP-714. Kafka sends "*" instead, which Java's clients
and librdkafka expect. franz-go supports only the encoding of the KIP, and reports no metrics if it
receives "*"."""

BY_THE_LETTER = frozenset({"kgo"})
"""Names of client software that gets KIP-714's own encoding of "every metric": a list with one
empty name."""

Done: TypeAlias = Callable[[ErrorCode | None], None]

Take: TypeAlias = Callable[[ClientInstance, int, bytes, Done], None]
"""Function that processes a client's metric push (codec and payload) and calls `done` once, now or
later. The argument of `done` is None if the content was valid, otherwise the error code for the
client."""


class TelemetryApis:
    """Handlers of GetTelemetrySubscriptions and PushTelemetry, version 0.

    If telemetry is not offered, both requests are answered with UNSUPPORTED_VERSION. A connection
    to which telemetry was offered is served until it closes.
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
        """Register the handlers of GetTelemetrySubscriptions and PushTelemetry, and a listener that
        drops clients when their connections close."""
        dispatcher.register(GET_TELEMETRY_SUBSCRIPTIONS, self.handle_get)
        dispatcher.register(PUSH_TELEMETRY, self.handle_push)
        dispatcher.on_closed.append(lambda peer: self._instances.on_disconnect(peer.connection_id))

    def handle_get(
        self, context: RequestContext, request: GetTelemetrySubscriptionsRequest
    ) -> GetTelemetrySubscriptionsResponse:
        """Answer the request with the metrics that a client should push, and its instance id."""
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
        """Check a PushTelemetry request, and pass its content to the worker. Returns the response
        if the push is refused or empty. Returns None if the response is sent after the content has
        been processed."""
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
        # A client that has none of the requested metrics sends an empty push.
        if error is not ErrorCode.NONE or instance is None or not payload:
            return PushTelemetryResponse(
                error_code=error, throttle_time_ms=min(throttle_ms, THROTTLE_TOLD_MS_MAX)
            )
        # Throttle time if there is no room for a push; the client's next one is due no sooner.
        full_ms = min(instance.effective.interval_ms, THROTTLE_TOLD_MS_MAX)

        def done(failure: ErrorCode | None) -> None:
            error = failure or ErrorCode.NONE
            self._instances.on_ingested(instance, error)
            is_full = error is ErrorCode.THROTTLING_QUOTA_EXCEEDED
            context.complete(
                PushTelemetryResponse(error_code=error, throttle_time_ms=full_ms if is_full else 0)
            )

        self._take(instance, request.compression_type, payload, done)
        return None

    def _serves(self, context: RequestContext) -> bool:
        return self._is_offered() or context.peer.was_offered_telemetry


def traits_of(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest | PushTelemetryRequest
) -> ClientTraits:
    """Return the attributes of a request's client by which telemetry subscriptions select clients,
    such as the client id."""
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
