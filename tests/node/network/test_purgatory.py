from collections.abc import Callable
from functools import partial

import pytest

from ottla.node.network.purgatory import COST_PER_TURN, DEAD_TIMERS_KEPT, Purgatory, WaitingEntry


class Entry(WaitingEntry):
    """Entry that completes on demand, and records how it ended."""

    kind = "Entry"

    def __init__(self, on_try: Callable[[], object] | None = None, cost: int = 1) -> None:
        super().__init__()
        self._cost = cost
        self.can_complete = False
        self.endings: list[str] = []
        self.try_count = 0
        self.on_try = on_try

    @property
    def cost(self) -> int:
        return self._cost

    def try_complete(self) -> bool:
        self.try_count += 1
        if self.on_try is not None:
            self.on_try()
        if self.can_complete:
            self.endings.append("completed")
        return self.can_complete

    def on_expire(self) -> None:
        self.endings.append("expired")

    def on_fault(self, fault: Exception) -> None:
        self.endings.append("failed")


def test_an_entry_is_tried_when_one_of_its_keys_wakes_and_never_otherwise() -> None:
    purgatory, entry = Purgatory(), Entry()
    purgatory.watch(["a", "b"], entry, 100)
    purgatory.wake("c")
    assert entry.try_count == 0
    purgatory.wake("a")
    purgatory.wake("b")
    assert entry.try_count == 2
    assert entry.is_waiting


def test_a_completed_entry_is_gone_from_all_its_keys_and_its_deadline() -> None:
    purgatory, entry = Purgatory(), Entry()
    purgatory.watch(["a", "b"], entry, 100)
    entry.can_complete = True
    assert purgatory.wake("a") == 1
    assert purgatory.wake("b") == 0
    assert purgatory.expire(1000) == 0
    assert entry.endings == ["completed"]
    assert purgatory.waiting_count == 0
    assert purgatory.next_deadline_ms is None


def test_entries_expire_at_their_deadline_earliest_first() -> None:
    purgatory = Purgatory()
    order: list[str] = []

    class NamedEntry(Entry):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def on_expire(self) -> None:
            order.append(self.name)

    purgatory.watch(["k"], NamedEntry("late"), 30)
    purgatory.watch(["k"], NamedEntry("early"), 10)
    purgatory.watch(["k"], NamedEntry("middle"), 20)
    assert purgatory.next_deadline_ms == 10
    assert purgatory.expire(9) == 0
    assert purgatory.expire(20) == 2
    assert order == ["early", "middle"]
    assert purgatory.waiting_count == 1


def test_only_an_earlier_deadline_notifies_the_driver() -> None:
    purgatory, calls = Purgatory(), []
    purgatory.on_earlier_deadline = lambda: calls.append(purgatory.next_deadline_ms)
    purgatory.watch(["k"], Entry(), 50)
    purgatory.watch(["k"], Entry(), 60)
    purgatory.watch(["k"], Entry(), 40)
    assert calls == [50, 40]


def test_the_driver_sleeps_past_timers_of_ended_requests() -> None:
    purgatory = Purgatory()
    entries = [Entry() for _ in range(5)]
    for at, entry in enumerate(entries):
        purgatory.watch(["k", at], entry, 10 * (at + 1))
    entries[1].can_complete = entries[0].can_complete = entries[3].can_complete = True
    purgatory.wake("k")
    assert purgatory.next_deadline_ms == 30
    assert purgatory.waiting_count == 2
    assert purgatory.expire(100) == 2
    assert purgatory.next_deadline_ms is None
    assert purgatory.waiting_count == 0


def test_an_entry_that_wakes_its_own_key_while_it_tries_is_not_tried_again() -> None:
    purgatory = Purgatory()
    entry = Entry(on_try=lambda: purgatory.wake("k"))
    entry.can_complete = True
    purgatory.watch(["k"], entry, 100)
    purgatory.wake("k")
    assert entry.endings == ["completed"]
    assert entry.try_count == 1


def test_an_entry_that_another_one_ended_in_the_same_round_is_left_alone() -> None:
    purgatory, second = Purgatory(), Entry()
    first = Entry(on_try=lambda: purgatory.cancel(second))
    second.can_complete = True
    purgatory.watch(["k"], first, 100)
    purgatory.watch(["k"], second, 100)
    purgatory.wake("k")
    assert second.endings == []


def test_a_cancelled_entry_neither_completes_nor_expires() -> None:
    purgatory, entry = Purgatory(), Entry()
    purgatory.watch(["k"], entry, 100)
    purgatory.cancel(entry)
    purgatory.cancel(entry)
    purgatory.wake("k")
    purgatory.expire(1000)
    assert entry.endings == []
    assert entry.try_count == 0


def test_an_entry_waits_only_once() -> None:
    purgatory, entry = Purgatory(), Entry()
    purgatory.watch(["k"], entry, 100)
    purgatory.cancel(entry)
    with pytest.raises(AssertionError):
        purgatory.watch(["k"], entry, 200)


