"""What groups wait for, by name.  Pure."""

from enum import Enum
from typing import NamedTuple

NO_MEMBER_ID = ""


class TimerKind(Enum):
    """What a group waits for."""

    SESSION = "session"
    """A sign of life of one member."""
    JOIN = "join"
    """All members, to begin a generation."""
    SYNC = "sync"
    """All members, to fetch their assignment."""
    ASSIGNMENT = "assignment"
    """The end of the interval since the last assignment of a consumer group."""
    REVOCATION = "revocation"
    """One member of the consumer protocol, to give partitions up."""

    # Enum's own hash is a call of Python's, two of them in each heartbeat.
    __hash__ = object.__hash__


class TimerName(NamedTuple):
    """One deadline of a group."""

    group_id: str
    kind: TimerKind
    member_id: str = NO_MEMBER_ID
