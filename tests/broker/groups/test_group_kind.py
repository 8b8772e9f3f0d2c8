"""A group kind with a protocol of its own only, beside classic and consumer groups."""

from collections.abc import Collection
from typing import Any, ClassVar

import pytest

from ottla.broker.coordinators.effects import Instant
from ottla.broker.groups.coordinated_group import CoordinatedGroup
from ottla.broker.groups.group_kind import GroupKind
from ottla.broker.groups.timer_names import TimerName
from ottla.jepsen.world.walk.group_requests import GROUP
from ottla.model.errors import ErrorCode
from ottla.wire.codec_types import Message


class OtherGroup(CoordinatedGroup):
    """A group with one member, or none."""

    type: ClassVar[str] = "other"

    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, "other")
        self.members = ["m"]

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def member_ids(self) -> Collection[str]:
        return self.members

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset()


class OtherGroups(GroupKind[OtherGroup]):
    """The least that a kind has to decide."""

    keys: ClassVar[tuple[type[Message], ...]] = ()
    type: ClassVar[str] = "other"

    def delete(self, group: OtherGroup) -> None:
        del self._groups[group.group_id]

    def replay(self, key: Any, value: Message | None) -> None:
        raise AssertionError(key)

    def resume(self, group: OtherGroup, now: Instant) -> int:
        return 0

    def on_timer(self, group: OtherGroup, name: TimerName, now: Instant) -> None:
        group.members.clear()

    def restart_sessions(self, group: OtherGroup, now: Instant) -> None:
        pass


@pytest.fixture
def other(groups: Any) -> OtherGroup:
    """Return a group of the other kind in the shard of `groups`."""
    shard = groups.shard
    kind = OtherGroups(shard.groups, shard._outbox)
    shard._kinds[kind.type] = kind
    group = shard.groups[GROUP] = OtherGroup(GROUP)
    return group


def test_requests_of_other_protocols_are_refused(groups: Any, other: OtherGroup) -> None:
    assert groups.join().code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert groups.sync("m", 1).code is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.heartbeat("m", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert groups.leave(("m", None)).answer == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert groups.enter("c").code is ErrorCode.GROUP_ID_NOT_FOUND
    assert groups.shard.groups[GROUP] is other


def test_offsets_are_not_committed_for_its_members(groups: Any, other: OtherGroup) -> None:
    assert groups.commit(member_id="m", generation_id=1).code is ErrorCode.UNKNOWN_MEMBER_ID
    other.members.clear()
    assert groups.commit().answer == [[ErrorCode.NONE]], "an empty group is one of offsets"


def test_it_is_listed_and_described_by_its_own_api_alone(groups: Any, other: OtherGroup) -> None:
    every = frozenset[str]()
    assert groups.shard.list_groups(every, frozenset({"other"})) == [other]
    assert groups.shard.list_groups(frozenset({"empty"}), every) == []
    assert groups.shard.describe(GROUP) is None


def test_it_is_deleted_when_it_is_empty(groups: Any, other: OtherGroup) -> None:
    assert groups.delete().code is ErrorCode.NON_EMPTY_GROUP
    other.members.clear()
    assert groups.delete().code is ErrorCode.NONE
    assert GROUP not in groups.shard.groups
