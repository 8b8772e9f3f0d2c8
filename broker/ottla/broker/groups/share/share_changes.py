"""Changes share groups. Each change is applied in memory and written to the log in one step.
Pure."""

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.groups.consumer.assigned_changes import AssignedChanges
from ottla.broker.groups.consumer.consumer_member import Assignment
from ottla.broker.groups.share.share_group import ShareGroup
from ottla.broker.groups.share.share_member import ShareMember
from ottla.broker.groups.share.share_records import (
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    partitions_record,
    target_epoch_record,
    target_record,
)


class ShareChanges(AssignedChanges[ShareGroup, ShareMember]):
    """Changes of share groups, each applied in memory and written to the log in one step."""

    def _epoch_record(self, group: ShareGroup) -> CoordinatorRecord:
        return epoch_record(group)

    def _member_record(self, group_id: str, member: ShareMember) -> CoordinatorRecord:
        return member_record(group_id, member)

    def _current_record(self, group_id: str, member: ShareMember) -> CoordinatorRecord:
        return current_record(group_id, member)

    def _target_epoch_record(self, group: ShareGroup) -> CoordinatorRecord:
        return target_epoch_record(group)

    def _member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        return member_tombstones(group_id, member_id)

    def target_record(self, group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
        """Return the record that stores a share group member's target assignment."""
        return target_record(group_id, member_id, target)

    def fits_partitions(self, group: ShareGroup) -> bool:
        """Return True if the record of the partitions that a share group consumes fits into the
        log."""
        return self._fits(partitions_record(group))

    def write_partitions(self, group: ShareGroup) -> None:
        """Write the record of the partitions that a share group consumes. The caller has changed
        the partitions in memory."""
        self._outbox.write(partitions_record(group))

    def delete(self, group: ShareGroup) -> None:
        """Write the tombstones for the records of an empty share group."""
        assert not group.members
        for gone in group_tombstones(group.group_id):
            self._outbox.write(gone)
