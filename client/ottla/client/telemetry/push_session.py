"""State machine of a client's metrics reports. It decides when the client requests its subscription
and when it pushes metrics (KIP-714).

Pure. `due` returns the request to send now. Each request is followed by exactly one call of
`on_subscription`, `on_push_answer`, `on_refusal` or `on_lost`. Times are ms of one clock. The
states are the same as in Java's ClientTelemetryReporter. Invariants:
- OneRequestAtATime: `due` returns nothing while a request is in flight.
- OnePushAnInterval: two pushes, except for the terminating one, are at least an interval apart.
  The first push is at least half an interval after a new subscription.
- LastIsLast: nothing is sent after the terminating push.
- NoStorm: a client requests the subscription without delay only after a response that demands it,
  and only once for each subscription.

The Java client 4.4 never requests the subscription again after a permanent error, and waits for
five minutes after a lost connection. This client retries in both cases, as KIP-714 requires.
Clients therefore need no restart after an operator has corrected the configuration of the cluster.

Jitter (0.5 to 1.5 intervals) spreads the requests of many clients over time. It is computed from
the client instance id, which the broker has generated at random. A simulation with a fixed seed is
therefore reproducible.
"""

from collections.abc import Mapping
from enum import Enum, auto
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.model.errors import ErrorCode
from ottla.model.ids import ZERO_UUID
from ottla.wire.compression import Codec

UNSUBSCRIBED_INTERVAL_MS = 300_000
"""Delay, in ms, before the client requests its telemetry subscription again if it knows no
interval. The value is Kafka's."""

REFUSED_INTERVAL_MS = 1_800_000
"""Delay in ms before the client requests its telemetry subscription again after a permanent error:
half an hour, as in KIP-714."""

JITTER_BITS = 32
"""Number of bits of the client instance id that determine the jitter. The last bits are used,
because they are random in a UUID of version 4."""

CODECS = {int(codec): codec for codec in Codec}


class PushState(Enum):
    """States of a client's metrics reports."""

    SUBSCRIPTION_NEEDED = auto()
    """State in which the next request is for the subscription, and no push is due."""
    ASKING = auto()
    PUSH_NEEDED = auto()
    PUSHING = auto()
    LAST_PUSH = auto()
    """State in which the terminating push is in flight."""
    ENDED = auto()


TRANSITIONS: Mapping[PushState, frozenset[PushState]] = MappingProxyType(
    {
        PushState.SUBSCRIPTION_NEEDED: frozenset({PushState.ASKING, PushState.ENDED}),
        PushState.ASKING: frozenset(
            {PushState.SUBSCRIPTION_NEEDED, PushState.PUSH_NEEDED, PushState.ENDED}
        ),
        PushState.PUSH_NEEDED: frozenset({PushState.PUSHING, PushState.LAST_PUSH}),
        PushState.PUSHING: frozenset(
            {PushState.SUBSCRIPTION_NEEDED, PushState.PUSH_NEEDED, PushState.LAST_PUSH}
        ),
        PushState.LAST_PUSH: frozenset({PushState.ENDED}),
        PushState.ENDED: frozenset(),
    }
)
"""Allowed next states of each state. Any other transition is a bug."""


class TelemetrySubscription(NamedTuple):
    """Telemetry subscription of a client: the metrics that the cluster requests, their interval and
    their encoding."""

    subscription_id: int
    interval_ms: int
    is_delta: bool
    """True if sums are reported as differences from the previous push."""
    prefixes: list[str]
    codecs: tuple[Codec, ...]
    """Compression types that the broker accepts, in its order of preference. Empty if the broker
    accepts none."""
    bytes_max: int
    """Maximum size of a payload that the broker accepts, in bytes."""


class GetSubscription(NamedTuple):
    """A GetTelemetrySubscriptions request to send."""

    client_instance_id: UUID


class PushMetrics(NamedTuple):
    """A PushTelemetry request to send."""

    client_instance_id: UUID
    subscription: TelemetrySubscription
    codec: Codec
    is_last: bool


Request: TypeAlias = GetSubscription | PushMetrics

