"""Calls between two loops share their wake-ups."""

import threading
from collections.abc import Callable

import pytest

from ottla.client.network.trio_thread import CALLS_PER_TURN, Mailbox


def test_calls_that_come_together_wake_once_and_keep_their_order() -> None:
    wakes: list[Callable[[], None]] = []
    seen: list[int] = []
    box = Mailbox(wakes.append)
    for number in range(CALLS_PER_TURN + 10):
        box.post(seen.append, number)
    assert len(wakes) == 1
    wakes.pop()()
    assert seen == list(range(CALLS_PER_TURN))
    wakes.pop()()
    assert seen == list(range(CALLS_PER_TURN + 10))
    assert not wakes
    box.post(seen.append, -1)
    assert len(wakes) == 1


def test_the_end_of_a_loop_is_reported_each_time() -> None:
    def wake(deliver: Callable[[], None]) -> None:
        raise RuntimeError("ended")

    box = Mailbox(wake)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="ended"):
            box.post(print)


def test_no_call_is_left_lying_between_two_threads() -> None:
    due = threading.Semaphore(0)
    found: list[int] = []
    box = Mailbox(lambda deliver: due.release())

    def read() -> None:
        while len(found) < 50_000:
            assert due.acquire(timeout=30)
            box.deliver()

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(50_000):
        box.post(found.append, number)
    reader.join(30)
    assert found == list(range(50_000))
