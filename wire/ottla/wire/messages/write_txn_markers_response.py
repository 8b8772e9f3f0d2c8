"""WriteTxnMarkersResponse.

Generated from schemas/write_txn_markers.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class WritableTxnMarkerPartitionResult(Struct):
    __slots__ = (
        "partition_index",
        "error_code",
    )

    def __init__(
        self,
        *,
        partition_index: int = 0,
        error_code: int = 0,
    ) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class WritableTxnMarkerTopicResult(Struct):
    __slots__ = (
        "name",
        "partitions",
    )

    def __init__(
        self,
        *,
        name: str = "",
        partitions: list[WritableTxnMarkerPartitionResult] = EMPTY,
    ) -> None:
        self.name = name
        self.partitions = [] if partitions is EMPTY else partitions


class WritableTxnMarkerResult(Struct):
    __slots__ = (
        "producer_id",
        "topics",
    )

    def __init__(
        self,
        *,
        producer_id: int = 0,
        topics: list[WritableTxnMarkerTopicResult] = EMPTY,
    ) -> None:
        self.producer_id = producer_id
        self.topics = [] if topics is EMPTY else topics


class WriteTxnMarkersResponse(Message):
    __slots__ = ("markers",)
    API_KEY = 27
    VERSIONS = range(1, 3)
    FLEXIBLE_FROM = 1
    SCHEMA = "write_txn_markers"

    def __init__(
        self,
        *,
        markers: list[WritableTxnMarkerResult] = EMPTY,
    ) -> None:
        self.markers = [] if markers is EMPTY else markers
