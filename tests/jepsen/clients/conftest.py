"""Small runs: a workload's threads against a cluster, in bursts of time that pass quickly."""

from collections.abc import AsyncIterator, Callable
from random import Random

import pytest
import trio

from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.jepsen.history import History, Json, Recorder
from ottla.jepsen.workloads.load import SECOND, LoadClient, LoadPlan, Op
from ottla.jepsen.workloads.table import WORKLOADS, Workload

TIMEOUT_S = 60
NOTES_FROM = 1_000_000


class WorkloadRun:
    """One workload's run; `history` has its events."""

    def __init__(self, name: str, bootstrap: str, kinds: tuple[str, ...]) -> None:
        plan = LoadPlan(prefix="t-", kinds=kinds)
        self.workload: Workload = WORKLOADS[name](plan)
        self.bootstrap = bootstrap
        self._threads = len(kinds)
        self._began = trio.current_time()
        self.recorder = Recorder(self._clock_ns, concurrency=self._threads)

    def _clock_ns(self) -> int:
        return int((trio.current_time() - self._began) * SECOND)

    @property
    def history(self) -> History:
        return self.recorder.history()

    async def drive(self, op_count: int, *, pace: int = 30) -> None:
        """Do a number of operations a thread; the generator's time passes `pace` times as fast."""
        with trio.fail_after(TIMEOUT_S):
            await self.workload.set_up(self.bootstrap)
            ended: list[trio.Event] = [trio.Event() for _ in range(self._threads)]
            async with trio.open_nursery() as nursery:
                for thread in range(self._threads):
                    nursery.start_soon(self._thread, thread, op_count, pace, ended)

    async def _thread(self, thread: int, op_count: int, pace: int, ended: list[trio.Event]) -> None:
        rng = Random(thread)
        workload = self.workload
        async with workload.open_client(self.bootstrap, thread, self.noter(thread)) as client:
            for _ in range(op_count):
                op = workload.next_op(thread, pace * self._clock_ns(), rng)
                if op is None:
                    await trio.sleep(0.01)
                else:
                    await self.do(client, thread, op)
            ended[thread].set()
            for event in ended:
                await event.wait()
            while (op := workload.final_op(thread, self._clock_ns(), rng)) is not None:
                await self.do(client, thread, op)

    async def do(self, client: LoadClient, thread: int, op: Op) -> None:
        recorder = self.recorder
        invoke = recorder.invoke(recorder.process(thread), op.f, op.value, op.extra)
        done = await client.invoke(op)
        recorder.complete(invoke, done.kind, done.value, done.error, done.extra)
        self.workload.on_completion(thread, op, done)

    def noter(self, thread: int) -> Callable[[str, Json], None]:
        def note(f: str, value: Json) -> None:
            self.recorder.note(NOTES_FROM + thread, f, value)

        return note


@pytest.fixture
async def ottla_cluster() -> AsyncIterator[ClusterUnderTest]:
    """Give each test a cluster that misses a crashed member soon, and has few coordinators."""
    settings = {
        "offsets.topic.num.partitions": "4",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "1000",
        "group.consumer.min.heartbeat.interval.ms": "100",
        "group.consumer.heartbeat.interval.ms": "100",
    }
    async with open_test_cluster(settings=settings) as cluster:
        yield cluster


@pytest.fixture
def small_run() -> type[WorkloadRun]:
    return WorkloadRun
