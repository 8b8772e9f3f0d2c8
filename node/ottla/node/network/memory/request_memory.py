"""Pool that bounds the memory of requests not started yet, over all connections.

Pure. The pool's size is `queued.max.request.bytes`. A connection is charged for its buffers, which
grow with the received bytes and never because a frame header announced a length. Before its buffer
grows, the connection requests memory from the pool. The socket is not read while the pool refuses.

* One connection may use at most a fourth of the pool. A fourth of the pool is reserved for
  connections below a small size, so that a few large frames do not stop small frames.
* One connection at a time, the first that waits, may grow beyond these limits until its frame is
  served. Its memory is not counted. Frames can therefore not deadlock by waiting for each other.
* Connections that have not logged in have a separate small pool with the same rules. Their
  unfinished frames therefore use no memory of authenticated connections.
* `sweep` closes connections whose frame takes longer than its size justifies. While other
  connections wait for memory, it also closes connections without progress, the largest first.

Invariants: ChargedAsAllocated, OneOverdraftAtATime, OneAlwaysGrows.
"""

from typing import Protocol

from ottla.model.limits import (
    FRAME_BYTES_PER_SECOND_MIN,
    FRAME_GRACE_MS,
    KIB,
    MEMORY_CHECK_MS,
    MEMORY_PROGRESS_BYTES_MIN,
    MIB,
    RESPONSE_MEMORY_BYTES_MAX,
)
from ottla.node.network.memory.response_memory import ResponseMemory, ResponseMemoryHolder
from ottla.node.network.server.closed_hosts import CLOSED_MEMORY_HOLDER

SHARES_OF_POOL = 4
"""Divisor of the request memory pool's size. The quotient is the maximum memory of one connection.
With a larger number, large frames wait for each other sooner. With a smaller number, fewer
connections can exhaust the pool."""

SMALL_PARTS_OF_POOL = 64
"""Number of equal parts of the request memory pool. A connection counts as small if it uses at most
one part: 4 MiB of 256. A fourth of the pool is reserved for small connections. Kafka's producers
send 1 MiB by default."""

UNAUTHENTICATED_PARTS_OF_POOL = 16
"""Divisor of the request memory pool's size. The quotient is the maximum memory of all
unauthenticated connections together (16 MiB of 256). Tokens take a few KiB, and at most
`sasl.server.max.receive.size` (512 KiB). With a larger number, logins with large tokens wait for
each other sooner. With a smaller one, unauthenticated clients can occupy more memory."""

CHUNK_BYTES = 16 * KIB
"""Number of bytes of one read when the pool of request memory is exhausted. With such reads, small
requests are still served, and the first bytes of larger ones exceed the pool only slightly."""

UNAUTHENTICATED_CHUNK_BYTES = 4 * KIB
"""Number of bytes of one read from the socket of an unauthenticated connection."""

UNAUTHENTICATED_GRACE_MS = 5_000
"""Maximum milliseconds for the arrival of an unauthenticated client's frame while other connections
wait for memory. Time that the frame itself waits for memory is included. With a smaller value,
logins with large tokens over slow lines are cut off. With a larger one, the other connections wait
longer."""

TRIM_BYTES = 8 * MIB
"""Number of bytes by which the used request memory must fall below its last peak before the process
returns free memory to the operating system. With a smaller value, the allocator must request memory
again sooner."""

TRIM_INTERVAL_MS = 10_000
"""Minimum milliseconds between two returns of free memory to the operating system. With a smaller
value, a busy allocator requests the same memory repeatedly. With a larger one, memory stays
allocated for longer after a flood."""

PROGRESS_PARTS = 8
"""Number of parts into which a frame is divided for checks of progress. While other connections
wait for memory, at least one part must arrive between two checks. Applies to frames smaller than 8
MiB."""

WAITERS_PER_RELEASE = 64
"""Maximum number of waiting connections that try again when request memory is released. After
`sweep`, all waiting connections may try again."""

SWEEP_MS = 1_000
"""Milliseconds between checks of frames that have not arrived completely. Time during which the
process is paused is not counted."""


class RequestMemoryHolder(Protocol):
    """Interface by which the pool of request memory calls a connection."""

    @property
    def unfinished_frame_bytes(self) -> int:
        """Announced size in bytes of the frame that is only partly received, or 0 if no frame is
        incomplete."""
        ...

    @property
    def wants_bytes(self) -> bool:
        """True if the connection's socket is being read: only the peer can then delay the frame."""
        ...

    def on_memory_available(self) -> None:
        """Retry a refused request for memory, since the pool of request memory may have free memory
        now."""
        ...

    def give_up(self, reason: str) -> None:
        """Close the connection, because other connections need its request memory, or because it
        has used request memory for too long."""
        ...


