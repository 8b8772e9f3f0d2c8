"""RemoveRaftVoterResponse.

Generated from schemas/remove_raft_voter.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class RemoveRaftVoterResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
    )
    API_KEY = 81
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "remove_raft_voter"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
