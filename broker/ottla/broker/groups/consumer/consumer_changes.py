"""Changes of a consumer group. Each is applied in memory and written to the log in one step. Pure.

Nothing else changes a group that is being served, so that replaying the log produces the same
group.
"""

from collections.abc import Callable

from ottla.broker.coordinators.effects import CoordinatorRecord, Outbox
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup, ResolvedRegex
from ottla.broker.groups.consumer.consumer_member import Assignment, ConsumerMember
from ottla.broker.groups.consumer.consumer_records import (
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
from ottla.model.errors import ErrorCode, RefusedError


class ConsumerChanges:
    """Changes of consumer groups, each applied in memory and written to the log in one step. The
    object has no state except a counter of rebalances."""

    def __init__(self, outbox: Outbox, record_bytes_max: Callable[[], int]) -> None:
        self._outbox = outbox
        self._record_bytes_max = record_bytes_max
        self.rebalance_count = 0
        """Number of times that the epoch of a group was incremented."""

    def check(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Raise RefusedError if a member's description is too large to be written.  It would block
        other groups."""
        if not self.fits(group, member):
            reason = f"What member {member.member_id} says of itself is too large to be kept."
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)

    def fits(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Return True if the record of a member's description fits into the log."""
        return self._fits(member_record(group.group_id, member))

    def _fits(self, record: CoordinatorRecord) -> bool:
        key, value = record
        return len(key) + len(value or b"") <= self._record_bytes_max()

    def raise_epoch(self, group: ConsumerGroup, metadata_hash: int) -> None:
        """Increment the group's epoch, and set the hash of its subscribed topics."""
        if group.has_old_topics:
            group.has_old_topics = False
            self._outbox.write(old_topics_tombstone(group.group_id))
        self.rebalance_count += 1
        group.group_epoch += 1
        group.metadata_hash = metadata_hash
        self._outbox.write(epoch_record(group))

    def describe(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Set the description of a member, and write its record."""
        group.put(member)
        self._outbox.write(member_record(group.group_id, member))

    def place(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Set the current assignment of a member, and write its record."""
        group.put(member)
        self._outbox.write(current_record(group.group_id, member))

    def remove(self, group: ConsumerGroup, member_id: str) -> None:
        """Remove a member and its target assignment, and write their tombstones."""
        group.remove(member_id)
        for gone in member_tombstones(group.group_id, member_id):
            self._outbox.write(gone)

    def set_target(
        self,
        group: ConsumerGroup,
        member_id: str,
        target: Assignment,
        record: CoordinatorRecord | None = None,
    ) -> None:
        """Set the target assignment of a member. `record` is the encoded record of the target, if
        the caller has it already."""
        group.targets[member_id] = target
        self._outbox.write(record or target_record(group.group_id, member_id, target))

    def finish_target(self, group: ConsumerGroup, epoch: int) -> None:
        """Set the epoch of the target assignment, after the targets of all members were set."""
        group.target_epoch = epoch
        self._outbox.write(target_epoch_record(group))

    def resolve(self, group: ConsumerGroup, regex: str, resolved: ResolvedRegex) -> None:
        """Set the topics that match a regular expression.

        A list too long for a record is not written.  The next leader then resolves the expression
        again.
        """
        group.put_regex(regex, resolved)
        record = regex_record(group.group_id, regex, resolved)
        if self._fits(record):
            self._outbox.write(record)

    def forget_regex(self, group: ConsumerGroup, regex: str) -> None:
        """Delete a regular expression that no member uses any longer."""
        if regex in group.regexes:
            group.put_regex(regex, None)
            self._outbox.write(regex_record(group.group_id, regex, None))

    def delete(self, group: ConsumerGroup) -> None:
        """Delete an empty group, and write the tombstones of its records."""
        assert not group.members
        for regex in list(group.regexes):
            self.forget_regex(group, regex)
        for gone in group_tombstones(group.group_id, has_old_topics=group.has_old_topics):
            self._outbox.write(gone)
