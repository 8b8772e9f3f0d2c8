"""Credit that fills evenly and is spent in bursts (KIP-599 has it for controller mutations).

Pure; the time goes in.  A burst leaves the bucket in debt at most by itself, and the debt is paid
off at the rate of the quota, while in a sampled rate it would count until its window is gone.
Seed 003, "the token bucket"; features QU15.
"""

from ottla.model.rates import whole_ms


class TokenBucket:
    """Tokens left of a quota of `per_second`; at most those that `burst_ms` bring in."""

    __slots__ = ("_at_ms", "_burst_s", "per_second", "tokens")

    def __init__(self, per_second: float, burst_ms: int, now_ms: int) -> None:
        self._burst_s = burst_ms / 1_000
        self.per_second = per_second
        self.tokens = self.burst
        self._at_ms = now_ms

    @property
    def burst(self) -> float:
        """The most that can be saved up."""
        return self._burst_s * self.per_second

    @property
    def is_exhausted(self) -> bool:
        """Whether more was spent than there was, by half of what a millisecond adds at least.

        A client that waited for `throttle_ms` is never refused for a rounding error.
        """
        return self.throttle_ms > 0

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be saved up, so that the bucket is as good as a new one."""
        return self.tokens >= self.burst

    def spend(self, value: float, now_ms: int) -> int:
        """Fill the bucket up to now, then take tokens out, or give them back.

        Return the time until the debt is paid off.
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
        """Return what the bucket has at a time, and leave it as it is."""
        elapsed_ms = max(0, now_ms - self._at_ms)
        return min(self.burst, self.tokens + self.per_second * elapsed_ms / 1_000)

    def fill(self, now_ms: int) -> None:
        """Add what came in since the last time."""
        elapsed_ms = now_ms - self._at_ms
        if elapsed_ms > 0:
            self._at_ms = now_ms
            self.tokens = min(
                self._burst_s * self.per_second,
                self.tokens + self.per_second * elapsed_ms / 1_000,
            )

    @property
    def throttle_ms(self) -> int:
        """The time until the debt is paid off."""
        return whole_ms(-self.tokens / self.per_second * 1_000) if self.tokens < 0 else 0
