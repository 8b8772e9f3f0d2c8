"""Origin and result of an append."""

from enum import Enum
from typing import final

from ottla.model.ids import Offset


class AppendOrigin(Enum):
    """Origin of an append, which decides which checks apply."""

    CLIENT = "client"
    """Append by a producer: every rule applies, and idempotent batches must follow their sequence.
    """
    COORDINATOR = "coordinator"
    """Append by a group or transaction coordinator of this broker. It may write markers, and its
    batches have no sequences."""
    RAFT = "raft"
    """Append by the quorum's leader. It may write raft's control batches, and several batches at
    once."""
    REPLICATION = "replication"
    """Append of records that a follower has fetched. The leader has checked the batches; offsets,
    epochs and sequences are accepted unchanged."""


@final
class AppendInfo:
    """Offsets of the appended records. For a duplicate, the offsets of the first copy."""

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
        """The append time in ms, or -1 if the records keep their producer's time (CreateTime)."""
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate
        self.max_timestamp = max_timestamp

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, or base offset - 1 if there are no records."""
        return Offset(self.end_offset - 1)
