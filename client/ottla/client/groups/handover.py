"""Gives partitions to the application and takes them from it, between two of its polls.

Whatever was handed out before the application asks for more counts as processed.  So a handover is
asked for, begins with the next poll, and until it ends nothing is handed out: the positions stand
still, and what is committed of them loses nothing (at least once).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager

import trio

from ottla.client.fetch.positions import Positions
from ottla.client.network.background import Bell, now_ms
from ottla.client.network.connection import ConnectionLostError
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition

Listener = Callable[[tuple[TopicPartition, ...]], Awaitable[None]]


class Handover:
    """Where the application stands towards its partitions."""

    def __init__(
        self,
        positions: Positions,
        *,
        on_end: Callable[[], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.is_held = False
        """Whether nothing may be handed out: a handover is asked for, or under way."""
        self.is_begun = False
        """Whether all that was handed out is processed, and nothing more will be till the end."""
        self.has_polled = True
        """Whether the application polled since that was looked at last."""
        self.is_app_waiting = False
        self.bell = Bell()
        """Rung when a handover begins."""
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

    # The application's side.

    def begin(self) -> None:
        """The application asks for records: what it was given before is processed."""
        if not self.is_begun:
            self.is_begun = True
            self.bell.ring()

    def set_waiting(self, is_waiting: bool) -> None:
        """The application waits for records from now on, or no longer."""
        self.has_polled = True
        self.is_app_waiting = is_waiting

    def silent_ms(self) -> int:
        """Return for how long the application has not polled, as far as is known."""
        if self.has_polled or self.is_app_waiting:
            # To look at the clock for every record would cost more than to be late by a heartbeat.
            self.has_polled = False
            self._polled_ms = now_ms()
        return now_ms() - self._polled_ms

    @property
    def is_in_listener(self) -> bool:
        """Whether the current task runs a callback of the application."""
        return self._telling is trio.lowlevel.current_task()

    async def next_poll(self) -> None:
        """Wait until the application polls."""
        self.is_held = True
        if self.is_app_waiting:
            self.begin()
        with self._hold():
            await self._until_begun()

    # The group's side.

    def ask(self) -> None:
        """Ask for a handover: it begins now or with the application's next poll."""
        self.is_held = True
        if self.is_app_waiting or not any(True for _ in self.positions):
            self.begin()

    def end(self) -> None:
        """Let the application continue, unless a handover holds it."""
        if not self._holder_count:
            self.is_held = self.is_begun = False
            self._on_end()

    @asynccontextmanager
    async def held(self, *, is_app_done: bool = False) -> AsyncIterator[None]:
        """Wait for the application unless it is done, and hold it up while the block lasts."""
        self.ask()
        if is_app_done:
            self.begin()
        with self._hold():
            await self._until_begun()
            yield

    @contextmanager
    def _hold(self) -> Iterator[None]:
        # A cancelled handover unwinds while its successor may have begun: the last one ends it.
        self._holder_count += 1
        try:
            yield
        finally:
            self._holder_count -= 1
            self.end()

    async def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Tell the application that these go: it may still commit; then they are gone."""
        assert self.is_begun
        gone = tuple(at for at in partitions if at in self.positions)
        if gone:
            await self._tell(self.on_revoked, gone)
        self.positions.assign([at for at in self.positions if at not in set(gone)])

    async def give(self, partitions: Iterable[TopicPartition]) -> None:
        """Let the application read these too, and tell it."""
        assert self.is_begun
        new = tuple(at for at in partitions if at not in self.positions)
        self.positions.assign([*self.positions, *new])
        await self._tell(self.on_assigned, new)

    def lose(self) -> None:
        """All is gone already, somebody else may have it: nothing more is handed out of it."""
        self._lost.update(dict.fromkeys(self.positions))
        self.positions.assign(())
        if self.is_held:
            self.begin()

    async def tell_lost(self) -> None:
        """Tell the application what it lost."""
        lost, self._lost = tuple(self._lost), {}
        if lost:
            await self._tell(self.on_lost or self.on_revoked, lost)

    async def _until_begun(self) -> None:
        await trio.lowlevel.checkpoint()
        while not self.is_begun:
            await self.bell.wait()

    async def _tell(
        self, listener: Listener | None, partitions: tuple[TopicPartition, ...]
    ) -> None:
        if listener is None:
            return
        before, self._telling = self._telling, trio.lowlevel.current_task()
        try:
            await listener(partitions)
        except (RefusedError, ConnectionLostError) as error:
            # What it could not do, say a commit, is told by the next poll; the group goes on.
            self._on_failure(error)
        finally:
            self._telling = before
