"""EndQuorumEpochResponse.

Generated from schemas/end_quorum_epoch.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct, fresh


class PartitionData(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
        "leader_id",
        "leader_epoch",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
        leader_id: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code
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


class NodeEndpoint(Struct):
    __slots__ = (
        "node_id",
        "host",
        "port",
    )

    def __init__(
        self,
        *,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
    ) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port


class EndQuorumEpochResponse(Message):
    __slots__ = (
        "error_code",
        "topics",
        "node_endpoints",
    )
    API_KEY = 54
    VERSIONS = range(2)
    FLEXIBLE_FROM = 1
    SCHEMA = "end_quorum_epoch"

    def __init__(
        self,
        *,
        error_code: int = 0,
        topics: list[TopicData] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.error_code = error_code
        self.topics = fresh(topics)
        self.node_endpoints = fresh(node_endpoints)
