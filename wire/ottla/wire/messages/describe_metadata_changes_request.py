"""DescribeMetadataChangesRequest.

Generated from schemas/describe_metadata_changes.schema; never edited.
"""

from ottla.wire.codec_types import Message


class DescribeMetadataChangesRequest(Message):
    __slots__ = (
        "start_offset",
        "wait_ms",
    )
    API_KEY = 20007
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_metadata_changes"

    def __init__(
        self,
        *,
        start_offset: int = 0,
        wait_ms: int = 0,
    ) -> None:
        self.start_offset = start_offset
        self.wait_ms = wait_ms
