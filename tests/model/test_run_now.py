"""Coroutines without a loop."""

import pytest

from ottla.model.run_now import run_now


class _Pause:
    def __await__(self):  # type: ignore[no-untyped-def]
        yield


async def _answer() -> int:
    return 42


async def _waits() -> None:
    await _Pause()


def test_a_coroutine_that_waits_for_nothing_is_run_to_its_end() -> None:
    assert run_now(_answer()) == 42


def test_a_coroutine_that_waits_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="waits for something"):
        run_now(_waits())
