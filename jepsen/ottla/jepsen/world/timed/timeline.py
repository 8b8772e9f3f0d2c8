"""Virtual time: a heap of what is due, and tasks that sleep in it; no thread, no event loop.

A task is a coroutine of real code whose only waits are sleeps on this timeline, so storage and its
disk run in it unchanged.  What is due at the same instant happens in the order it was planned.
"""

import heapq
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any

MS = 1_000
"""Microseconds in a millisecond; the timeline counts microseconds."""

SECOND = 1_000_000

OnEnd = Callable[[BaseException | None], None]


class _Sleep:
    """What a task waits for."""

    __slots__ = ("delay_us",)

    def __init__(self, delay_us: int) -> None:
        self.delay_us = delay_us

    def __await__(self) -> Generator[int, None, None]:
        yield self.delay_us


async def sleep(delay_us: int) -> None:
    """Let virtual time pass; only within a task of a timeline."""
    await _Sleep(delay_us)


class Task:
    """One coroutine on the timeline."""

    __slots__ = ("_coroutine", "_on_end", "_timeline", "is_over")

    def __init__(
        self, timeline: "Timeline", coroutine: Coroutine[Any, Any, Any], on_end: OnEnd
    ) -> None:
        self._timeline = timeline
        self._coroutine = coroutine
        self._on_end = on_end
        self.is_over = False

    def advance(self) -> None:
        """Run up to the next sleep, or to the end."""
        if self.is_over:
            return
        try:
            delay_us: int = self._coroutine.send(None)
        except StopIteration:
            self.is_over = True
            self._on_end(None)
        except Exception as error:
            self.is_over = True
            self._on_end(error)
        else:
            self._timeline.later(delay_us, self.advance)

    def cancel(self) -> None:
        """End it where it sleeps, as a process's death does."""
        if not self.is_over:
            self.is_over = True
            with suppress(OSError):  # it may tidy up on a disk that is not its own any more
                self._coroutine.close()


class Timeline:
    """The one clock of a world, and what will happen."""

    __slots__ = ("_agenda", "_sequence", "event_count", "now_us")

    def __init__(self) -> None:
        self.now_us = 0
        self.event_count = 0
        self._sequence = 0
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []

    def later(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do something after a while; 0: next, after what is due now."""
        assert delay_us >= 0
        self._sequence += 1
        heapq.heappush(self._agenda, (self.now_us + delay_us, self._sequence, action))

    def spawn(self, coroutine: Coroutine[Any, Any, Any], on_end: OnEnd) -> Task:
        """Start a task at once; `on_end` hears how it ended."""
        task = Task(self, coroutine, on_end)
        task.advance()
        return task

    def run_one(self) -> bool:
        """Do what is due next, however long that takes; say whether there was anything."""
        if not self._agenda:
            return False
        due_us, _, action = heapq.heappop(self._agenda)
        self.now_us = due_us
        self.event_count += 1
        action()
        return True

    def run_until(self, end_us: int, *, event_count_max: int | None = None) -> None:
        """Let time pass up to an instant, or until so many events have happened in all."""
        agenda = self._agenda
        while agenda and agenda[0][0] <= end_us:
            if event_count_max is not None and self.event_count >= event_count_max:
                return
            self.run_one()
        self.now_us = max(self.now_us, end_us)
