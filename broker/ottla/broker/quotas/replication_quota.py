"""Limits the bandwidth that a broker spends on throttled replicas.

Pure except for the clock that it uses. Leaders, followers and moves between directories each record
the bytes of throttled replicas in a `ReplicationQuota`. While its rate is above its limit,
throttled replicas outside the ISR get no bytes. A replica in the ISR is never throttled, because it
would leave the ISR, and its return would cost more (KIP-73, KIP-113). One response may exceed the
limit. Throttled replicas then wait until the rate has fallen.
"""

from collections.abc import Callable, Iterator

from ottla.model.limits import INT64_MAX, KIB
from ottla.model.quotas.rates import SimpleRate, WindowShape
from ottla.model.settings.broker import BrokerConfig
from ottla.node.part_registry import PartRegistry
from ottla.telemetry.metrics.instruments import Family
from ottla.telemetry.metrics.kafka_families import gauge

WAIT_MS_MAX = 500
"""Maximum time in milliseconds between two checks of a replication rate that exceeds its limit. A
raised limit takes effect within this time. With a smaller value, a slowly falling rate is checked
more often."""

PIECES_PER_S = 100
PIECE_BYTES_MIN = 64 * KIB
"""Minimum bytes of one fetch response to a throttled replica. Throttled replicas receive their
bytes in small responses, because fetches of replicas in the ISR wait for each of these responses. A
smaller value costs more requests. A larger value delays producers noticeably."""

LEADER_REPLICATION_RATE = "leader.replication.throttled.rate"
FOLLOWER_REPLICATION_RATE = "follower.replication.throttled.rate"
LOG_DIRS_MOVE_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


class ReplicationQuota:
    """Limit and measured rate, in bytes per second, of the replication of throttled replicas.
    The leaders, the followers and the moves between directories of a broker each have a
    separate quota."""

    __slots__ = ("_now_ms", "_rate", "limit")

    def __init__(self, shape: WindowShape, limit: int, now_ms: Callable[[], int]) -> None:
        self._rate = SimpleRate(shape)
        self._now_ms = now_ms
        self.limit = limit
        """Maximum rate of throttled replication in bytes per second; `INT64_MAX` if it is
        unlimited."""

    @property
    def is_limited(self) -> bool:
        """True if a limit is set for the rate of throttled replicas."""
        return self.limit < INT64_MAX

    @property
    def piece_bytes(self) -> int:
        """Maximum number of bytes of throttled replicas in one fetch response."""
        return max(self.limit // PIECES_PER_S, PIECE_BYTES_MIN)

    def set_limit(self, limit: int) -> None:
        """Change the limit of throttled replication, in bytes per second. Bytes that were already
        recorded still count."""
        self.limit = limit

    def record(self, byte_count: int) -> None:
        """Count bytes that throttled replicas received or sent. The caller may omit the call if
        there is no limit."""
        self._rate.record(byte_count, self._now_ms())

    def per_second(self) -> float:
        """Return the rate of throttled replication, measured over the last time windows, in bytes
        per second."""
        return self._rate.per_second(self._now_ms())

    def is_exceeded(self) -> bool:
        """Return whether the measured rate of throttled replication is above the limit."""
        return self.limit < INT64_MAX and self.per_second() > self.limit

    def delay_ms(self) -> int:
        """Return the milliseconds until the rate of throttled replication is checked again, or 0 if
        the limit is not exceeded."""
        if not self.is_exceeded():
            return 0
        if not self.limit:
            return WAIT_MS_MAX
        return min(self._rate.excess_ms(self.limit, self._now_ms()) + 1, WAIT_MS_MAX)


class ReplicationQuotas:
    """Replication quotas of a broker: one for its leaders, one for its followers, and one for moves
    between directories."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        quotas = config.quotas
        shape = WindowShape(quotas.replication_window_count, quotas.replication_window_s * 1_000)
        moves = WindowShape(quotas.log_dirs_window_count, quotas.log_dirs_window_s * 1_000)
        self.leader = ReplicationQuota(shape, config.leader_replication_throttled_rate, now_ms)
        self.follower = ReplicationQuota(shape, config.follower_replication_throttled_rate, now_ms)
        self.log_dirs = ReplicationQuota(moves, config.log_dirs_move_rate_max, now_ms)

    def register_with(self, parts: PartRegistry) -> None:
        """Register the settings that change the replication quotas, and the metrics of their
        rates."""
        parts.setting(LEADER_REPLICATION_RATE, self.leader.set_limit)
        parts.setting(FOLLOWER_REPLICATION_RATE, self.follower.set_limit)
        parts.setting(LOG_DIRS_MOVE_RATE, self.log_dirs.set_limit)
        parts.families(self.families)

    def families(self) -> Iterator[Family]:
        """Yield the measured rates of throttled replication as metric families."""
        for name, text, quota in (
            ("LeaderReplication", "sent to throttled replicas", self.leader),
            ("FollowerReplication", "fetched for throttled replicas", self.follower),
            ("AlterLogDirsReplication", "copied between log directories", self.log_dirs),
        ):
            yield gauge(
                f"kafka.server:type={name},attribute=byte-rate",
                f"Bytes a second {text}, where a limit is set.",
                quota.per_second(),
            )
