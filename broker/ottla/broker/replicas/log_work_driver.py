"""Does what publishers ask of the disk: in order for each partition, at once for different ones.

A publisher that awaited a disk would hold up all metadata of its broker behind one disk that hangs,
or behind a thousand logs that are made one after the other.  So it asks here and returns.  Steps of
one partition (by name, for that is what files are called) are done one after the other as they were
asked for: what is deleted before it is made again stays so.  Each step looks again at what the
metadata says by then.  How many logs of one directory are worked on at once is the log manager's to
bound.

Steps without a waiter are begun a little later and some at a time: the logs of a new topic.  A step
that was asked for after it begins it, and so does `until_done`.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import trio

from ottla.model.ids import TopicPartition
from ottla.model.unexpected_errors import UnexpectedErrors

Step = Callable[[], Awaitable[None]]

STARTED_PER_TURN = 16
"""Partitions whose work is begun before other tasks get their turn.  A step that meets no await
holds the loop for some 100 us; fewer only adds turns."""

LATER_S = 0.01
"""How long steps without a waiter stay behind.  Less takes the processor from the answer to who
created topics, more leaves more to be done when a client comes."""

LATER_AT_ONCE = 64
"""Partitions without a waiter on which work is begun before others of them are done: two batches of
the workers that make directories.  Fewer leaves the workers idle, more has a deletion that follows
a creation wait for more."""


class LogWork:
    """The steps asked for and not done yet."""

    def __init__(self, errors: UnexpectedErrors | None = None) -> None:
        self._errors = errors or UnexpectedErrors()
        self._steps: dict[TopicPartition, deque[Step]] = {}
        self._to_start: deque[TopicPartition] = deque()
        self._later: dict[TopicPartition, None] = {}
        """Partitions whose first step has no waiter, in the order in which they were added."""
        self._late_room = trio.Semaphore(LATER_AT_ONCE)
        self._is_late_due = trio.Event()
        self._awaited: dict[TopicPartition, trio.Event] = {}
        """Set when the steps are done of a partition that somebody waits for."""
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
            self.hurry((partition,))
            return
        self._begin(partition, step)
        self._to_start.append(partition)
        self._is_due.set()

    def add_later(self, partition: TopicPartition, step: Step) -> None:
        """Do what `add` does, for a step without a waiter."""
        steps = self._steps.get(partition)
        if steps is not None:
            steps.append(step)
            return
        self._begin(partition, step)
        self._later[partition] = None
        self._is_late_due.set()

    def _begin(self, partition: TopicPartition, step: Step) -> None:
        self._steps[partition] = deque((step,))
        if self._is_done.is_set():
            self._is_done = trio.Event()

    def hurry(self, partitions: Iterable[TopicPartition]) -> None:
        """Begin the steps of partitions for which somebody waits from now on."""
        later = self._later
        if not later:
            return
        for partition in partitions:
            if partition in later:
                del later[partition]
                self._to_start.append(partition)
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

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until no steps of these partitions are left, or the time is over."""
        waiting = [partition for partition in partitions if partition in self._steps]
        self.hurry(waiting)
        with trio.move_on_after(timeout_s):
            for partition in waiting:
                if partition in self._steps:
                    await self._awaited.setdefault(partition, trio.Event()).wait()

    async def run(self) -> None:
        """Do what is asked for until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_later, nursery)
            while True:
                await self._is_due.wait()
                self._is_due = trio.Event()
                count = 0
                while self._to_start:
                    nursery.start_soon(self._do_steps, self._to_start.popleft())
                    count += 1
                    if count % STARTED_PER_TURN == 0:
                        await trio.lowlevel.checkpoint()

    async def _run_later(self, nursery: trio.Nursery) -> None:
        """Begin the steps without a waiter, some at a time."""
        while True:
            await self._is_late_due.wait()
            self._is_late_due = trio.Event()
            await trio.sleep(LATER_S)
            while self._later:
                await self._late_room.acquire()
                if not self._later:  # meanwhile somebody came who waits for them
                    self._late_room.release()
                    break
                partition = next(iter(self._later))
                del self._later[partition]
                nursery.start_soon(self._do_late, partition)

    async def _do_late(self, partition: TopicPartition) -> None:
        try:
            await self._do_steps(partition)
        finally:
            self._late_room.release()

    async def _do_steps(self, partition: TopicPartition) -> None:
        steps = self._steps[partition]
        while steps:
            try:
                await steps[0]()
            except Exception as error:
                self._errors.note("partition", partition, error)
            steps.popleft()
        del self._steps[partition]
        awaited = self._awaited.pop(partition, None)
        if awaited is not None:
            awaited.set()
        if not self._steps:
            self._is_done.set()
