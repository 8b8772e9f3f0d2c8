from itertools import pairwise

import trio
import trio.testing

from ottla.node.network.alarm_driver import Alarm
from ottla.node.network.purgatory import COST_PER_TURN, Purgatory, WaitingEntry


class TrioClock:
    """Trio's clock, virtual in these tests."""

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1000)

    def wall_ms(self) -> int:
        return self.monotonic_ms()


class Deadlines:
    """A list of deadlines that records when each was reached."""

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


class Entry(WaitingEntry):
    """Waits for its deadline."""

    def try_complete(self) -> bool:
        return False

    def on_expire(self) -> None:
        pass

    def on_fault(self, fault: Exception) -> None:
        raise fault


async def test_the_loop_turns_while_entries_of_one_deadline_are_ended(
    autojump_clock: trio.testing.MockClock,
) -> None:
    purgatory = Purgatory()
    alarm = Alarm(clock := TrioClock(), lambda: purgatory.next_deadline_ms, purgatory.expire)
    purgatory.on_earlier_deadline = alarm.rearm
    entry_count = 4 * COST_PER_TURN
    due_ms = clock.monotonic_ms() + 1_000
    ended_by_turn: list[int] = []

    class Turns(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            ended_by_turn.append(entry_count - purgatory.waiting_count)

    for _ in range(entry_count):
        purgatory.watch(["k"], Entry(), due_ms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alarm.run)
        trio.lowlevel.add_instrument(turns := Turns())
        await trio.sleep(1.1)
        trio.lowlevel.remove_instrument(turns)
        nursery.cancel_scope.cancel()
    steps = [after - before for before, after in pairwise(ended_by_turn)]
    assert max(steps) == COST_PER_TURN
    assert sum(steps) == entry_count
