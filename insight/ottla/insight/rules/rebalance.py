"""Finds the causes of an unfinished assignment of partitions: the members that a group waits for.
Pure."""

from collections.abc import Mapping

from ottla.client.admin_parts.admin_groups import (
    GroupDescription,
    GroupMemberDescription,
    GroupType,
)
from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.group_kinds import kind_of, meaning_of
from ottla.model.amounts import counted

MEMBERS_MAX = 10
CLASSIC_STATES = {
    "PreparingRebalance": "waits until all its members have joined again",
    "CompletingRebalance": "waits for the assignment that its leader computes",
}


def explain_rebalance(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of the reasons why a group's assignment of partitions is not
    finished."""
    group = facts.group
    notes = kind_notes(group)
    if group is not None:
        notes.append(f"state {group.state}, {counted(len(group.members), 'member')}")
    return concluded(
        "rebalance",
        f"group {values.get('group', '')}",
        rebalance_causes(group),
        notes=notes,
        unknown=facts.unknown,
    )


def removal_command(group_id: str, member: GroupMemberDescription) -> str:
    """Return the command that removes a member from a group. A static member is named by its
    group.instance.id."""
    words: list[object] = ["group", "remove-member", NameArgument(group_id)]
    if member.instance_id is not None:
        words += ["--instance-id", NameArgument(member.instance_id)]
    else:
        words.append(NameArgument(member.member_id))
    return command(*words)


def kind_notes(group: GroupDescription | None) -> list[str]:
    """Return a sentence that names the kind of a group. Empty if the group is unknown."""
    if group is None:
        return []
    kind = kind_of(group.type, group.protocol_type)
    return [f"kind {kind.value}: {meaning_of(group)}"]


def rebalance_causes(group: GroupDescription | None) -> list[Cause]:
    """Return the reasons why a group's assignment of partitions is not finished. Empty if it is
    finished, or if the group is unknown or has no members."""
    if group is None or not group.members:
        return []
    more = command("group", "members", NameArgument(group.group_id))
    if group.type is GroupType.CLASSIC:
        reason = CLASSIC_STATES.get(group.state)
        if reason is None:
            return []
        return [
            Cause(
                kind="rebalance-unfinished",
                summary=f"group {group.group_id} {reason}; until then no member reads",
                evidence=(
                    Evidence("state", group.state),
                    Evidence("members", len(group.members)),
                ),
                remedy="a member that does not poll delays it by up to its max.poll.interval.ms: "
                "end that process, or lower the interval; the command removes all members, and "
                "those that still poll join again at once",
                fix=command("group", "remove-member", NameArgument(group.group_id), "--all"),
                more=more,
            )
        ]
    if None not in (group.group_epoch, group.assignment_epoch) and (
        group.group_epoch != group.assignment_epoch
    ):
        return [
            Cause(
                kind="assignment-pending",
                summary=f"the coordinator has not computed the assignment of epoch "
                f"{group.group_epoch} yet",
                evidence=(
                    Evidence("group epoch", group.group_epoch),
                    Evidence("epoch of the assignment", group.assignment_epoch),
                ),
                more=command("group", "describe", NameArgument(group.group_id)),
            )
        ]
    if group.type is GroupType.SHARE:
        return []  # Its members share partitions, and wait for no other member.
    late = [
        one
        for one in group.members
        if (one.member_epoch is not None and one.member_epoch != group.assignment_epoch)
        or (one.target is not None and not one.assignment <= one.target)
    ]
    return [
        Cause(
            kind="member-holds-partitions",
            summary=f"member {one.member_id} (client {one.client_id} at "
            f"{one.host.removeprefix('/')}) has not given up the partitions that others wait for",
            evidence=(
                Evidence("epoch of the member", one.member_epoch),
                Evidence("epoch of the assignment", group.assignment_epoch),
                Evidence(
                    "partitions to give up",
                    ", ".join(map(str, sorted(one.assignment - (one.target or frozenset())))),
                ),
            ),
            remedy="its poll hangs or takes long: end that process; the coordinator removes it "
            "after its max.poll.interval.ms, the command at once",
            fix=removal_command(group.group_id, one),
            more=more,
        )
        for one in late[:MEMBERS_MAX]
    ]
