"""How much of a broker's bandwidth the replication of throttled replicas may take.

Pure but for the clock it is given.  A leader, a follower and a log that moves to another directory
each record the bytes of throttled replicas in a `ReplicationQuota`; while its rate is above its
limit, replicas that are throttled and not in sync get none.  A replica in sync is never held back:
it would leave the in-sync replicas, and its return would cost more (KIP-73, KIP-113).  The rate may
rise above the limit by what one answer holds, and is then waited out.
"""

from collections.abc import Callable

from ottla.model.limits import INT64_MAX, KIB
from ottla.model.rates import SimpleRate, WindowShape
from ottla.model.settings.broker import BrokerConfig

WAIT_MS_MAX = 500
"""The longest that something throttled waits before it looks again: a limit that is raised takes
effect by then.  Shorter looks more often at a rate that falls slowly."""

PIECES_PER_S = 100
PIECE_BYTES_MIN = 64 * KIB
"""Throttled replicas are given what their limit allows in small pieces: what their broker leads in
sync waits behind each.  Smaller pieces cost more requests, larger ones are felt by producers."""


class ReplicationQuota:
    """What replication of one kind may use a second, and what it used lately."""

    __slots__ = ("_now_ms", "_rate", "limit")

    def __init__(self, shape: WindowShape, limit: int, now_ms: Callable[[], int]) -> None:
        self._rate = SimpleRate(shape)
        self._now_ms = now_ms
        self.limit = limit
        """Bytes a second; `INT64_MAX` for any number."""

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self.limit < INT64_MAX

    @property
    def piece_bytes(self) -> int:
        """How many bytes of throttled replicas one answer may hold."""
        return max(self.limit // PIECES_PER_S, PIECE_BYTES_MIN)

    def set_limit(self, limit: int) -> None:
        """Change the limit; what was used so far stays counted."""
        self.limit = limit

    def record(self, byte_count: int) -> None:
        """Count bytes of throttled replicas; none need be counted where there is no limit."""
        self._rate.record(byte_count, self._now_ms())

    def per_second(self) -> float:
        """Return the bytes a second of the last windows."""
        return self._rate.per_second(self._now_ms())

    def is_exceeded(self) -> bool:
        """Return whether the rate is above the limit."""
        return self.limit < INT64_MAX and self.per_second() > self.limit

    def delay_ms(self) -> int:
        """Return how long to wait before looking again, 0 where the limit is not exceeded."""
        if not self.is_exceeded():
            return 0
        if not self.limit:
            return WAIT_MS_MAX
        return min(self._rate.excess_ms(self.limit, self._now_ms()) + 1, WAIT_MS_MAX)


class ReplicationQuotas:
    """The quotas of a broker's replication: as a leader, as a follower, between directories."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        quotas = config.quotas
        shape = WindowShape(quotas.replication_window_count, quotas.replication_window_s * 1_000)
        moves = WindowShape(quotas.log_dirs_window_count, quotas.log_dirs_window_s * 1_000)
        self.leader = ReplicationQuota(shape, config.leader_replication_throttled_rate, now_ms)
        self.follower = ReplicationQuota(shape, config.follower_replication_throttled_rate, now_ms)
        self.log_dirs = ReplicationQuota(moves, config.log_dirs_move_rate_max, now_ms)
