"""What each client used of one quota, and how long it is throttled for it.

Pure; the time goes in.  What was used outlives a change of limits: only the bound is replaced.
A client that used O per second over the time W where T is allowed waits X = (O - T) / T * W, which
is what it overdrew divided by T.  What it overdrew is kept in a token bucket, not in the windows of
Kafka's rate: there the first burst is forgotten all at once when its window goes, and passes again
every eleven windows, so that a client gets between half of its limit and a third more over a
minute.  The quota of request time has Kafka's rate, for its throttle is never longer than a window.

Names are the clients' own, so what is kept of them is bounded: long ones by a digest, many by
forgetting those that were idle longest.  Features QU14, QU16, QU24, QU25.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import NamedTuple

from ottla.model.quota_limits import Limits, Match
from ottla.model.rates import SampledRate, WindowShape, whole_ms
from ottla.model.token_bucket import TokenBucket

IDLE_MS_MAX = 3_600_000
"""What was not used for this long is forgotten, as in Kafka."""

USAGES_MAX = 20_000
"""Clients whose usage is kept.  More costs memory, some 1 KiB each; fewer forgets busy ones."""

REPORT_MS = 60_000
"""How often it is reported that a client is throttled, while it is."""

NAME_CHARS_MAX = 128
"""Longer names are kept as a digest: the protocol allows 32 KiB."""


class ClientUsage:
    """What one client used, and its credit."""

    __slots__ = ("bucket", "last_ms", "late", "rate", "report_from_ms", "throttled_until_ms")

    def __init__(self, rate: SampledRate, bucket: TokenBucket, now_ms: int) -> None:
        self.rate = rate
        self.bucket = bucket
        self.last_ms = now_ms
        self.late = 0.0
        """Use after the answer that could have reported a throttle; charged with the next use."""
        self.throttled_until_ms = now_ms
        self.report_from_ms = now_ms
        """When a throttle is to be reported again."""


class Throttle(NamedTuple):
    """A client that is throttled, by the names that its usage is counted under."""

    user: str
    client_id: str
    limit: float
    delay_ms: int


Found = tuple[Match, ClientUsage]
"""The limit of a client, and what it used."""


class Offer(NamedTuple):
    """What becomes of records for a client."""

    is_given: bool
    """Whether the client gets them now; else it was charged nothing."""
    delay_ms: int
    """For how long the client is throttled."""


FREE = Offer(True, 0)
"""To a client without a limit, or within it."""

UNDECIDED = Offer(False, 0)
"""Of records that the credit may not cover, or that were read up to a bound of it."""


class ClientQuotas:
    """One quota of this broker's clients: their limits and what each of them used."""

    def __init__(
        self,
        shape: WindowShape,
        *,
        throttle_ms_max: int | None = None,
        report: Callable[[Throttle], None] = lambda throttle: None,
    ) -> None:
        """`report` is told of clients that are throttled, each at most once in `REPORT_MS`."""
        self.shape = shape
        self._report = report
        self._throttle_ms_max = throttle_ms_max
        self._limits = Limits()
        self._may_change = False
        """Whether limits are decided by code of the operator's own."""
        self.is_active = False
        """Whether anything is limited: else nothing is measured."""
        self._usages: dict[tuple[str, str], ClientUsage] = {}
        """By the names that usage is counted under, those used last behind."""
        self._found: dict[tuple[str, str], Found | None] = {}
        """What was found for a user and client id since the limits changed."""

    @property
    def usages(self) -> dict[tuple[str, str], ClientUsage]:
        """What is known of each client that is limited."""
        return self._usages

    def set_limits(self, limits: Limits) -> None:
        """Put other limits in force; what was used stays counted."""
        self._limits = limits
        self._may_change = limits.may_change
        self.is_active = bool(limits)
        self._found.clear()
        if not limits:
            self._usages.clear()

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Count what a client used; return for how many ms it is to be throttled."""
        found = self.find(user, client_id, now_ms)
        return 0 if found is None else self.record_for(found, value, now_ms)

    def record_for(self, found: Found, value: float, now_ms: int) -> int:
        """Count what a client used, by what `find` returned for it; return its throttle in ms."""
        match, usage = found
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

    def offer(
        self, user: str, client_id: str, value: float, now_ms: int, *, is_certain: bool = False
    ) -> Offer:
        """Charge a client for records if it has the credit; else return when it will have it.

        More than can ever be saved up is given to a full bucket, or it would never be given.
        Where it `is_certain` that the credit covers the records, or nothing is decided and noted:
        they must be less than the credit, so that no bound of what is given has cut them off.
        """
        found = self.find(user, client_id, now_ms)
        if found is None:
            return FREE
        return self.offer_to(found, value, now_ms, is_certain=is_certain)

    def offer_to(
        self, found: Found, value: float, now_ms: int, *, is_certain: bool = False
    ) -> Offer:
        """Return as `offer`, by what `find` returned for the client."""
        match, usage = found
        bucket = usage.bucket
        usage.last_ms = now_ms
        bucket.fill(now_ms)
        tokens = bucket.tokens - usage.late
        if value > tokens - 1:
            if is_certain:
                return UNDECIDED
            missing_ms = whole_ms((min(value, bucket.burst) - tokens) / match.limit * 1_000)
            if missing_ms > 0:
                self._throttle(match, usage, missing_ms, now_ms)
                return Offer(False, missing_ms)
        value += usage.late
        usage.late = 0.0
        usage.rate.record(value, now_ms)
        delay_ms = bucket.spend(value, now_ms)
        if not delay_ms:
            return FREE
        self._throttle(match, usage, delay_ms, now_ms)
        return Offer(True, delay_ms)

    def most_at_once(self, user: str, client_id: str, now_ms: int) -> float | None:
        """Return the most that a client is given at once; None: no limit.

        Its credit, which is limit x (windows - 1) x length of a window at most (features QU16); and
        the share of a window at least, for which it may have to wait.
        """
        found = self.find(user, client_id, now_ms)
        if found is None:
            return None
        match, usage = found
        usage.bucket.fill(now_ms)
        tokens = usage.bucket.tokens - usage.late
        return max(tokens, match.limit * self.shape.window_ms / 1_000)

    def forget_idle(self, now_ms: int) -> None:
        """Forget what was not used for an hour."""
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
            self._report(Throttle(_short(user), _short(client_id), match.limit, delay_ms))

    def find(self, user: str, client_id: str, now_ms: int) -> Found | None:
        """Return the limit of a client and its usage; None if it has no limit."""
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
        names = _short(user), _short(client_id)
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
        """Put another limit in force: the credit is what the windows leave of it, as in Kafka."""
        rate = usage.rate
        measured_ms = rate.measured_ms(now_ms)
        credit = (limit - rate.per_second(now_ms)) * measured_ms / 1_000
        bucket = TokenBucket(limit, self.shape.credit_ms, now_ms)
        bucket.tokens = min(bucket.burst, credit)
        usage.bucket = bucket


def _short(name: str) -> str:
    if len(name) <= NAME_CHARS_MAX:
        return name
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    return f"{name[: NAME_CHARS_MAX - 40]}…{digest}"