class MemoryShare:
    """Request memory of one connection in the pool, and the progress of the connection's incomplete
    frame."""

    __slots__ = ("age_ms", "arrived_bytes", "held_bytes", "holder", "is_new", "seen_bytes")

    def __init__(self, holder: RequestMemoryHolder) -> None:
        self.holder = holder
        self.held_bytes = 0
        self.age_ms = 0
        """Milliseconds for which the connection's unfinished frame has been read. The connection
        resets the value to 0 when it serves a frame."""
        self.arrived_bytes = 0
        """Total bytes that the connection has received while it used request memory. Shows the
        progress of the connection."""
        self.seen_bytes = 0
        """Value of `arrived_bytes` (total bytes received) at the last check of the connection's
        progress."""
        self.is_new = True
        """True until the first check of the connection's progress."""


class RequestMemory:
    """Pool that bounds the request memory of all connections. A `limit_bytes` of None makes it
    unlimited."""

    __slots__ = (
        "_checked_ms",
        "_holders",
        "_known",
        "_large_limit_bytes",
        "_overdrawing",
        "_peak_bytes",
        "_share_bytes_max",
        "_small_bytes_max",
        "_swept_ms",
        "_trimmed_ms",
        "_used_bytes",
        "_waiters",
        "answers",
        "chunk_bytes",
        "given_up_count",
        "is_used_up",
        "limit_bytes",
        "reads_chunks",
        "reserved_bytes",
        "unauthenticated",
    )

    def __init__(self, limit_bytes: int | None, known: "RequestMemory | None" = None) -> None:
        """Create a pool of request memory with `limit_bytes`. `known` is None, or, if the new pool
        is for unauthenticated connections, the pool of authenticated connections."""
        is_unauthenticated = known is not None
        self._known = known
        self.limit_bytes = limit_bytes
        answer_bytes_max = RESPONSE_MEMORY_BYTES_MAX
        self.unauthenticated: RequestMemory | None = None
        """Pool of request memory for unauthenticated connections; None in that pool itself."""
        if is_unauthenticated:
            answer_bytes_max //= UNAUTHENTICATED_PARTS_OF_POOL
        else:
            part = None if limit_bytes is None else limit_bytes // UNAUTHENTICATED_PARTS_OF_POOL
            self.unauthenticated = RequestMemory(part, self)
        self.answers = ResponseMemory(answer_bytes_max)
        """Pool that bounds the response bytes that clients have not read."""
        self.reads_chunks = is_unauthenticated
        """True if new frames should be received in reads of `chunk_bytes`, because no memory is
        left or the connections are unauthenticated."""
        self.chunk_bytes = UNAUTHENTICATED_CHUNK_BYTES if is_unauthenticated else CHUNK_BYTES
        self.reserved_bytes = 0
        self.given_up_count = 0
        """Number of connections that were closed because of their request memory: other connections
        needed it, or they had used it for too long."""
        self.is_used_up = False
        """True if the pool has no request memory left for further frames."""
        share_bytes_max = 0 if limit_bytes is None else limit_bytes // SHARES_OF_POOL
        self._share_bytes_max = share_bytes_max
        self._large_limit_bytes = share_bytes_max * (SHARES_OF_POOL - 1)
        self._small_bytes_max = 0 if limit_bytes is None else limit_bytes // SMALL_PARTS_OF_POOL
        self._holders: dict[MemoryShare, None] = {}
        self._waiters: dict[MemoryShare, None] = {}
        self._overdrawing: MemoryShare | None = None
        self._used_bytes = 0
        self._peak_bytes = 0
        self._swept_ms: int | None = None
        self._trimmed_ms: int | None = None
        self._checked_ms = 0

    # Sums of this pool and the pool of unauthenticated connections.

    @property
    def held_bytes_of_all(self) -> int:
        """Number of bytes of request memory that all connections use, authenticated or not."""
        unauthenticated = self.unauthenticated
        return self.reserved_bytes + (
            0 if unauthenticated is None else unauthenticated.reserved_bytes
        )

    @property
    def given_up_count_of_all(self) -> int:
        """Number of connections, authenticated or not, that were closed because of their request
        memory."""
        unauthenticated = self.unauthenticated
        return self.given_up_count + (
            0 if unauthenticated is None else unauthenticated.given_up_count
        )

    @property
    def answer_bytes_of_all(self) -> int:
        """Number of response bytes that clients have not read, over all connections."""
        unauthenticated = self.unauthenticated
        return self.answers.held_bytes + (
            0 if unauthenticated is None else unauthenticated.answers.held_bytes
        )

    @property
    def unread_count_of_all(self) -> int:
        """Number of connections that were closed because their clients did not read their
        responses."""
        unauthenticated = self.unauthenticated
        given_up_count = 0 if unauthenticated is None else unauthenticated.answers.given_up_count
        return self.answers.given_up_count + given_up_count

    @property
    def waiting_count(self) -> int:
        """Number of connections whose sockets are not read because the pool of request memory is
        exhausted."""
        return len(self._waiters)

    def charge(self, share: MemoryShare, size_bytes: int) -> None:
        """Charge a connection's request memory for bytes that have already arrived."""
        assert size_bytes >= 0
        if not share.held_bytes:
            self._holders[share] = None
            share.is_new = True
        self._count(share, size_bytes)

    def _allow_overdraft(self, share: MemoryShare | None) -> None:
        self._overdrawing = share
        self._count_used()

    def _count(self, share: MemoryShare, size_bytes: int) -> None:
        share.held_bytes += size_bytes
        self.reserved_bytes += size_bytes
        assert share.held_bytes >= 0
        assert self.reserved_bytes >= 0
        self._count_used()

    def _count_used(self) -> None:
        overdrawing = self._overdrawing
        overdrawn_bytes = 0 if overdrawing is None else overdrawing.held_bytes
        self._used_bytes = self.reserved_bytes - overdrawn_bytes
        self.is_used_up = self.limit_bytes is not None and self._used_bytes >= self.limit_bytes
        if self.unauthenticated is not None:
            self.reads_chunks = self.is_used_up
        if self.reserved_bytes > self._peak_bytes:
            self._peak_bytes = self.reserved_bytes

    def try_grow(self, share: MemoryShare, size_bytes: int) -> bool:
        """Charge a connection's request memory for bytes that have not arrived yet. Returns whether
        the memory may be allocated."""
        if self._has_room_for(share, size_bytes):
            self.charge(share, size_bytes)
            return True
        if self._overdrawing is None:
            self._allow_overdraft(share)
        if self._overdrawing is not share:
            return False
        self.charge(share, size_bytes)
        return True

    def _has_room_for(self, share: MemoryShare, size_bytes: int) -> bool:
        if self.limit_bytes is None:
            return True
        held_bytes = share.held_bytes + size_bytes
        # As in Kafka the last grant may exceed the remaining memory.
        if held_bytes <= self._small_bytes_max:
            return not self.is_used_up
        return self._used_bytes < self._large_limit_bytes and held_bytes <= self._share_bytes_max

    def wait(self, share: MemoryShare) -> None:
        """Queue a connection that the pool has refused memory. Its `on_memory_available` is called
        once, in the order of the queue, when `try_grow` may succeed."""
        self._waiters[share] = None

    def release(self, share: MemoryShare, size_bytes: int) -> None:
        """Release a connection's request memory. Waiting connections then try again while the pool
        has free memory."""
        self._count(share, -size_bytes)
        if not share.held_bytes:
            self._holders.pop(share, None)
        if self._overdrawing is share:
            self._allow_overdraft(None)
        if self._waiters:
            self._retry_waiting(WAITERS_PER_RELEASE)

    def _retry_waiting(self, count_max: int) -> None:
        """Call at most `count_max` connections that wait for request memory to try again, in order,
        while the pool has free memory."""
        waiters = self._waiters
        for _ in range(min(len(waiters), count_max)):
            if self.is_used_up and self._overdrawing is not None:
                return
            first = next(iter(waiters))
            del waiters[first]
            first.holder.on_memory_available()

    def forget(self, share: MemoryShare) -> None:
        """Remove a closed connection from the queue for request memory. The connection releases its
        memory itself."""
        self._waiters.pop(share, None)
        share.holder = CLOSED_MEMORY_HOLDER

    def move_to_authenticated(
        self, share: MemoryShare, holder: ResponseMemoryHolder
    ) -> "RequestMemory":
        """Move a connection and its request memory to the pool of authenticated connections, after
        its login. Returns that pool."""
        known = self._known
        if known is None:
            return self
        self._waiters.pop(share, None)
        if held_bytes := share.held_bytes:
            self.release(share, held_bytes)
            known.charge(share, held_bytes)
        if answer_bytes := self.answers.held_by(holder):
            self.answers.settle(holder, 0)
            known.answers.settle(holder, answer_bytes)
        return known

    def check_fall(self, now_ms: int) -> bool:
        """Return whether the process should return free memory to the operating system. The result
        is True if the used request memory has fallen by TRIM_BYTES below its peak since the last
        True.

        Returns True at most once every `TRIM_INTERVAL_MS`.
        """
        if self._trimmed_ms is not None and now_ms - self._trimmed_ms < TRIM_INTERVAL_MS:
            return False
        pools = [self] if self.unauthenticated is None else [self, self.unauthenticated]
        if not any(pool._fallen_bytes >= TRIM_BYTES for pool in pools):
            return False
        self._trimmed_ms = now_ms
        for pool in pools:
            pool._peak_bytes = pool.reserved_bytes
        return True

    @property
    def _fallen_bytes(self) -> int:
        return self._peak_bytes - self.reserved_bytes

    # ---- connections that hold memory for too long

    def sweep(self, now_ms: int) -> None:
        """Close connections whose frames take too long to arrive. Must be called every
        `SWEEP_MS`."""
        if self.unauthenticated is not None:
            self.unauthenticated.sweep(now_ms)
        self.answers.sweep()
        last_ms, self._swept_ms = self._swept_ms, now_ms
        # A paused process has read nothing, so that no client is at fault.
        elapsed_ms = 0 if last_ms is None else min(now_ms - last_ms, 2 * SWEEP_MS)
        for share in list(self._holders):
            frame_bytes = share.holder.unfinished_frame_bytes
            if frame_bytes and (self.unauthenticated is None or share.holder.wants_bytes):
                share.age_ms += elapsed_ms
                if share.age_ms > self._frame_timeout_ms(frame_bytes):
                    self._give_up(share, f"a request of {frame_bytes} bytes arrived too slowly")
        self._retry_waiting(len(self._waiters))
        if now_ms - self._checked_ms >= MEMORY_CHECK_MS:
            self._checked_ms = now_ms
            self._check_progress()

    def _frame_timeout_ms(self, frame_bytes: int) -> int:
        """Return the milliseconds within which a frame of `frame_bytes` must arrive. For
        unauthenticated connections, this includes the time that they wait for each other."""
        if self.unauthenticated is None and self._waiters:
            return UNAUTHENTICATED_GRACE_MS
        return frame_timeout_ms(frame_bytes)

    def _check_progress(self) -> None:
        """Close the largest connections whose frames make no progress, if other connections wait
        for request memory."""
        idle: list[MemoryShare] = []
        for share in self._holders:
            frame_bytes = share.holder.unfinished_frame_bytes
            enough_bytes = min(MEMORY_PROGRESS_BYTES_MIN, max(frame_bytes // PROGRESS_PARTS, 1))
            is_idle = share.arrived_bytes - share.seen_bytes < enough_bytes
            share.seen_bytes = share.arrived_bytes
            was_new, share.is_new = share.is_new, False
            if is_idle and not was_new and share not in self._waiters:
                idle.append(share)
        was_overdrawing_idle = self._overdrawing in idle
        for share in sorted(idle, key=_held_bytes, reverse=True):
            if not self._waiters:
                return
            self._give_up(share)
        if was_overdrawing_idle:
            self._make_room_for_smallest()

    def _make_room_for_smallest(self) -> None:
        """Close the largest of the connections that wait for request memory, until the smallest of
        them can continue.

        Without this, one large connection after another would grow beyond the pool, perhaps without
        sending any data.
        """
        waiters = sorted(self._waiters, key=_held_bytes)
        smallest = waiters[0] if waiters else None
        while smallest in self._waiters and waiters[-1].held_bytes > 2 * waiters[0].held_bytes:
            largest = waiters.pop()
            if largest in self._waiters:
                self._give_up(largest)

    def _give_up(
        self, share: MemoryShare, reason: str = "others wait for the memory that its requests hold"
    ) -> None:
        self.given_up_count += 1
        share.holder.give_up(reason)


def _held_bytes(share: MemoryShare) -> int:
    return share.held_bytes


def frame_timeout_ms(frame_bytes: int) -> int:
    """Return the milliseconds that a frame with `frame_bytes` may take to arrive from a client."""
    return FRAME_GRACE_MS + frame_bytes * 1_000 // FRAME_BYTES_PER_SECOND_MIN
