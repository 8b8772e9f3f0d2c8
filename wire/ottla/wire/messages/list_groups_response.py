"""ListGroupsResponse.

Generated from schemas/list_groups.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class ListedGroup(Struct):
    __slots__ = (
        "group_id",
        "protocol_type",
        "group_state",
        "group_type",
    )

    def __init__(
        self,
        *,
        group_id: str = "",
        protocol_type: str = "",
        group_state: str = "",
        group_type: str = "",
    ) -> None:
        self.group_id = group_id
        self.protocol_type = protocol_type
        self.group_state = group_state
        self.group_type = group_type


class ListGroupsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "groups",
    )
    API_KEY = 16
    VERSIONS = range(6)
    FLEXIBLE_FROM = 3
    SCHEMA = "list_groups"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        groups: list[ListedGroup] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.groups = [] if groups is EMPTY else groups
