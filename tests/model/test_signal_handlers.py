"""Signal handlers of a block: installed in the main thread, and restored at the end."""

import signal
import threading

import pytest

from ottla.model.signal_handlers_driver import signal_handlers

NUMBERS = (signal.SIGUSR1, signal.SIGUSR2)


def test_signals_are_handled_within_the_block_and_as_before_after_it() -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    received: list[int] = []
    with signal_handlers(lambda number, frame: received.append(number), *NUMBERS):
        for number in NUMBERS:
            signal.raise_signal(number)
    assert received == list(NUMBERS)
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_an_exception_of_a_handler_ends_the_block_and_restores_the_handlers() -> None:
    before = signal.getsignal(signal.SIGUSR1)

    def fail(number: int, frame: object) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError), signal_handlers(fail, signal.SIGUSR1):
        signal.raise_signal(signal.SIGUSR1)
    assert signal.getsignal(signal.SIGUSR1) is before


def test_another_thread_leaves_the_handlers_alone() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    seen: list[object] = []

    def run() -> None:
        with signal_handlers(lambda number, frame: None, signal.SIGUSR1):
            seen.append(signal.getsignal(signal.SIGUSR1))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]
