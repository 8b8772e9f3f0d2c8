"""SnapshotHeaderRecord.

Generated from schemas/raft_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class SnapshotHeaderRecord(Message):
    __slots__ = (
        "version",
        "last_contained_log_timestamp",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "raft_records"

    def __init__(
        self,
        *,
        version: int = 0,
        last_contained_log_timestamp: int = 0,
    ) -> None:
        self.version = version
        self.last_contained_log_timestamp = last_contained_log_timestamp
