"""Changes consumer groups. Each change is applied in memory and written to the log in one step.
Pure.

No other module changes a group that is being served. Replaying the log therefore produces the same
group.
"""

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.groups.consumer.assigned_changes import AssignedChanges
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


class ConsumerChanges(AssignedChanges[ConsumerGroup, ConsumerMember]):
    """Changes of consumer groups, each applied in memory and written to the log in one step."""

    def _epoch_record(self, group: ConsumerGroup) -> CoordinatorRecord:
        return epoch_record(group)

    def _member_record(self, group_id: str, member: ConsumerMember) -> CoordinatorRecord:
        return member_record(group_id, member)

    def _current_record(self, group_id: str, member: ConsumerMember) -> CoordinatorRecord:
        return current_record(group_id, member)

    def _target_epoch_record(self, group: ConsumerGroup) -> CoordinatorRecord:
        return target_epoch_record(group)

    def _member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        return member_tombstones(group_id, member_id)

    def target_record(self, group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
        """Return the record of a consumer group member's target assignment."""
        return target_record(group_id, member_id, target)

    def raise_epoch(self, group: ConsumerGroup, metadata_hash: int) -> None:
        """Increment a consumer group's epoch, and set the hash of its subscribed topics. Writes the
        group's record."""
        if group.has_old_topics:
            group.has_old_topics = False
            self._outbox.write(old_topics_tombstone(group.group_id))
        super().raise_epoch(group, metadata_hash)

    def resolve(self, group: ConsumerGroup, regex: str, resolved: ResolvedRegex) -> None:
        """Set the topics that match a regular expression to which members of a consumer group
        subscribe.

        If the list of topics is too long for a record, it is not written. The next coordinator then
        resolves the expression again.
        """
        group.put_regex(regex, resolved)
        record = regex_record(group.group_id, regex, resolved)
        if self._fits(record):
            self._outbox.write(record)

    def forget_regex(self, group: ConsumerGroup, regex: str) -> None:
        """Delete a regular expression from the consumer group, and its record, when no member
        subscribes to it any longer."""
        if regex in group.regexes:
            group.put_regex(regex, None)
            self._outbox.write(regex_record(group.group_id, regex, None))

    def delete(self, group: ConsumerGroup) -> None:
        """Delete an empty consumer group, and write the tombstones of its records."""
        assert not group.members
        for regex in list(group.regexes):
            self.forget_regex(group, regex)
        for gone in group_tombstones(group.group_id, has_old_topics=group.has_old_topics):
            self._outbox.write(gone)
