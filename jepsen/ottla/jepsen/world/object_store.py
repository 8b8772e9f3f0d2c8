"""An object store in virtual time, which fails as real ones do. It implements `ObjectStore`.

A call takes time before and after its effect, so that a cancelled call may have had its effect. At
random, a call fails in one of three ways:

- without an effect;
- after its effect (a lost response);
- seconds before its effect, like a request that waits in a queue of the store.

A listing is in random order, and may show the objects as they were some seconds ago. The store can
also be down, hang, limit the requests per second, and limit the bandwidth.

All choices are drawn from a `Chance`, and 0 is always the harmless one. Times are those of trio's
clock: the store has no tasks of its own, and applies late effects at the next call.
"""

import heapq
from collections import Counter, deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeVar

import trio

from ottla.jepsen.world.chance import Chance
from ottla.storage.tier.store_seam import (
    ObjectEntry,
    ObjectExistsError,
    ObjectNotFoundError,
    ObjectRangeError,
    StoreError,
    StoreRefusedError,
    is_folder_prefix,
    is_plain_key,
)

T = TypeVar("T")

STALE_S_MAX = 3600.0
"""Longest time in seconds by which a listing can be out of date under any fault."""
DRAW_STEPS = 1000
"""Number of equal steps into which an interval is divided to draw a time from it."""


class StoreOperation(Enum):
    """Kind of a request to an object store. Providers bill requests by their kind."""

    PUT = auto()
    PART = auto()
    """A part of a large upload, or the start or end of the upload."""
    GET = auto()
    HEAD = auto()
    LIST = auto()
    DELETE = auto()


class StoreOutcome(Enum):
    """Outcome of one request to the simulated object store, drawn at random."""

    DONE = auto()
    FAILED = auto()
    """Outcome of a request that fails without an effect."""
    LOST_RESPONSE = auto()
    """Outcome of a request whose effect took place, but whose response is an error."""
    LATE = auto()
    """Outcome of a request that ended in an error, and takes effect later."""


@dataclass(slots=True, kw_only=True)
class StoreFaults:
    """Faults of a simulated object store. They may be changed during a run. All are off by
    default."""

    latency_s: tuple[float, float] = (0.01, 0.05)
    """Shortest and longest delay in seconds. A request is delayed once before its effect, and once
    after its effect."""
    failed: float = 0.0
    """Probability that a request fails without effect."""
    lost_response: float = 0.0
    """Probability that a request takes effect but its response is lost."""
    late: float = 0.0
    """Probability that a request to change an object fails at first and takes effect later."""
    late_s: float = 30.0
    """Longest time in seconds between the error of a late request and its effect."""
    partial_delete: float = 0.0
    """Probability that a deletion of several objects fails in the middle."""
    stale_list_s: float = 0.0
    """Longest time in seconds by which a listing may be stale."""
    requests_per_s: int | None = None
    """Maximum number of requests that are accepted within any second of virtual time. Further
    requests fail at once."""
    bytes_per_s: float | None = None
    """Bandwidth in bytes per second that all calls share."""
    is_down: bool = False
    """True while the store refuses all connections."""
    is_refusing: bool = False
    """True while the credentials are refused, or the bucket is missing."""

    def end(self) -> None:
        """End all faults, so that requests succeed again. The latency remains."""
        self.failed = self.lost_response = self.late = self.partial_delete = 0.0
        self.stale_list_s = 0.0
        self.requests_per_s = self.bytes_per_s = None
        self.is_down = self.is_refusing = False


