"""The pool that bounds what all connections together hold of requests not taken up yet.

Pure.  Its size is `queued.max.request.bytes`.  A connection is charged for the memory it holds,
which grows with the bytes that arrive and never because a length announced them.  Before its
buffer grows it asks the pool, and is not read while the answer is no.

* A connection has a share of the pool, and those that hold more than a little leave a fourth of
  it to the others: a few large frames do not stop small ones.
* One connection at a time, the first that waits, may grow past all of this until its frame is
  taken up, and what it holds does not count: frames never wait for each other in a ring.
* Connections that have not logged in have a small pool of their own, with the same rules: however
  many they are, the frames that they do not finish take nothing from those that have.
* `sweep` gives up a frame that takes longer than its size excuses and, while others wait, those
  that make no progress, the largest first.

Invariants: ChargedAsAllocated, OneOverdraftAtATime, SomebodyGrows.
"""

from typing import Protocol

from ottla.broker.network.parted import PARTED_HOLDER
from ottla.broker.network.response_memory import AnswerHolder, ResponseMemory
from ottla.model.limits import (
    FRAME_BYTES_PER_SECOND_MIN,
    FRAME_GRACE_MS,
    KIB,
    MEMORY_CHECK_MS,
    MEMORY_PROGRESS_BYTES_MIN,
    MIB,
    RESPONSE_MEMORY_BYTES_MAX,
)

SHARES_OF_POOL = 4
"""A connection may hold a fourth of the pool.  More shares make large frames take turns sooner,
fewer let fewer connections use up the pool."""

SMALL_PARTS_OF_POOL = 64
"""What a connection holds at most to count as small, of whom a fourth of the pool is kept: 4 MiB of
256.  Kafka's producers send 1 MiB unless they are told otherwise."""

STRANGERS_PARTS_OF_POOL = 16
"""The part of a pool that connections which have not logged in hold at most: 16 MiB of 256.  Tokens
are of a few KiB, and never above `sasl.server.max.receive.size` (512 KiB).  Lower has logins with
large tokens take turns sooner, higher lets strangers take more memory."""

CRUMB_BYTES = 16 * KIB
"""What one read takes when the pool is used up: small requests still pass, and the beginnings of
others take little more than the pool."""

STRANGER_CRUMB_BYTES = 4 * KIB
"""Bytes that one read takes of a connection that has not logged in."""

STRANGER_GRACE_MS = 5_000
"""How long a frame of a stranger may take while others wait for memory, its own waits included.
Lower cuts off logins with large tokens over slow lines, higher has them wait longer."""

TRIM_BYTES = 8 * MIB
"""Bytes given back since the pool's peak after which the process gives free memory back to the
system.  Lower has the allocator ask for memory again sooner."""

TRIM_INTERVAL_MS = 10_000
"""Least time between two of these.  Lower has a busy allocator ask for the same memory again and
again, higher keeps memory for longer after a flood."""

PROGRESS_PARTS = 8
"""A frame smaller than 8 MiB has to bring an eighth of itself between two checks."""

WAITERS_PER_RELEASE = 64
"""Connections that try again when one gives memory back; `sweep` asks all of them."""

SWEEP_MS = 1_000
"""How often unfinished frames are looked at; what a pause of the process adds is not counted."""


class MemoryHolder(Protocol):
    """A connection, as the pool sees it."""

    @property
    def unfinished_frame_bytes(self) -> int:
        """Announced size of the frame whose rest has not arrived; 0 with none."""
        ...

    @property
    def wants_bytes(self) -> bool:
        """Whether its socket is read: only then is it the peer that everybody waits for."""
        ...

    def on_memory_available(self) -> None:
        """Ask for room again."""
        ...

    def give_up(self, reason: str) -> None:
        """Close: what it holds is needed by others, or has been held for too long."""
        ...


