"""ShareGroupMemberMetadataValue.

Generated from schemas/share_group_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message


class ShareGroupMemberMetadataValue(Message):
    __slots__ = (
        "rack_id",
        "client_id",
        "client_host",
        "subscribed_topic_names",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "share_group_records"

    def __init__(
        self,
        *,
        rack_id: str | None = "",
        client_id: str = "",
        client_host: str = "",
        subscribed_topic_names: list[str] = EMPTY,
    ) -> None:
        self.rack_id = rack_id
        self.client_id = client_id
        self.client_host = client_host
        self.subscribed_topic_names = (
            [] if subscribed_topic_names is EMPTY else subscribed_topic_names
        )
