"""Virtual time: order, sleeping tasks, and deaths."""

import pytest

from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.timed.machine import DiskWeather, DriftingClock, SlowDisk
from ottla.jepsen.world.timed.timeline import MS, SECOND, Timeline, sleep


def test_what_is_due_at_once_happens_in_the_order_it_was_planned() -> None:
    timeline = Timeline()
    happened: list[str] = []
    for delay_us, name in ((20, "c"), (10, "a"), (10, "b"), (5_000, "later")):
        timeline.later(delay_us, lambda name=name: happened.append(name))  # type: ignore[misc]

    timeline.run_until(1_000)

    assert happened == ["a", "b", "c"]
    assert timeline.now_us == 1_000
    timeline.run_until(10_000, event_count_max=3)
    assert happened == ["a", "b", "c"]


def test_tasks_sleep_end_and_fail() -> None:
    timeline = Timeline()
    ended: list[BaseException | None] = []

    async def work(fails: bool) -> None:
        await sleep(100)
        if fails:
            raise OSError("broken")

    timeline.spawn(work(fails=False), ended.append)
    timeline.spawn(work(fails=True), ended.append)
    timeline.run_until(SECOND)

    assert ended[0] is None
    assert isinstance(ended[1], OSError)


def test_a_cancelled_task_goes_no_further() -> None:
    timeline = Timeline()
    steps: list[str] = []

    async def work() -> None:
        steps.append("began")
        await sleep(100)
        steps.append("never")

    task = timeline.spawn(work(), lambda error: steps.append("ended"))
    task.cancel()
    timeline.run_until(SECOND)

    assert steps == ["began"]
    assert task.is_over


@pytest.mark.parametrize("drift_ppm", [0, 100, -100, 50_000, -50_000])
def test_a_drifting_clock_is_at_its_instant_when_it_says(drift_ppm: int) -> None:
    timeline = Timeline()
    timeline.run_until(7_777)
    clock = DriftingClock(timeline, drift_ppm)

    for ahead_ms in (1, 13, 1_000, 60_000):
        due_ms = clock.monotonic_ms() + ahead_ms
        delay_us = clock.delay_us_until(due_ms)
        timeline.run_until(timeline.now_us + delay_us)
        assert clock.monotonic_ms() == due_ms


def test_a_jump_of_the_wall_clock_leaves_the_monotonic_one_alone() -> None:
    clock = DriftingClock(Timeline(), 0)
    before = (clock.monotonic_ms(), clock.wall_ms())

    clock.wall_offset_ms -= 90_000

    assert (clock.monotonic_ms(), clock.wall_ms()) == (before[0], before[1] - 90_000)


def test_a_slow_disk_makes_durable_what_was_there_when_it_was_asked() -> None:
    timeline = Timeline()
    disk = SlowDisk(Chance(1), DiskWeather(fsync_us_mean=10 * MS))
    file = disk.open("/f", create=True)
    file.pwrite(0, [b"before"])
    ended: list[BaseException | None] = []

    timeline.spawn(disk.fsync(file), ended.append)
    file.pwrite(6, [b" after"])
    assert ended == []
    timeline.run_until(SECOND)

    assert ended == [None]
    assert file.inode.durable.read(0, 99) == b"before"
    assert timeline.event_count >= 1
