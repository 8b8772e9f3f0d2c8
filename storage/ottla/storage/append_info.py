"""What an append is asked and what it answers."""

from enum import Enum
from typing import NamedTuple

from ottla.model.ids import Offset


class AppendOrigin(Enum):
    """Who writes, which says how much is checked."""

    CLIENT = "client"
    """A producer: every rule holds, and idempotent batches follow their sequence."""
    COORDINATOR = "coordinator"
    """A group or transaction coordinator of ours: may write markers, has no sequences."""
    RAFT = "raft"
    """The quorum's leader: may write raft's control batches, several batches at once."""
    REPLICATION = "replication"
    """A follower: the leader has checked; offsets, epochs and sequences are taken as they are."""


class AppendInfo(NamedTuple):
    """Where the records went; for a duplicate, where the first copy of them went."""

    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int
    """-1 where the records keep their producer's time (CreateTime)."""
    log_start_offset: Offset
    is_duplicate: bool
    max_timestamp: int
