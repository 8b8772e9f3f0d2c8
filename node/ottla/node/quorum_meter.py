"""How fast the quorum works: appends, commits and elections of the last minute or so.  Pure.

Times are milliseconds of the monotonic clock.  Kafka tells the same (`raft-metrics`), as averages
of its last windows.
"""

from collections import deque

from ottla.model.ids import Offset
from ottla.raft.transitions import Role

WINDOW_MS = 30_000
"""What is told is of one to two of these, as Kafka's averages are."""
UNCOMMITTED_MAX = 10_000
"""Appends whose commit is waited for; beyond it the newest are not measured."""
ELECTING = frozenset({Role.PROSPECTIVE, Role.CANDIDATE})


class Recent:
    """Count, sum and maximum of what was noted lately: in this window and the one before."""

    __slots__ = ("_before", "_count", "_max", "_since_ms", "_sum")

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self._count = self._sum = self._max = 0
        self._before = (0, 0, 0, 0)
        """Count, sum, maximum and length of the window before."""

    def note(self, value: int, now_ms: int) -> None:
        """Take in a value."""
        self._turn(now_ms)
        self._count += 1
        self._sum += value
        self._max = max(self._max, value)

    def average(self, now_ms: int) -> float:
        """Return the average; 0 when there was nothing."""
        self._turn(now_ms)
        return (self._sum + self._before[1]) / max(1, self._count + self._before[0])

    def maximum(self, now_ms: int) -> int:
        """Return the largest; 0 when there was nothing."""
        self._turn(now_ms)
        return max(self._max, self._before[2])

    def per_second(self, now_ms: int) -> float:
        """Return the sum of what was noted, for each second."""
        self._turn(now_ms)
        lasted_ms = now_ms - self._since_ms + self._before[3]
        return 1_000 * (self._sum + self._before[1]) / max(1_000, lasted_ms)

    def _turn(self, now_ms: int) -> None:
        lasted_ms = now_ms - self._since_ms
        if lasted_ms < WINDOW_MS:
            return
        is_next = lasted_ms < 2 * WINDOW_MS
        # After a longer silence the window before this one held nothing.
        self._before = (self._count, self._sum, self._max, lasted_ms) if is_next else (0, 0, 0, 0)
        self._since_ms = now_ms
        self._count = self._sum = self._max = 0


class QuorumMeter:
    """What one member of the quorum notes of its work."""

    def __init__(self, now_ms: int) -> None:
        self.commits_ms = Recent(now_ms)
        """From a leader's append to its commit."""
        self.elections_ms = Recent(now_ms)
        """From standing for election until a leader is known."""
        self.appended_records = Recent(now_ms)
        """Appended as the leader."""
        self.fetched_records = Recent(now_ms)
        """Appended as a follower or observer."""
        self._uncommitted: deque[tuple[Offset, int]] = deque()
        self._election_since_ms: int | None = None

    def on_append(
        self, record_count: int, end_offset: Offset, now_ms: int, *, is_leader: bool
    ) -> None:
        """Note that the log grew by so many records, up to its end."""
        if not is_leader:
            self.fetched_records.note(record_count, now_ms)
            return
        self.appended_records.note(record_count, now_ms)
        if len(self._uncommitted) < UNCOMMITTED_MAX:
            self._uncommitted.append((end_offset, now_ms))

    def on_high_watermark(self, high_watermark: Offset, now_ms: int) -> None:
        """Note that all below is committed."""
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            _, appended_ms = self._uncommitted.popleft()
            self.commits_ms.note(now_ms - appended_ms, now_ms)

    def on_role(self, role: Role, *, knows_leader: bool, now_ms: int) -> None:
        """Note which role this member has now, and whether it knows who leads."""
        if role is not Role.LEADER:
            self._uncommitted.clear()
        if role in ELECTING:
            if self._election_since_ms is None:
                self._election_since_ms = now_ms
        elif knows_leader and self._election_since_ms is not None:
            self.elections_ms.note(now_ms - self._election_since_ms, now_ms)
            self._election_since_ms = None