class SimulatedObjectStore:
    """An object store in virtual time. It implements the protocol `ObjectStore`."""

    def __init__(
        self, chance: Chance, faults: StoreFaults | None = None, *, wall_start_ms: int = 0
    ) -> None:
        """Create an empty store. `wall_start_ms` is its wall-clock time at the start of the
        run."""
        self._wall_start_ms = wall_start_ms
        self.faults = faults or StoreFaults()
        self.requests: Counter[StoreOperation] = Counter()
        """Number of requests by kind, including requests that failed."""
        self.outcomes: Counter[StoreOutcome] = Counter()
        """Number of requests by outcome, except requests that were refused at once."""
        self._chance = chance
        self._versions: dict[str, list[tuple[float, bytes | None]]] = {}
        """Versions (time, content) of each key, in ascending order of time. The content None stands
        for a deletion. Versions that no listing can show any longer are dropped."""
        self._late: list[tuple[float, int, Callable[[], None]]] = []
        self._late_count = 0
        self._accepted_at: deque[float] = deque()
        """Times of the requests that were accepted within the last second."""
        self._link_free_at = 0.0
        self._hang: trio.Event | None = None

    @property
    def objects(self) -> dict[str, bytes]:
        """Contents of all objects by key, for checks. Delayed effects of requests are included if
        they are due."""
        self._apply_late_effects()
        return {
            key: content
            for key, versions in sorted(self._versions.items())
            if (content := versions[-1][1]) is not None
        }

    def peek(self, key: str) -> bytes | None:
        """Return the content of an object for checks, or None if the object does not exist."""
        self._apply_late_effects()
        return self._content(key)

    def add_late_upload(self, key: str, content: bytes) -> None:
        """Store an object, like an upload that takes effect after its process has ended."""
        self._set(key, content)

    @property
    def has_late_effects(self) -> bool:
        """True if a failed request may still take effect."""
        self._apply_late_effects()
        return bool(self._late)

    def hang(self) -> None:
        """Block every call until `resume` is called. A blocked call may already have had its
        effect."""
        if self._hang is None:
            self._hang = trio.Event()

    def resume(self) -> None:
        """End the hang of the store. The blocked calls then continue."""
        if self._hang is not None:
            self._hang.set()
            self._hang = None

    async def put(self, key: str, content: bytes, *, only_new: bool = False) -> None:
        """Store an object. Raises ObjectExistsError if `only_new` is True and the key is in use."""
        assert is_plain_key(key)

        def store() -> None:
            if only_new and self._content(key) is not None:
                raise ObjectExistsError(f"an object {key} already exists")
            self._set(key, bytes(content))

        await self._change(StoreOperation.PUT, store, sent_bytes=len(content))

    async def put_stream(self, key: str, parts: AsyncIterable[bytes]) -> None:
        """Store an object that is uploaded in several parts."""
        assert is_plain_key(key)

        def nothing() -> None:
            """Do nothing, because the parts of an upload are invisible until the upload is
            complete."""

        stored = bytearray()
        await self._change(StoreOperation.PART, nothing)
        async for part in parts:
            stored += part
            await self._change(StoreOperation.PART, nothing, sent_bytes=len(part))
        content = bytes(stored)
        await self._change(StoreOperation.PART, lambda: self._set(key, content))

    async def get(self, key: str, start: int, end: int) -> bytes:
        """Return the bytes of an object from `start` to `end` (exclusive)."""
        assert is_plain_key(key)
        assert 0 <= start < end

        def read() -> bytes:
            content = self._found(key)
            if start >= len(content):
                raise ObjectRangeError(f"object {key} has only {len(content)} bytes")
            return content[start:end]

        return await self._read(StoreOperation.GET, read, len)

    async def head(self, key: str) -> ObjectEntry:
        """Return the key, the size and the modification time of an object."""
        assert is_plain_key(key)

        def read() -> ObjectEntry:
            content = self._found(key)
            return ObjectEntry(key, len(content), self._wall_ms(self._versions[key][-1][0]))

        return await self._read(StoreOperation.HEAD, read)

    async def entries(self, prefix: str, *, after: str = "") -> AsyncIterator[ObjectEntry]:
        """Yield the objects whose keys begin with `prefix`, in their state at a moment of the
        recent past."""
        assert is_folder_prefix(prefix)

        def read() -> list[ObjectEntry]:
            staleness_s = min(self.faults.stale_list_s, STALE_S_MAX)
            moment = trio.current_time() - self._drawn((0.0, staleness_s))
            found = [
                ObjectEntry(key, len(content), self._wall_ms(since))
                for key, versions in sorted(self._versions.items())
                if key.startswith(prefix) and key > after
                for since, content in [_version_at(versions, moment)]
                if content is not None
            ]
            shuffled = []
            while found:
                shuffled.append(found.pop(self._chance.below(len(found))))
            return shuffled

        for entry in await self._read(StoreOperation.LIST, read):
            yield entry

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects by their keys."""
        assert all(map(is_plain_key, keys))
        if not keys:
            return
        rest = list(keys)
        if len(keys) > 1 and self._chance.chance(self.faults.partial_delete):
            rest = rest[: self._chance.below(len(keys))]

        def remove() -> None:
            for key in rest:
                if self._content(key) is not None:
                    self._set(key, None)
            if len(rest) < len(keys):
                raise StoreError("the object store failed: it deleted some of the objects")

        await self._change(StoreOperation.DELETE, remove)

    async def _change(
        self, operation: StoreOperation, effect: Callable[[], None], *, sent_bytes: int = 0
    ) -> None:
        await self._request(operation)
        await self._transfer(sent_bytes)
        outcome = self._outcome(may_be_late=True)
        if outcome is StoreOutcome.FAILED:
            raise StoreError(f"the object store failed: {operation.name} had no effect")
        if outcome is StoreOutcome.LATE:
            self._add_late_effect(effect)
            raise StoreError(f"the object store failed: {operation.name} timed out")
        error: StoreError | None = None
        try:
            effect()
        except StoreError as raised:
            error = raised
        await self._response(operation, outcome)
        if error is not None:
            raise error

    async def _read(
        self,
        operation: StoreOperation,
        read: Callable[[], T],
        size_of: Callable[[T], int] = lambda _: 0,
    ) -> T:
        await self._request(operation)
        outcome = self._outcome(may_be_late=False)
        if outcome is StoreOutcome.FAILED:
            raise StoreError(f"the object store failed: {operation.name}")
        found = read()
        await self._transfer(size_of(found))
        await self._response(operation, outcome)
        return found

    async def _request(self, operation: StoreOperation) -> None:
        """Wait until a request has arrived. Raises StoreError if it is refused at once."""
        self.requests[operation] += 1
        await self._wait()
        if self.faults.is_down:
            raise StoreError("the object store failed: the connection was refused")
        if self.faults.is_refusing:
            raise StoreRefusedError("the object store refuses the credentials")
        self._throttle()
        self._apply_late_effects()

    async def _response(self, operation: StoreOperation, outcome: StoreOutcome) -> None:
        await self._wait()
        if outcome is StoreOutcome.LOST_RESPONSE or self.faults.is_down:
            raise StoreError(f"the object store failed: the response to {operation.name} was lost")

    async def _wait(self) -> None:
        await trio.sleep(self._drawn(self.faults.latency_s))
        while self._hang is not None:
            await self._hang.wait()

    async def _transfer(self, size_bytes: int) -> None:
        if self.faults.bytes_per_s is None or not size_bytes:
            return
        begins_at = max(trio.current_time(), self._link_free_at)
        self._link_free_at = begins_at + size_bytes / self.faults.bytes_per_s
        await trio.sleep_until(self._link_free_at)

    def _throttle(self) -> None:
        if self.faults.requests_per_s is None:
            return
        now = trio.current_time()
        while self._accepted_at and self._accepted_at[0] <= now - 1:
            self._accepted_at.popleft()
        if len(self._accepted_at) >= self.faults.requests_per_s:
            raise StoreError("the object store failed: 503 Slow Down")
        self._accepted_at.append(now)

    def _outcome(self, *, may_be_late: bool) -> StoreOutcome:
        outcome = StoreOutcome.DONE
        faults = self.faults
        if self._chance.chance(faults.failed):
            outcome = StoreOutcome.FAILED
        elif self._chance.chance(faults.lost_response):
            outcome = StoreOutcome.LOST_RESPONSE
        elif may_be_late and self._chance.chance(faults.late):
            outcome = StoreOutcome.LATE
        self.outcomes[outcome] += 1
        return outcome

    def _wall_ms(self, time_s: float) -> int:
        return self._wall_start_ms + int(time_s * 1000)

    def _add_late_effect(self, effect: Callable[[], None]) -> None:
        due_at = trio.current_time() + self._drawn((0.0, self.faults.late_s))
        self._late_count += 1
        heapq.heappush(self._late, (due_at, self._late_count, effect))

    def _apply_late_effects(self) -> None:
        while self._late and self._late[0][0] <= trio.current_time():
            _, _, effect = heapq.heappop(self._late)
            with suppress(StoreError):  # the caller of this request has already received an error
                effect()

    def _drawn(self, interval: tuple[float, float]) -> float:
        """Return a random time in seconds between two bounds, inclusive."""
        lowest, highest = interval
        if lowest == highest:
            return lowest
        return lowest + (highest - lowest) * self._chance.below(DRAW_STEPS + 1) / DRAW_STEPS

    def _content(self, key: str) -> bytes | None:
        versions = self._versions.get(key)
        return versions[-1][1] if versions else None

    def _found(self, key: str) -> bytes:
        content = self._content(key)
        if content is None:
            raise ObjectNotFoundError(f"there is no object {key}")
        return content

    def _set(self, key: str, content: bytes | None) -> None:
        now = trio.current_time()
        versions = self._versions.setdefault(key, [])
        versions.append((now, content))
        # The newest version that is older than any listing, and all later ones.
        while len(versions) > 1 and versions[1][0] <= now - STALE_S_MAX:
            del versions[0]


def _version_at(
    versions: list[tuple[float, bytes | None]], moment: float
) -> tuple[float, bytes | None]:
    """Return the version of an object that existed at a time. An object that was stored later has
    no content at that time."""
    for since, content in reversed(versions):
        if since <= moment:
            return since, content
    return 0.0, None
