"""Changes of a consumer group, each made in memory and written in one step.  Pure.

Nothing else changes a group that is being served, so a log replayed makes the same group again.
"""

from collections.abc import Callable

from ottla.broker.groups.consumer_group import ConsumerGroup, ResolvedRegex
from ottla.broker.groups.consumer_member import Assignment, ConsumerMember
from ottla.broker.groups.consumer_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    old_topics_tombstone,
    regex_record,
    target_epoch_record,
    target_record,
)
from ottla.broker.groups.effects import Outbox
from ottla.broker.groups.group_records import GroupRecord
from ottla.model.errors import ErrorCode, RefusedError


class ConsumerChanges:
    """Writes what it changes; owns nothing but a count."""

    def __init__(self, outbox: Outbox, record_bytes_max: Callable[[], int]) -> None:
        self._outbox = outbox
        self._record_bytes_max = record_bytes_max
        self.rebalance_count = 0
        """How often a group's epoch has risen."""

    def check(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Refuse a description that cannot be written: all groups of the log would be held up."""
        if not self.fits(group, member):
            reason = f"What member {member.member_id} says of itself is too large to be kept."
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)

    def fits(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Return whether the record of a member's description can be written."""
        return self._fits(member_record(group.group_id, member))

    def _fits(self, record: GroupRecord) -> bool:
        key, value = record
        return len(key) + len(value or b"") <= self._record_bytes_max()

    def raise_epoch(self, group: ConsumerGroup, metadata_hash: int) -> None:
        """Have the target computed again, for topics with this hash."""
        if group.has_old_topics:
            group.has_old_topics = False
            self._outbox.write(old_topics_tombstone(group.group_id))
        self.rebalance_count += 1
        group.group_epoch += 1
        group.metadata_hash = metadata_hash
        self._outbox.write(epoch_record(group))

    def describe(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Take in how a member describes itself."""
        group.put(member)
        self._outbox.write(member_record(group.group_id, member))

    def place(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Take in what a member has now."""
        group.put(member)
        self._outbox.write(current_record(group.group_id, member))

    def remove(self, group: ConsumerGroup, member_id: str) -> None:
        """Let a member go, with its target."""
        group.remove(member_id)
        for gone in member_tombstones(group.group_id, member_id):
            self._outbox.write(gone)

    def aim(
        self,
        group: ConsumerGroup,
        member_id: str,
        target: Assignment,
        record: GroupRecord | None = None,
    ) -> None:
        """Give a member another target; `record` is that of the target where it is made already."""
        group.targets[member_id] = target
        self._outbox.write(record or target_record(group.group_id, member_id, target))

    def finish_target(self, group: ConsumerGroup, epoch: int) -> None:
        """All targets are those of an epoch."""
        group.target_epoch = epoch
        self._outbox.write(target_epoch_record(group))

    def resolve(self, group: ConsumerGroup, regex: str, resolved: ResolvedRegex) -> None:
        """Take in which topics a regular expression means.

        A list too long for a record is not written: the next leader finds it out again.
        """
        group.put_regex(regex, resolved)
        record = regex_record(group.group_id, regex, resolved)
        if self._fits(record):
            self._outbox.write(record)

    def forget_regex(self, group: ConsumerGroup, regex: str) -> None:
        """Nobody in the group uses it any more."""
        if regex in group.regexes:
            group.put_regex(regex, None)
            self._outbox.write(regex_record(group.group_id, regex, None))

    def delete(self, group: ConsumerGroup) -> None:
        """Delete a group that nobody is in."""
        assert not group.members
        for regex in list(group.regexes):
            self.forget_regex(group, regex)
        for gone in group_tombstones(group.group_id, has_old_topics=group.has_old_topics):
            self._outbox.write(gone)
