"""UpdateRaftVoterRequest.

Generated from schemas/update_raft_voter.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct, fresh


class Listener(Struct):
    __slots__ = (
        "name",
        "host",
        "port",
    )

    def __init__(
        self,
        *,
        name: str = "",
        host: str = "",
        port: int = 0,
    ) -> None:
        self.name = name
        self.host = host
        self.port = port


class KRaftVersionFeature(Struct):
    __slots__ = (
        "min_supported_version",
        "max_supported_version",
    )

    def __init__(
        self,
        *,
        min_supported_version: int = 0,
        max_supported_version: int = 0,
    ) -> None:
        self.min_supported_version = min_supported_version
        self.max_supported_version = max_supported_version


class UpdateRaftVoterRequest(Message):
    __slots__ = (
        "cluster_id",
        "current_leader_epoch",
        "voter_id",
        "voter_directory_id",
        "listeners",
        "kraft_version_feature",
    )
    API_KEY = 82
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "update_raft_voter"

    def __init__(
        self,
        *,
        cluster_id: str | None = "",
        current_leader_epoch: int = 0,
        voter_id: int = 0,
        voter_directory_id: UUID = ZERO_UUID,
        listeners: list[Listener] = EMPTY,
        kraft_version_feature: KRaftVersionFeature | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.current_leader_epoch = current_leader_epoch
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.listeners = fresh(listeners)
        self.kraft_version_feature = (
            KRaftVersionFeature() if kraft_version_feature is None else kraft_version_feature
        )
