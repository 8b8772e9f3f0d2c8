"""Runs a coroutine that has nothing to wait for, without a loop."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from ottla.model.ids import TopicPartition

T = TypeVar("T")


def run_now(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns; it must not suspend."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise AssertionError(f"{coroutine} waits for something")


class AtOnceWork:
    """Work of a broker's disks, done when it is asked for."""

    def add(self, partition: TopicPartition, step: Callable[[], Any]) -> None:
        """Do a step."""
        run_now(step())

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return False: every step was done when it was asked for."""
        return False

    async def breathe(self) -> None:
        """Do nothing: there are no other tasks."""
