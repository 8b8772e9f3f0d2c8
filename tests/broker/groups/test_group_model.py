"""Members that join, crash, leave, commit and change coordinators at random: what always holds.

Every member is a small client that does what the answers tell it to, as a real one does.
"""

import random
from typing import Any

import pytest

from ottla.model.errors import ErrorCode

STEPS = 400
SESSION_MS = 10_000
JOIN_AGAIN = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
PARTITIONS = frozenset(range(8))


class Member:
    """One consumer: it joins, shares out when it leads, and commits what it owns."""

    def __init__(self, groups: Any, instance_id: str | None) -> None:
        self.groups = groups
        self.instance_id = instance_id
        self.id = ""
        self.generation_id = -1
        self.owned: frozenset[int] = frozenset()
        self.joining: Any = None
        self.syncing: Any = None
        self.committing: list[tuple[int, int, Any]] = []

    def look(self) -> None:
        """Act on the answers that have come."""
        if self.joining is not None and self.joining.is_answered:
            answer = self.joining.answer
            self.joining = None
            if isinstance(answer, ErrorCode):
                return
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.id = answer.member_id
            elif answer.error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                self.id = ""
            elif answer.error_code == ErrorCode.NONE:
                self.id, self.generation_id = answer.member_id, answer.generation_id
                parts: dict[str, bytes] = {}
                if answer.leader == self.id and answer.members:
                    names = [one.member_id for one in answer.members]
                    parts = {
                        name: bytes(p for p in PARTITIONS if p % len(names) == at)
                        for at, name in enumerate(names)
                    }
                self.syncing = self.groups.sync(
                    self.id, self.generation_id, parts, group_instance_id=self.instance_id
                )
        if self.syncing is not None and self.syncing.is_answered:
            answer = self.syncing.answer
            self.syncing = None
            if isinstance(answer, ErrorCode):
                if answer is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.id = ""
            else:
                self.owned = frozenset(answer.assignment)

    def step(self) -> None:
        """Do the next thing a consumer does."""
        self.look()
        if self.joining is not None or self.syncing is not None:
            return
        if self.generation_id < 0:
            self.owned = frozenset()
            self.joining = self.groups.join(self.id, instance_id=self.instance_id, version=5)
            self.look()
            return
        code = self.groups.heartbeat(self.id, self.generation_id, self.instance_id)
        if code in JOIN_AGAIN:
            self.generation_id = -1
        elif code is not ErrorCode.NONE:
            self.generation_id, self.id = -1, ""

    def commit(self, offset: int) -> None:
        for index in self.owned:
            asked = self.groups.commit(
                offset,
                member_id=self.id,
                generation_id=self.generation_id,
                instance_id=self.instance_id,
                index=index,
            )
            self.committing.append((index, offset, asked))


@pytest.mark.parametrize("seed", range(40))
def test_whatever_members_do(make_groups: Any, seed: int) -> None:
    rng = random.Random(seed)
    groups = make_groups()
    members = [Member(groups, f"i{n}" if n < 2 else None) for n in range(3)]
    acknowledged: dict[int, int] = {}
    for step in range(STEPS):
        act = rng.choices(
            ("step", "commit", "time", "leave", "crash", "come", "restart", "hold", "release"),
            (60, 15, 8, 2, 2, 4, 1, 3, 5),
        )[0]
        member = rng.choice(members)
        match act:
            case "step":
                member.step()
            case "commit":
                member.commit(step)
            case "time":
                groups.pass_time(rng.choice((10, 500, 3_000)))
            case "leave" if len(members) > 1:
                members.remove(member)
                groups.is_committing = True
                if member.id:
                    groups.leave((member.id, member.instance_id))
            case "crash" if len(members) > 1:
                members.remove(member)
            case "come" if len(members) < 6:
                members.append(Member(groups, None))
            case "restart":
                groups.restart()
                groups.is_committing = True
            case "hold":
                groups.is_committing = False
            case "release":
                groups.is_committing = True
                groups.commit_log()
        check(groups, members, acknowledged)
    settle(groups, members)


def check(groups: Any, members: list[Member], acknowledged: dict[int, int]) -> None:
    """No partition has two owners in one generation; no acknowledged commit goes back."""
    owners: dict[tuple[int, int], Member] = {}
    for member in members:
        member.look()
        if member.generation_id < 0 or member.syncing is not None:
            continue
        for index in member.owned:
            other = owners.setdefault((member.generation_id, index), member)
            assert other is member or other.instance_id == member.instance_id is not None
        for index, offset, asked in member.committing:
            if asked.is_answered and asked.answer == [[ErrorCode.NONE]]:
                acknowledged[index] = max(offset, acknowledged.get(index, -1))
        member.committing = [one for one in member.committing if not one[2].is_answered]
    for index, offset in acknowledged.items():
        found = groups.shard.offsets.find("group", "orders", index)
        assert found is not None
        assert found.offset >= offset


def settle(groups: Any, members: list[Member]) -> None:
    """In the end those who are left share everything, each partition once."""
    groups.is_committing = True
    groups.commit_log()
    for _ in range(100):
        for member in members:
            member.step()
        groups.pass_time(1_000)
    assert groups.group.state == "Stable"
    assert len(groups.group.members) == len(members)
    assert sorted(p for member in members for p in member.owned) == sorted(PARTITIONS)
