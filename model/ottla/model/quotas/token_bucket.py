"""A token bucket: credit that accumulates evenly and is spent in bursts (KIP-599, for controller
mutations).

Pure; the time is an argument. A burst puts the bucket into debt by at most its own size. The debt
is paid off at the rate of the quota; in a sampled rate, in contrast, the burst would count until
its window ends.
"""

from ottla.model.quotas.rates import whole_ms


class TokenBucket:
    """Remaining tokens of a quota of `per_second`. The bucket contains at most the tokens of
    `burst_ms`."""

    __slots__ = ("_at_ms", "_burst_s", "per_second", "tokens")

    def __init__(self, per_second: float, burst_ms: int, now_ms: int) -> None:
        self._burst_s = burst_ms / 1_000
        self.per_second = per_second
        self.tokens = self.burst
        self._at_ms = now_ms

    @property
    def burst(self) -> float:
        """Maximum number of tokens in the bucket."""
        return self._burst_s * self.per_second

    @property
    def is_exhausted(self) -> bool:
        """True if the debt is at least half of the tokens of a millisecond.

        Because of this tolerance, a client that waited for `throttle_ms` is never refused because
        of a rounding error.
        """
        return self.throttle_ms > 0

    @property
    def is_full(self) -> bool:
        """True if the bucket is full, and so equal to a new one."""
        return self.tokens >= self.burst

    def spend(self, value: float, now_ms: int) -> int:
        """Add the tokens up to `now_ms`, then remove `value` tokens, or return them to the bucket
        if `value` is negative.

        Returns the time in ms until the debt is paid off.
        """
        rate = self.per_second
        tokens = self.tokens
        elapsed_ms = now_ms - self._at_ms
        if elapsed_ms > 0:
            self._at_ms = now_ms
            tokens += rate * elapsed_ms / 1_000
        burst = self._burst_s * rate
        tokens = (burst if tokens > burst else tokens) - value
        self.tokens = tokens = burst if tokens > burst else tokens
        return whole_ms(-tokens / rate * 1_000) if tokens < 0 else 0

    def tokens_at(self, now_ms: int) -> float:
        """Return the number of tokens at a time, without changing the bucket."""
        elapsed_ms = max(0, now_ms - self._at_ms)
        return min(self.burst, self.tokens + self.per_second * elapsed_ms / 1_000)

    def fill(self, now_ms: int) -> None:
        """Add the tokens that have accumulated since the last call."""
        elapsed_ms = now_ms - self._at_ms
        if elapsed_ms > 0:
            self._at_ms = now_ms
            self.tokens = min(
                self._burst_s * self.per_second,
                self.tokens + self.per_second * elapsed_ms / 1_000,
            )

    @property
    def throttle_ms(self) -> int:
        """Time in ms until the bucket's debt is paid off."""
        return whole_ms(-self.tokens / self.per_second * 1_000) if self.tokens < 0 else 0
