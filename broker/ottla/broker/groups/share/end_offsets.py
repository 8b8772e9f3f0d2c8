"""Interface to the end offsets of partitions on any broker of the cluster. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition

EndOffsetAnswers: TypeAlias = Mapping[TopicPartition, int | ErrorCode]
"""High watermark of each partition, or the error code that its leader returned."""


class EndOffsets(Protocol):
    """Interface to look up the end offsets of partitions on any broker of the cluster."""

    def ask(
        self, wanted: Sequence[TopicPartition], on_done: Callable[[EndOffsetAnswers], None]
    ) -> None:
        """Look up the high watermarks of partitions. `on_done` is called exactly once, during the
        call or later, with an entry for each partition. This method never raises."""
        ...


class UnknownEndOffsets:
    """Implementation of `EndOffsets` for simulations without other brokers and logs: every offset
    is unknown."""

    def ask(
        self, wanted: Sequence[TopicPartition], on_done: Callable[[EndOffsetAnswers], None]
    ) -> None:
        """Call `on_done` with an error code for each partition, because no end offset is known."""
        on_done(dict.fromkeys(wanted, ErrorCode.LEADER_NOT_AVAILABLE))
