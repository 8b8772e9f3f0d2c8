"""The order of deliveries: delays, back-off, order by key, priority, and their cost."""

import sys
from typing import Any

from ottla.broker.coordinators.effects import Instant
from ottla.broker.shares.ordering.delivery_order import TURNS, DeliveryOrder
from ottla.broker.shares.ordering.ordering_rules import OrderingRules
from ottla.broker.shares.ordering.record_traits import PLAIN, Priority, Traits

NEVER = 1 << 62


def at(wall_ms: int) -> Instant:
    """The clocks differ by 1,000 s, so that a mistaken one shows."""
    return Instant(mono_ms=wall_ms - 1_000_000, wall_ms=wall_ms)


NOW = at(2_000_000)


def add(order: DeliveryOrder, offset: int, traits: Traits = PLAIN, due_ms: int = 0) -> None:
    order.scanned_offset = offset + 1
    order.add(offset, offset, 0, traits=traits, due_ms=due_ms, now=NOW)


def take(order: DeliveryOrder, count: int = 100) -> list[int]:
    ranges = order.take(count, NEVER)
    return [offset for first, last in ranges for offset in range(first, last + 1)]


def of_key(key: int) -> Traits:
    return Traits(key=key)


# ---- delays


def test_an_earlier_due_time_overtakes_and_nothing_is_early() -> None:
    order = DeliveryOrder(OrderingRules(delay_ms=0), 0)
    add(order, 0, due_ms=NOW.wall_ms + 50)
    add(order, 1, due_ms=NOW.wall_ms + 20)
    add(order, 2)
    assert take(order) == [2]
    assert order.next_mono_ms(NOW) == NOW.mono_ms + 20
    assert not order.ripen(at(NOW.wall_ms + 19))
    assert take(order) == []
    assert order.ripen(at(NOW.wall_ms + 20))
    assert take(order) == [1]
    order.ripen(at(NOW.wall_ms + 50))
    assert take(order) == [0]
    assert order.next_mono_ms(NOW) is None


def test_a_due_time_in_the_past_needs_no_wait() -> None:
    order = DeliveryOrder(OrderingRules(delay_ms=0), 0)
    add(order, 0, due_ms=NOW.wall_ms - 1)
    assert take(order) == [0]


def counted_lines(order: DeliveryOrder) -> int:
    """Return the number of lines of the module that one poll executes."""
    count = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        order.ripen(NOW)
        order.take(100, NEVER)
        order.next_mono_ms(NOW)
    finally:
        sys.settrace(before)
    return count


def test_a_poll_costs_the_same_with_a_million_delayed_records() -> None:
    def filled(count: int) -> DeliveryOrder:
        order = DeliveryOrder(OrderingRules(delay_ms=0, look_ahead_records=count), 0)
        order._delayed = [(NOW.wall_ms + 1 + each, each, each) for each in range(count)]
        order.delayed_count = order.scanned_offset = count
        add(order, count)
        return order

    few, many = counted_lines(filled(10)), counted_lines(filled(1_000_000))
    assert few == many < 60


def test_very_many_records_that_are_due_at_once_become_ready_in_several_turns() -> None:
    order = DeliveryOrder(OrderingRules(delay_ms=0), 0)
    for offset in range(5_000):
        add(order, offset, due_ms=NOW.wall_ms + 1)
    later = at(NOW.wall_ms + 1)
    ready = []
    while order.ripen(later):
        ready.append(order.ready_count)
    assert ready == [2_000, 4_000, 5_000]


# ---- back-off


def test_a_back_off_doubles_up_to_its_maximum_and_is_never_below_its_minimum() -> None:
    rules = OrderingRules(backoff_ms_min=100, backoff_ms_max=1_000)
    for count, low, high in ((1, 100, 200), (2, 200, 400), (3, 400, 800), (9, 500, 1_000)):
        waits = {rules.backoff_ms(count, salt) for salt in range(200)}
        assert low <= min(waits) < max(waits) <= high
        assert rules.longest_backoff_ms(count) == high
    assert rules.backoff_ms(10_000, 0) <= 1_000
    assert OrderingRules(delay_ms=0).longest_backoff_ms(3) == 0


def test_a_released_record_waits_for_its_back_off() -> None:
    order = DeliveryOrder(OrderingRules(backoff_ms_min=100, backoff_ms_max=1_000), 0)
    order.scanned_offset = 10
    order.add(0, 9, 0, traits=PLAIN, due_ms=0, now=NOW)
    assert take(order, 4) == [0, 1, 2, 3]
    order.on_released(0, 3, 1, NOW.mono_ms)
    assert take(order) == [4, 5, 6, 7, 8, 9]
    assert order.figures.backoff_count == 4
    due_ms = order.next_mono_ms(NOW)
    assert due_ms is not None
    assert 100 <= due_ms - NOW.mono_ms <= 200
    order.ripen(at(NOW.wall_ms + due_ms - NOW.mono_ms - 1))
    assert take(order) == []
    order.ripen(at(NOW.wall_ms + due_ms - NOW.mono_ms))
    assert take(order) == [0, 1, 2, 3]


def test_after_a_failover_the_back_off_begins_again_in_full_length() -> None:
    order = DeliveryOrder(OrderingRules(backoff_ms_min=100, backoff_ms_max=1_000), 0)
    order.scanned_offset = 1
    order.add(0, 0, 2, traits=PLAIN, due_ms=0, now=NOW)
    assert order.next_mono_ms(NOW) == NOW.mono_ms + 400


