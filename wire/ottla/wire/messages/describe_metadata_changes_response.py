"""DescribeMetadataChangesResponse.

Generated from schemas/describe_metadata_changes.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class MetadataChange(Struct):
    __slots__ = (
        "offset",
        "epoch",
        "timestamp_ms",
        "kind",
        "text",
    )

    def __init__(
        self,
        *,
        offset: int = 0,
        epoch: int = 0,
        timestamp_ms: int = 0,
        kind: str = "",
        text: str = "",
    ) -> None:
        self.offset = offset
        self.epoch = epoch
        self.timestamp_ms = timestamp_ms
        self.kind = kind
        self.text = text


class DescribeMetadataChangesResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "next_offset",
        "end_offset",
        "changes",
    )
    API_KEY = 20007
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_metadata_changes"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        next_offset: int = 0,
        end_offset: int = 0,
        changes: list[MetadataChange] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.next_offset = next_offset
        self.end_offset = end_offset
        self.changes = [] if changes is EMPTY else changes
