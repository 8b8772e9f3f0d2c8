"""Where the consequences of a partition's changes go: wakes, flushes, reviews of the ISR.  Pure."""

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ottla.broker.replicas.partition import Partition


class WakeKey:
    """What waiting requests watch: cheap to hash, one of each kind a partition."""

    __slots__ = ()


class EveryKey(Container[object]):
    """All keys."""

    def __contains__(self, key: object) -> bool:
        return True


class PartitionPort(NamedTuple):
    """Where the consequences of a partition's changes go; none of them may act on it in return."""

    wake: Callable[[WakeKey], object]
    on_flush_due: Callable[["Partition"], None]
    """Called when records wait for a flush; it must not flush before it returns."""
    on_isr_due: Callable[["Partition"], None]
    """Called when the in-sync set of a partition led here may have to change."""
    watched: Container[object] = EveryKey()
    """The keys that are watched: where most are not, to look costs less than a wake."""
