"""Effects of one event on a coordinator's shard: records to append and responses to send. Pure.

Some responses are sent at once. All others report changes that the log must contain first. They are
sent when all records written before them are committed, so that no response is ever revoked.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

WriteT = TypeVar("WriteT")

Responder: TypeAlias = Callable[[Any], None]
"""Callback of a waiting request, called once with the answer, or with an ErrorCode for the whole
request."""


new_tuple: Any = tuple.__new__
"""Constructor of named tuples from a class and its values. It costs a third of calling the
class."""


class CoordinatorRecord(NamedTuple):
    """Record for a coordinator's topic, with encoded key and value. A value of None is a tombstone
    for the key."""

    key: bytes
    value: bytes | None


class Instant(NamedTuple):
    """Time on both clocks: monotonic for timeouts, wall time for timestamps in records."""

    mono_ms: int
    wall_ms: int


class MemberClient(NamedTuple):
    """Client id and host of a group member's client."""

    id: str
    host: str


class ShardEffects(Generic[WriteT]):
    """Effects that a shard has decided and that are not performed yet, in order."""

    __slots__ = (
        "answers",
        "committed_answers",
        "completed",
        "has_work",
        "next_deadline_ms",
        "orders",
        "writes",
    )

    def __init__(self) -> None:
        self.writes: list[WriteT] = []
        """Writes to append, one for each event. The log contains a write completely or not at all,
        so that no reader finds half of an event after a failover."""
        self.answers: list[tuple[Responder, Any]] = []
        """Responses to send at once."""
        self.committed_answers: list[tuple[Responder, Any]] = []
        """Responses to send when everything written so far is committed."""
        self.orders: list[Any] = []
        """Messages to other brokers, such as transaction markers, about records that are already
        committed."""
        self.completed: list[str] = []
        """Transactional ids whose next transaction may begin."""
        self.has_work = False
        """True if the shard has unfinished work that runs in steps."""
        self.next_deadline_ms: int | None = None
        """Monotonic time in milliseconds of the shard's next deadline."""


EventWrite: TypeAlias = list[CoordinatorRecord]
"""Records that one event of a group adds to the log, all of them or none."""


GroupEffects: TypeAlias = ShardEffects[EventWrite]


class Outbox:
    """Collects the effects that a shard of groups decides."""

    __slots__ = ("_effects", "_write")

    def __init__(self) -> None:
        self._effects: GroupEffects = ShardEffects()
        self._write: EventWrite = []

    def write(self, record: CoordinatorRecord) -> None:
        """Add a record to the batch of the current event."""
        self._write.append(record)

    def end_event(self) -> None:
        """End the current event. Records added from now on may be in a different batch."""
        if self._write:
            self._effects.writes.append(self._write)
            self._write = []

    def answer(self, responder: Responder, answer: Any) -> None:
        """Add a response that is sent at once."""
        self._effects.answers.append((responder, answer))

    def answer_when_committed(self, responder: Responder, answer: Any) -> None:
        """Add a response to send when everything written so far is committed."""
        self._effects.committed_answers.append((responder, answer))

    def take(self) -> GroupEffects:
        """Return and clear the collected effects of a shard."""
        effects = self._effects
        if self._write:
            effects.writes.append(self._write)
            self._write = []
        self._effects = ShardEffects()
        return effects
