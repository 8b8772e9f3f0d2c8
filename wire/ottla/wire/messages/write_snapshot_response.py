"""WriteSnapshotResponse.

Generated from schemas/write_snapshot.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class WriteSnapshotResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "node_id",
        "end_offset",
        "epoch",
        "size_bytes",
        "latest_end_offset",
        "log_start_offset",
    )
    API_KEY = 20008
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "write_snapshot"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        node_id: int = -1,
        end_offset: int = -1,
        epoch: int = -1,
        size_bytes: int = -1,
        latest_end_offset: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.end_offset = end_offset
        self.epoch = epoch
        self.size_bytes = size_bytes
        self.latest_end_offset = latest_end_offset
        self.log_start_offset = log_start_offset
