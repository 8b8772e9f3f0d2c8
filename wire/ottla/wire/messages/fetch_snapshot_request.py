"""FetchSnapshotRequest.

Generated from schemas/fetch_snapshot.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, ZERO_UUID, Message, Struct, fresh


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


class PartitionSnapshot(Struct):
    __slots__ = (
        "partition",
        "current_leader_epoch",
        "snapshot_id",
        "position",
        "replica_directory_id",
    )

    def __init__(
        self,
        *,
        partition: int = 0,
        current_leader_epoch: int = 0,
        snapshot_id: SnapshotId | None = None,
        position: int = 0,
        replica_directory_id: UUID = ZERO_UUID,
    ) -> None:
        self.partition = partition
        self.current_leader_epoch = current_leader_epoch
        self.snapshot_id = SnapshotId() if snapshot_id is None else snapshot_id
        self.position = position
        self.replica_directory_id = replica_directory_id


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


class FetchSnapshotRequest(Message):
    __slots__ = (
        "cluster_id",
        "replica_id",
        "max_bytes",
        "topics",
    )
    API_KEY = 59
    VERSIONS = range(2)
    FLEXIBLE_FROM = 0
    SCHEMA = "fetch_snapshot"

    def __init__(
        self,
        *,
        cluster_id: str | None = None,
        replica_id: int = -1,
        max_bytes: int = 2147483647,
        topics: list[TopicSnapshot] = EMPTY,
    ) -> None:
        self.cluster_id = cluster_id
        self.replica_id = replica_id
        self.max_bytes = max_bytes
        self.topics = fresh(topics)
