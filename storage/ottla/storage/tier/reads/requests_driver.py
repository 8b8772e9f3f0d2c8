"""Requests of a reader to the object store: bounded in number and time, repeated if they fail."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import trio

from ottla.storage.tier.reads.reader_limits import ATTEMPTS_MAX, RETRY_PAUSE_S, ReaderLimits
from ottla.storage.tier.store_seam import ObjectRangeError, ObjectStore, StoreError

PAUSE_FACTOR: Final = 4

Check = Callable[[bytes], Awaitable[str | None]]
"""Function that returns the reason why a content cannot be right, or None."""


class CorruptObjectError(StoreError):
    """An object in the store is not what its manifest, or the segment's metadata, says."""

    is_retriable = False


def right_size(size_bytes: int) -> Check:
    """Return a check for a content of this size."""

    async def problem_of(content: bytes) -> str | None:
        if len(content) != size_bytes:
            return f"{len(content)} bytes instead of {size_bytes}"
        return None

    return problem_of


@dataclass(slots=True)
class ReadCounts:
    """Number of requests and bytes that a reader of copied segments has caused."""

    gets: int = 0
    """Requests to the store, also those that failed."""
    fetched_bytes: int = 0
    """Bytes that the store has returned."""
    memory_hits: int = 0
    """Chunks that were found in memory."""
    file_hits: int = 0
    """Chunks that were found in the cache's directory."""


class StoreRequests:
    """Requests of a reader to the object store."""

    def __init__(self, store: ObjectStore, limits: ReaderLimits, counts: ReadCounts) -> None:
        self._store = store
        self._timeout_s = limits.request_timeout_s
        self._turns = trio.Semaphore(limits.gets_at_once)
        self._counts = counts

    async def get(self, key: str, start: int, end: int, problem_of: Check) -> bytes:
        """Return a range of an object. `problem_of` checks the content, which is fetched again if
        it has a problem.

        Raises CorruptObjectError if the content remains wrong, and StoreError if the store fails.
        """
        pause_s = RETRY_PAUSE_S
        attempts_left = ATTEMPTS_MAX
        while True:
            attempts_left -= 1
            try:
                async with self._turns:
                    content = await self._get(key, start, end)
                problem = await problem_of(content)
                if problem is None:
                    return content
                error: StoreError = CorruptObjectError(f"object {key}: {problem}")
            except ObjectRangeError:
                error = CorruptObjectError(f"object {key}: it ends before byte {start}")
            except StoreError as failure:
                error = failure
                if not failure.is_retriable:
                    raise
            if not attempts_left:
                raise error
            await trio.sleep(pause_s)
            pause_s *= PAUSE_FACTOR

    async def _get(self, key: str, start: int, end: int) -> bytes:
        self._counts.gets += 1
        with trio.move_on_after(self._timeout_s):
            content = await self._store.get(key, start, end)
            self._counts.fetched_bytes += len(content)
            return content
        raise StoreError(f"the object store did not answer within {self._timeout_s:g} s")
