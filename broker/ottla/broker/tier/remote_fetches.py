"""Reads of copied segments, for fetches below the local start of a tiered log.

Pure, except for awaiting `RemoteReads`; the function that runs a read in the background is a
parameter. A fetch never blocks the event loop until the object store responds. It starts a read,
waits in the purgatory for a limited time, and is then answered with the records that are available.
The read continues, and its result is kept for the next fetch of the same offset. A consumer
therefore makes progress even if the store is slow (KIP-1018). The running reads and the kept
results of a broker are bounded, because consumers choose the number of partitions that they read
(KAFKA-19763).
"""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from ottla.broker.replicas.partition import Partition
from ottla.broker.tier.remote_reads import (
    NoRemoteReads,
    RemoteRead,
    RemoteReadError,
    RemoteReads,
    code_of,
)
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.limits import MIB
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log.log import Log
from ottla.storage.tier.store_seam import StoreError
from ottla.wire.batch import batches

RUNNING_BYTES_MAX = 64 * MIB
"""Maximum number of bytes that all running reads return together. With a smaller number, consumers
of copied records wait for each other. A larger number takes more memory."""

KEPT_BYTES_MAX = 64 * MIB
"""Maximum size in bytes of the results that no fetch has used yet. With a smaller number, results
of slow reads are dropped before they are used, and read again. A larger number takes memory for
clients that have disconnected."""

KEPT_MS = 30_000
"""Time in milliseconds after which an unused result is dropped. If a client fetches the offset
later, it is read again."""

WAITING_MAX = 1_000
"""Maximum number of reads that wait for running reads to end. A further read begins only when the
client fetches again."""

RunRead = Callable[[Callable[[], Awaitable[None]]], bool]
"""Function that runs a read in the background. Returns False if the read cannot start now."""


Within = Callable[[float, Callable[[], Awaitable[None]]], Awaitable[bool]]
"""Function that awaits work for a limited time in seconds. Returns False if the work took
longer."""


class RemoteKey(NamedTuple):
    """Partition, offset and isolation level that identify a read of copied segments."""

    partition: Partition
    offset: Offset
    read_committed: bool


class RemoteRequest(NamedTuple):
    """Request to read copied segments for a fetch."""

    key: RemoteKey
    log: Log
    bytes_max: int
    at_least_one: bool


class KeptResult(NamedTuple):
    """Result of a read of copied segments that no fetch has used yet: records, or an error."""

    request: RemoteRequest
    read: RemoteRead | None
    code: ErrorCode
    kept_ms: int


