"""BeginQuorumEpochRequest.

Generated from schemas/begin_quorum_epoch.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct, fresh


class PartitionData(Struct):
    __slots__ = (
        "partition_index",
        "voter_directory_id",
        "leader_id",
        "leader_epoch",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        voter_directory_id: UUID = ZERO_UUID,
        leader_id: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.voter_directory_id = voter_directory_id
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class TopicData(Struct):
    __slots__ = (
        "topic_name",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic_name: str = "",
        partitions: list[PartitionData] = EMPTY,
    ) -> None:
        self.topic_name = topic_name
        self.partitions = fresh(partitions)


class LeaderEndpoint(Struct):
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


class BeginQuorumEpochRequest(Message):
    __slots__ = (
        "cluster_id",
        "voter_id",
        "topics",
        "leader_endpoints",
    )
    API_KEY = 53
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "begin_quorum_epoch"

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        voter_id: int = -1,
        topics: list[TopicData] = EMPTY,
        leader_endpoints: list[LeaderEndpoint] = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.voter_id = voter_id
        self.topics = fresh(topics)
        self.leader_endpoints = fresh(leader_endpoints)
