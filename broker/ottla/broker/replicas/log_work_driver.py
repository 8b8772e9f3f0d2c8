"""Does what publishers ask of the disk: in order for each partition, at once for different ones.

A publisher that awaited a disk would hold up all metadata of its broker behind one disk that hangs,
or behind a thousand logs that are made one after the other.  So it asks here and returns.  Steps of
one partition (by name, for that is what files are called) are done one after the other as they were
asked for: what is deleted before it is made again stays so.  Each step looks again at what the
metadata says by then.  How many logs of one directory are worked on at once is the log manager's to
bound.
"""

from collections import deque
from collections.abc import Awaitable, Callable

import trio

from ottla.model.ids import TopicPartition
from ottla.model.unexpected_errors import UnexpectedErrors

Step = Callable[[], Awaitable[None]]

STARTED_PER_TURN = 16
"""Partitions whose work is begun before other tasks get their turn.  A step that meets no await
holds the loop for some 100 us; fewer only adds turns."""


class LogWork:
    """The steps asked for and not done yet."""

    def __init__(self, errors: UnexpectedErrors | None = None) -> None:
        self._errors = errors or UnexpectedErrors()
        self._steps: dict[TopicPartition, deque[Step]] = {}
        self._to_start: deque[TopicPartition] = deque()
        self._is_due = trio.Event()
        self._is_done = trio.Event()
        self._is_done.set()

    def __len__(self) -> int:
        """Return how many partitions have steps that are not done."""
        return len(self._steps)

    def add(self, partition: TopicPartition, step: Step) -> None:
        """Have a step done after those that were asked for of the same partition."""
        steps = self._steps.get(partition)
        if steps is not None:
            steps.append(step)
            return
        self._steps[partition] = deque((step,))
        self._to_start.append(partition)
        if self._is_done.is_set():
            self._is_done = trio.Event()
        self._is_due.set()

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return whether steps of a partition are not done yet."""
        return partition in self._steps

    async def breathe(self) -> None:
        """Let other tasks have a turn."""
        await trio.lowlevel.checkpoint()

    async def wait_done(self) -> None:
        """Wait until nothing is left to do."""
        await self._is_done.wait()

    async def run(self) -> None:
        """Do what is asked for until cancelled."""
        async with trio.open_nursery() as nursery:
            while True:
                await self._is_due.wait()
                self._is_due = trio.Event()
                count = 0
                while self._to_start:
                    nursery.start_soon(self._do_steps, self._to_start.popleft())
                    count += 1
                    if count % STARTED_PER_TURN == 0:
                        await trio.lowlevel.checkpoint()

    async def _do_steps(self, partition: TopicPartition) -> None:
        steps = self._steps[partition]
        while steps:
            try:
                await steps[0]()
            except Exception as error:
                self._errors.note("partition", partition, error)
            steps.popleft()
        del self._steps[partition]
        if not self._steps:
            self._is_done.set()
