"""Tracks the progress of one follower, for the leader of the partition. Pure."""

from ottla.broker.replicas.isr_changes import UNKNOWN_BROKER_EPOCH
from ottla.model.ids import Offset


class FollowerProgress:
    """Progress of a remote replica of a partition that this broker leads, as reported by the
    replica's fetch requests."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "end_offset",
        "last_fetch_end_offset",
        "last_fetch_ms",
        "log_start_offset",
    )

    def __init__(self, now_ms: int) -> None:
        self.end_offset = Offset(-1)
        self.log_start_offset = Offset(-1)
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.caught_up_ms = now_ms
        """Last time at which the follower had all records of the leader, in milliseconds of the
        monotonic clock."""
        self.last_fetch_ms = 0
        self.last_fetch_end_offset = Offset(-1)
        """Log end offset of the leader at the time of the follower's last fetch. If a later fetch
        of the follower begins at or above this offset, the follower had caught up at that time."""

    def on_fetch(
        self, *, end_offset: Offset, log_start_offset: Offset, leader_end: Offset, now_ms: int
    ) -> None:
        """Store the log start and end offsets that the follower reports in a fetch request."""
        if end_offset >= leader_end:
            self.caught_up_ms = now_ms
        elif end_offset >= self.last_fetch_end_offset >= 0:
            self.caught_up_ms = max(self.caught_up_ms, self.last_fetch_ms)
        self.end_offset = end_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_end_offset = leader_end
        self.last_fetch_ms = now_ms

    def is_late(self, leader_end: Offset, since_ms: int) -> bool:
        """Return whether the follower lacks records of the leader and has not caught up since
        `since_ms` (monotonic milliseconds)."""
        return self.end_offset < leader_end and self.caught_up_ms < since_ms
