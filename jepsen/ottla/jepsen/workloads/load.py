"""What a workload is made of: a generator that says what comes next, and clients that do it.

Pure.  A generator has a model of its own, which learns from completions; chance and time are handed
in.  A client never raises: whatever happens to an operation is its completion.  OK is what
certainly happened, FAIL what certainly did not, INFO what may have, now or at any time to come.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, NamedTuple, Protocol, TypeAlias

from ottla.jepsen.history import NO_EXTRA, EventKind, Json

OWN: Final = "ottla"
CONFLUENT: Final = "confluent"
CLIENTS = (OWN, CONFLUENT)

NOTHING_TO_READ: Final = "nothing is assigned"
"""The error of a poll by a client that reads nothing: it never did, or lost it with its handle."""

Note: TypeAlias = Callable[[str, Json], None]
"""Notes at once what happened to a client beside its operations: `f` and value."""

MS: Final = 1_000_000
SECOND: Final = 1_000 * MS


@dataclass(frozen=True, slots=True)
class Op:
    """One thing to do."""

    f: str
    value: Json = None
    extra: Mapping[str, Json] = field(default_factory=lambda: NO_EXTRA)
    """What belongs to the invocation beside its value, say that it is a final read."""


@dataclass(frozen=True, slots=True)
class Completion:
    """How it ended."""

    kind: EventKind
    value: Json = None
    """None: as it was asked for."""
    error: str | None = None
    extra: Mapping[str, Json] = field(default_factory=lambda: NO_EXTRA)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """Who sends the load, and where its names begin."""

    prefix: str = ""
    """Of topics and groups: unique on a cluster that belongs to others."""
    kinds: tuple[str, ...] = (OWN,)
    """The client of each thread, one of CLIENTS."""
    idempotent: bool = True
    record_key_count: int = 0
    """Of each log of the queue workload, whose topics are compacted then; 0: records have none."""
    broker_count: int = 3
    """Found out when a workload is set up."""

    def __post_init__(self) -> None:
        assert self.kinds
        assert not set(self.kinds) - set(CLIENTS), f"clients are {CLIENTS}"

    @property
    def thread_count(self) -> int:
        """Return how many threads send load."""
        return len(self.kinds)


class NewTopic(NamedTuple):
    """A topic that is there before the load begins."""

    name: str
    partition_count: int


class Generator(Protocol):
    """Says what each thread does next."""

    name: str
    checkers: tuple[str, ...]
    """Names in `ottla.jepsen.checkers.table`."""
    ops_per_s_max: int
    """How often all threads together are asked for an operation."""

    @property
    def topics(self) -> Sequence[NewTopic]:
        """The topics to make before it begins."""
        ...

    @property
    def is_caught_up(self) -> bool:
        """Whether the final reads came to the end of all there is."""
        ...

    def next_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return what a thread does next; None when there is nothing at present."""
        ...

    def on_completion(self, thread: int, op: Op, done: Completion) -> None:
        """Learn how it ended."""
        ...

    def final_op(self, thread: int, now_ns: int, rng: Random) -> Op | None:
        """Return what a thread does once all is healed; None when it has done its part."""
        ...


class LoadClient(Protocol):
    """Does a thread's operations, one at a time."""

    async def invoke(self, op: Op) -> Completion:
        """Do it, within its deadline."""
        ...
