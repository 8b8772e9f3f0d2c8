"""VotersRecord.

Generated from schemas/raft_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct


class Endpoint(Struct):
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


class Voter(Struct):
    __slots__ = (
        "voter_id",
        "voter_directory_id",
        "endpoints",
        "kraft_version_feature",
    )

    def __init__(
        self,
        *,
        voter_id: int = 0,
        voter_directory_id: UUID = ZERO_UUID,
        endpoints: list[Endpoint] = EMPTY,
        kraft_version_feature: KRaftVersionFeature | None = None,
    ) -> None:
        self.voter_id = voter_id
        self.voter_directory_id = voter_directory_id
        self.endpoints = [] if endpoints is EMPTY else endpoints
        self.kraft_version_feature = (
            KRaftVersionFeature() if kraft_version_feature is None else kraft_version_feature
        )


class VotersRecord(Message):
    __slots__ = (
        "version",
        "voters",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "raft_records"

    def __init__(
        self,
        *,
        version: int = 0,
        voters: list[Voter] = EMPTY,
    ) -> None:
        self.version = version
        self.voters = [] if voters is EMPTY else voters
