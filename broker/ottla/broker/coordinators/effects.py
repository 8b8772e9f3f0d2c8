"""Effects of one event (such as a request) on a coordinator's shard, its state in one topic
partition: records to append and responses to send. Pure.

Responses that depend on no record are sent at once. All other responses are sent when all records
written before them are committed, so that no response is ever revoked.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

WriteT = TypeVar("WriteT")

Responder: TypeAlias = Callable[[Any], None]
"""Callback of a waiting request, called once with the result of the request, or with an ErrorCode
for the whole request."""


new_tuple: Any = tuple.__new__
"""Constructor of named tuples from a class and its values. A call takes a third of the time that a
call of the class takes."""


class CoordinatorRecord(NamedTuple):
    """Record for a coordinator's topic, with encoded key and value. If the value is None, the
    record is a tombstone for the key."""

    key: bytes
    value: bytes | None


class Instant(NamedTuple):
    """A point in time on two clocks: monotonic time for timeouts, and wall time for timestamps in
    records."""

    mono_ms: int
    wall_ms: int


class MemberClient(NamedTuple):
    """Client id and host of the client of a group member."""

    id: str
    host: str


class ShardEffects(Generic[WriteT]):
    """Effects that a coordinator's shard (its state in one topic partition) has decided but not
    performed, in the order of the decisions."""

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
        """Records to append to the shard's log, one write for each event. The log contains a write
        completely or not at all, so that no reader finds half of an event after a failover."""
        self.answers: list[tuple[Responder, Any]] = []
        """Responses to send at once, each with the callback that sends it."""
        self.committed_answers: list[tuple[Responder, Any]] = []
        """Responses to send when all records written so far are committed, each with the callback
        that sends it."""
        self.orders: list[Any] = []
        """Messages to other brokers, such as orders to write transaction markers, about records
        that are already committed."""
        self.completed: list[str] = []
        """Transactional ids whose next transaction may begin, because the previous one is
        completed."""
        self.has_work = False
        """True if the coordinator's shard has unfinished work that runs in steps."""
        self.next_deadline_ms: int | None = None
        """Monotonic time in milliseconds of the shard's next deadline, or None if the shard has no
        deadline."""


EventWrite: TypeAlias = list[CoordinatorRecord]
"""Records that one event of a group (such as a join) adds to the log. They are written together or
not at all."""


GroupEffects: TypeAlias = ShardEffects[EventWrite]


class Outbox:
    """Collects the effects that a shard of the group coordinator decides: records, responses and
    deadlines."""

    __slots__ = ("_effects", "_write")

    def __init__(self) -> None:
        self._effects: GroupEffects = ShardEffects()
        self._write: EventWrite = []

    def write(self, record: CoordinatorRecord) -> None:
        """Add a record to the records of the current event, which are appended together."""
        self._write.append(record)

    def end_event(self) -> None:
        """End the current event of a group. Records added from now on may be in a different record
        batch."""
        if self._write:
            self._effects.writes.append(self._write)
            self._write = []

    def end_lasting_event(self) -> bool:
        """End the current event of a group. Returns whether the effects of this and earlier events
        are only records, and responses that wait for them, so that they may be taken later."""
        effects = self._effects
        if self._write:
            effects.writes.append(self._write)
            self._write = []
        return bool(effects.committed_answers or effects.writes) and not effects.answers

    def answer(self, responder: Responder, answer: Any) -> None:
        """Add a response that is sent to the client at once."""
        self._effects.answers.append((responder, answer))

    def answer_when_committed(self, responder: Responder, answer: Any) -> None:
        """Add a response that is sent to the client when all records written so far are
        committed."""
        self._effects.committed_answers.append((responder, answer))

    def take(self) -> GroupEffects:
        """Return and clear the collected effects of a shard of the group coordinator."""
        effects = self._effects
        if self._write:
            effects.writes.append(self._write)
            self._write = []
        self._effects = ShardEffects()
        return effects
