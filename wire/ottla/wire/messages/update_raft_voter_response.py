"""UpdateRaftVoterResponse.

Generated from schemas/update_raft_voter.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message, Struct


class CurrentLeader(Struct):
    __slots__ = (
        "leader_id",
        "leader_epoch",
        "host",
        "port",
    )

    def __init__(
        self,
        *,
        leader_id: int = -1,
        leader_epoch: int = -1,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.host = host
        self.port = port


class UpdateRaftVoterResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "current_leader",
    )
    API_KEY = 82
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "update_raft_voter"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        current_leader: CurrentLeader | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.current_leader = CurrentLeader() if current_leader is None else current_leader
