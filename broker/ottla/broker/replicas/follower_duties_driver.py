"""Runs the disk work (duties) that follows from one leader's responses.

The duties of one response run concurrently, and the next request waits for them for a short time. A
longer duty continues in the background. Its partition is not fetched until the duty is done; all
other partitions are fetched. Every change of a log is completed, even if its partition is no longer
followed. A caller that stops following a partition can wait for the end of the change.
"""

from collections.abc import Awaitable, Callable

import trio

from ottla.broker.replicas.follower_duties import DiskDuty, perform_duty
from ottla.broker.replicas.follower_fetch import Flush, FollowedPartition, FollowerFetch
from ottla.model.errors import OttlaError
from ottla.model.seams import Clock
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.log.log import Log

PATIENCE_MS = 500
"""Time in milliseconds for which a follower's next fetch waits for disk work on one partition. With
a shorter time, partitions on a slow disk are fetched by separate requests. With a longer time, a
hanging disk delays all other partitions for longer."""


class FollowerDuties:
    """Disk operations in progress on the logs of the partitions that a follower fetches from one
    leader."""

    def __init__(
        self,
        core: FollowerFetch,
        clock: Clock,
        errors: UnexpectedErrors,
        *,
        on_late: Callable[[], None],
    ) -> None:
        """Create the driver without disk work. `on_late` is called when disk work ends for which
        the fetcher no longer waits."""
        self._core = core
        self._clock = clock
        self._errors = errors
        self._on_late = on_late
        self._nursery: trio.Nursery | None = None
        self._changing: set[FollowedPartition] = set()
        self._awaited: set[FollowedPartition] = set()
        self._has_ended = trio.Event()

    def set_nursery(self, nursery: trio.Nursery) -> None:
        """Set the nursery in which the disk work on followers' logs runs as tasks."""
        self._nursery = nursery

    def is_changing(self, followed: FollowedPartition) -> bool:
        """Return whether disk work in progress is changing the log of a followed partition."""
        return followed in self._changing

    async def wait_done_with(self, followed: FollowedPartition) -> None:
        """Wait until no disk work is changing the log of a followed partition."""
        while followed in self._changing:
            await self._has_ended.wait()

    def begin(self, followed: FollowedPartition, duty: DiskDuty) -> None:
        """Start a duty (disk work that a leader's response requires) on a partition's log. Has no
        effect if the partition is no longer followed."""
        if self._core.find(followed.key) is not followed:
            return
        assert self._nursery is not None
        if not isinstance(duty, Flush):
            self._changing.add(followed)
        self._awaited.add(followed)
        self._nursery.start_soon(self._perform, followed, followed.log, duty)

    def begin_found(
        self, followed: FollowedPartition, find: Callable[[], Awaitable[DiskDuty]]
    ) -> None:
        """Call `find` in the background to determine a duty of the follower, and then start the
        duty. `find` may take as long as a request to an object store.

        The partition is not fetched until the duty is done. The broker may stop following the
        leader in the meantime. If `find` raises an error, the partition is marked as failed.
        """
        if self._core.find(followed.key) is not followed:
            return
        assert self._nursery is not None
        self._core.hold_back(followed)
        self._nursery.start_soon(self._find, followed, find)

    async def _find(
        self, followed: FollowedPartition, find: Callable[[], Awaitable[DiskDuty]]
    ) -> None:
        try:
            duty = await find()
        except OttlaError as error:
            self._core.mark_failed(followed, error, self._clock.monotonic_ms())
        except Exception as error:
            self._errors.note("partition", followed.name, error)
            self._core.mark_failed(followed, error, self._clock.monotonic_ms())
        else:
            self.begin(followed, duty)
            self._awaited.discard(followed)  # no fetch waits for it
        self._on_late()

    async def wait(self) -> None:
        """Wait until all disk work on followers' logs is done, for at most PATIENCE_MS. Unfinished
        work continues in the background."""
        if not self._awaited:
            return
        with trio.move_on_after(PATIENCE_MS / 1_000):
            while self._awaited:
                await self._has_ended.wait()
        for followed in self._awaited:
            self._core.hold_back(followed)
        self._awaited.clear()

    async def _perform(self, followed: FollowedPartition, log: Log, duty: DiskDuty) -> None:
        try:
            # A change of a log is completed once begun, even if its partition is no longer
            # followed.
            with trio.CancelScope(shield=not isinstance(duty, Flush)):
                await perform_duty(
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
