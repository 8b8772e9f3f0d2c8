"""What an append is asked and what it answers."""

from enum import Enum
from typing import final

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


@final
class AppendInfo:
    """Where the records went; for a duplicate, where the first copy of them went."""

    __slots__ = (
        "base_offset",
        "end_offset",
        "is_duplicate",
        "log_append_time_ms",
        "log_start_offset",
        "max_timestamp",
    )

    def __init__(
        self,
        base_offset: Offset,
        end_offset: Offset,
        log_append_time_ms: int,
        log_start_offset: Offset,
        is_duplicate: bool,
        max_timestamp: int,
    ) -> None:
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.log_append_time_ms = log_append_time_ms
        """-1 where the records keep their producer's time (CreateTime)."""
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate
        self.max_timestamp = max_timestamp

    @property
    def last_offset(self) -> Offset:
        """The offset of the last record; before the base offset where there are no records."""
        return Offset(self.end_offset - 1)
