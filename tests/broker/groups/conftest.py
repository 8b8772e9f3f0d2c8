"""Bench for the groups of one partition, without a broker."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.offsets.committed_offsets import CommittedOffset
from ottla.broker.groups.shard import GroupShard
from ottla.jepsen.world.walk.group_requests import GROUP, REBALANCE_MS, GroupRequest
from tests.broker.groups.group_bench import GroupBench


class Groups(GroupBench):
    """Bench that also describes its one group."""

    @property
    def group(self) -> ClassicGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def consumers(self) -> ConsumerGroup:
        """The group, which is one of the consumer protocol."""
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def restart(self) -> None:
        """Change the leader: the new one loads the committed part of the log."""
        self.fail_over(self.committed_count)

    def check_replay(self) -> None:
        """Assert that replaying the log gives the consumer groups in memory."""
        replayed = self.replayed()
        assert _consumer_groups(replayed) == _consumer_groups(self.shard)
        assert _share_groups(replayed) == _share_groups(self.shard)

    def enter(
        self, member_id: str, topics: Sequence[str] | None = ("orders",), **more: Any
    ) -> GroupRequest:
        """Join a consumer group."""
        more.setdefault("rebalance_ms", REBALANCE_MS)
        return self.consumer_heartbeat(member_id, 0, owned={}, topics=topics, **more)

    def fetched(self, topic: str = "orders", index: int = 0) -> CommittedOffset | None:
        ((_, _, offset),) = self.fetch(topic, index).answer
        found: CommittedOffset | None = offset
        return found

    # ---- whole stories

    def stable(self, *, size: int = 2, **changes: Any) -> list[str]:
        """Bring a group to its first stable generation of `size`; return its ids, leader first."""
        members = [self.join(**changes).answer.member_id]
        for _ in range(size - 1):
            newcomer = self.join(**changes)
            again = [self.join(member, **changes) for member in members]
            members.append(newcomer.answer.member_id)
            assert all(one.is_answered for one in again)
        parts = {member: b"part of %s" % member.encode() for member in members}
        for member in members:
            given = parts if self.group.is_leader(member) else {}
            self.sync(member, self.group.generation_id, given)
        assert self.group.state == "Stable"
        return members


def _consumer_groups(shard: GroupShard) -> dict[str, Any]:
    return {
        group.group_id: (
            group.group_epoch,
            group.target_epoch,
            group.metadata_hash,
            group.members,
            group.static_members,
            group.targets,
            group.regexes,
            group._owners,
        )
        for group in shard.groups.values()
        if isinstance(group, ConsumerGroup)
    }


def _share_groups(shard: GroupShard) -> dict[str, Any]:
    return {
        group.group_id: (
            group.group_epoch,
            group.target_epoch,
            group.metadata_hash,
            group.members,
            group.targets,
            group.partitions.initializing,
            group.partitions.initialized,
            group.partitions.deleting,
        )
        for group in shard.shares.all()
    }


def given(answer: Any) -> dict[UUID, set[int]] | None:
    """Return the assignment that a heartbeat's answer has."""
    if answer.assignment is None:
        return None
    return {one.topic_id: set(one.partitions) for one in answer.assignment.topic_partitions}


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
def make_groups() -> type[Groups]:
    return Groups
