"""Interfaces of a workload: a generator chooses the operations, and clients perform them.

The module is pure. A generator has its own model of the cluster, which it updates from completions.
Its random generator and the time are arguments. A client never raises: it reports each outcome as a
completion. OK: the operation certainly happened. FAIL: it certainly did not happen. INFO: it may
have happened, or may still happen at any later time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.jepsen.history import NO_EXTRA, EventKind, Json

OWN: Final = "ottla"
CONFLUENT: Final = "confluent"
JAVA: Final = "java"
CLIENTS = (OWN, CONFLUENT, JAVA)

NOTHING_TO_READ: Final = "nothing is assigned"
"""Error text of a poll by a client without assigned partitions. The client has not received any
partitions yet, or lost them when its consumer was closed."""

Note: TypeAlias = Callable[[str, Json], None]
"""Callback that records at once, in the history, an event outside a client's operations. Its
arguments are the event's name `f` and its value."""

MS: Final = 1_000_000
SECOND: Final = 1_000 * MS


@dataclass(frozen=True, slots=True)
class Op:
    """One operation that a load client performs."""

    f: str
    value: Json = None
    extra: Mapping[str, Json] = field(default_factory=lambda: NO_EXTRA)
    """Information about the invocation in addition to its value: for example, that the operation
    belongs to the final reads."""


@dataclass(frozen=True, slots=True)
class Completion:
    """Outcome of one operation that a load client has performed."""

    kind: EventKind
    value: Json = None
    """Value of the operation after its completion. None means that it equals the value of the
    invocation."""
    error: str | None = None
    extra: Mapping[str, Json] = field(default_factory=lambda: NO_EXTRA)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Kind of client that each thread runs, and options of the workload, such as the prefix of its
    topic and group names."""

    prefix: str = ""
    """Prefix of the names of the workload's topics and groups. It must be unique if the cluster has
    other users."""
    kinds: tuple[str, ...] = (OWN,)
    """Kind of client that each thread uses, one of CLIENTS, by thread number."""
    idempotent: bool = True
    record_key_count: int = 0
    """Number of record keys in each log of the queue workload. Its topics are compacted if it is
    above 0. If it is 0, records have no key."""
    is_tiered: bool = False
    """True if the topics have tiered storage, except compacted ones."""
    broker_count: int = 3
    """Number of brokers of the cluster, determined when the workload is set up."""

    def __post_init__(self) -> None:
        assert self.kinds
        assert not set(self.kinds) - set(CLIENTS), f"clients are {CLIENTS}"

    @property
    def thread_count(self) -> int:
        """Number of threads of the workload that send load."""
        return len(self.kinds)


class NewTopic(NamedTuple):
    """A topic to create before the load begins."""

    name: str
    partition_count: int


class Generator(Protocol):
    """Source of the operations of all threads of a workload."""

    name: str
    checkers: tuple[str, ...]
    """Names of the checkers for histories of this workload, as in `ottla.jepsen.checkers.table`."""
    ops_per_s_max: int
    """Maximum number of operations per second, over all threads of the workload."""

    @property
    def topics(self) -> Sequence[NewTopic]:
        """The topics that must be created before the load begins."""
        ...

    @property
    def is_caught_up(self) -> bool:
        """True if the final reads (after the load) have reached the end of every partition."""
        ...

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation, or None if the thread must wait."""
        ...

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Update the generator's model of the cluster with the outcome (`done`) of an operation."""
        ...

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return the thread's next operation in the final phase, after all faults are healed.
        Returns None if the thread has nothing left to do."""
        ...


class LoadClient(Protocol):
    """Client that performs the operations of one workload thread, one at a time."""

    async def invoke(self, op: Op) -> Completion:
        """Perform an operation within its deadline, and return its outcome."""
        ...
