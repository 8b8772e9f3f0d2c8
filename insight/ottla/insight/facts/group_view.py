"""Reads a consumer group of either protocol, with its members and lag, for the verbs of `ottla
group`."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import GroupDescription, GroupMemberDescription
from ottla.insight.facts.offsets import offsets_at
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import LATEST

NOT_OF_THIS_KIND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})
"""Error codes with which a broker refuses to describe a group because the request is meant for
another kind of group, or because the broker does not support it."""


class PartitionLag(NamedTuple):
    """Lag of a group in one partition.

    As in Kafka's tools, the lag is a difference of offsets. A transaction marker occupies one
    offset, like a record. A group that has committed the offset after the last record may therefore
    show a lag of 1 for each later marker.
    """

    partition: TopicPartition
    committed: int | None
    end: int

    @property
    def lag(self) -> int | None:
        """Number of offsets between the group's committed offset and the partition's end, or None
        if the group has no committed offset."""
        return None if self.committed is None else max(0, self.end - self.committed)


async def described(admin: Admin, group: str) -> GroupDescription:
    """Return a classic or consumer group with its members. Raises RefusedError if the group does
    not exist."""
    try:
        return await admin.describe_group(group)
    except RefusedError as refusal:
        if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise RefusedError(refusal.code, f"there is no group {group!r}") from None
        raise of_group(group, refusal) from None


async def described_of_any_kind(admin: Admin, group: str) -> GroupDescription:
    """Return a group of any kind with its members: classic, consumer, share or streams.

    Raises RefusedError if the group does not exist, or may not be described.
    """
    for describe in (
        admin.describe_group,
        admin.describe_share_group,
        admin.describe_streams_group,
    ):
        try:
            return await describe(group)
        except RefusedError as refusal:
            if refusal.code not in NOT_OF_THIS_KIND:
                raise of_group(group, refusal) from None
    raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")


def of_group(group: str, refusal: RefusedError) -> RefusedError:
    """Return a broker's refusal with the name of the group added to its message."""
    return RefusedError(refusal.code, f"group {group!r}: {refusal.message}")


def owners(group: GroupDescription) -> dict[TopicPartition, str]:
    """Return the id of the group's member to which each partition is assigned, by partition."""
    return {at: member.member_id for member in group.members for at in sorted(member.assignment)}


def subscription_of(member: GroupMemberDescription) -> list[str] | None:
    """Return the topics and the regular expression to which a group's member subscribes, or None if
    the member has no subscription."""
    return [*(member.topics or ()), *filter(None, [member.regex])] or None


async def committed_offsets(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Return all committed offsets of a group, by partition."""
    try:
        return {at: one.offset for at, one in (await admin.group_offsets(group)).items()}
    except RefusedError as refusal:
        raise of_group(group, refusal) from None


async def lags(
    admin: Admin, group: str, owned: Iterable[TopicPartition], *, isolation_level: str
) -> list[PartitionLag]:
    """Return the lag of a group in every partition for which it has a committed offset or an
    assignment.

    With the isolation level "read_committed", the end of a partition is the start of its first open
    transaction.
    """
    committed = await committed_offsets(admin, group)
    ends = await offsets_at(
        admin.cluster, sorted({*committed, *owned}), LATEST, isolation_level=isolation_level
    )
    return [PartitionLag(at, committed.get(at), end) for at, end in ends.items()]
