"""RemoveRaftVoterRequest.

Generated from schemas/remove_raft_voter.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import ZERO_UUID, Message


class RemoveRaftVoterRequest(Message):
    __slots__ = (
        "cluster_id",
        "voter_id",
        "voter_directory_id",
    )
    API_KEY = 81
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "remove_raft_voter"

    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        voter_id: int = 0,
        voter_directory_id: UUID = ZERO_UUID,
    ) -> None:
        self.cluster_id = cluster_id
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
