"""State machines over worlds: rules act on one world, whose time stands still between them."""

import json
import time
from pathlib import Path
from typing import ClassVar

import pytest
import trio
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

import ottla.testing.world as world
from ottla.testing.world.failure_files import REPLAY_VARIABLE
from tests.testing.world.test_run import copy_orders

SETTINGS = settings(
    deadline=None,
    database=None,
    max_examples=20,
    stateful_step_count=4,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


class OperateCopies(world.WorldStateMachine):
    """Rules that produce records and disturb an instance that copies them."""

    commits_first = False

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[world.WrittenRecord] = []

    async def begin(self, w: world.World) -> None:
        if not w.instances:
            await w.create_topic("orders")
            await w.create_topic("copies")
            w.start("copier", copy_orders, w.bootstrap, self.commits_first, runtime="trio")

    @rule(count=st.integers(1, 5))
    def produce(self, count: int) -> None:
        self.world.call(self.begin)
        values = [b"%d" % (len(self.sent) + number) for number in range(count)]
        self.sent += self.world.call(world.World.produce, "orders", values)

    @rule(milliseconds=st.integers(1, 40))
    def kill(self, milliseconds: int) -> None:
        async def kill_and_restart(w: world.World) -> None:
            await self.begin(w)
            await w.sleep(milliseconds / 1_000)
            w.instances["copier"].kill()
            w.instances["copier"].restart()

        self.world.call(kill_and_restart)

    @rule()
    def upgrade(self) -> None:
        async def upgrade(w: world.World) -> None:
            await self.begin(w)
            copier = w.instances["copier"]
            await copier.upgrade(copy_orders, w.bootstrap, self.commits_first)

        self.world.call(upgrade)

    def teardown(self) -> None:
        try:
            if self.sent:
                self.world.call(self.check)
        finally:
            super().teardown()

    async def check(self, w: world.World) -> None:
        await w.settle()
        world.at_least_once(self.sent, await w.read("copies"), key=lambda record: record.value)


class OperateHastyCopies(OperateCopies):
    """The same rules with a program that commits before it works."""

    commits_first = True
    faults = world.FaultSchedule((world.Kill(0, world.Request("OffsetCommit", 1)),))


def test_rules_of_a_correct_program_find_nothing() -> None:
    run_state_machine_as_test(
        OperateCopies, settings=settings(SETTINGS, max_examples=3, phases=[Phase.generate])
    )


def test_a_world_settles_only_after_the_restart_of_a_killed_instance() -> None:
    machine = OperateCopies()
    machine.produce(2)
    machine.kill(1)
    machine.teardown()


def test_rules_act_together_with_the_faults_of_a_schedule() -> None:
    machine = OperateHastyCopies()
    machine.produce(5)
    machine.upgrade()

    with pytest.raises(world.CheckFailedError, match="3 of 5 inputs have no output"):
        machine.teardown()


def test_virtual_time_stands_still_between_calls() -> None:
    thread = world.WorldThread(world.ClusterPlan(), world.FaultSchedule())

    async def now(w: world.World) -> float:
        return trio.current_time()

    try:
        first = thread.call(now)
        time.sleep(0.05)
        assert thread.call(now) == first
        thread.call(world.World.sleep, 3.0)
        assert thread.call(now) == first + 3.0
    finally:
        thread.close()
    with pytest.raises(world.WorldError, match="closed"):
        thread.call(now)


def test_the_error_of_a_call_has_the_story_and_the_world_continues() -> None:
    thread = world.WorldThread(world.ClusterPlan(), world.FaultSchedule())

    async def fail(w: world.World) -> None:
        w.note("about to fail")
        raise LookupError("no such record")

    with pytest.raises(LookupError) as caught:
        thread.call(fail)
    assert "about to fail" in "\n".join(caught.value.__notes__)

    thread.call(world.World.sleep, 1.0)
    thread.close()


class SleepThreeSeconds(world.WorldStateMachine):
    """A state machine that fails if a rule sleeps for 3 s."""

    examples: ClassVar[list[list[int]]] = []
    """Seconds of the sleeps of each example."""

    def __init__(self) -> None:
        super().__init__()
        self.examples.append([])

    @rule(seconds=st.integers(0, 5))
    def sleep(self, seconds: int) -> None:
        self.examples[-1].append(seconds)
        self.world.call(self.sleep_in_world, seconds)

    async def sleep_in_world(self, w: world.World, seconds: int) -> None:
        await w.sleep(seconds)
        if seconds == 3:
            raise LookupError("slept for 3 s")


@pytest.fixture
def failing_file(failure_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of a failing example of `SleepThreeSeconds`, which the environment asks to
    repeat."""
    options = settings(SETTINGS, phases=[Phase.generate], max_examples=100)
    with pytest.raises(LookupError) as caught:
        run_state_machine_as_test(SleepThreeSeconds, settings=options)
    (file,) = failure_folder.glob("*.json")
    assert f"ottla world replay {file}" in "\n".join(caught.value.__notes__)
    monkeypatch.setenv(REPLAY_VARIABLE, str(file))
    return file


def test_the_rules_of_a_failure_are_replayed(failing_file: Path) -> None:
    last = SleepThreeSeconds.examples[-1]
    SleepThreeSeconds.examples.clear()

    with pytest.raises(LookupError, match="slept for 3 s"):
        run_state_machine_as_test(SleepThreeSeconds, settings=SETTINGS)

    assert SleepThreeSeconds.examples == [last]


def test_rules_of_another_version_of_hypothesis_are_refused(failing_file: Path) -> None:
    values = json.loads(failing_file.read_text())
    values["rules"]["version"] = "6.0.0"
    failing_file.write_text(json.dumps(values))

    with pytest.raises(world.WorldError, match=r"type: pip install hypothesis==6\.0\.0"):
        run_state_machine_as_test(SleepThreeSeconds, settings=SETTINGS)
