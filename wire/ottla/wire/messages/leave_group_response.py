"""LeaveGroupResponse.

Generated from schemas/leave_group.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class MemberResponse(Struct):
    __slots__ = (
        "member_id",
        "group_instance_id",
        "error_code",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = "",
        error_code: int = 0,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.error_code = error_code


class LeaveGroupResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "members",
    )
    API_KEY = 13
    VERSIONS = range(6)
    FLEXIBLE_FROM = 4
    SCHEMA = "leave_group"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        members: list[MemberResponse] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.members = [] if members is EMPTY else members
