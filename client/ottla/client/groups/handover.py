"""Assignment and revocation of a consumer's partitions between two polls of the application.

Records count as processed when the application polls again. A change of the assignment, called a
handover, is therefore first requested and then starts with the next poll. During a handover, no
records are returned and no positions move. Commits of the positions therefore lose no records (at
least once).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from ottla.client.fetch.positions import Positions
from ottla.client.network.background import WakeUp, now_ms
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition

Listener = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class Handover:
    """State of the handovers of one consumer, in which its partitions are assigned and revoked."""

    def __init__(
        self,
        positions: Positions,
        *,
        on_end: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.is_held = False
        """True if the consumer must not return records, because a handover is requested or in
        progress."""
        self.is_begun = False
        """True while a handover is in progress: the application has processed all returned records,
        and receives no further records until the handover ends."""
        self.has_polled = True
        """True if the application has polled since `silent_ms` was last called."""
        self.has_lost_records = False
        """True if the member lost its partitions while the application was processing their
        records. Until the application polls again, the member must not commit the offsets of these
        records under a newer membership."""
        self.is_app_waiting = False
        self.wake_up = WakeUp()
        """Signal that is set when a handover starts."""
        self.on_assigned: Listener | None = None
        self.on_revoked: Listener | None = None
        self.on_lost: Listener | None = None
        self.positions = positions
        self._polled_ms = 0
        self._on_end = on_end
        self._on_failure = on_failure
        self._lost: dict[TopicPartition, None] = {}
        self._holder_count = 0
        self._telling: trio.lowlevel.Task | None = None

    # Called for the application.

    def begin(self) -> None:
        """Start a requested handover. The application has polled, and therefore has processed all
        returned records."""
        if not self.is_begun:
            self.is_begun = True
            self.wake_up.set()

    def set_waiting(self, is_waiting: bool) -> None:
        """Record whether the application is waiting for records in a poll."""
        self.has_polled = True
        self.is_app_waiting = is_waiting

    def silent_ms(self) -> int:
        """Return the time in ms since the application last polled."""
        if self.has_polled or self.is_app_waiting:
            # The clock is read here and not at each poll: that would cost more than a delay by one
            # heartbeat.
            self.has_polled = False
            self._polled_ms = now_ms()
        return now_ms() - self._polled_ms

    @property
    def is_in_listener(self) -> bool:
        """True if the current task is running a rebalance callback of the application."""
        return self._telling is trio.lowlevel.current_task()

    async def next_poll(self) -> None:
        """Request a handover, and wait until the next poll of the application has started it."""
        self.is_held = True
        if self.is_app_waiting:
            self.begin()
        with self._hold():
            await self._until_begun()

    # Called by the group.

    def ask(self) -> None:
        """Request a handover. If the application is waiting for records, the handover starts now,
        otherwise with the next poll."""
        self.is_held = True
        if self.is_app_waiting or not any(True for _ in self.positions):
            self.begin()

    def end(self) -> None:
        """End the handover, so that the application receives records again. If another task still
        needs the handover, it continues."""
        if not self._holder_count:
            self.is_held = self.is_begun = False
            self._on_end()

    @asynccontextmanager
    async def held(self, *, is_app_done: bool = False) -> AsyncIterator[None]:
        """Wait until a handover has started. The application waits until the end of the `async
        with` block.

        With `is_app_done`, the handover starts at once, because the application will not poll
        again.
        """
        self.ask()
        if is_app_done:
            self.begin()
        with self._hold():
            await self._until_begun()
            yield

    @contextmanager
    def _hold(self) -> Iterator[None]:
        # A cancelled handover may be unwinding while the next one has started: the last one of them
        # ends it.
        self._holder_count += 1
        try:
            yield
        finally:
            self._holder_count -= 1
            self.end()

    async def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Call `on_revoked` with the partitions, so that the application can commit their offsets,
        then remove the partitions from the assignment."""
        assert self.is_begun
        gone = tuple(at for at in partitions if at in self.positions)
        if gone:
            await self._notify(self.on_revoked, gone)
        self.positions.assign([at for at in self.positions if at not in set(gone)])

    async def give(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions to the assignment, and call `on_assigned` with them."""
        assert self.is_begun
        new = tuple(at for at in partitions if at not in self.positions)
        self.positions.assign([*self.positions, *new])
        await self._notify(self.on_assigned, new)

    def lose(self) -> None:
        """Remove all partitions from the assignment at once, because other members may own them
        already. No further records of these partitions are returned."""
        self._lost.update(dict.fromkeys(self.positions))
        if self._lost and not self.is_app_waiting:
            self.has_lost_records = True
        self.positions.assign(())
        if self.is_held:
            self.begin()

    async def notify_lost(self) -> None:
        """Call the application's callback `on_lost` with the lost partitions. If the application
        has no `on_lost`, call `on_revoked`."""
        lost, self._lost = tuple(self._lost), {}
        if lost:
            await self._notify(self.on_lost or self.on_revoked, lost)

    async def _until_begun(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.is_begun:
            await self.wake_up.wait()

    async def _notify(
        self, listener: Listener | None, partitions: tuple[TopicPartition, ...]
    ) -> None:
        if listener is None:
            return
        before, self._telling = self._telling, trio.lowlevel.current_task()
        try:
            await listener(partitions)
        except (RefusedError, ConnectionLostError) as error:
            # The next poll raises the error of a callback, such as a failed commit; the membership
            # continues.
            self._on_failure(error)
        finally:
            self._telling = before
