"""ShareGroupHeartbeatRequest.

Generated from schemas/share_group_heartbeat.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class ShareGroupHeartbeatRequest(Message):
    __slots__ = (
        "group_id",
        "member_id",
        "member_epoch",
        "rack_id",
        "subscribed_topic_names",
    )
    API_KEY = 76
    VERSIONS = range(1, 2)
    FLEXIBLE_FROM = 1
    SCHEMA = "share_group_heartbeat"

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        member_epoch: int = 0,
        rack_id: str | None = None,
        subscribed_topic_names: list[str] | None = None,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.member_epoch = member_epoch
        self.rack_id = rack_id
        self.subscribed_topic_names = subscribed_topic_names
