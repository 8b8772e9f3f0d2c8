"""Types for the origin and the result of an append to a partition's log. Pure values."""

from enum import Enum
from typing import final

from ottla.model.ids import Offset


class AppendOrigin(Enum):
    """Origin of an append to a log: a client, a coordinator, raft or replication. It decides which
    checks apply to the batches."""

    CLIENT = "client"
    """Append by a producer: every check applies, and the sequence numbers of an idempotent
    producer's batches must be consecutive.

    """
    COORDINATOR = "coordinator"
    """Append by a group or transaction coordinator of this broker. The coordinator may write
    transaction markers, and its batches have no sequence numbers."""
    RAFT = "raft"
    """Append by the leader of the controller quorum to the metadata log. The leader may write
    raft's control batches, and several batches at once."""
    REPLICATION = "replication"
    """Append of records that a follower has fetched. The leader has checked the batches; their
    offsets, leader epochs and sequence numbers are accepted unchanged."""


@final
class AppendInfo:
    """Result of an append to a log: the offsets of the appended records. For a duplicate batch,
    these are the offsets of its first copy."""

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
        """Time of the append in ms since 1970, or -1 if the records retain the timestamps of their
        producer (CreateTime)."""
        self.log_start_offset = log_start_offset
        self.is_duplicate = is_duplicate
        self.max_timestamp = max_timestamp

    @property
    def last_offset(self) -> Offset:
        """Offset of the last appended record, or base offset - 1 if no records were appended."""
        return Offset(self.end_offset - 1)
