"""A token bucket: tokens accumulate at a constant rate, and operations spend them in bursts
(KIP-599, for controller mutations).

Pure: the current time is an argument. The number of tokens may become negative, by at most the size
of the bucket. This debt is paid off at the rate of the quota. In a sampled rate, by contrast, a
burst would count until its window ends.
"""

from ottla.model.quotas.rates import whole_ms


class TokenBucket:
    """Token bucket of a quota of `per_second` tokens. It contains at most the tokens that
    accumulate in `burst_ms`."""

    __slots__ = ("_burst_s", "filled_ms", "per_second", "tokens")

    def __init__(self, per_second: float, burst_ms: int, now_ms: int) -> None:
        self._burst_s = burst_ms / 1_000
        self.per_second = per_second
        self.tokens = self.burst
        self.filled_ms = now_ms
        """Time in ms up to which the accumulated tokens are in the bucket."""

    @property
    def burst(self) -> float:
        """Maximum number of tokens in the bucket."""
        return self._burst_s * self.per_second

    @property
    def is_exhausted(self) -> bool:
        """True if the number of tokens is below zero by more than a tolerance: the tokens that
        accumulate in half a millisecond.

        Because of this tolerance, rounding errors cannot cause the refusal of a client that has
        waited for `throttle_ms`.
        """
        return self.throttle_ms > 0

    @property
    def is_full(self) -> bool:
        """True if the bucket contains its maximum number of tokens, like a new bucket."""
        return self.tokens >= self.burst

    def spend(self, value: float, now_ms: int) -> int:
        """Add the tokens that have accumulated up to `now_ms`, then remove `value` tokens. A
        negative `value` returns tokens.

        Returns the time in ms until the number of tokens is no longer negative.
        """
        if now_ms > self.filled_ms:  # In most calls it is not: many requests come in one ms.
            self.fill(now_ms)
        self.tokens = tokens = self.tokens - value
        if tokens < 0:
            return whole_ms(-tokens / self.per_second * 1_000)
        if value < 0:
            self.tokens = min(self.burst, tokens)
        return 0

    def tokens_at(self, now_ms: int) -> float:
        """Return the number of tokens at the time `now_ms`, without changing the bucket."""
        elapsed_ms = max(0, now_ms - self.filled_ms)
        return min(self.burst, self.tokens + self.per_second * elapsed_ms / 1_000)

    def fill(self, now_ms: int) -> None:
        """Add the tokens that have accumulated between the last call and `now_ms`."""
        elapsed_ms = now_ms - self.filled_ms
        if elapsed_ms > 0:
            self.filled_ms = now_ms
            self.tokens = min(
                self._burst_s * self.per_second,
                self.tokens + self.per_second * elapsed_ms / 1_000,
            )

    @property
    def throttle_ms(self) -> int:
        """Time in ms until the number of tokens is no longer negative."""
        return whole_ms(-self.tokens / self.per_second * 1_000) if self.tokens < 0 else 0
