"""AddOffsetsToTxnResponse.

Generated from schemas/add_offsets_to_txn.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class AddOffsetsToTxnResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
    )
    API_KEY = 25
    VERSIONS = range(5)
    FLEXIBLE_FROM = 3
    SCHEMA = "add_offsets_to_txn"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
