"""Check whether an object store that has failed accepts writes again.

An attempt to copy a segment writes three records to the metadata topic, whether it succeeds or not.
While the store is down, one failed check replaces the attempts of all partitions, and nothing is
written. (Kafka writes a record for each attempt, and leaves the segment in its first state.)
"""

from collections.abc import Awaitable, Callable

import trio

from ottla.storage.tier.store_seam import StoreError

CHECK_TIMEOUT_S = 20.0
"""Timeout of one check in seconds. A store that works responds within milliseconds; with a smaller
value, a slow store counts as down."""

CHECK_AGAIN_S = 5.0
"""Seconds after a failed check in which further checks fail at once, with the same reason. With a
smaller value, many partitions wait one after the other for a store that does not respond."""


class StoreCheck:
    """State of an object store, as its last calls showed it. All partitions of a broker share one
    object."""

    def __init__(self, probe: Callable[[], Awaitable[None]], *, is_usable: bool) -> None:
        """Create a check. `probe` writes to the store, and raises StoreError if that fails.
        `is_usable` is True if the store has just accepted a write."""
        self._probe = probe
        self._is_usable = is_usable
        self._lock = trio.Lock()
        self._failed_at = -CHECK_AGAIN_S
        self._reason = ""

    def on_failure(self) -> None:
        """Record that a call to the store has failed, so that the next copy checks the store
        first."""
        self._is_usable = False

    async def require_usable(self) -> None:
        """Return at once if the last call to the store has succeeded. Otherwise check the store.
        Raises StoreError if it is not usable."""
        if self._is_usable:
            return
        async with self._lock:
            if self._is_usable:
                return
            if trio.current_time() - self._failed_at < CHECK_AGAIN_S:
                raise StoreError(self._reason)
            try:
                with trio.fail_after(CHECK_TIMEOUT_S):
                    await self._probe()
            except (StoreError, trio.TooSlowError) as error:
                self._failed_at = trio.current_time()
                self._reason = str(error) or f"it does not respond within {CHECK_TIMEOUT_S:.0f} s"
                raise StoreError(self._reason) from None
            self._is_usable = True
