"""Names of a group's deadlines.  Pure."""

from enum import Enum
from typing import NamedTuple

NO_MEMBER_ID = ""


class TimerKind(Enum):
    """Kind of deadline, named after the event it waits for."""

    SESSION = "session"
    """The deadline for a heartbeat of one member."""
    JOIN = "join"
    """The deadline for JoinGroup requests of all members, after which a generation begins."""
    SYNC = "sync"
    """The deadline for SyncGroup requests of all members."""
    ASSIGNMENT = "assignment"
    """The end of the minimum interval since the last assignment of a consumer or share group."""
    INITIALIZATION = "initialization"
    """The next attempt to initialise or delete the states of a share group's partitions."""
    REVOCATION = "revocation"
    """The deadline for the revocation of partitions by one member of the consumer protocol."""

    # Enum's own hash is a Python call, and each heartbeat makes two.
    __hash__ = object.__hash__


class TimerName(NamedTuple):
    """Name of a deadline: its group, its kind, and the member that it belongs to, if any."""

    group_id: str
    kind: TimerKind
    member_id: str = NO_MEMBER_ID
