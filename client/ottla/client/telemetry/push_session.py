"""A client's dialogue with brokers about its metrics: when to ask, when to push (KIP-714).

Pure.  `due` returns what to send now; each request is followed by exactly one of
`on_subscription`, `on_push_answer`, `on_refusal` and `on_lost`.  Times are milliseconds of one
clock.  States are those of Java's ClientTelemetryReporter.  Invariants:

OneRequestAtATime   `due` returns nothing while a request is under way
OnePushAnInterval   two pushes, the last one apart, are an interval apart, the first after a new
                    subscription half an interval or more from it
LastIsLast          nothing is sent after the terminating push
NoStorm             a client asks at once only after an answer that told it to, once for each
                    subscription

Java's client 4.4 never asks again where a broker refuses it with a code that repeating does not
cure, and five minutes after a lost connection.  KIP-714 wants clients to ask again later, so that
a cluster's mistake needs no restart of its clients: so does this one.  The chance that spreads the
clients of a cluster out (half an interval to one and a half) is the instance id, which the broker
drew: a run of a seed stays the same.
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
"""The wait before a client asks again where no interval is known; Kafka's."""

REFUSED_INTERVAL_MS = 1_800_000
"""The wait after a refusal that repeating does not cure; KIP-714's half an hour."""

JITTER_BITS = 32
"""The bits of an instance id that are its chance: the last ones, which are random in a UUID v4."""

CODECS = {int(codec): codec for codec in Codec}


class PushState(Enum):
    """The state of a client's dialogue."""

    SUBSCRIPTION_NEEDED = auto()
    """Nothing is to be pushed; the next request asks for the subscription."""
    ASKING = auto()
    PUSH_NEEDED = auto()
    PUSHING = auto()
    LAST_PUSH = auto()
    """The terminating push is under way."""
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
"""The states that may follow each state; any other step is a bug of ours."""


class TelemetrySubscription(NamedTuple):
    """The metrics that the cluster wants of this client, and how."""

    subscription_id: int
    interval_ms: int
    is_delta: bool
    """True if sums are reported as differences to the last push."""
    prefixes: list[str]
    codecs: tuple[Codec, ...]
    """Accepted compressions, the broker's favourite first; empty for none."""
    bytes_max: int
    """The largest payload that the broker accepts."""


class AskSubscription(NamedTuple):
    """A GetTelemetrySubscriptions request to send."""

    client_instance_id: UUID


class PushMetrics(NamedTuple):
    """A PushTelemetry request to send."""

    client_instance_id: UUID
    subscription: TelemetrySubscription
    codec: Codec
    is_last: bool


Request: TypeAlias = AskSubscription | PushMetrics

ASK_AT_ONCE = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
"""Refusals of a push that a new subscription cures."""
ASK_AFTER_INTERVAL = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})
"""Refusals of a request that came too early, or of a push that was too large."""


