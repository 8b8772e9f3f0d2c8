"""FetchSnapshotResponse.

Generated from schemas/fetch_snapshot.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Records, Struct, fresh


class SnapshotId(Struct):
    __slots__ = (
        "end_offset",
        "epoch",
    )

    def __init__(
        self,
        *,
        end_offset: int = 0,
        epoch: int = 0,
    ) -> None:
        self.end_offset = end_offset
        self.epoch = epoch


class LeaderIdAndEpoch(Struct):
    __slots__ = (
        "leader_id",
        "leader_epoch",
    )

    def __init__(
        self,
        *,
        leader_id: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch


class PartitionSnapshot(Struct):
    __slots__ = (
        "index",
        "error_code",
        "snapshot_id",
        "current_leader",
        "size",
        "position",
        "unaligned_records",
    )

    def __init__(
        self,
        *,
        index: int = 0,
        error_code: int = 0,
        snapshot_id: SnapshotId | None = None,
        current_leader: LeaderIdAndEpoch | None = None,
        size: int = 0,
        position: int = 0,
        unaligned_records: Records = b"",
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.snapshot_id = SnapshotId() if snapshot_id is None else snapshot_id
        self.current_leader = LeaderIdAndEpoch() if current_leader is None else current_leader
        self.size = size
        self.position = position
        self.unaligned_records = unaligned_records


class TopicSnapshot(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[PartitionSnapshot] = EMPTY,
    ) -> None:
        self.name = name
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


class FetchSnapshotResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "topics",
        "node_endpoints",
    )
    API_KEY = 59
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "fetch_snapshot"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        topics: list[TopicSnapshot] = EMPTY,
        node_endpoints: list[NodeEndpoint] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.topics = fresh(topics)
        self.node_endpoints = fresh(node_endpoints)
