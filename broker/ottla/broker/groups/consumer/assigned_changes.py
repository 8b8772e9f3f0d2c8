"""Changes consumer and share groups, whose partitions the coordinator assigns. Each change is
applied in memory and written to the log in one step. Pure.

No other module changes a group that is being served. Replaying the log therefore produces the same
group. The kinds of groups differ in the records that they write.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from ottla.broker.coordinators.effects import CoordinatorRecord, Outbox
from ottla.broker.groups.consumer.assigned_group import AssignedGroup, MemberT
from ottla.broker.groups.consumer.consumer_member import Assignment
from ottla.model.compiled import mypyc_attr
from ottla.model.errors import ErrorCode, RefusedError

AssignedGroupT = TypeVar("AssignedGroupT", bound=AssignedGroup[Any])


@mypyc_attr(allow_interpreted_subclasses=True)
class AssignedChanges(ABC, Generic[AssignedGroupT, MemberT]):
    """Changes of groups of one kind (consumer or share), each applied in memory and written to the
    log. This object stores no state except the number of rebalances."""

    def __init__(self, outbox: Outbox, record_bytes_max: Callable[[], int]) -> None:
        self._outbox = outbox
        self._record_bytes_max = record_bytes_max
        self.rebalance_count = 0
        """Total number of increments of group epochs, over all groups of this kind."""

    # ---- records

    @abstractmethod
    def _epoch_record(self, group: AssignedGroupT) -> CoordinatorRecord:
        """Return the record that stores the epoch of a consumer or share group."""

    @abstractmethod
    def _member_record(self, group_id: str, member: MemberT) -> CoordinatorRecord:
        """Return the record that stores the description of a group member."""

    @abstractmethod
    def _current_record(self, group_id: str, member: MemberT) -> CoordinatorRecord:
        """Return the record that stores the current assignment of a group member."""

    @abstractmethod
    def _target_epoch_record(self, group: AssignedGroupT) -> CoordinatorRecord:
        """Return the record that stores the epoch of a group's target assignment."""

    @abstractmethod
    def _member_tombstones(self, group_id: str, member_id: str) -> list[CoordinatorRecord]:
        """Return the tombstones for all records of a group member."""

    @abstractmethod
    def target_record(self, group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
        """Return the record that stores the target assignment of a group member."""

    # ---- changes

    def check(self, group: AssignedGroupT, member: MemberT) -> None:
        """Raise RefusedError if a member's description is too large for a record. Such a record
        would block the writes of other groups."""
        if not self.fits(group, member):
            reason = f"What member {member.member_id} says of itself is too large to be kept."
            raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, reason)

    def fits(self, group: AssignedGroupT, member: MemberT) -> bool:
        """Return True if the record of a group member's description fits into the log."""
        return self._fits(self._member_record(group.group_id, member))

    def _fits(self, record: CoordinatorRecord) -> bool:
        key, value = record
        return len(key) + len(value or b"") <= self._record_bytes_max()

    def raise_epoch(self, group: AssignedGroupT, metadata_hash: int) -> None:
        """Increment a group's epoch, and set the hash of its subscribed topics. Writes the group's
        record."""
        self.rebalance_count += 1
        group.group_epoch += 1
        group.metadata_hash = metadata_hash
        self._outbox.write(self._epoch_record(group))

    def describe(self, group: AssignedGroupT, member: MemberT) -> None:
        """Set the description of a group member (its subscription, client and timeouts), and write
        its record."""
        group.put(member)
        self._outbox.write(self._member_record(group.group_id, member))

    def place(self, group: AssignedGroupT, member: MemberT) -> None:
        """Set the current assignment of a group member, and write its record."""
        group.put(member)
        self._outbox.write(self._current_record(group.group_id, member))

    def remove(self, group: AssignedGroupT, member_id: str) -> None:
        """Remove a member and its target assignment from a group, and write their tombstones."""
        group.remove(member_id)
        for gone in self._member_tombstones(group.group_id, member_id):
            self._outbox.write(gone)

    def set_target(
        self,
        group: AssignedGroupT,
        member_id: str,
        target: Assignment,
        record: CoordinatorRecord | None = None,
    ) -> None:
        """Set the target assignment of a group member. `record` is the encoded record of the
        target, if the caller has it already."""
        group.targets[member_id] = target
        self._outbox.write(record or self.target_record(group.group_id, member_id, target))

    def finish_target(self, group: AssignedGroupT, epoch: int) -> None:
        """Set the epoch of a group's target assignment, after the targets of all members were
        set."""
        group.target_epoch = epoch
        self._outbox.write(self._target_epoch_record(group))
