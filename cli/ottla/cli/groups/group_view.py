"""A group as the verbs of `ottla group` show it, whichever protocol its members speak."""

from collections.abc import Iterable
from typing import NamedTuple

from ottla.cli.topics.offsets import offsets_at
from ottla.client.admin import Admin
from ottla.client.admin_parts.admin_groups import GroupDescription, GroupMemberDescription
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.offset_timestamps import LATEST


class PartitionLag(NamedTuple):
    """How far a group is behind in one partition.

    As Kafka's tools have it the lag counts offsets: a marker of a transaction has one as a record
    has, so a group that committed behind its last record may show 1 for each marker that follows.
    """

    partition: TopicPartition
    committed: int | None
    end: int

    @property
    def lag(self) -> int | None:
        """The offsets that are still to be read; None where nothing was committed."""
        return None if self.committed is None else max(0, self.end - self.committed)


async def described(admin: Admin, group: str) -> GroupDescription:
    """Return a group with its members.  Raises RefusedError if there is no such group."""
    try:
        return await admin.describe_group(group)
    except RefusedError as refusal:
        if refusal.code is ErrorCode.GROUP_ID_NOT_FOUND:
            raise RefusedError(refusal.code, f"there is no group {group!r}") from None
        raise of_group(group, refusal) from None


def of_group(group: str, refusal: RefusedError) -> RefusedError:
    """Return a refusal that names its group."""
    return RefusedError(refusal.code, f"group {group!r}: {refusal.message}")


def owners(group: GroupDescription) -> dict[TopicPartition, str]:
    """Return which member works on which partition."""
    return {at: member.member_id for member in group.members for at in sorted(member.assignment)}


def subscription_of(member: GroupMemberDescription) -> list[str] | None:
    """Return the topics a member names and its regular expression; None if it has neither."""
    return [*(member.topics or ()), *filter(None, [member.regex])] or None


async def committed_offsets(admin: Admin, group: str) -> dict[TopicPartition, int]:
    """Return all that a group has committed."""
    try:
        return {at: one.offset for at, one in (await admin.group_offsets(group)).items()}
    except RefusedError as refusal:
        raise of_group(group, refusal) from None


async def lags(
    admin: Admin, group: str, owned: Iterable[TopicPartition], *, isolation_level: str
) -> list[PartitionLag]:
    """Return how far a group is behind, in everything it committed or works on.

    For "read_committed" a partition ends before its first open transaction.
    """
    committed = await committed_offsets(admin, group)
    ends = await offsets_at(
        admin.cluster, sorted({*committed, *owned}), LATEST, isolation_level=isolation_level
    )
    return [PartitionLag(at, committed.get(at), end) for at, end in ends.items()]
