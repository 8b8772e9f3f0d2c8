"""ShareUpdateKey.

Generated from schemas/share_state_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import ZERO_UUID, Message


class ShareUpdateKey(Message):
    __slots__ = (
        "group_id",
        "topic_id",
        "partition",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = None
    SCHEMA = "share_state_records"

    def __init__(
        self,
        *,
        group_id: str = "",
        topic_id: UUID = ZERO_UUID,
        partition: int = 0,
    ) -> None:
        self.group_id = group_id
        self.topic_id = topic_id
        self.partition = partition
