"""What a decision of a group asks of its driver: records to append, answers to give.  Pure.

Some answers leave at once.  The others say something of what is in the log: they leave when all
that was written before them is committed, so that nothing told to a client is ever taken back.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from ottla.broker.groups.group_records import GroupRecord

Asker: TypeAlias = Callable[[Any], None]
"""Somebody who waits: called once, with the answer, or with an ErrorCode that stands for it all."""


new_tuple: Any = tuple.__new__
"""Makes a named tuple of its class and values, for a third of what calling the class costs."""


class Instant(NamedTuple):
    """Now, on both clocks: monotonic for timeouts, wall for what is written."""

    mono_ms: int
    wall_ms: int


class MemberClient(NamedTuple):
    """Who a member says it is, and where it comes from."""

    id: str
    host: str


class GroupEffects:
    """What has been decided and not been performed yet, in order."""

    __slots__ = ("answers", "committed_answers", "writes")

    def __init__(self) -> None:
        self.writes: list[list[GroupRecord]] = []
        """Records to append: what one event decided is kept together, for who reads the log after a
        failover must find all of it or nothing."""
        self.answers: list[tuple[Asker, Any]] = []
        """To be given at once."""
        self.committed_answers: list[tuple[Asker, Any]] = []
        """To be given when everything written so far is committed."""

    @property
    def records(self) -> list[GroupRecord]:
        """All of them, one after the other."""
        return [record for write in self.writes for record in write]


class Outbox:
    """Collects effects until the driver takes them."""

    __slots__ = ("_effects", "_write")

    def __init__(self) -> None:
        self._effects = GroupEffects()
        self._write: list[GroupRecord] = []

    def write(self, record: GroupRecord) -> None:
        """Have a record appended."""
        self._write.append(record)

    def end_event(self) -> None:
        """Say that what is written from now on may be parted from what was."""
        if self._write:
            self._effects.writes.append(self._write)
            self._write = []

    def answer(self, asker: Asker, answer: Any) -> None:
        """Answer at once."""
        self._effects.answers.append((asker, answer))

    def answer_when_committed(self, asker: Asker, answer: Any) -> None:
        """Answer when all that is written by now is committed."""
        self._effects.committed_answers.append((asker, answer))

    def take(self) -> GroupEffects:
        """Return what there is to do; it is the caller's now."""
        effects = self._effects
        if self._write:
            effects.writes.append(self._write)
            self._write = []
        self._effects = GroupEffects()
        return effects