def test_finished_entries_do_not_pile_up_behind_a_far_deadline() -> None:
    purgatory = Purgatory()
    keeper = Entry()
    purgatory.watch(["other"], keeper, 1)
    for _ in range(10 * DEAD_TIMERS_KEPT):
        entry = Entry()
        entry.can_complete = True
        purgatory.watch(["k"], entry, 1_000_000)
        purgatory.wake("k")
    assert purgatory.waiting_count == 1
    assert len(purgatory._timers) <= 2 * DEAD_TIMERS_KEPT + 2
    assert not purgatory._watchers.get("k")
    assert purgatory.expire(1) == 1
    assert keeper.endings == ["expired"]


def test_waiting_entries_are_counted_by_kind() -> None:
    class Other(Entry):
        kind = "Other"

    purgatory, done = Purgatory(), Entry()
    for entry in (done, Entry(), Other()):
        purgatory.watch(["a"], entry, 100)
    done.can_complete = True
    purgatory.wake("a")

    assert purgatory.waiting_by_kind() == {"Entry": 1, "Other": 1}


class FailingEntry(Entry):
    """Raises an unexpected error, and records that its owner was ended."""

    def try_complete(self) -> bool:
        raise RuntimeError("a bug")

    def on_expire(self) -> None:
        raise RuntimeError("a bug")

    def on_fault(self, fault: Exception) -> None:
        super().on_fault(fault)
        raise RuntimeError("another bug")


def test_an_entry_that_meets_a_bug_ends_alone_and_the_others_are_woken() -> None:
    purgatory, failing, sound = Purgatory(), FailingEntry(), Entry()
    purgatory.watch(["a"], failing, 100)
    purgatory.watch(["a"], sound, 100)
    sound.can_complete = True
    assert purgatory.wake("a") == 1
    assert (failing.endings, sound.endings) == (["failed"], ["completed"])
    assert purgatory.waiting_count == 0
    assert purgatory.expire(1_000) == 0
    assert purgatory.errors.counts == {"request": 2}


def test_an_entry_that_meets_a_bug_at_its_deadline_ends_alone() -> None:
    purgatory, failing, sound = Purgatory(), FailingEntry(), Entry()
    purgatory.watch(["a"], failing, 100)
    purgatory.watch(["a"], sound, 100)
    assert purgatory.expire(100) == 2
    assert (failing.endings, sound.endings) == (["failed"], ["expired"])
    assert purgatory.wake("a") == 0


def test_a_listener_that_meets_a_bug_keeps_no_entry_from_waking() -> None:
    class FailingListener:
        def on_wake(self, key: object) -> None:
            raise RuntimeError("a bug")

    purgatory, entry = Purgatory(), Entry()
    purgatory.listen("a", FailingListener())
    purgatory.watch(["a"], entry, 100)
    entry.can_complete = True
    assert purgatory.wake("a") == 1
    assert purgatory.errors.counts == {"listener": 1}


def test_very_many_entries_are_woken_some_in_each_turn() -> None:
    purgatory, rearmed = Purgatory(), []
    entries = [Entry() for _ in range(3 * COST_PER_TURN)]
    for entry in entries:
        purgatory.watch(["k"], entry, 100)
        entry.can_complete = True
    purgatory.on_earlier_deadline = lambda: rearmed.append(purgatory.next_deadline_ms)

    counts = [purgatory.wake("k")]
    while purgatory.next_deadline_ms == 0:
        purgatory.expire(1)
        counts.append(sum(entry.try_count for entry in entries))

    assert counts == [COST_PER_TURN, 2 * COST_PER_TURN, 3 * COST_PER_TURN]
    assert rearmed == [0]
    assert {tuple(entry.endings) for entry in entries} == {("completed",)}
    assert purgatory.next_deadline_ms is None or purgatory.expire(100) == 0
    assert purgatory.waiting_count == 0


def test_many_wakes_of_one_key_work_in_bounded_turns_and_reach_every_entry() -> None:
    purgatory = Purgatory()
    entries = [Entry() for _ in range(2 * COST_PER_TURN + 1)]
    for entry in entries:
        purgatory.watch(["k"], entry, 100)
    for _ in range(5):
        purgatory.wake("k")
    assert sum(entry.try_count for entry in entries) == COST_PER_TURN

    purgatory.cancel(entries[-1])
    turns = 0
    while purgatory.next_deadline_ms == 0:
        purgatory.expire(1)
        turns += 1

    # Those woken at first are woken again for the wakes after it, behind those that waited longer.
    assert turns == 3
    assert [entry.try_count for entry in entries] == (
        [2] * COST_PER_TURN + [1] * COST_PER_TURN + [0]
    )


def test_two_keys_with_very_many_entries_take_turns() -> None:
    purgatory = Purgatory()
    order: list[str] = []
    for key in ("a", "b"):
        for _ in range(3 * COST_PER_TURN):
            purgatory.watch([key], Entry(partial(order.append, key)), 100)
    purgatory.wake("a")
    purgatory.wake("b")
    while purgatory.next_deadline_ms == 0:
        purgatory.expire(1)
    assert order[::COST_PER_TURN] == ["a", "b", "a", "b", "a", "b"]


