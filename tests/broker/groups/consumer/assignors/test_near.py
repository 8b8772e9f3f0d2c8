"""Racks in the assignors: balance and stickiness come first."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.consumer.assignors import range as range_assignor
from ottla.broker.groups.consumer.assignors import uniform
from ottla.broker.groups.consumer.assignors.subscription import (
    AssignedSubscription,
    Assignment,
    Assignor,
    PartitionRacks,
    Racks,
)
from ottla.node.network.steps import run_through

TOPICS = [UUID(int=number) for number in range(1, 4)]
A, B, _ = TOPICS
Members = dict[str, AssignedSubscription]
ASSIGNS = {"uniform": uniform.assign, "range": range_assignor.assign}
BOTH = pytest.mark.parametrize("name", ASSIGNS)


def member(
    rack: str | None, *topic_ids: UUID, has: Assignment | None = None
) -> AssignedSubscription:
    return AssignedSubscription(None, rack, frozenset(topic_ids or (A,)), has or {})


def racks(*each: str) -> tuple[Racks, ...]:
    """Return the racks of partitions 0, 1, …, one letter for each rack."""
    return tuple(map(frozenset, each))


def near_count(members: Members, found: Mapping[str, Assignment], racks: PartitionRacks) -> int:
    return sum(
        members[member_id].rack in racks[topic_id][index]
        for member_id, assignment in found.items()
        for topic_id, indexes in assignment.items()
        for index in indexes
    )


def counts_of(racks: PartitionRacks) -> dict[UUID, int]:
    return {topic_id: len(each) for topic_id, each in racks.items()}


@st.composite
def groups(draw: st.DrawFn) -> tuple[Members, PartitionRacks]:
    where = st.frozensets(st.sampled_from("abc"), max_size=2)
    found = {topic_id: draw(st.lists(where, max_size=9)) for topic_id in TOPICS}
    partitions = [(each, index) for each in TOPICS for index in range(len(found[each]))]
    members: Members = {}
    owners = draw(st.lists(st.integers(0, 6), min_size=27, max_size=27))
    for at in range(draw(st.integers(1, 5))):
        topic_ids = draw(st.sets(st.sampled_from(TOPICS), min_size=1))
        has: dict[UUID, frozenset[int]] = {}
        for (topic_id, index), owner in zip(partitions, owners, strict=False):
            if owner == at:
                has[topic_id] = has.get(topic_id, frozenset()) | {index}
        rack = draw(st.sampled_from(["a", "b", "c", None]))
        members[f"m{at}"] = member(rack, *topic_ids, has=has)
    return members, found


@BOTH
@given(groups())
def test_balance_ignores_racks_and_nothing_is_farther(
    name: str, group: tuple[Members, PartitionRacks]
) -> None:
    members, where = group
    assign, counts = ASSIGNS[name], counts_of(where)
    plain, found = assign(members, counts), assign(members, counts, where)
    owned = sorted(
        (topic_id, index)
        for each in found.values()
        for topic_id in each
        for index in each[topic_id]
    )
    subscribed = frozenset[UUID]().union(*(each.topic_ids for each in members.values()))
    assert owned == [(each, at) for each in sorted(subscribed) for at in range(counts[each])]
    for member_id, each in found.items():
        assert each.keys() <= members[member_id].topic_ids
        assert sum(map(len, each.values())) == sum(map(len, plain[member_id].values()))
    assert near_count(members, found, where) >= near_count(members, plain, where)


@BOTH
@given(groups())
def test_nothing_moves_once_a_target_is_reached(
    name: str, group: tuple[Members, PartitionRacks]
) -> None:
    members, where = group
    assign, counts = ASSIGNS[name], counts_of(where)
    found = assign(members, counts, where)
    reached = {each: members[each]._replace(assigned=found[each]) for each in reversed(members)}
    assert assign(reached, counts, where) == found


@BOTH
def test_new_partitions_go_to_the_racks_of_their_replicas(name: str) -> None:
    members = {"x": member("a"), "y": member("b"), "z": member("c")}
    where = {A: racks("b", "c", "a")}
    found = ASSIGNS[name](members, {A: 3}, where)
    assert near_count(members, found, where) == 3


def test_an_owned_partition_moves_only_if_both_become_nearer() -> None:
    members = {
        "x": member("a", has={A: frozenset({0})}),
        "y": member("b", has={A: frozenset({1})}),
    }
    swapped = {"x": {A: frozenset({1})}, "y": {A: frozenset({0})}}
    kept = {"x": {A: frozenset({0})}, "y": {A: frozenset({1})}}
    assert uniform.assign(members, {A: 2}, {A: racks("b", "a")}) == swapped
    assert uniform.assign(members, {A: 2}, {A: racks("b", "c")}) == kept
    assert uniform.assign(members, {A: 2}, {A: racks("ab", "ab")}) == kept


def test_ranges_of_topics_with_equal_counts_stay_alike() -> None:
    members = {"x": member("a", A, B), "y": member("b", A, B)}
    one, other = racks("b", "b", "a", "a"), racks("b", "a", "a", "b")
    found = range_assignor.assign(members, {A: 4, B: 4}, {A: one, B: other})
    assert found["x"] == {A: {1, 2}, B: {1, 2}}
    assert found["y"] == {A: {0, 3}, B: {0, 3}}


@pytest.mark.parametrize(
    "assign", [uniform.assign_in_steps, range_assignor.assign_in_steps], ids=["uniform", "range"]
)
def test_a_large_group_takes_many_steps(assign: Assignor) -> None:
    members = {f"m{at:04}": member("abc"[at % 3]) for at in range(1_000)}
    where = {A: racks(*("abc"[at // 7 % 3] for at in range(10_000)))}
    plain, near = (sum(1 for _ in assign(members, {A: 10_000}, each)) for each in ({}, where))
    assert near > plain
    found = run_through(assign(members, {A: 10_000}, where))
    assert near_count(members, found, where) > 9_900
