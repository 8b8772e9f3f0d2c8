"""Runs the duties that follow from one leader's answers and take a disk.

The duties of one answer are performed side by side, and the next request waits for them, but not
for long: a duty that a slow or hanging disk holds up goes on by itself, its partition is not asked
for until it is done, and all others are.  A log that is being changed is changed to its end, also
when its partition is left meanwhile; who leaves it can wait for that.
"""

from collections.abc import Callable

import trio

from ottla.broker.replicas.follower_duties import DiskDuty, carry_out
from ottla.broker.replicas.follower_fetch import Flush, Followed, FollowerFetch
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log import Log

PATIENCE_MS = 500
"""How long partitions wait for another one's duty.  Lower has partitions of a slow disk asked for
by requests of their own; higher delays all others by as much when a disk begins to hang."""


class FollowerDuties:
    """The duties under way for one leader."""

    def __init__(
        self,
        core: FollowerFetch,
        clock: Clock,
        errors: UnexpectedErrors,
        *,
        on_late: Callable[[], None],
    ) -> None:
        """`on_late` is called when a duty ends that nobody waits for any more."""
        self._core = core
        self._clock = clock
        self._errors = errors
        self._on_late = on_late
        self._nursery: trio.Nursery | None = None
        self._changing: set[Followed] = set()
        self._awaited: set[Followed] = set()
        self._has_ended = trio.Event()

    def work_in(self, nursery: trio.Nursery) -> None:
        """Perform duties as tasks of this nursery from now on."""
        self._nursery = nursery

    def is_changing(self, followed: Followed) -> bool:
        """Return whether a duty changes the partition's log."""
        return followed in self._changing

    async def wait_done_with(self, followed: Followed) -> None:
        """Wait until no duty changes the partition's log."""
        while followed in self._changing:
            await self._has_ended.wait()

    def begin(self, followed: Followed, duty: DiskDuty) -> None:
        """Begin a duty, unless its partition was left meanwhile."""
        if self._core.find(followed.key) is not followed:
            return
        assert self._nursery is not None
        if not isinstance(duty, Flush):
            self._changing.add(followed)
        self._awaited.add(followed)
        self._nursery.start_soon(self._perform, followed, followed.log, duty)

    async def wait(self) -> None:
        """Wait until the duties are done, or patience ends; the rest go on by themselves."""
        if not self._awaited:
            return
        with trio.move_on_after(PATIENCE_MS / 1_000):
            while self._awaited:
                await self._has_ended.wait()
        for followed in self._awaited:
            self._core.hold_back(followed)
        self._awaited.clear()

    async def _perform(self, followed: Followed, log: Log, duty: DiskDuty) -> None:
        try:
            # A change that has begun is ended, also when its partition is left.
            with trio.CancelScope(shield=not isinstance(duty, Flush)):
                await carry_out(
                    self._core, followed, log, duty, clock=self._clock, errors=self._errors
                )
        finally:
            self._changing.discard(followed)
            is_late = followed not in self._awaited
            self._awaited.discard(followed)
            has_ended, self._has_ended = self._has_ended, trio.Event()
            has_ended.set()
            if is_late:
                self._on_late()
