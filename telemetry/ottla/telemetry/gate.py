"""When one client may ask and push again: KIP-714's gate.  Pure.

```
Get       an interval after the last Get or push that was taken up
push      at once after a Get, else an interval after the last push that was taken up
excused   a Get after a push that was refused as UNKNOWN_SUBSCRIPTION_ID or with
          UNSUPPORTED_COMPRESSION_TYPE is taken up at any time, once
```
Invariant OnePushAnInterval: between two pushes that are accepted lies an interval, as long as the
interval does not change.  A request that comes too early changes nothing, so it may come again
when it was told.

Kafka does not let a push follow an excused Get before the interval is over; but a client draws its
first push after a Get from half an interval on, so every second one would be refused there, and
that client would be silent for two intervals more.  Here half an interval is enough.
"""

ALWAYS = -1
"""Before every instant of a monotonic clock."""


class PushGate:
    """The gate of one client; times are milliseconds of one monotonic clock."""

    __slots__ = ("_get_from_ms", "_interval_ms", "_push_from_ms")

    def __init__(self, interval_ms: int) -> None:
        self._interval_ms = interval_ms
        # A client may have been with another broker until now: what it has comes at once.
        self._get_from_ms = ALWAYS
        self._push_from_ms = ALWAYS

    def try_get(self, now_ms: int, *, is_excused: bool = False) -> int:
        """Take a Get up and return 0, or return for how many milliseconds it comes too early."""
        early_ms = self._get_from_ms - now_ms
        if early_ms <= 0:
            self._get_from_ms = now_ms + self._interval_ms
            self._push_from_ms = now_ms
        elif is_excused:
            # The refused push is what both gates count from.
            half_ms = self._interval_ms // 2
            self._push_from_ms = min(self._push_from_ms, self._get_from_ms - half_ms)
        else:
            return early_ms
        return 0

    def try_push(self, now_ms: int) -> int:
        """Take a push up and return 0, or return for how many milliseconds it comes too early."""
        early_ms = self._push_from_ms - now_ms
        if early_ms > 0:
            return early_ms
        self._get_from_ms = self._push_from_ms = now_ms + self._interval_ms
        return 0
