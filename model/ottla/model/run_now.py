"""Execution of a coroutine that never waits, without an event loop."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, and return its result. Raises AssertionError if the coroutine
    suspends."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine} waits for something")