def test_costly_entries_are_woken_fewer_in_each_turn() -> None:
    purgatory = Purgatory()
    entries = [Entry(cost=COST_PER_TURN // 5) for _ in range(12)]
    for entry in entries:
        purgatory.watch(["k"], entry, 100)
    purgatory.wake("k")
    counts = [sum(entry.try_count for entry in entries)]
    while purgatory.next_deadline_ms == 0:
        purgatory.expire(1)
        counts.append(sum(entry.try_count for entry in entries))
    assert counts == [5, 10, 12]


def test_very_many_entries_of_one_deadline_are_ended_some_in_each_turn_in_their_order() -> None:
    purgatory = Purgatory()
    entries = [Entry() for _ in range(2 * COST_PER_TURN + 1)]
    for entry in entries:
        purgatory.watch(["k"], entry, 100)
    assert purgatory.expire(100) == COST_PER_TURN
    assert [bool(entry.endings) for entry in entries[: COST_PER_TURN + 1]] == (
        [True] * COST_PER_TURN + [False]
    )
    assert purgatory.next_deadline_ms == 100
    assert [purgatory.expire(100), purgatory.expire(100), purgatory.expire(100)] == (
        [COST_PER_TURN, 1, 0]
    )
    assert purgatory.waiting_count == 0


def test_costly_entries_are_ended_fewer_in_each_turn_and_the_costliest_one_alone() -> None:
    purgatory = Purgatory()
    for cost in (COST_PER_TURN // 2, COST_PER_TURN // 2, 10 * COST_PER_TURN, 1):
        purgatory.watch(["k"], Entry(cost=cost), 100)
    assert [purgatory.expire(100) for _ in range(4)] == [2, 1, 1, 0]


def test_an_entry_whose_deadline_has_come_may_still_be_completed_before_its_turn() -> None:
    purgatory = Purgatory()
    entries = [Entry() for _ in range(COST_PER_TURN + 1)]
    for entry in entries:
        purgatory.watch([entry], entry, 100)
    purgatory.expire(100)
    entries[-1].can_complete = True
    purgatory.wake(entries[-1])
    purgatory.expire(100)
    assert entries[-1].endings == ["completed"]


def test_wakes_of_one_event_are_done_at_its_end_each_key_once() -> None:
    purgatory = Purgatory()
    entry = Entry()
    purgatory.watch(["a", "b"], entry, 100)
    with purgatory.one_event:
        for key in ("b", "a", "b"):
            purgatory.wake(key)
        with purgatory.one_event:
            purgatory.wake("a")
        assert entry.try_count == 0
    assert entry.try_count == 2
    purgatory.wake("a")
    assert entry.try_count == 3


def test_an_event_that_fails_wakes_what_it_changed_before() -> None:
    purgatory = Purgatory()
    entry = Entry()
    purgatory.watch(["a"], entry, 100)
    with pytest.raises(AssertionError), purgatory.one_event:
        purgatory.wake("a")
        raise AssertionError
    assert entry.try_count == 1


def test_what_an_event_wakes_may_wake_more_at_once() -> None:
    purgatory = Purgatory()
    second = Entry()
    purgatory.watch(["second"], second, 100)
    purgatory.watch(["first"], Entry(lambda: purgatory.wake("second")), 100)
    with purgatory.one_event:
        purgatory.wake("first")
    assert second.try_count == 1


class Session:
    """A listener that wakes its own key, as a fetch session does."""

    def __init__(self, purgatory: Purgatory) -> None:
        self.purgatory = purgatory
        self.noted: list[object] = []

    def on_wake(self, key: object) -> None:
        self.noted.append(key)
        self.purgatory.wake(self)


def test_a_request_behind_a_listener_sees_all_changes_of_an_event_at_once() -> None:
    purgatory = Purgatory()
    session = Session(purgatory)
    for key in range(100):
        purgatory.listen(key, session)
    noted_counts: list[int] = []
    entry = Entry(lambda: noted_counts.append(len(session.noted)))
    purgatory.watch([session], entry, 100)
    with purgatory.one_event:
        for key in range(100):
            purgatory.wake(key)
    assert noted_counts == [100]
    purgatory.wake(7)
    assert noted_counts == [100, 101]


class Deaf:
    """A listener that does nothing."""

    def on_wake(self, key: object) -> None:
        pass


def test_a_key_is_watched_as_long_as_it_has_an_entry_or_a_listener() -> None:
    purgatory, first, second, listener = Purgatory(), Entry(), Entry(), Deaf()
    purgatory.watch(["a", "b"], first, 100)
    purgatory.watch(["b"], second, 200)
    purgatory.listen("a", listener)
    assert purgatory.watched == {"a", "b"}
    purgatory.cancel(first)
    assert purgatory.watched == {"a", "b"}
    purgatory.unlisten("a", listener)
    assert purgatory.watched == {"b"}
    assert purgatory.expire(200) == 1
    assert not purgatory.watched
    purgatory.listen("a", listener)
    third = Entry()
    purgatory.watch(["a"], third, 300)
    purgatory.unlisten("a", listener)
    assert purgatory.watched == {"a"}
    third.can_complete = True
    purgatory.wake("a")
    assert not purgatory.watched
