"""Runs the disk work of metadata publishers: in order for each partition, and concurrently for
different partitions.

If a publisher awaited a disk, one hanging disk would block all metadata of its broker. The
sequential creation of a thousand logs would block the metadata too. Publishers therefore add steps
to a queue and return. Steps for one partition name run in the order in which they were added. If a
topic is deleted and created again, the old log is therefore deleted before the new log is created.
Each step reads the metadata again when it runs. The log manager limits the number of logs in one
directory that are processed at the same time.

Steps without a waiting caller, such as the creation of a new topic's logs, start a little later and
in small numbers. They start at once when a step for the same partition is added with `add`, or when
`until_done` waits for it.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable

import trio

from ottla.model.ids import TopicPartition
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.part_registry import PartRegistry

Step = Callable[[], Awaitable[None]]

STARTED_PER_TURN = 16
"""Number of partitions whose disk work is started per event-loop iteration. A step without an await
occupies the event loop for about 100 µs. A smaller value only adds iterations."""

LATER_S = 0.01
"""Seconds by which steps of disk work without a waiting caller are delayed. With a shorter time,
the steps delay the response to the client that creates the topics. With a longer time, more logs
are still missing when a client first uses the topic."""

LATER_PER_PARTITION_S = 0.000_1
"""Seconds by which each delayed step delays all of them further, up to LATER_S_MAX. The steps of
1,000 partitions take some hundred milliseconds on each broker. On a machine with few cores they
would delay the broker that has yet to answer the client."""

LATER_S_MAX = 0.1
"""Maximum delay in seconds of steps of disk work without a waiting caller."""

LATER_AT_ONCE = 64
"""Maximum number of partitions without a waiting caller whose disk work runs at the same time. The
number corresponds to two batches of the worker threads that create directories. With a smaller
value, threads are idle. With a larger value, the deletion of a new log waits for more creations."""


class LogWork:
    """Unfinished steps of disk work (such as the creation of a log), by partition."""

    def __init__(self, errors: UnexpectedErrors | None = None) -> None:
        self._errors = errors or UnexpectedErrors()
        self._steps: dict[TopicPartition, list[Step]] = {}
        """Unfinished steps of each partition, the oldest first. Nearly all partitions have a single
        step, and an empty deque takes seven times the memory of such a list."""
        self._to_start: deque[TopicPartition] = deque()
        self._later: dict[TopicPartition, None] = {}
        """Partitions with disk work whose first step has no waiting caller, in the order in which
        they were added."""
        self._late_slots = trio.Semaphore(LATER_AT_ONCE)
        self._is_late_due = trio.Event()
        self._awaited: dict[TopicPartition, trio.Event] = {}
        """For each partition, an event for the callers that wait until the partition's disk work is
        done."""
        self._is_due = trio.Event()
        self._is_done = trio.Event()
        self._is_done.set()

    def __len__(self) -> int:
        """Return the number of partitions with unfinished steps of disk work."""
        return len(self._steps)

    def add(self, partition: TopicPartition, step: Step) -> None:
        """Add a step of disk work that runs after the earlier steps of the same partition."""
        steps = self._steps.get(partition)
        if steps is not None:
            steps.append(step)
            self.start_delayed((partition,))
            return
        self._begin(partition, step)
        self._to_start.append(partition)
        self._is_due.set()

    def add_later(self, partition: TopicPartition, step: Step) -> None:
        """Add a step of disk work like `add`, but start it later, because no caller waits for
        it."""
        steps = self._steps.get(partition)
        if steps is not None:
            steps.append(step)
            return
        self._begin(partition, step)
        self._later[partition] = None
        self._is_late_due.set()

    def _begin(self, partition: TopicPartition, step: Step) -> None:
        self._steps[partition] = [step]
        if self._is_done.is_set():
            self._is_done = trio.Event()

    def start_delayed(self, partitions: Iterable[TopicPartition]) -> None:
        """Start the delayed steps of disk work of these partitions now, because a caller waits for
        them."""
        later = self._later
        if not later:
            return
        for partition in partitions:
            if partition in later:
                del later[partition]
                self._to_start.append(partition)
                self._is_due.set()

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return whether a partition has unfinished steps of disk work."""
        return partition in self._steps

    async def yield_to_loop(self) -> None:
        """Yield to other tasks for one iteration of the event loop."""
        await trio.lowlevel.checkpoint()

    async def wait_done(self) -> None:
        """Wait until all steps of disk work of all partitions are done."""
        await self._is_done.wait()

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Wait until these partitions have no steps of disk work left, or until the timeout in
        seconds."""
        waiting = [partition for partition in partitions if partition in self._steps]
        self.start_delayed(waiting)
        with trio.move_on_after(timeout_s):
            for partition in waiting:
                if partition in self._steps:
                    await self._awaited.setdefault(partition, trio.Event()).wait()

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that runs the steps of disk work on logs."""
        parts.task("opening and deletion of logs", self.run)

    async def run(self) -> None:
        """Run the steps of disk work on logs until cancelled."""
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
        """Start the delayed steps of disk work, a limited number at a time."""
        while True:
            await self._is_late_due.wait()
            self._is_late_due = trio.Event()
            delay_s = LATER_S + LATER_PER_PARTITION_S * len(self._later)
            await trio.sleep(min(delay_s, LATER_S_MAX))
            while self._later:
                await self._late_slots.acquire()
                if not self._later:  # A waiter has arrived and started them.
                    self._late_slots.release()
                    break
                partition = next(iter(self._later))
                del self._later[partition]
                nursery.start_soon(self._do_late, partition)

    async def _do_late(self, partition: TopicPartition) -> None:
        try:
            await self._do_steps(partition)
        finally:
            self._late_slots.release()

    async def _do_steps(self, partition: TopicPartition) -> None:
        steps = self._steps[partition]
        while steps:
            try:
                await steps[0]()
            except Exception as error:
                self._errors.note("partition", partition, error)
            del steps[0]
        del self._steps[partition]
        awaited = self._awaited.pop(partition, None)
        if awaited is not None:
            awaited.set()
        if not self._steps:
            # New dicts, because one that is emptied keeps the memory of its largest size.
            self._steps, self._later = {}, {}
            self._is_done.set()