class PushSession:
    """The dialogue of one client, from its first connection to its end."""

    def __init__(self, now_ms: int) -> None:
        self.state = PushState.SUBSCRIPTION_NEEDED
        self.client_instance_id = ZERO_UUID
        """The name that the first broker gave; zero before."""
        self.subscription: TelemetrySubscription | None = None
        self.next_at_ms: int = now_ms
        """The instant of the next request, while none is under way."""
        self._codecs_refused: set[Codec] = set()

    @property
    def is_named(self) -> bool:
        """True if the client has its instance id."""
        return self.client_instance_id != ZERO_UUID

    # Requests.

    def due(self, now_ms: int) -> Request | None:
        """Return the request to send now, None if none is due."""
        if now_ms < self.next_at_ms:
            return None
        if self.state is PushState.SUBSCRIPTION_NEEDED:
            self._go(PushState.ASKING)
            return AskSubscription(self.client_instance_id)
        if self.state is PushState.PUSH_NEEDED:
            self._go(PushState.PUSHING)
            return self._push(is_last=False)
        return None

    def close(self) -> PushMetrics | None:
        """Return the terminating push, None where the cluster wants nothing of this client."""
        if self.state in (PushState.PUSH_NEEDED, PushState.PUSHING):
            self._go(PushState.LAST_PUSH)
            return self._push(is_last=True)
        if self.state in (PushState.SUBSCRIPTION_NEEDED, PushState.ASKING):
            self._go(PushState.ENDED)
        return None

    def ask_now(self, now_ms: int) -> None:
        """AskSubscription for the subscription without waiting, if no request is under way."""
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

    # Answers.

    def on_subscription(
        self, client_instance_id: UUID, subscription: TelemetrySubscription, now_ms: int
    ) -> bool:
        """Take a subscription; return whether temporality is another one than before."""
        if self.state is not PushState.ASKING:
            return False  # the client closes
        if client_instance_id == ZERO_UUID:
            # Kafka's client takes this for a broken broker, too.
            self._wait(REFUSED_INTERVAL_MS, now_ms)
            return False
        self.client_instance_id = client_instance_id
        if subscription.interval_ms <= 0:
            subscription = subscription._replace(interval_ms=UNSUBSCRIBED_INTERVAL_MS)
        before, self.subscription = self.subscription, subscription
        if subscription.prefixes:
            self._go(PushState.PUSH_NEEDED)
            self.next_at_ms = now_ms + self._jittered(subscription.interval_ms)
        else:
            self._wait(subscription.interval_ms, now_ms)
        return before is not None and before.is_delta != subscription.is_delta

    def on_push_answer(self, code: int, codec: Codec, throttle_ms: int, now_ms: int) -> bool:
        """Take the answer to a push; return whether its sums count as reported."""
        if self.state is PushState.LAST_PUSH:
            self._go(PushState.ENDED)
            return code == ErrorCode.NONE
        if self.state is not PushState.PUSHING:
            return code == ErrorCode.NONE
        if code == ErrorCode.NONE:
            self._go(PushState.PUSH_NEEDED)
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
        """Take a refusal, which no request of the same kind would cure now."""
        if code in ASK_AFTER_INTERVAL:
            wait_ms = max(self._interval_ms, throttle_ms)
        elif code == ErrorCode.INVALID_RECORD:
            wait_ms = UNSUBSCRIBED_INTERVAL_MS
        else:
            wait_ms = REFUSED_INTERVAL_MS
        self._wait(wait_ms, now_ms)

    def on_lost(self, now_ms: int) -> None:
        """Take note that no answer will come: another broker is asked later.

        All clients of a broker that is gone notice at once: the wait has the same jitter as a
        first push.
        """
        self._wait(self._jittered(self._interval_ms), now_ms)

    def on_unsupported(self, now_ms: int) -> None:
        """Take note that the broker knows no such requests; look again after some minutes."""
        self._wait(UNSUBSCRIBED_INTERVAL_MS, now_ms)

    @property
    def _interval_ms(self) -> int:
        known = self.subscription
        return UNSUBSCRIBED_INTERVAL_MS if known is None else known.interval_ms

    def _jittered(self, interval_ms: int) -> int:
        """Return half an interval to one and a half, by the instance id."""
        if not self.is_named:
            return interval_ms
        drawn = self.client_instance_id.int & ((1 << JITTER_BITS) - 1)
        return (interval_ms >> 1) + (interval_ms * drawn >> JITTER_BITS)

    def _wait(self, wait_ms: int, now_ms: int) -> None:
        """AskSubscription for the subscription after a wait; a closing client has ended instead."""
        if self.state is PushState.LAST_PUSH:
            self._go(PushState.ENDED)
        elif self.state in (PushState.ASKING, PushState.PUSHING):
            self._go(PushState.SUBSCRIPTION_NEEDED)
            self.next_at_ms = now_ms + wait_ms

    def _go(self, state: PushState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.state} to {state}"
        self.state = state