class RemoteFetches:
    """The reads of copied segments that fetches have started, and their results that no fetch has
    used yet."""

    __slots__ = (
        "_errors",
        "_kept",
        "_now_ms",
        "_reads",
        "_run",
        "_running",
        "_waiting",
        "_wake",
        "kept_bytes",
    )

    def __init__(
        self,
        reads: RemoteReads,
        run: RunRead,
        wake: Callable[[Hashable], object],
        errors: UnexpectedErrors,
    ) -> None:
        self._reads = reads
        self._run = run
        self._wake = wake
        self._errors = errors
        self._now_ms = 0
        self._running: dict[RemoteKey, RemoteRequest] = {}
        self._waiting: deque[RemoteRequest] = deque()
        self._kept: OrderedDict[RemoteKey, KeptResult] = OrderedDict()
        """Results that no fetch has used yet, the oldest first."""
        self.kept_bytes = 0
        """Total size in bytes of the results that no fetch has used yet."""

    @property
    def running_bytes(self) -> int:
        """Maximum number of bytes that the running reads return together."""
        return sum(request.bytes_max for request in self._running.values())

    def take(self, request: RemoteRequest, now_ms: int, *, keep: bool = False) -> RemoteRead | None:
        """Return the result of a read if it is available. Otherwise start the read, and return
        None. When the result is available, the waiting fetches of the partition are woken. With
        `keep`, the result is kept for a second use.

        If an earlier fetch started the read, the result may have more bytes than `request` allows.
        Raises RefusedError if the read failed.
        """
        self._now_ms = now_ms
        self._drop_old()
        key, log = request.key, request.log
        kept = self._removed(key)
        if kept is not None and kept.request.log is log:
            if kept.read is None:
                raise RefusedError(kept.code)
            if kept.read.records or kept.request.at_least_one or not request.at_least_one:
                if keep:
                    self._keep(kept)
                return kept.read
        if key not in self._running and all(one.key != key for one in self._waiting):
            if self._has_room(request):
                self._begin(request)
            elif len(self._waiting) < WAITING_MAX:
                self._waiting.append(request)
        return None

    def _has_room(self, request: RemoteRequest) -> bool:
        is_within = self.running_bytes + request.bytes_max <= RUNNING_BYTES_MAX
        return is_within or not self._running

    def _begin(self, request: RemoteRequest) -> None:
        self._running[request.key] = request
        if not self._run(partial(self._read, request)):
            del self._running[request.key]
            raise RefusedError(ErrorCode.REPLICA_NOT_AVAILABLE)

    async def _read(self, request: RemoteRequest) -> None:
        key, read, code = request.key, None, ErrorCode.UNKNOWN_SERVER_ERROR
        try:
            read = await self._reads.read(
                key.partition.key,
                request.log,
                key.offset,
                bytes_max=request.bytes_max,
                at_least_one=request.at_least_one,
                read_committed=key.read_committed,
            )
        except (RemoteReadError, StoreError) as error:
            code = code_of(error)
        except RefusedError as refusal:
            code = refusal.code
        except CorruptDataError:
            code = ErrorCode.CORRUPT_MESSAGE
        except Exception as fault:
            self._errors.note("remote read", key.partition, fault)
        finally:  # also on cancellation
            self._running.pop(key, None)
        self._keep(KeptResult(request, read, code, self._now_ms))
        with suppress(RefusedError):  # the broker stops
            while self._waiting and self._has_room(self._waiting[0]):
                self._begin(self._waiting.popleft())
        self._wake(key.partition.high_watermark_key)

    def _keep(self, result: KeptResult) -> None:
        key = result.request.key
        if key.partition.log is not result.request.log:
            return
        self._removed(key)
        self._kept[key] = result
        self.kept_bytes += _size_of(result)
        while self.kept_bytes > KEPT_BYTES_MAX and len(self._kept) > 1:
            self._removed(next(iter(self._kept)))

    def _drop_old(self) -> None:
        while self._kept:
            key, oldest = next(iter(self._kept.items()))
            if self._now_ms - oldest.kept_ms < KEPT_MS:
                return
            self._removed(key)

    def _removed(self, key: RemoteKey) -> KeptResult | None:
        result = self._kept.pop(key, None)
        if result is not None:
            self.kept_bytes -= _size_of(result)
        return result


def no_reads(read: Callable[[], Awaitable[None]]) -> bool:
    """Return False, because a broker without background tasks cannot run reads."""
    return False


async def without_limit(seconds: float, work: Callable[[], Awaitable[None]]) -> bool:
    """Await `work` without a time limit, for tests and simulations."""
    await work()
    return True


class RemotePorts(NamedTuple):
    """Reader of copied segments, and the functions that run its reads."""

    reads: RemoteReads = NoRemoteReads()
    run: RunRead = no_reads
    within: Within = without_limit


NO_REMOTE_PORTS = RemotePorts()
"""Ports of a broker without tiered storage."""


def no_remote_fetches(wake: Callable[[Hashable], object]) -> RemoteFetches:
    """Return the RemoteFetches of a broker without tiered storage, which refuses all reads."""
    return RemoteFetches(NoRemoteReads(), no_reads, wake, UnexpectedErrors())


def first_batches(records: bytes, bytes_max: int, *, at_least_one: bool) -> bytes:
    """Return the whole batches at the start of `records` that fit into `bytes_max`. With
    `at_least_one`, the first batch is returned even if it is larger."""
    if len(records) <= bytes_max:
        return records
    end = 0
    for at, header in batches(memoryview(records), is_partial_end_allowed=True):
        after = at + header.size_bytes
        if after > bytes_max and (end or not at_least_one):
            break
        end = after
    return records[:end]


def _size_of(result: KeptResult) -> int:
    return 0 if result.read is None else len(result.read.records)
