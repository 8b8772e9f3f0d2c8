"""Finds the causes of a group's lag, from the cluster to the single record. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ottla.client.admin_parts.admin_groups import GroupMemberDescription, GroupType
from ottla.insight.explanation import (
    Cause,
    Evidence,
    Explanation,
    NameArgument,
    command,
    concluded,
)
from ottla.insight.facts.cluster_facts import ClusterFacts
from ottla.insight.facts.lags_driver import TimedLag
from ottla.insight.rules.disk import FULL, disk_causes
from ottla.insight.rules.rebalance import kind_notes, rebalance_causes
from ottla.insight.rules.throttle import usage_causes
from ottla.insight.rules.transaction import transaction_causes
from ottla.insight.rules.unavailable import partition_causes
from ottla.model.amounts import counted, duration
from ottla.model.ids import TopicPartition

CAUSES_MAX = 20


def explain_lag(facts: ClusterFacts, values: Mapping[str, str]) -> Explanation:
    """Return an explanation of a group's lag. Its possible causes are full disks, partitions
    without a leader, an unfinished rebalance, open transactions, throttles, and the group's own
    members."""
    group = values.get("group", "")
    behind = [one for one in facts.lags or () if one.lag]
    lag = sum(one.lag or 0 for one in behind)
    notes = kind_notes(facts.group)
    if facts.group is not None and facts.group.type is GroupType.SHARE:
        notes.append(
            f"'{command('explain', 'delivery', NameArgument(group))}' shows why its records wait"
        )
    if facts.lags is not None:
        notes.append(f"{counted(lag, 'record')} in {counted(len(behind), 'partition')} unread")
    return concluded(
        "lag",
        f"group {group}",
        list(_causes(facts, group, behind))[:CAUSES_MAX],
        notes=notes,
        unknown=facts.unknown,
    )


def _causes(facts: ClusterFacts, group: str, behind: list[TimedLag]) -> Iterator[Cause]:
    topics = {one.at.topic for one in facts.lags or ()}
    for topic in sorted(topics):
        yield from (one for one in partition_causes(facts.survey, topic) if one.kind == "no-leader")
    rebalance = rebalance_causes(facts.group)
    yield from rebalance
    if not behind:
        return
    yield from (one for one in disk_causes(facts) if one.kind == f"disk-{FULL}")
    held = {one.at for one in behind if _is_held(facts, one)}
    yield from transaction_causes(facts, held)
    clients = {one.client_id for one in facts.group.members} if facts.group is not None else set()
    for client_id in sorted(clients):
        found = usage_causes(facts, {"client_id": client_id})
        yield from (one for one in found if one.kind == "quota-consumer-byte-rate")
    if not rebalance:
        yield from _of_members(facts, group, [one for one in behind if one.at not in held])


def _is_held(facts: ClusterFacts, one: TimedLag) -> bool:
    """Return whether an open transaction prevents the group from reading further records of a
    partition."""
    stable = (facts.stable_ends or {}).get(one.at)
    return stable is not None and one.end is not None and one.committed >= stable < one.end


def _of_members(facts: ClusterFacts, group: str, behind: list[TimedLag]) -> Iterator[Cause]:
    if facts.group is None or not behind:
        return
    if not facts.group.members:
        yield Cause(
            kind="no-members",
            summary="the group has no members, so its records are not read",
            evidence=(Evidence("state", facts.group.state),),
            remedy="start its consumers",
            fix=command(
                "consume", NameArgument(behind[0].at.topic), "--group", NameArgument(group)
            ),
            more=command("group", "describe", NameArgument(group)),
        )
        return
    owners = {at: member for member in facts.group.members for at in member.assignment}
    by_member: defaultdict[tuple[str, bool], list[TimedLag]] = defaultdict(list)
    for one in behind:
        owner = owners.get(one.at)
        if owner is None:
            yield _unassigned(group, one)
        else:
            by_member[owner.member_id, _is_stuck(facts, one)].append(one)
    members = {one.member_id: one for one in facts.group.members}
    for (member_id, is_stuck), found in sorted(by_member.items(), key=lambda one: -one[0][1]):
        if is_stuck:
            yield from (_stuck(facts, group, members[member_id], one) for one in found)
        else:
            yield _slow(facts, group, members[member_id], found)


def _is_stuck(facts: ClusterFacts, one: TimedLag) -> bool:
    return (facts.earlier_commits or {}).get(one.at) == one.committed


def _unassigned(group: str, one: TimedLag) -> Cause:
    return Cause(
        kind="unassigned",
        summary=f"no member of the group is assigned {one.at}",
        evidence=_evidence(one),
        remedy="its members do not subscribe to the topic any longer: subscribe, or delete the "
        "committed offsets",
        fix=command(
            "group", "offset-delete", NameArgument(group), "--topic", NameArgument(_place(one.at))
        ),
        more=command("group", "members", NameArgument(group)),
    )


def _stuck(facts: ClusterFacts, group: str, member: GroupMemberDescription, one: TimedLag) -> Cause:
    topic, place = NameArgument(one.at.topic), NameArgument(_place(one.at))
    skip = command(
        "group", "reset", NameArgument(group), "--topic", place, "--to-offset", one.committed + 1
    )
    return Cause(
        kind="no-progress",
        summary=f"member {member.member_id} (client {member.client_id} at "
        f"{member.host.removeprefix('/')}) committed nothing in {one.at} for "
        f"{duration(facts.observed_ms)}: it hangs, or fails at the record at offset "
        f"{one.committed}",
        evidence=(*_evidence(one), Evidence("observed time in ms", facts.observed_ms)),
        remedy="look at that record and correct the consumer; to skip it, stop the members and "
        "reset the group",
        fix=skip,
        more=command("consume", topic, "-p", one.at.partition, "-o", one.committed, "-c", 1),
    )


def _slow(
    facts: ClusterFacts, group: str, member: GroupMemberDescription, found: list[TimedLag]
) -> Cause:
    lag = sum(one.lag or 0 for one in found)
    seconds = max((one.seconds for one in found if one.seconds is not None), default=None)
    assert facts.group is not None
    topic = found[0].at.topic
    partitions = sum(one.at.topic == topic for one in facts.lags or ())
    has_spare = len(facts.group.members) < partitions
    remedy = f"start more consumers: {len(facts.group.members)} share {partitions} partitions"
    fix = command("consume", NameArgument(topic), "--group", NameArgument(group))
    if not has_spare:
        remedy = "every partition has a consumer of its own: make the consumer faster, or add "
        remedy += "partitions and consumers"
        fix = command(
            "topic", "add-partitions", NameArgument(topic), "--to", 2 * max(1, partitions)
        )
    return Cause(
        kind="slow-consumer",
        summary=f"member {member.member_id} (client {member.client_id} at "
        f"{member.host.removeprefix('/')}) reads, but more slowly than records arrive",
        evidence=(
            Evidence("lag in records", lag),
            Evidence("lag in seconds", None if seconds is None else round(seconds, 1)),
            Evidence("partitions of the member", len(member.assignment)),
        ),
        remedy=remedy,
        fix=fix,
        more=command("group", "lag", NameArgument(group)),
    )


def _place(at: TopicPartition) -> str:
    return f"{at.topic}:{at.partition}"


def _evidence(one: TimedLag) -> tuple[Evidence, ...]:
    return (
        Evidence("partition", str(one.at)),
        Evidence("committed offset", one.committed),
        Evidence("end offset", one.end),
        Evidence("lag in records", one.lag),
        Evidence("lag in seconds", None if one.seconds is None else round(one.seconds, 1)),
    )
