"""Disk work for random walks. It is performed immediately, because no task of a random walk waits
for a disk."""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.model.ids import TopicPartition
from ottla.model.run_now import run_now


class ImmediateLogWork:
    """Port for a broker core's disk work, which runs each step as soon as the step is added."""

    def add(self, partition: TopicPartition, step: Callable[[], Any]) -> None:
        """Run a step of disk work for a partition immediately."""
        run_now(step())

    def add_later(self, partition: TopicPartition, step: Callable[[], Any]) -> None:
        """Run a step of disk work for a partition immediately."""
        run_now(step())

    def start_delayed(self, partitions: Iterable[TopicPartition]) -> None:
        """Do nothing, since every step of disk work was done when it was added."""

    async def until_done(self, partitions: Iterable[TopicPartition], timeout_s: float) -> None:
        """Do nothing, since every step of disk work was done when it was added."""

    def has_steps(self, partition: TopicPartition) -> bool:
        """Return False, since every step of disk work was done when it was added."""
        return False

    async def yield_to_loop(self) -> None:
        """Do nothing, because no other tasks are waiting to run."""