class MemoryShare:
    """What one connection holds of the pool."""

    __slots__ = ("age_ms", "arrived_bytes", "held_bytes", "holder", "is_new", "seen_bytes")

    def __init__(self, holder: MemoryHolder) -> None:
        self.holder = holder
        self.held_bytes = 0
        self.age_ms = 0
        """How long the unfinished frame has been read for; its owner sets it back."""
        self.arrived_bytes = 0
        """All that ever arrived while something was held: rises with progress."""
        self.seen_bytes = 0
        """`arrived_bytes` at the last check for progress."""
        self.is_new = True
        """No check has seen it yet."""


class RequestMemory:
    """Counts held bytes; `limit_bytes` of None is unlimited."""

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
        "crumb_bytes",
        "given_up_count",
        "is_used_up",
        "limit_bytes",
        "reads_crumbs",
        "reserved_bytes",
        "strangers",
    )

    def __init__(self, limit_bytes: int | None, known: "RequestMemory | None" = None) -> None:
        """Make a pool; given the pool of those who have logged in, that of strangers beside it."""
        is_of_strangers = known is not None
        self._known = known
        self.limit_bytes = limit_bytes
        answer_bytes_max = RESPONSE_MEMORY_BYTES_MAX
        self.strangers: RequestMemory | None = None
        """The pool of connections that have not logged in; None in that pool itself."""
        if is_of_strangers:
            answer_bytes_max //= STRANGERS_PARTS_OF_POOL
        else:
            part = None if limit_bytes is None else limit_bytes // STRANGERS_PARTS_OF_POOL
            self.strangers = RequestMemory(part, self)
        self.answers = ResponseMemory(answer_bytes_max)
        """The other pool: of what clients have not read."""
        self.reads_crumbs = is_of_strangers
        """True if what begins to arrive should be read in pieces of `crumb_bytes`."""
        self.crumb_bytes = STRANGER_CRUMB_BYTES if is_of_strangers else CRUMB_BYTES
        self.reserved_bytes = 0
        self.given_up_count = 0
        """Connections closed for what they held."""
        self.is_used_up = False
        """Nothing is left."""
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

    # Of this pool, and of the strangers' within it.

    @property
    def held_bytes_of_all(self) -> int:
        """Bytes of requests that are held."""
        strangers = self.strangers
        return self.reserved_bytes + (0 if strangers is None else strangers.reserved_bytes)

    @property
    def given_up_count_of_all(self) -> int:
        """Connections closed for what they held."""
        strangers = self.strangers
        return self.given_up_count + (0 if strangers is None else strangers.given_up_count)

    @property
    def answer_bytes_of_all(self) -> int:
        """Bytes of answers that clients have not read."""
        strangers = self.strangers
        return self.answers.held_bytes + (0 if strangers is None else strangers.answers.held_bytes)

    @property
    def unread_count_of_all(self) -> int:
        """Connections closed for what they did not read."""
        strangers = self.strangers
        given_up_count = 0 if strangers is None else strangers.answers.given_up_count
        return self.answers.given_up_count + given_up_count

    @property
    def waiting_count(self) -> int:
        """Number of connections that are not read for want of memory."""
        return len(self._waiters)

    def charge(self, share: MemoryShare, size_bytes: int) -> None:
        """Count memory that holds bytes which have arrived already."""
        assert size_bytes >= 0
        if not share.held_bytes:
            self._holders[share] = None
            share.is_new = True
        self._count(share, size_bytes)

    def _overdraw(self, share: MemoryShare | None) -> None:
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
        if self.strangers is not None:
            self.reads_crumbs = self.is_used_up
        if self.reserved_bytes > self._peak_bytes:
            self._peak_bytes = self.reserved_bytes

    def try_grow(self, share: MemoryShare, size_bytes: int) -> bool:
        """Charge memory for bytes to come, and return whether it may be taken."""
        if self._has_room_for(share, size_bytes):
            self.charge(share, size_bytes)
            return True
        if self._overdrawing is None:
            self._overdraw(share)
        if self._overdrawing is not share:
            return False
        self.charge(share, size_bytes)
        return True

    def _has_room_for(self, share: MemoryShare, size_bytes: int) -> bool:
        if self.limit_bytes is None:
            return True
        held_bytes = share.held_bytes + size_bytes
        # As in Kafka the last grant may take more than is left.
        if held_bytes <= self._small_bytes_max:
            return not self.is_used_up
        return self._used_bytes < self._large_limit_bytes and held_bytes <= self._share_bytes_max

    def wait(self, share: MemoryShare) -> None:
        """Have the holder called, once and in order, when `try_grow` may succeed again."""
        self._waiters[share] = None

    def release(self, share: MemoryShare, size_bytes: int) -> None:
        """Take bytes back, and let those who wait try again while there is room."""
        self._count(share, -size_bytes)
        if not share.held_bytes:
            self._holders.pop(share, None)
        if self._overdrawing is share:
            self._overdraw(None)
        if self._waiters:
            self._let_grow(WAITERS_PER_RELEASE)

    def _let_grow(self, count_max: int) -> None:
        """Let those who wait try again, in order, while there is room."""
        waiters = self._waiters
        for _ in range(min(len(waiters), count_max)):
            if self.is_used_up and self._overdrawing is not None:
                return
            first = next(iter(waiters))
            del waiters[first]
            first.holder.on_memory_available()

    def forget(self, share: MemoryShare) -> None:
        """Call the holder no longer: it has closed, and releases what it holds."""
        self._waiters.pop(share, None)
        share.holder = PARTED_HOLDER

    def welcome(self, share: MemoryShare, holder: AnswerHolder) -> "RequestMemory":
        """Return the pool of those who have logged in, which counts from now on what is held."""
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

    def take_fall(self, now_ms: int) -> bool:
        """Return True if much less is held than at the peak since this last returned True.

        It does so every `TRIM_INTERVAL_MS` at most.
        """
        if self._trimmed_ms is not None and now_ms - self._trimmed_ms < TRIM_INTERVAL_MS:
            return False
        pools = [self] if self.strangers is None else [self, self.strangers]
        if not any(pool._fallen_bytes >= TRIM_BYTES for pool in pools):
            return False
        self._trimmed_ms = now_ms
        for pool in pools:
            pool._peak_bytes = pool.reserved_bytes
        return True

    @property
    def _fallen_bytes(self) -> int:
        return self._peak_bytes - self.reserved_bytes

    # ---- who holds for too long

    def sweep(self, now_ms: int) -> None:
        """Give up frames that take too long; to be called every `SWEEP_MS`."""
        if self.strangers is not None:
            self.strangers.sweep(now_ms)
        self.answers.sweep()
        last_ms, self._swept_ms = self._swept_ms, now_ms
        # A process that stood still has read nothing: that is nobody's fault.
        elapsed_ms = 0 if last_ms is None else min(now_ms - last_ms, 2 * SWEEP_MS)
        for share in list(self._holders):
            frame_bytes = share.holder.unfinished_frame_bytes
            if frame_bytes and (self.strangers is None or share.holder.wants_bytes):
                share.age_ms += elapsed_ms
                if share.age_ms > self._patience_ms(frame_bytes):
                    self._give_up(share, f"a request of {frame_bytes} bytes arrived too slowly")
        self._let_grow(len(self._waiters))
        if now_ms - self._checked_ms >= MEMORY_CHECK_MS:
            self._checked_ms = now_ms
            self._check_progress()

    def _patience_ms(self, frame_bytes: int) -> int:
        """Return the time that a frame may take, waits of strangers for each other included."""
        if self.strangers is None and self._waiters:
            return STRANGER_GRACE_MS
        return patience_ms(frame_bytes)

    def _check_progress(self) -> None:
        """While others wait for memory, give up the largest holders that make no progress."""
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
        """Give up those that hold most and wait for more, until the smallest that waits goes on.

        For each of them would take its turn at growing past the pool, and perhaps bring nothing.
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


def patience_ms(frame_bytes: int) -> int:
    """Return how long a frame may take to arrive."""
    return FRAME_GRACE_MS + frame_bytes * 1_000 // FRAME_BYTES_PER_SECOND_MIN
