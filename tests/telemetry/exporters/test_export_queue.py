"""The queue is bounded and keeps the newest; waits after failures double, and obey Retry-After."""

from collections.abc import Callable
from typing import Any

from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.exporters.export_queue import BackOff, PushQueue

Build = Callable[..., Any]


def pushes(*sizes: int) -> list[LabelledPush]:
    """Return pushes numbered from zero by their time, of these sizes in bytes."""
    return [LabelledPush(None, number, bytes(size)) for number, size in enumerate(sizes)]


def numbers(batch: list[LabelledPush]) -> list[int]:
    return [push.received_ms for push in batch]


def test_batches_are_taken_in_order_and_within_their_bounds() -> None:
    queue = PushQueue(pushes_max=10, bytes_max=100)
    queue.offer(pushes(10, 10, 10, 10))
    assert numbers(queue.take(pushes_max=2, bytes_max=100)) == [0, 1]
    assert queue.bytes == 20
    assert numbers(queue.take(pushes_max=9, bytes_max=19)) == [2]
    assert numbers(queue.take(pushes_max=9, bytes_max=5)) == [3], "too large a push goes alone"
    assert queue.take(pushes_max=9, bytes_max=5) == []
    assert queue.bytes == len(queue) == queue.dropped == 0


def test_the_oldest_goes_when_there_are_too_many_pushes_or_bytes() -> None:
    queue = PushQueue(pushes_max=3, bytes_max=100)
    queue.offer(pushes(1, 1, 1, 1, 1))
    assert queue.dropped == 2
    queue.offer([LabelledPush(None, 9, bytes(98))])
    assert queue.dropped == 3
    assert numbers(queue.take(pushes_max=9, bytes_max=1_000)) == [3, 4, 9]


def test_a_push_that_is_larger_than_the_queue_is_dropped_itself() -> None:
    queue = PushQueue(pushes_max=3, bytes_max=100)
    queue.offer(pushes(101))
    assert (len(queue), queue.bytes, queue.dropped) == (0, 0, 1)


def test_a_batch_that_failed_is_the_oldest_again() -> None:
    queue = PushQueue(pushes_max=4, bytes_max=100)
    queue.offer(pushes(1, 1, 1, 1))
    batch = queue.take(pushes_max=3, bytes_max=100)
    queue.offer([LabelledPush(None, 9, b"x")])
    queue.give_back(batch)
    assert queue.dropped == 1
    assert queue.bytes == 4
    assert numbers(queue.take(pushes_max=9, bytes_max=100)) == [1, 2, 3, 9]


def test_waits_double_up_to_a_bound_with_jitter_and_restart_after_success() -> None:
    back_off = BackOff()
    assert [back_off.next_ms(0.0) for _ in range(7)] == [250, 500, 1000, 2000, 4000, 5000, 5000]
    assert back_off.next_ms(0.999) == 9_995
    back_off.reset()
    assert back_off.next_ms(0.5) == 375
    for _ in range(100):
        assert back_off.next_ms(0.9) <= 10_000


def test_a_receiver_that_asks_for_a_wait_gets_it_within_reason() -> None:
    back_off = BackOff()
    assert back_off.next_ms(0.0, 7_000) == 7_000
    assert back_off.next_ms(0.0, 1) == 500, "less than the back-off is not heard"
    assert back_off.next_ms(0.0, 10**9) == 300_000
