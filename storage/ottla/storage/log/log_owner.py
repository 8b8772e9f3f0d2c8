"""Owner of a log: the log manager, or a move of the log to another directory. A log notifies its
owner of rolls, truncations and failures.

The owner is one object with methods. One function object for each notification would take 600 bytes
of memory per partition.
"""

from ottla.model.ids import Offset


class LogOwner:
    """Owner that ignores all notifications, and the base class of other owners."""

    __slots__ = ()

    def on_disk_failed(self, reason: str) -> None:
        """Called once, with the reason, when a file of the log has failed. The log manager then
        takes the whole log directory offline, because a disk that failed once is not trusted."""

    def on_disk_full(self) -> None:
        """Called each time that a write to the log fails because the disk is full."""

    def on_roll(self) -> None:
        """Called after each roll of the log. The log manager then flushes the log up to
        `unflushed_roll_offset`."""

    async def on_offsets_decreased(self) -> None:
        """Called when a truncation lowered the recovery point or the high watermark, before the
        next append. The log manager then writes the checkpoints, which the next start reads."""

    async def on_log_start_raised(self) -> None:
        """Called when records of the log were deleted, before the client gets its response. The log
        manager then writes the log start checkpoint. Without it, the records would reappear after a
        kill."""

    def remove_later(self, paths: list[str], delay_ms: int) -> bool:
        """Called with the paths of files that were renamed to `.deleted`, and the delay of their
        removal in ms. Returns False if the log must remove the files immediately."""
        return False

    async def before_truncation(self, offset: Offset) -> None:
        """Called before a truncation removes all records from an offset on. The cleaner then stops
        a compaction of the log."""

    def after_truncation(self) -> None:
        """Called after a truncation of the log. The cleaner may then compact the log again."""


NO_OWNER = LogOwner()


def ignore_truncation(offset: Offset) -> None:
    """Default of `LogState.on_truncated` for a log that is not being copied. Does nothing."""
