"""Removes members from a group for the verb of `ottla group` and for the console."""

from collections.abc import Collection

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupMemberDescription,
    GroupType,
    MemberToRemove,
)
from ottla.insight.facts.group_view import of_group
from ottla.model.errors import ErrorCode, RefusedError, row_of

NOT_REMOVABLE = frozenset({GroupType.SHARE, GroupType.STREAMS})
"""Types of groups whose coordinator refuses LeaveGroup with UNKNOWN_MEMBER_ID, in Ottla as in Kafka
4.4. Kafka has no other request with which an admin client can remove a member."""


def removal_of(member: GroupMemberDescription) -> MemberToRemove:
    """Return the identity by which a member is removed from its group. As in Kafka's admin client,
    a static member is identified by its group.instance.id alone."""
    if member.instance_id is not None:
        return MemberToRemove(instance_id=member.instance_id)
    return MemberToRemove(member.member_id)


def check_removable(group: GroupDescription) -> None:
    """Raise RefusedError if no request removes members from a group of this type."""
    if group.type in NOT_REMOVABLE:
        raise RefusedError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"{group.group_id!r} is a {group.type.value} group, and Kafka has no request that "
            "removes members from it; end the client's process: its session then times out",
        )


async def remove_members(
    admin: Admin, group: str, members: Collection[MemberToRemove], reason: str = ""
) -> dict[MemberToRemove, RefusedError]:
    """Remove members from a classic or consumer group. Returns the refusal of each member that was
    not removed. Raises RefusedError if the coordinator refuses the whole request."""
    try:
        codes = await admin.remove_group_members(group, members, reason=reason)
    except RefusedError as refusal:
        raise of_group(group, refusal) from None
    return {
        one: RefusedError(code, f"{name_of(one)}: {_meaning(code)}")
        for one, code in codes.items()
        if code is not ErrorCode.NONE
    }


def name_of(member: MemberToRemove) -> str:
    """Return a noun phrase that names a member whose removal was requested."""
    if member.instance_id is not None:
        return f"instance {member.instance_id!r}"
    return f"member {member.member_id!r}"


def _meaning(code: ErrorCode) -> str:
    if code is ErrorCode.UNKNOWN_MEMBER_ID:
        return "the group has no such member"
    return row_of(code).meaning
