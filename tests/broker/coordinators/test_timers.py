"""Deadlines that move often and come once."""

from ottla.broker.coordinators.timers import Timers


def test_a_moved_deadline_comes_when_it_was_moved_to() -> None:
    timers: Timers[str] = Timers()
    for deadline_ms in (10, 20, 30):
        timers.set("a", deadline_ms)
    timers.set("b", 15)
    assert list(timers.pop_due(29)) == ["b"]
    assert list(timers.pop_due(30)) == ["a"]
    assert timers.next_deadline_ms() is None


def test_an_earlier_deadline_comes_earlier_and_only_once() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 30)
    timers.set("a", 10)
    assert timers.next_deadline_ms() == 10
    assert list(timers.pop_due(10)) == ["a"]
    assert list(timers.pop_due(100)) == []


def test_a_cancelled_deadline_does_not_come_and_may_be_set_again() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("never set")
    assert list(timers.pop_due(10)) == []
    timers.set("a", 20)
    assert list(timers.pop_due(20)) == ["a"]


def test_ten_thousand_heartbeats_leave_one_entry_behind() -> None:
    timers: Timers[str] = Timers()
    for now_ms in range(10_000):
        timers.set("a", now_ms + 100)
    assert len(timers._heap) == 1
