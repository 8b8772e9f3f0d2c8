"""SnapshotFooterRecord.

Generated from schemas/raft_records.schema; never edited.
"""

from ottla.wire.codec_types import Message


class SnapshotFooterRecord(Message):
    __slots__ = ("version",)
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "raft_records"

    def __init__(
        self,
        *,
        version: int = 0,
    ) -> None:
        self.version = version
