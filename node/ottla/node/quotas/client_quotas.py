"""Usage of one quota by each client, and the resulting throttle times.

Pure; the caller passes the time. Past usage still counts after limits change. If a client uses O
per second over a time W, and its limit is T per second, it is throttled for X = (O - T) / T * W. X
is the client's overdraft divided by T.

The overdraft is stored in a token bucket, and not in the windows of Kafka's rate. In Kafka's rate,
the first burst is dropped all at once with its window, and is allowed again every eleven windows.
Over a minute, a client then gets between half of its limit and a third more than its limit. The
quota of request time uses Kafka's rate, since its throttle is never longer than a window.

Clients choose their names, so the stored usage must be bounded. Long names are replaced by a
digest. If too many clients are stored, the client that was idle longest is dropped.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from ottla.model.quotas.quota_limits import Limits, Match
from ottla.model.quotas.rates import IDLE_MS_MAX, SampledRate, WindowShape, whole_ms
from ottla.model.quotas.token_bucket import TokenBucket

USAGES_MAX = 20_000
"""Maximum number of clients whose usage of a quota is stored. A larger number takes more memory,
some 1 KiB for each client. With a smaller one, the usage of busy clients is dropped."""

REPORT_MS = 60_000
"""Milliseconds between reports about a client that a quota continues to throttle."""

NAME_CHARS_MAX = 128
"""Maximum number of characters of a user or client id that is stored unchanged. Longer names, up to
32 KiB in the protocol, are stored as a digest."""


class ClientUsage:
    """Usage of one quota by one client, and the client's remaining credit."""

    __slots__ = ("bucket", "last_ms", "late", "rate", "report_from_ms", "throttled_until_ms")

    def __init__(self, rate: SampledRate, bucket: TokenBucket, now_ms: int) -> None:
        self.rate = rate
        self.bucket = bucket
        self.last_ms = now_ms
        self.late = 0.0
        """Usage of the quota that was measured after the response was built. The response could not
        report the throttle time for this usage, so it is charged with the next usage."""
        self.throttled_until_ms = now_ms
        self.report_from_ms = now_ms
        """Monotonic time in milliseconds from which the client's throttling may be reported
        again."""


class Throttle(NamedTuple):
    """Client that a quota throttles, with the user and client id under which its usage is
    counted."""

    user: str
    client_id: str
    limit: float
    delay_ms: int


Found = tuple[Match, ClientUsage]
"""Limit of a client under a quota, and the client's usage."""


class Offer(NamedTuple):
    """Decision of a quota whether a client gets the requested records now, and the client's
    throttle time."""

    is_given: bool
    """True if the client gets the requested records now. If False, the client was charged
    nothing."""
    delay_ms: int
    """Milliseconds for which the client is throttled by the quota."""


FREE = Offer(True, 0)
"""Decision for a client that has no limit under a quota, or has not exceeded its limit."""


