"""WriteSnapshotRequest.

Generated from schemas/write_snapshot.schema; never edited.
"""

from ottla.wire.codec_types import Message


class WriteSnapshotRequest(Message):
    __slots__ = ("validate_only",)
    API_KEY = 20008
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "write_snapshot"

    def __init__(
        self,
        *,
        validate_only: bool = False,
    ) -> None:
        self.validate_only = validate_only
