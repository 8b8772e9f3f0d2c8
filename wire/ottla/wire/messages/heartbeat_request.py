"""HeartbeatRequest.

Generated from schemas/heartbeat.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class HeartbeatRequest(Message):
    __slots__ = (
        "group_id",
        "generation_id",
        "member_id",
        "group_instance_id",
    )
    API_KEY = 12
    VERSIONS = range(5)
    FLEXIBLE_FROM = 4
    SCHEMA = "heartbeat"

    def __init__(
        self,
        *,
        group_id: str = "",
        generation_id: int = 0,
        member_id: str = "",
        group_instance_id: str | None = None,
    ) -> None:
        self.group_id = group_id
        self.generation_id = generation_id
        self.member_id = member_id
        self.group_instance_id = group_instance_id