class ClientQuotas:
    """One kind of quota for this broker's clients: their limits, and the usage of each client."""

    def __init__(
        self,
        shape: WindowShape,
        *,
        throttle_ms_max: int | None = None,
        report: Callable[[Throttle], None] = lambda throttle: None,
    ) -> None:
        """Create a quota. `report` is called with throttled clients, for each client at most once
        in `REPORT_MS`. `throttle_ms_max` is the maximum throttle time in milliseconds; None means
        no maximum."""
        self.shape = shape
        self._report = report
        self._throttle_ms_max = throttle_ms_max
        self._limits = Limits()
        self._may_change = False
        """True if an operator's quota callback decides the limits, so that they may change at any
        time."""
        self.is_active = False
        """True if any client has a limit under this quota. Otherwise nothing is measured."""
        self._usages: dict[tuple[str, str], ClientUsage] = {}
        """Usage of the quota by the names (user, client id) under which usage is counted, the most
        recently used last."""
        self._found: dict[tuple[str, str], Found | None] = {}
        """Cached limit and usage of clients by user and client id, looked up since the limits last
        changed."""

    @property
    def usages(self) -> dict[tuple[str, str], ClientUsage]:
        """Usage of the quota by each limited client, by user and client id."""
        return self._usages

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits of clients under this quota. Past usage still counts."""
        self._limits = limits
        self._may_change = limits.may_change
        self.is_active = bool(limits)
        self._found.clear()
        if not limits:
            self._usages.clear()

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count a client's usage of the quota. Returns the client's throttle time in
        milliseconds."""
        found = self.find(user, client_id, now_ms)
        return 0 if found is None else self.record_for(found, value, now_ms)

    def record_for(self, found: Found, value: float, now_ms: int) -> int:
        """Count the usage of a client whose limit and usage `find` has returned. Returns the
        client's throttle time in milliseconds."""
        match, usage = found
        if usage.late:
            value += usage.late
            usage.late = 0.0
        rate = usage.rate
        rate.record(value, now_ms)
        usage.last_ms = now_ms
        if self._throttle_ms_max is None:
            delay_ms = usage.bucket.spend(value, now_ms)
        else:
            delay_ms = rate.throttle_ms(match.limit, now_ms)
            if delay_ms > self._throttle_ms_max:
                delay_ms = self._throttle_ms_max
        if delay_ms:
            self._throttle(match, usage, delay_ms, now_ms)
        return delay_ms

    def offer(self, user: str, client_id: str, value: float, now_ms: int) -> Offer:
        """Charge a client for the records of a fetch if its credit is sufficient. Otherwise charge
        nothing. Returns the decision, with the milliseconds for which the client is throttled.

        Records that exceed the maximum credit are returned when the token bucket is full, because
        their client would otherwise never receive them.
        """
        found = self.find(user, client_id, now_ms)
        if found is None:
            return FREE
        return self.offer_to(found, value, now_ms)

    def offer_to(self, found: Found, value: float, now_ms: int) -> Offer:
        """Decide about records like `offer`, for a client whose limit and usage `find` has
        returned. Returns the decision."""
        match, usage = found
        bucket = usage.bucket
        usage.last_ms = now_ms
        if now_ms > bucket.filled_ms:
            bucket.fill(now_ms)
        late = usage.late
        tokens = bucket.tokens - late
        if value > tokens - 1:
            missing_ms = whole_ms((min(value, bucket.burst) - tokens) / match.limit * 1_000)
            if missing_ms > 0:
                self._throttle(match, usage, missing_ms, now_ms)
                return Offer(False, missing_ms)
        value += late
        usage.late = 0.0
        usage.rate.record(value, now_ms)
        if 0 <= value <= bucket.tokens:
            bucket.tokens -= value
            return FREE
        delay_ms = bucket.spend(value, now_ms)
        if not delay_ms:
            return FREE
        self._throttle(match, usage, delay_ms, now_ms)
        return Offer(True, delay_ms)

    def most_at_once(self, found: Found, value: int, now_ms: int) -> int:
        """Return the maximum usage of the quota that a client is allowed in one step, at most
        `value` and at least 1.

        The maximum is the credit of the client, but no more than limit x (windows - 1) x window
        length. It is at least the amount of one window, for which the client may have to wait.
        `found` is a result of `find`.
        """
        match, usage = found
        bucket = usage.bucket
        if bucket.tokens - usage.late >= value > 0:  # filling the bucket would only add to it
            return value
        bucket.fill(now_ms)
        most = max(bucket.tokens - usage.late, match.limit * self.shape.window_ms / 1_000)
        return max(1, int(min(value, most)))

    def forget_idle(self, now_ms: int) -> None:
        """Delete the usage of clients that have not used the quota for an hour."""
        idle = [
            names for names, usage in self._usages.items() if now_ms - usage.last_ms >= IDLE_MS_MAX
        ]
        for names in idle:
            del self._usages[names]
        if idle:
            self._found.clear()

    def _throttle(self, match: Match, usage: ClientUsage, delay_ms: int, now_ms: int) -> None:
        usage.throttled_until_ms = now_ms + delay_ms
        if now_ms >= usage.report_from_ms:
            usage.report_from_ms = now_ms + REPORT_MS
            user, client_id = match.counted_as
            self._report(Throttle(short_name(user), short_name(client_id), match.limit, delay_ms))

    def find(self, user: str, client_id: str, now_ms: int) -> Found | None:
        """Return the limit and the usage of a client under this quota, or None if the client has no
        limit."""
        if not self.is_active:
            return None
        if self._may_change and self._limits.have_changed:
            self._found.clear()
        names = user, client_id
        try:
            return self._found[names]
        except KeyError:
            pass
        match = self._limits.find(user, client_id)
        found = None if match is None else (match, self._usage(match, now_ms))
        if max(len(user), len(client_id)) <= NAME_CHARS_MAX:
            if len(self._found) >= USAGES_MAX:
                self._found.clear()
            self._found[names] = found
        return found

    def _usage(self, match: Match, now_ms: int) -> ClientUsage:
        user, client_id = match.counted_as
        names = short_name(user), short_name(client_id)
        usage = self._usages.pop(names, None)
        if usage is None:
            while len(self._usages) >= USAGES_MAX:
                del self._usages[next(iter(self._usages))]
                self._found.clear()
            bucket = TokenBucket(match.limit, self.shape.credit_ms, now_ms)
            usage = ClientUsage(SampledRate(self.shape), bucket, now_ms)
        elif usage.bucket.per_second != match.limit:
            self._rebase(usage, match.limit, now_ms)
        self._usages[names] = usage
        return usage

    def _rebase(self, usage: ClientUsage, limit: float, now_ms: int) -> None:
        """Apply a changed limit to a client's usage. The new credit is the amount that the new
        limit allows over the measured time, minus the usage in that time, as in Kafka."""
        rate = usage.rate
        measured_ms = rate.measured_ms(now_ms)
        credit = (limit - rate.per_second(now_ms)) * measured_ms / 1_000
        bucket = TokenBucket(limit, self.shape.credit_ms, now_ms)
        bucket.tokens = min(bucket.burst, credit)
        usage.bucket = bucket


def short_name(name: str) -> str:
    """Return the name under which a user or client is stored: the unchanged name, or one with a
    digest if the name is longer than `NAME_CHARS_MAX`."""
    if len(name) <= NAME_CHARS_MAX:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[: NAME_CHARS_MAX - 40]}…{digest}"
