"""Requests of a reader to the object store. Their number and time are limited, and failed requests
are repeated."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final

import trio

from ottla.storage.tier.reads.reader_limits import ATTEMPTS_MAX, RETRY_PAUSE_S, ReaderLimits
from ottla.storage.tier.store_seam import ObjectRangeError, ObjectStore, StoreError
from ottla.telemetry.metrics.instruments import Family, MetricKind

PAUSE_FACTOR: Final = 4

Check = Callable[[bytes], Awaitable[str | None]]
"""Function that checks fetched content. It returns the problem as text, or None if the content is
valid."""


class CorruptObjectError(StoreError):
    """An object in the store differs from its manifest, or from the metadata of its segment."""

    is_retriable = False


def right_size(size_bytes: int) -> Check:
    """Return a check that content has `size_bytes` bytes."""

    async def problem_of(content: bytes) -> str | None:
        if len(content) != size_bytes:
            return f"{len(content)} bytes instead of {size_bytes}"
        return None

    return problem_of


@dataclass(slots=True)
class ReadCounts:
    """Counters of the requests and the cache hits of a reader of copied segments."""

    gets: int = 0
    """Number of requests to the object store, including those that failed."""
    fetched_bytes: int = 0
    """Number of bytes that the object store has returned."""
    memory_hits: int = 0
    """Number of chunks that readers needed and that were in memory."""
    file_hits: int = 0
    """Number of chunks that were loaded from the cache's files."""
    store_chunks: int = 0
    """Number of chunks that were loaded from the object store."""

    def families(self) -> Iterator[Family]:
        """Yield the metric family that counts chunks by their source: memory, cache files, or
        object store."""
        yield Family(
            "ottla_tier_read_chunks_total",
            MetricKind.COUNTER,
            "Chunks of 1 MiB of copied segments that were found in memory, in the files of the"
            " cache, or fetched from the object store.",
            ("source",),
            [
                (("memory",), self.memory_hits),
                (("file",), self.file_hits),
                (("store",), self.store_chunks),
            ],
        )


class StoreRequests:
    """Sender of a reader's requests to the object store, which limits their number and time, and
    repeats failed ones."""

    def __init__(self, store: ObjectStore, limits: ReaderLimits, counts: ReadCounts) -> None:
        self._store = store
        self._timeout_s = limits.request_timeout_s
        self._turns = trio.CapacityLimiter(limits.gets_at_once)
        self._counts = counts

    def set_limit(self, count: int) -> None:
        """Change the maximum number of requests in flight. Requests in flight are not cancelled."""
        self._turns.total_tokens = count

    async def get(self, key: str, start: int, end: int, problem_of: Check) -> bytes:
        """Return the bytes `[start, end)` of an object. If `problem_of` returns a problem of the
        content, the content is fetched again.

        Raises CorruptObjectError if the last attempt has a problem too, and StoreError if the store
        fails.
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
