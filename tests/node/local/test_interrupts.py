"""SIGTERM handled as SIGINT."""

import signal
from collections.abc import Iterator

import pytest

from ottla.node.local.interrupts_driver import interrupt


@pytest.fixture(autouse=True)
def the_handler_of_sigint_is_restored() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def test_the_handler_of_sigint_is_called_with_the_number_of_sigint() -> None:
    numbers: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: numbers.append(number))

    interrupt(signal.SIGTERM, None)

    assert numbers == [signal.SIGINT]


def test_a_background_job_that_ignores_sigint_is_interrupted() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    with pytest.raises(KeyboardInterrupt):
        interrupt(signal.SIGTERM, None)
