"""Callbacks through which a partition wakes requests, and requests flushes and ISR reviews.
Pure."""

from collections.abc import Callable, Container
from typing import Generic, NamedTuple, TypeVar

P = TypeVar("P")


class WakeKey:
    """Key under which requests wait in the purgatory. A key is cheap to hash. Each partition has
    one key for its high watermark and one for its log end."""

    __slots__ = ()


class AllKeys(Container[object]):
    """Container that reports every key as contained. It is the default for a port without
    information about the watched keys."""

    def __contains__(self, key: object) -> bool:
        return True


class PartitionPort(NamedTuple, Generic[P]):
    """Callbacks for changes of partitions of class `P`. A callback must not change the
    partition."""

    wake: Callable[[WakeKey], object]
    on_flush_due: Callable[[P], None]
    """Function that is called with a partition when records in its log wait for a flush. It must
    not flush before it returns."""
    on_isr_due: Callable[[P], None]
    """Function called with a partition that this broker leads, when the partition's in-sync
    replicas may have to change."""
    watched: Container[object] = AllKeys()
    """Keys that at least one waiting request watches. A partition checks this set before it wakes a
    key, because a check costs less than a wake-up, and wake-ups are rarely needed."""
