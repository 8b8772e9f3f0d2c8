"""One event of a simulated run, for timelines.

The facts of an event are machine-readable. Checkers find the events of a record by these names:

topic, partition      the partition that the event is about
offset, last_offset   the first and last offset (both inclusive; without last_offset there is one)
committed             the offset that the instance committed
key, key1, key2, …    `repr` of the key of a row in a store, or of values of a row
broker                the broker that the instance talked to
life                  the number of the instance's start
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

Fact = str | int
NO_FACTS: Final[Mapping[str, Fact]] = MappingProxyType({})

LIFE_KINDS = frozenset({"start", "stop", "kill", "pause", "resume", "end"})
"""Kinds of the events that start, interrupt or end an instance or a broker."""
NOTABLE_KINDS = LIFE_KINDS | {"fault", "error"}
"""Kinds of events that have priority in an excerpt, after the events of its subject."""


class TimelineEvent(NamedTuple):
    """One event of a simulated run."""

    at_s: float
    """Virtual seconds since the start of the run."""
    where: str
    """Name of the instance, broker or store, or `scenario`."""
    kind: str
    """One of start, stop, kill, pause, resume, end, request, answer, fault, error, mark, store,
    produce and note."""
    text: str
    facts: Mapping[str, Fact] = NO_FACTS

    def is_about(self, topic: str, partition: int, offset: int) -> bool:
        """Return whether the event refers to one record of a partition."""
        facts = self.facts
        if facts.get("topic") != topic or facts.get("partition") != partition:
            return False
        first = facts.get("offset")
        last = facts.get("last_offset", first)
        return isinstance(first, int) and isinstance(last, int) and first <= offset <= last


def printable(text: str, columns_max: int | None = None) -> str:
    """Return text in one line without control characters, and cut to a number of characters."""
    if columns_max is not None and len(text) > columns_max:
        text = text[: columns_max - 1] + "…"
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )
