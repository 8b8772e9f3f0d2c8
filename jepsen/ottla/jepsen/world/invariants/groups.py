"""Invariants of one group, for consumers of the classic and the consumer protocol. The cheap
invariants are checked after every event.

- OneOwner: a partition has one owner in an epoch or generation.
- AcknowledgedCommitsStay, AnsweredIsCommitted, GenerationNeverRecedes, OldGenerationsAreRefused,
  ReplayEqualsState, DeletedStaysDeleted.
- EverybodyConverges: after all faults end, the members own each partition exactly once.
"""

from typing import Any

from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.shard import GroupShard
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.group_host import GroupHost
from ottla.jepsen.world.walk.group_members import Place, WalkedMember
from ottla.jepsen.world.walk.group_requests import GROUP
from ottla.model.errors import ErrorCode


class GroupInvariants:
    """Checker of a consumer group's invariants. It records the guarantees in the coordinator's
    responses to members, and checks that each of them is kept."""

    def __init__(self, host: GroupHost, members: list[WalkedMember]) -> None:
        self.acknowledged: dict[int, int] = {}
        """Highest committed offset that the coordinator has acknowledged for each partition of the
        topic `orders`, by partition index."""
        self.commit_count = 0
        self._host = host
        self._members = members
        self._epoch_min = 0
        self._group: object = None
        self._shard: object = None

    def check(self) -> None:
        """Check the invariants of the group that are cheap enough to be checked after every
        event."""
        for member in self._members:
            member.look()
            self._take_acknowledged(member)
        group = self._host.shard.groups.get(GROUP)
        if isinstance(group, ConsumerGroup):
            self._check_owners(group)
        elif isinstance(group, ClassicGroup):
            self._check_generations(group)
        self._check_epoch(group)
        self._check_offsets()

    def forget_offsets(self) -> None:
        """Drop the recorded offset commits that the coordinator has acknowledged, and the commits
        in flight, because a client deleted the group."""
        self.acknowledged.clear()
        for member in self._members:
            member.committing.clear()

    def _take_acknowledged(self, member: WalkedMember) -> None:
        for (_, index), offset, asked in member.committing:
            if asked.is_answered and asked.answer == [[ErrorCode.NONE]]:
                self.commit_count += 1
                self.acknowledged[index] = max(offset, self.acknowledged.get(index, -1))
        member.committing = [one for one in member.committing if not one[2].is_answered]

    def _check_owners(self, group: ConsumerGroup) -> None:
        """Check OneOwner (a partition has one owner in an epoch) while the coordinator uses the
        consumer protocol. Members of both protocols count."""
        owners: dict[Place, str] = {}
        for member in self._members:
            if member.id not in group.members or member.id in group.rejoining_ids:
                continue  # The member is fenced, and will learn that from a later response.
            if member.epoch == 0 or (member.is_classic and member.is_waiting):
                continue
            for place in sorted(member.owned):
                other = owners.setdefault(place, member.id)
                if other != member.id:
                    detail = f"partition {place[1]} is with {other} and {member.id}"
                    raise Violation("OneOwner", detail)
                if group.owner_of(*place) != member.id:
                    detail = f"partition {place[1]}: {group.owner_of(*place)}, not {member.id}"
                    raise Violation("OwnerIsKnown", detail)

    def _check_generations(self, group: ClassicGroup) -> None:
        """Check OneOwner for the classic protocol: a partition has one owner in a generation."""
        owners: dict[tuple[int, Place], WalkedMember] = {}
        for member in self._members:
            if not member.is_classic or member.epoch == 0 or member.is_waiting:
                continue
            if member.id not in group.members:
                continue  # perhaps of an earlier group of that name, whose generations begin again
            for place in sorted(member.owned):
                other = owners.setdefault((member.epoch, place), member)
                is_same = other is member or other.instance_id == member.instance_id is not None
                if not is_same:
                    detail = f"partition {place[1]} in generation {member.epoch}"
                    raise Violation("OneOwner", detail)

    def _check_epoch(self, group: Any) -> None:
        """Check GenerationNeverRecedes: the group's epoch is never below an epoch that a member of
        the consumer protocol has received."""
        if group is not self._group and self._shard is self._host.shard:
            self._epoch_min = 0  # another group of the name; a new coordinator knows the old one
        self._group, self._shard = group, self._host.shard
        if not isinstance(group, ConsumerGroup):
            return
        reported = [
            member.epoch
            for member in self._members
            if not member.is_classic and member.id in group.members
        ]
        self._epoch_min = max([*reported, self._epoch_min])
        if group.group_epoch < self._epoch_min:
            detail = f"group epoch {group.group_epoch}, {self._epoch_min} was reported"
            raise Violation("GenerationNeverRecedes", detail)

    def _check_offsets(self) -> None:
        """Check AcknowledgedCommitsStay: no committed offset is below an earlier committed offset
        that was acknowledged."""
        for index, offset in self.acknowledged.items():
            found = self._host.shard.offsets.find(GROUP, "orders", index)
            if found is None or found.offset < offset:
                detail = f"partition {index}: {None if found is None else found.offset} of {offset}"
                raise Violation("AcknowledgedCommitsStay", detail)

    def check_replay(self) -> None:
        """Check ReplayEqualsState: a replay of the coordinator's log yields all state that the
        coordinator must not lose."""
        loaded, held = self._host.replayed(), self._host.shard
        for name, of in (("groups", _groups_of), ("offsets", _offsets_of)):
            said, known = of(loaded), of(held)
            if said != known:
                raise Violation("ReplayEqualsState", f"{name}: {said}, not {known}")

    def missing_assignment(self) -> str:
        """Return the reason why the group's remaining members do not yet own each partition exactly
        once, or "" if they do."""
        host, members = self._host, self._members
        group = host.shard.groups.get(GROUP)
        if group is None or group.state_name != "Stable":
            return f"{group!r}"
        ids = sorted(member.id for member in members)
        if sorted(group.member_ids) != ids:
            return f"{sorted(group.member_ids)}, not {ids}"
        owned = sorted(place for member in members for place in member.owned)
        wanted = group.subscribed_topics() or frozenset()
        if isinstance(group, ClassicGroup):
            wanted = frozenset(("orders",))
        topics = [host.topics.image.topic(name) for name in sorted(wanted)]
        due = sorted(
            (topic.id, index) for topic in topics if topic is not None for index in topic.partitions
        )
        return "" if owned == due else f"{len(owned)} partitions owned of {len(due)}"


def _groups_of(shard: GroupShard) -> dict[str, Any]:
    """Return the group state that the log must contain: the state of all consumer groups and of
    stable classic groups."""
    found: dict[str, Any] = {}
    for group in shard.groups.values():
        if isinstance(group, ConsumerGroup):
            found[group.group_id] = (
                group.group_epoch,
                group.target_epoch,
                group.metadata_hash,
                group.members,
                group.static_members,
                group.targets,
                group.regexes,
                group._owners,
            )
    return found


def _offsets_of(shard: GroupShard) -> list[tuple[str, str, int, int]]:
    return sorted(
        (group_id, topic, index, offset.offset) for group_id, topic, index, offset in shard.offsets
    )
