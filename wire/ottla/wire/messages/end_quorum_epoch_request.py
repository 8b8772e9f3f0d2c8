"""EndQuorumEpochRequest.

Generated from schemas/end_quorum_epoch.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct, fresh


class ReplicaInfo(Struct):
    __slots__ = (
        "candidate_id",
        "candidate_directory_id",
    )

    def __init__(
        self,
        *,
        candidate_id: int = 0,
        candidate_directory_id: UUID = ZERO_UUID,
    ) -> None:
        self.candidate_id = candidate_id
        self.candidate_directory_id = candidate_directory_id


class PartitionData(Struct):
    __slots__ = (
        "partition_index",
        "leader_id",
        "leader_epoch",
        "preferred_successors",
        "preferred_candidates",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        leader_id: int = 0,
        leader_epoch: int = 0,
        preferred_successors: list[int] = EMPTY,
        preferred_candidates: list[ReplicaInfo] = EMPTY,
    ) -> None:
        self.partition_index = partition_index
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.preferred_successors = fresh(preferred_successors)
        self.preferred_candidates = fresh(preferred_candidates)


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


class EndQuorumEpochRequest(Message):
    __slots__ = (
        "cluster_id",
        "topics",
        "leader_endpoints",
    )
    API_KEY = 54
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "end_quorum_epoch"

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        topics: list[TopicData] = EMPTY,
        leader_endpoints: list[LeaderEndpoint] = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.topics = fresh(topics)
        self.leader_endpoints = fresh(leader_endpoints)
