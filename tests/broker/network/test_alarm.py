import trio
import trio.testing

from ottla.broker.network.alarm_driver import Alarm


class TrioClock:
    """Trio's clock, virtual in these tests."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


class Deadlines:
    """A list of deadlines that remembers when each came due."""

    def __init__(self, *deadlines_ms: int) -> None:
        self.clock = TrioClock()
        start_ms = self.clock.monotonic_ms()
        self.left = [start_ms + deadline_ms for deadline_ms in deadlines_ms]
        self.start_ms = start_ms
        self.rung_ms: list[int] = []
        self.alarm = Alarm(self.clock, lambda: min(self.left, default=None), self.on_due)

    def on_due(self, now_ms: int) -> None:
        self.rung_ms += [now_ms - self.start_ms for due_ms in self.left if due_ms <= now_ms]
        self.left = [due_ms for due_ms in self.left if due_ms > now_ms]


async def test_each_deadline_rings_when_it_comes_and_not_before(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines(50, 5_000, 100)
    with trio.move_on_after(10):
        await deadlines.alarm.run()
    for rung_ms, due_ms in zip(deadlines.rung_ms, (50, 100, 5_000), strict=True):
        assert due_ms <= rung_ms <= due_ms + 2


async def test_a_deadline_added_before_the_others_rings_in_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines(60_000)
    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.alarm.run)
            await trio.sleep(1)
            deadlines.left.append(deadlines.start_ms + 2_000)
            deadlines.alarm.rearm()
    assert len(deadlines.rung_ms) == 1
    assert 2_000 <= deadlines.rung_ms[0] <= 2_002


async def test_a_deadline_added_while_nothing_waits_rings(
    autojump_clock: trio.testing.MockClock,
) -> None:
    deadlines = Deadlines()
    with trio.move_on_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deadlines.alarm.run)
            await trio.sleep(1)
            deadlines.left.append(deadlines.start_ms + 1_500)
            deadlines.alarm.rearm()
    assert len(deadlines.rung_ms) == 1
