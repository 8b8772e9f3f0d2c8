"""Work of disks where nothing waits for a disk."""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.model.ids import TopicPartition
from ottla.model.run_now import run_now


class AtOnceWork:
    """Work of a broker's disks, done when it is asked for."""

    def add(self, partition: TopicPartition, step: Callable[[], Any]) -> None:
        """Do a step."""
        run_now(step())

    def add_later(self, partition: TopicPartition, step: Callable[[], Any]) -> None:
        """Do a step."""
        run_now(step())

    def hurry(self, partitions: Iterable[TopicPartition]) -> None:
        """Do nothing: every step was done when it was asked for."""

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Do nothing: every step was done when it was asked for."""

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return False: every step was done when it was asked for."""
        return False

    async def breathe(self) -> None:
        """Do nothing: there are no other tasks."""