ASK_AT_ONCE = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Error codes of a push after which the client requests a new subscription at once."""
ASK_AFTER_INTERVAL = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
"""Error codes of a request that was sent too early, or of a push that was too large. The client
sends the next request after an interval."""


class PushSession:
    """Metrics reports of one client, from its first connection to its end."""

    def __init__(self, now_ms: int) -> None:
        self.state = PushState.SUBSCRIPTION_NEEDED
        self.client_instance_id = ZERO_UUID
        """Client instance id that the first broker assigned, or zero before that."""
        self.subscription: TelemetrySubscription | None = None
        self.next_at_ms: int = now_ms
        """Time of the next request, in ms, while no request is in flight."""
        self._codecs_refused: set[Codec] = set()

    @property
    def is_named(self) -> bool:
        """True if a broker has assigned a client instance id to the client."""
        return self.client_instance_id != ZERO_UUID

    # Requests.

    def due(self, now_ms: int) -> Request | None:
        """Return the request to send now, or None if no request is due."""
        if now_ms < self.next_at_ms:
            return None
        if self.state is PushState.SUBSCRIPTION_NEEDED:
            self._enter(PushState.ASKING)
            return GetSubscription(self.client_instance_id)
        if self.state is PushState.PUSH_NEEDED:
            self._enter(PushState.PUSHING)
            return self._push(is_last=False)
        return None

    def close(self) -> PushMetrics | None:
        """Return the terminating push, or None if the cluster has not subscribed to metrics of this
        client."""
        if self.state in (PushState.PUSH_NEEDED, PushState.PUSHING):
            self._enter(PushState.LAST_PUSH)
            return self._push(is_last=True)
        if self.state in (PushState.SUBSCRIPTION_NEEDED, PushState.ASKING):
            self._enter(PushState.ENDED)
        return None

    def ask_now(self, now_ms: int) -> None:
        """Request the subscription without delay. Does nothing while a request is in flight."""
        if self.state is PushState.SUBSCRIPTION_NEEDED:
            self.next_at_ms = min(self.next_at_ms, now_ms)

    def _push(self, *, is_last: bool) -> PushMetrics:
        assert self.subscription is not None
        usable = [one for one in self.subscription.codecs if one not in self._codecs_refused]
        return PushMetrics(
            self.client_instance_id,
            self.subscription,
            usable[0] if usable else Codec.NONE,
            is_last,
        )

    # Responses.

    def on_subscription(
        self, client_instance_id: UUID, subscription: TelemetrySubscription, now_ms: int
    ) -> bool:
        """Process a response with a subscription. Returns True if its temporality (deltas or
        totals) differs from the previous subscription."""
        if self.state is not PushState.ASKING:
            return False  # the client is closing
        if client_instance_id == ZERO_UUID:
            # Kafka's client also treats this as the error of a faulty broker.
            self._wait(REFUSED_INTERVAL_MS, now_ms)
            return False
        self.client_instance_id = client_instance_id
        if subscription.interval_ms <= 0:
            subscription = subscription._replace(interval_ms=UNSUBSCRIBED_INTERVAL_MS)
        before, self.subscription = self.subscription, subscription
        if subscription.prefixes:
            self._enter(PushState.PUSH_NEEDED)
            self.next_at_ms = now_ms + self._jittered(subscription.interval_ms)
        else:
            self._wait(subscription.interval_ms, now_ms)
        return before is not None and before.is_delta != subscription.is_delta

    def on_push_answer(self, code: int, codec: Codec, throttle_ms: int, now_ms: int) -> bool:
        """Process the response to a push.  Returns True if the sums in the push count as
        reported."""
        if self.state is PushState.LAST_PUSH:
            self._enter(PushState.ENDED)
            return code == ErrorCode.NONE
        if self.state is not PushState.PUSHING:
            return code == ErrorCode.NONE
        if code == ErrorCode.NONE:
            self._enter(PushState.PUSH_NEEDED)
            self.next_at_ms = now_ms + max(self._interval_ms, throttle_ms)
            return True
        if code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
            self._codecs_refused.add(codec)
        if code in ASK_AT_ONCE:
            self._wait(0, now_ms)
        else:
            self.on_refusal(code, throttle_ms, now_ms)
        return False

    def on_refusal(self, code: int, throttle_ms: int, now_ms: int) -> None:
        """Process an error response after which the request must not be repeated at once."""
        if code in ASK_AFTER_INTERVAL:
            wait_ms = max(self._interval_ms, throttle_ms)
        elif code == ErrorCode.INVALID_RECORD:
            wait_ms = UNSUBSCRIBED_INTERVAL_MS
        else:
            wait_ms = REFUSED_INTERVAL_MS
        self._wait(wait_ms, now_ms)

    def on_lost(self, now_ms: int) -> None:
        """Process the loss of the response to a request. The next request, to another broker,
        follows after a delay.

        All clients of a failed broker notice the loss at the same time. The delay therefore has the
        same jitter as the delay of a first push.
        """
        self._wait(self._jittered(self._interval_ms), now_ms)

    def on_unsupported(self, now_ms: int) -> None:
        """Process a response which shows that the broker does not support telemetry requests
        (KIP-714). The client tries again after five minutes."""
        self._wait(UNSUBSCRIBED_INTERVAL_MS, now_ms)

    @property
    def _interval_ms(self) -> int:
        known = self.subscription
        return UNSUBSCRIBED_INTERVAL_MS if known is None else known.interval_ms

    def _jittered(self, interval_ms: int) -> int:
        """Return an interval in ms, multiplied by 0.5 to 1.5 depending on the client instance
        id."""
        if not self.is_named:
            return interval_ms
        drawn = self.client_instance_id.int & ((1 << JITTER_BITS) - 1)
        return (interval_ms >> 1) + (interval_ms * drawn >> JITTER_BITS)

    def _wait(self, wait_ms: int, now_ms: int) -> None:
        """Request the subscription after a delay of `wait_ms`. If the client is closing, end the
        session instead."""
        if self.state is PushState.LAST_PUSH:
            self._enter(PushState.ENDED)
        elif self.state in (PushState.ASKING, PushState.PUSHING):
            self._enter(PushState.SUBSCRIPTION_NEEDED)
            self.next_at_ms = now_ms + wait_ms

    def _enter(self, state: PushState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} to {state}"
        self.state = state