# ---- order by key


def test_one_record_of_a_key_is_in_flight_and_the_others_follow_in_order() -> None:
    order = DeliveryOrder(OrderingRules(key_concurrency=1), 0)
    for offset, key in enumerate((7, 7, 8, 7)):
        add(order, offset, of_key(key))
    assert take(order) == [0, 2]
    assert order.figures.key_count == 2
    order.on_settled(0, 0, NOW.mono_ms)
    assert take(order) == [1]
    order.on_settled(1, 2, NOW.mono_ms)
    assert take(order) == [3]
    order.on_settled(3, 3, NOW.mono_ms)
    assert order.unsettled_count == 0
    assert not order._keys
    assert not order._traits


def test_a_released_record_precedes_the_later_ones_of_its_key_during_its_back_off() -> None:
    rules = OrderingRules(key_concurrency=1, backoff_ms_min=100, backoff_ms_max=100)
    order = DeliveryOrder(rules, 0)
    add(order, 0, of_key(7))
    add(order, 1, of_key(7))
    assert take(order) == [0]
    order.on_released(0, 0, 1, NOW.mono_ms)
    assert take(order) == []
    order.ripen(at(NOW.wall_ms + 100))
    assert take(order) == [0]


def test_a_key_may_have_several_records_in_flight() -> None:
    order = DeliveryOrder(OrderingRules(key_concurrency=2), 0)
    for offset in range(4):
        add(order, offset, of_key(7))
    assert take(order) == [0, 1]
    order.on_settled(1, 1, NOW.mono_ms)
    assert take(order) == [2]


def test_a_new_leader_keeps_a_released_record_before_the_later_ones_of_its_key() -> None:
    rules = OrderingRules(key_concurrency=1, backoff_ms_min=100, backoff_ms_max=200)
    order = DeliveryOrder(rules, 0)
    order.scanned_offset = 2
    order.add(0, 0, 1, traits=of_key(7), due_ms=0, now=NOW)
    order.add(1, 1, 0, traits=of_key(7), due_ms=0, now=NOW)
    assert take(order) == []
    order.ripen(at(NOW.wall_ms + 200))
    assert take(order) == [0]


def test_a_delayed_record_does_not_block_its_key_before_it_is_due() -> None:
    order = DeliveryOrder(OrderingRules(delay_ms=0, key_concurrency=1), 0)
    add(order, 0, of_key(7), due_ms=NOW.wall_ms + 10)
    add(order, 1, of_key(7))
    assert take(order) == [1]
    order.ripen(at(NOW.wall_ms + 10))
    assert take(order) == []
    order.on_settled(1, 1, NOW.mono_ms)
    assert take(order) == [0]


# ---- priority


def test_priorities_have_their_turns_and_none_starves() -> None:
    order = DeliveryOrder(OrderingRules(has_priority=True), 0)
    for offset in range(90):
        add(order, offset, Traits(Priority(offset % 3)))
    turns = [Priority(take(order, 1)[0] % 3) for _ in range(len(TURNS))]
    assert turns == list(TURNS)


def test_a_single_priority_takes_every_turn() -> None:
    order = DeliveryOrder(OrderingRules(has_priority=True), 0)
    for offset in range(5):
        add(order, offset, Traits(Priority.LOW))
    assert take(order, 3) == [0, 1, 2]


def test_a_record_that_waited_for_its_key_precedes_later_ones_of_its_priority() -> None:
    order = DeliveryOrder(OrderingRules(has_priority=True, key_concurrency=1), 0)
    add(order, 0, Traits(Priority.LOW, 3))
    add(order, 1, Traits(Priority.LOW, 3))
    add(order, 2, Traits(Priority.LOW))
    for offset in range(3, 20):
        add(order, offset, Traits(Priority.HIGH))
    assert min(take(order, len(TURNS))) == 0
    order.on_settled(0, 0, NOW.mono_ms)
    taken = [take(order, 1)[0] for _ in range(9)]
    assert [offset for offset in taken if offset < 3] == [1, 2]


def test_records_that_were_not_sent_are_ready_again() -> None:
    order = DeliveryOrder(OrderingRules(has_priority=True, key_concurrency=1), 0)
    add(order, 0, Traits(Priority.LOW, 3))
    add(order, 1)
    assert take(order) == [0, 1]
    order.put_back(0, 1)
    assert sorted(take(order, 1) + take(order, 1)) == [0, 1]


# ---- the start of the log


def test_records_below_the_log_start_are_dropped_and_free_their_keys() -> None:
    order = DeliveryOrder(OrderingRules(delay_ms=0, key_concurrency=1), 0)
    add(order, 0, of_key(7))
    add(order, 1, of_key(7))
    add(order, 2, of_key(8), due_ms=NOW.wall_ms + 5)
    add(order, 3, of_key(7))
    order.drop_before(3, NOW.mono_ms)
    assert order.unsettled_count == 1
    assert take(order) == [3]
    order.on_settled(3, 3, NOW.mono_ms)
    assert not order._traits
    assert not order._keys


def test_taken_records_below_the_log_start_end_as_usual() -> None:
    order = DeliveryOrder(OrderingRules(key_concurrency=1), 0)
    add(order, 0, of_key(7))
    add(order, 1, of_key(7))
    assert take(order) == [0]
    order.drop_before(2, NOW.mono_ms)
    assert order.taken_count == order.unsettled_count == 1
    order.on_settled(0, 0, NOW.mono_ms)
    assert order.unsettled_count == 0
    assert not order._keys
