"""Builds the DescribeGroups response about a classic group. Pure."""

from ottla.broker.groups.classic.classic_group import ClassicGroup, GroupState
from ottla.model.errors import ErrorCode
from ottla.wire.messages.describe_groups_response import DescribedGroup, DescribedGroupMember

NOT_FOUND_FROM = 6
"""First version of DescribeGroups whose response distinguishes a missing group from a group in the
state Dead (KIP-1043)."""


def describe(group: ClassicGroup) -> DescribedGroup:
    """Return the DescribeGroups entry for a classic group and its members. The entry has a protocol
    and assignments only if the group is stable."""
    is_stable = group.state is GroupState.STABLE
    protocol = group.protocol_name or "" if is_stable else ""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client.id,
                client_host=member.client.host,
                member_metadata=member.metadata_for(protocol),
                member_assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ],
    )


def describe_missing(group_id: str, version: int, *, is_other_type: bool = False) -> DescribedGroup:
    """Return the DescribeGroups response for a group that does not exist, or that uses another
    protocol."""
    found = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
    if version >= NOT_FOUND_FROM:
        found.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        reason = "is not a classic group" if is_other_type else "not found"
        found.error_message = f"Group {group_id} {reason}."
    return found
