"""The threads of a workload, over a workload that does nothing; in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import cast

import trio
import trio.testing

from ottla.jepsen.history import Event, EventKind, Recorder
from ottla.jepsen.processes.runs.run_load import (
    INVOKE_TIMEOUT_S,
    NOTES_FROM,
    OPEN_TIMEOUT_S,
    RunLoad,
)
from ottla.jepsen.workloads.load import Completion, Note, Op
from ottla.jepsen.workloads.table import Workload

OK = Completion(EventKind.OK)
OP_S = 0.1


class ScriptedWorkload:
    """A workload whose operations end as scripted, and its clients."""

    name = "scripted"

    def __init__(self) -> None:
        self.answers: dict[int, list[Completion | Exception | float]] = {}
        """By thread, how its next operations end: a number is seconds without an answer."""
        self.opened: list[int] = []
        self.closed: list[int] = []
        self.opening_s = 0.0
        self.completed: list[tuple[int, str, EventKind]] = []
        self.final_left = {0: 2, 1: 1, 2: 0}
        self.note: Note | None = None

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        return Op("send", rng.randrange(1_000_000)) if thread != 2 else None

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        self.final_left[thread] -= 1
        return Op("poll", None, {"final": True}) if self.final_left[thread] >= 0 else None

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        self.completed.append((thread, op.f, done.kind))

    @asynccontextmanager
    async def open_client(self, bootstrap: str, thread: int, note: Note) -> AsyncIterator[object]:
        self.note = note
        self.opened.append(thread)
        await trio.sleep(self.opening_s)
        try:
            yield Client(self, thread)
        finally:
            self.closed.append(thread)


class Client:
    """Answers from the script, then OK."""

    def __init__(self, script: ScriptedWorkload, thread: int) -> None:
        self._script = script
        self._thread = thread

    async def invoke(self, op: Op) -> Completion:
        answers = self._script.answers.get(self._thread, [])
        answer = answers.pop(0) if answers else OK
        if isinstance(answer, float):
            await trio.sleep(answer)
        await trio.sleep(OP_S)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Completion) else OK


class Bench:
    """A load over a script, run for a while."""

    def __init__(self, script: ScriptedWorkload, seed: int = 0) -> None:
        self.began = trio.current_time()
        self.recorder = Recorder(self._now_ns, concurrency=3)
        self.load = RunLoad(cast(Workload, script), self.recorder, self._now_ns, seed)

    def _now_ns(self) -> int:
        return round((trio.current_time() - self.began) * 1e9)

    async def run(self, seconds: float) -> list[Event]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.load.run, "absent:1", 3)
            await trio.sleep(seconds)
            await self.load.stop()
            self.load.read()
        return self.recorder.events


async def test_threads_send_until_they_are_stopped_and_then_read_to_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedWorkload()
    bench = Bench(script)

    events = await bench.run(1.05)

    assert sum(event.f == "send" and event.kind is EventKind.OK for event in events) == 22
    finals = [event for event in events if event.f == "poll" and event.kind is EventKind.INVOKE]
    assert [event.extra for event in finals] == [{"final": True}] * 3
    assert events.index(finals[0]) > max(events.index(one) for one in events if one.f == "send")
    assert bench.load.is_read
    assert sorted(script.closed) == [0, 1, 2]
    assert len(script.completed) == 25


async def test_an_operation_of_unknown_end_ends_its_process_but_not_its_client(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedWorkload()
    script.answers[0] = [OK, Completion(EventKind.INFO, None, "timed out")]

    events = await Bench(script).run(1.05)

    processes = [event.process for event in events if event.kind is EventKind.INVOKE]
    assert [one for one in processes if one % 3 == 0][:4] == [0, 0, 3, 3]
    assert script.opened.count(0) == 1


async def test_a_client_that_forgets_its_deadline_is_not_waited_for(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedWorkload()
    script.answers[1] = [1e9]

    events = await Bench(script).run(INVOKE_TIMEOUT_S + 1)

    (late,) = [event for event in events if event.kind is EventKind.INFO]
    assert late.error == "no answer within the harness's own deadline"
    assert late.time_ns == INVOKE_TIMEOUT_S * 1e9


async def test_a_client_that_breaks_is_a_finding_and_another_takes_its_place(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedWorkload()
    script.answers[0] = [KeyError("offset")]
    bench = Bench(script)

    events = await bench.run(2.0)

    (said,) = bench.load.broken
    assert said.startswith("scripted: KeyError: 'offset' (test_run_load.py:")
    (broken,) = [event.error for event in events if event.kind is EventKind.INFO]
    assert str(broken).startswith("the client raised KeyError: 'offset' (test_run_load.py:")
    assert script.opened.count(0) == 2
    assert bench.load.is_read


async def test_a_client_that_does_not_open_is_tried_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedWorkload()
    script.opening_s = OPEN_TIMEOUT_S + 1
    bench = Bench(script)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.load.run, "absent:1", 3)
        await trio.sleep(1)
        script.opening_s = 0.0
        await trio.sleep(OPEN_TIMEOUT_S)
        await bench.load.stop()
        bench.load.read()

    assert len(script.opened) == 6
    assert bench.load.is_read


async def test_final_reads_that_were_cut_short_are_not_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedWorkload()
    script.final_left = {0: 1_000, 1: 0, 2: 0}
    bench = Bench(script)
    with trio.move_on_after(10):
        await bench.run(1.0)

    assert not bench.load.is_read
    assert bench.recorder.events[-1].kind is EventKind.INFO
    assert bench.recorder.events[-1].error == "the run ended"


async def test_a_thread_does_the_same_from_the_same_seed(
    autojump_clock: trio.testing.MockClock,
) -> None:
    values = []
    for seed in (5, 5, 6):
        events = await Bench(ScriptedWorkload(), seed).run(1.05)
        values.append([event.value for event in events if event.process == 0])

    assert values[0] == values[1] != values[2]


async def test_what_a_client_notes_stands_under_a_number_of_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    script = ScriptedWorkload()
    bench = Bench(script)
    await bench.run(0.5)
    assert script.note is not None

    script.note("assigned", {"keys": ["q-0"]})

    last_events = bench.recorder.events[-2:]
    assert [event.kind for event in last_events] == [EventKind.INVOKE, EventKind.OK]
    assert {event.process for event in last_events} <= {NOTES_FROM + thread for thread in range(3)}
