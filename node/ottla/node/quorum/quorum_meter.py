"""Measures the rates and latencies of appends, commits and elections over about the last minute.
Pure.

Times are milliseconds of the monotonic clock. Kafka reports the same values (`raft-metrics`), as
averages over its last windows.
"""

from collections import deque

from ottla.model.ids import Offset
from ottla.raft.transitions import Role

WINDOW_MS = 30_000
"""Length in ms of a window for rates and latencies of the quorum. Reported values cover one to two
windows, as Kafka's averages do."""
UNCOMMITTED_MAX = 10_000
"""Maximum number of uncommitted appends whose time to commit is measured at once. Further appends
are not measured."""
ELECTING = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})


class Recent:
    """Count, sum and maximum of measured values in the current window and the previous one."""

    __slots__ = ("_before", "_count", "_max", "_since_ms", "_sum")

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._count = self._sum = self._max = 0
        self._before = (0, 0, 0, 0)
        """Count, sum, maximum and length in ms of the previous window of measured values."""

    def note(self, value: int, now_ms: int) -> None:
        """Add a measured value to the count, sum and maximum of the current window."""
        self._turn(now_ms)
        self._count += 1
        self._sum += value
        self._max = max(self._max, value)

    def average(self, now_ms: int) -> float:
        """Return the average of the values measured in the current and the previous window, or 0
        without values."""
        self._turn(now_ms)
        return (self._sum + self._before[1]) / max(1, self._count + self._before[0])

    def maximum(self, now_ms: int) -> int:
        """Return the largest value measured in the current and the previous window, or 0 without
        values."""
        self._turn(now_ms)
        return max(self._max, self._before[2])

    def per_second(self, now_ms: int) -> float:
        """Return the sum of the values measured in the current and the previous window, divided by
        the windows' length in seconds."""
        self._turn(now_ms)
        lasted_ms = now_ms - self._since_ms + self._before[3]
        return 1_000 * (self._sum + self._before[1]) / max(1_000, lasted_ms)

    def _turn(self, now_ms: int) -> None:
        lasted_ms = now_ms - self._since_ms
        if lasted_ms < WINDOW_MS:
            return
        is_next = lasted_ms < 2 * WINDOW_MS
        # After a longer time without values, the previous window is empty.
        self._before = (self._count, self._sum, self._max, lasted_ms) if is_next else (0, 0, 0, 0)
        self._since_ms = now_ms
        self._count = self._sum = self._max = 0


class QuorumMeter:
    """Meter of the rates and latencies of appends, commits and elections, for one member of the
    quorum."""

    def __init__(self, now_ms: int) -> None:
        self.commits_ms = Recent(now_ms)
        """Time in ms from each append by this node, as the quorum's leader, until the records are
        committed."""
        self.elections_ms = Recent(now_ms)
        """Time in ms from the start of this node's candidacy until a leader is known."""
        self.appended_records = Recent(now_ms)
        """Number of metadata records that this node has appended as the quorum's leader."""
        self.fetched_records = Recent(now_ms)
        """Number of metadata records that this node has fetched and appended as a follower or
        observer."""
        self._uncommitted: deque[tuple[Offset, int]] = deque()
        self._election_since_ms: int | None = None

    def on_append(
        self, record_count: int, end_offset: Offset, now_ms: int, *, is_leader: bool
    ) -> None:
        """Record that records were appended to the metadata log, which now ends at `end_offset`."""
        if not is_leader:
            self.fetched_records.note(record_count, now_ms)
            return
        self.appended_records.note(record_count, now_ms)
        if len(self._uncommitted) < UNCOMMITTED_MAX:
            self._uncommitted.append((end_offset, now_ms))

    def on_high_watermark(self, high_watermark: Offset, now_ms: int) -> None:
        """Record that all metadata records before the high watermark are committed."""
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            _, appended_ms = self._uncommitted.popleft()
            self.commits_ms.note(now_ms - appended_ms, now_ms)

    def on_role(self, role: Role, *, knows_leader: bool, now_ms: int) -> None:
        """Record the present role of this quorum member, and whether it knows the leader."""
        if role is not Role.LEADER:
            self._uncommitted.clear()
        if role in ELECTING:
            if self._election_since_ms is None:
                self._election_since_ms = now_ms
        elif knows_leader and self._election_since_ms is not None:
            self.elections_ms.note(now_ms - self._election_since_ms, now_ms)
            self._election_since_ms = None
