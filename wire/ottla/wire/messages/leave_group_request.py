"""LeaveGroupRequest.

Generated from schemas/leave_group.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class MemberIdentity(Struct):
    __slots__ = (
        "member_id",
        "group_instance_id",
        "reason",
    )

    def __init__(
        self,
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        reason: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.reason = reason


class LeaveGroupRequest(Message):
    __slots__ = (
        "group_id",
        "member_id",
        "members",
    )
    API_KEY = 13
    VERSIONS = range(6)
    FLEXIBLE_FROM = 4
    SCHEMA = "leave_group"

    def __init__(
        self,
        *,
        group_id: str = "",
        member_id: str = "",
        members: list[MemberIdentity] = EMPTY,
    ) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.members = [] if members is EMPTY else members
