"""Checks whether an object store that has failed accepts writes again.

An attempt to copy a segment writes three records to the metadata topic, even if the copy fails.
While the store is down, one failed check replaces the attempts of all partitions, and no record is
written. (Kafka writes a record for each attempt, and leaves the segment in its first state.)
"""

from collections.abc import Awaitable, Callable

import trio

from ottla.storage.tier.store_seam import StoreError, StoreRefusedError

CHECK_TIMEOUT_S = 20.0
"""Timeout of one check in seconds. A working store responds within milliseconds. With a smaller
value, a slow store counts as down."""

CHECK_AGAIN_S = 5.0
"""Seconds for which the result of a check is reused. With a smaller value, many partitions wait one
after the other for a store that does not respond."""

CREATION_TIMEOUT_S = 5.0
"""Timeout in seconds of the check before the creation of a tiered topic. With a larger value,
clients give up while the store does not respond."""


class StoreCheck:
    """State of an object store, according to the last calls to the store. All partitions of a
    broker share one object."""

    def __init__(self, probe: Callable[[], Awaitable[None]], *, is_usable: bool) -> None:
        """Create a check. `probe` writes to the store, and raises StoreError if the write fails.
        `is_usable` is True if the store has just accepted a write."""
        self._probe = probe
        self._is_usable = is_usable
        self._lock = trio.Lock()
        self._probed_at = -float("inf")
        self._error: StoreError | None = None

    def on_failure(self) -> None:
        """Record that a call to the store has failed. The next copy then checks the store first."""
        self._is_usable = False

    async def require_usable(self) -> None:
        """Return at once if the last call to the store has succeeded. Otherwise check the store.
        Raises StoreError if the store is not usable."""
        if self._is_usable:
            return
        async with self._lock:
            if not self._is_usable and (error := await self._failure(CHECK_TIMEOUT_S)) is not None:
                raise error
            self._is_usable = True

    async def refusal(self) -> str:
        """Return the reason why the store refuses this broker, or an empty text if the store
        accepts it. A store that is down or too slow does not count as refusing."""
        async with self._lock:
            error = await self._failure(CREATION_TIMEOUT_S)
        return str(error) if isinstance(error, StoreRefusedError) else ""

    async def _failure(self, timeout_s: float) -> StoreError | None:
        """Write to the store. Returns the error of the write, or None if it succeeds. The result is
        reused for CHECK_AGAIN_S seconds."""
        if trio.current_time() - self._probed_at < CHECK_AGAIN_S:
            return self._error
        try:
            with trio.fail_after(timeout_s):
                await self._probe()
            self._error = None
        except StoreError as error:
            self._error = error
        except trio.TooSlowError:
            self._error = StoreError(f"it does not respond within {timeout_s:.0f} s")
        self._probed_at = trio.current_time()
        return self._error
