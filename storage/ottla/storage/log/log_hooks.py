"""Callbacks with which a log notifies its owner: the log manager, the cleaner, or a move to another
directory."""

from collections.abc import Awaitable, Callable

from ottla.model.ids import Offset


async def _ignore() -> None:
    """Default callback of a log whose owner writes no checkpoints. Does nothing."""


async def _ignore_offset(offset: Offset) -> None:
    """Default callback of a log without a cleaner. Does nothing."""


# The defaults are functions of this module, because a function object for each log takes 150 bytes.


def _do_nothing() -> None:
    pass


def _ignore_reason(reason: str) -> None:
    pass


def _ignore_truncation(offset: Offset) -> None:
    pass


class LogHooks:
    """Callbacks of one log. The default of each callback does nothing."""

    __slots__ = (
        "after_truncation",
        "before_truncation",
        "on_disk_failed",
        "on_disk_full",
        "on_log_start_raised",
        "on_offsets_decreased",
        "on_roll",
        "on_truncated",
        "remove_later",
    )

    def __init__(self) -> None:
        self.on_disk_failed: Callable[[str], None] = _ignore_reason
        """Function that is called once, with the reason, when a file of the log has failed. The log
        manager then takes the whole log directory offline, because a disk that failed once is not
        trusted."""
        self.on_disk_full: Callable[[], None] = _do_nothing
        """Function that is called each time that a write to the log fails because the disk is
        full."""
        self.on_roll: Callable[[], None] = _do_nothing
        """Function that is called after each roll of the log. The log manager then flushes the log
        up to `unflushed_roll_offset`."""
        self.on_offsets_decreased: Callable[[], Awaitable[None]] = _ignore
        """Async function that is called when a truncation lowered the recovery point or the high
        watermark, before the next append. The log manager then writes the checkpoints, which the
        next start reads."""
        self.on_log_start_raised: Callable[[], Awaitable[None]] = _ignore
        """Async function that is called when records of the log were deleted, before the client
        gets its response. The log manager then writes the log start checkpoint. Without it, the
        records would reappear after a kill."""
        self.remove_later: Callable[[list[str], int], None] | None = None
        """Function that is called with the paths of files that were renamed to `.deleted`, and the
        delay of their removal in ms. If None, the log removes the files immediately."""
        self.on_truncated: Callable[[Offset], None] = _ignore_truncation
        """Function that is called as soon as a truncation has removed all records from an offset
        on. A copy of the log can then remove them as well."""
        self.before_truncation: Callable[[Offset], Awaitable[None]] = _ignore_offset
        """Async function that is called before a truncation removes all records from an offset on.
        The cleaner then stops a compaction of the log."""
        self.after_truncation: Callable[[], None] = _do_nothing
        """Function that is called after a truncation of the log. The cleaner may then compact the
        log again."""
