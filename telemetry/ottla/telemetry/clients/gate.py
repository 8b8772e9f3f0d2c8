"""Earliest times of a client's next requests, as KIP-714 requires. Pure.

```
Get       (GetTelemetrySubscriptions) an interval after the last accepted Get or push push
(PushTelemetry) at once after a Get, else an interval after the last accepted push excused   a Get
after a push that was refused as UNKNOWN_SUBSCRIPTION_ID or with
          UNSUPPORTED_COMPRESSION_TYPE is accepted at any time, once
```

Invariant OnePushAnInterval: two accepted pushes are at least an interval apart, as long as the
interval does not change. A request that is too early changes nothing, so the client may repeat it
at the time that the response names.

Kafka rejects a push after an excused Get until the interval is over. However, clients send their
first push after a Get at a random time, at least half an interval later. Kafka therefore rejects
half of these pushes, and such a client then sends nothing for two more intervals. Ottla requires
only half an interval.
"""

ALWAYS = -1
"""Time that is earlier than all times of a monotonic clock. As the earliest time of a client's next
request, it accepts the request at any time."""


class PushGate:
    """Earliest times of one client's next GetTelemetrySubscriptions request and push, in ms of one
    monotonic clock."""

    __slots__ = ("_get_from_ms", "_interval_ms", "_push_from_ms")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        # The client may have used another broker until now, so its first requests are accepted at
        # once.
        self._get_from_ms = ALWAYS
        self._push_from_ms = ALWAYS

    def try_get(self, now_ms: int, *, is_excused: bool = False) -> int:
        """Accept a GetTelemetrySubscriptions request and return 0, or return the time in
        milliseconds by which it arrived too early. If `is_excused` is True, the request is accepted
        at any time."""
        early_ms = self._get_from_ms - now_ms
        if early_ms <= 0:
            self._get_from_ms = now_ms + self._interval_ms
            self._push_from_ms = now_ms
        elif is_excused:
            # Both times are counted from the refused push.
            half_ms = self._interval_ms // 2
            self._push_from_ms = min(self._push_from_ms, self._get_from_ms - half_ms)
        else:
            return early_ms
        return 0

    def try_push(self, now_ms: int) -> int:
        """Accept a client's push and return 0, or return the time in milliseconds by which the push
        arrived too early."""
        early_ms = self._push_from_ms - now_ms
        if early_ms > 0:
            return early_ms
        self._get_from_ms = self._push_from_ms = now_ms + self._interval_ms
        return 0
