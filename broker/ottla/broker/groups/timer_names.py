"""Names under which the deadlines of a group are stored. Pure."""

from enum import Enum
from typing import NamedTuple

NO_MEMBER_ID = ""


class TimerKind(Enum):
    """Kind of a group's deadline, named after the event that it waits for."""

    SESSION = "session"
    """Deadline for the next heartbeat of one group member."""
    JOIN = "join"
    """Deadline for the JoinGroup requests of all members, after which a new generation of the group
    begins."""
    SYNC = "sync"
    """Deadline for the SyncGroup requests of all members of a generation."""
    ASSIGNMENT = "assignment"
    """End of the minimum interval between two assignments of a consumer or share group."""
    INITIALIZATION = "initialization"
    """Time of the next attempt to initialise or delete the states of a share group's partitions."""
    REVOCATION = "revocation"
    """Deadline for a member of a consumer group to revoke partitions."""

    # Enum's own hash is a Python call, and each heartbeat makes two.
    __hash__ = object.__hash__


class TimerName(NamedTuple):
    """Name of a deadline: the group's id, the kind of deadline, and the id of the member, if the
    deadline belongs to a member."""

    group_id: str
    kind: TimerKind
    member_id: str = NO_MEMBER_ID
