"""DescribeShareRecordsRequest.

Generated from schemas/describe_share_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class DescribeShareRecordsRequest(Message):
    __slots__ = (
        "group_id",
        "topic_name",
        "partition_index",
        "start_offset",
        "range_count_max",
        "has_waiting",
    )
    API_KEY = 20010
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_share_records"

    def __init__(
        self,
        *,
        group_id: str = "",
        topic_name: str = "",
        partition_index: int = 0,
        start_offset: int = 0,
        range_count_max: int = 0,
        has_waiting: bool = False,
    ) -> None:
        self.group_id = group_id
        self.topic_name = topic_name
        self.partition_index = partition_index
        self.start_offset = start_offset
        self.range_count_max = range_count_max
        self.has_waiting = has_waiting
