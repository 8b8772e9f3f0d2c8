"""The simple assignor of share groups: complete, balanced, sticky and deterministic."""

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.consumer.assignors.subscription import AssignedSubscription, Assignment
from ottla.broker.groups.share.simple_assignor import assign

A, B, C = (UUID(int=number) for number in range(1, 4))
Partitions = dict[UUID, list[int]]
Members = dict[str, AssignedSubscription]


def member(*topic_ids: UUID, has: Assignment | None = None) -> AssignedSubscription:
    return AssignedSubscription(None, None, frozenset(topic_ids), has or {})


def pairs(assignment: Assignment) -> set[tuple[UUID, int]]:
    return {(topic_id, index) for topic_id, indexes in assignment.items() for index in indexes}


def sharers(found: dict[str, Assignment]) -> Counter[tuple[UUID, int]]:
    return Counter(at for assignment in found.values() for at in pairs(assignment))


def after(members: Members, found: dict[str, Assignment]) -> Members:
    return {one: members[one]._replace(assigned=found[one]) for one in members}


partitions = st.dictionaries(
    st.sampled_from((A, B, C)), st.lists(st.integers(0, 9), min_size=1, unique=True).map(sorted)
)
subscriptions = st.frozensets(st.sampled_from((A, B, C)))
groups = st.dictionaries(st.text("abc", min_size=1, max_size=3), subscriptions, max_size=9)


@given(given_partitions=partitions, topics=groups)
def test_each_partition_and_each_member_has_one_if_subscriptions_allow(
    given_partitions: Partitions, topics: dict[str, frozenset[UUID]]
) -> None:
    members = {one: member(*topic_ids) for one, topic_ids in topics.items()}
    found = assign(members, given_partitions)
    assert found.keys() == members.keys()
    every = {
        (topic_id, index) for topic_id in given_partitions for index in given_partitions[topic_id]
    }
    wanted = frozenset[UUID]().union(*topics.values())
    assert sharers(found).keys() == {at for at in every if at[0] in wanted}
    for one, topic_ids in topics.items():
        assert {at[0] for at in pairs(found[one])} <= topic_ids
        if topic_ids & given_partitions.keys():
            assert pairs(found[one])
    assert assign(dict(reversed(members.items())), given_partitions) == found
    assert assign(after(members, found), given_partitions) == found, "it is sticky"


@given(
    given_partitions=partitions.filter(bool),
    before=st.integers(1, 12),
    now=st.integers(1, 12),
)
def test_members_with_one_subscription_are_balanced(
    given_partitions: Partitions, before: int, now: int
) -> None:
    members = {f"m{number}": member(A, B, C) for number in range(before)}
    former = assign(members, given_partitions)
    members = {f"m{number}": member(A, B, C, has=former.get(f"m{number}")) for number in range(now)}
    found = assign(members, given_partitions)
    loads = [len(pairs(assignment)) for assignment in found.values()]
    counts = sharers(found).values()
    assert max(loads) - min(loads) <= 1
    assert max(counts) - min(counts) <= 1
    if now >= len(counts):
        assert set(loads) == {1}
    if now <= len(counts):
        assert set(counts) == {1}


def test_another_member_takes_only_the_partitions_that_balance_demands() -> None:
    found = assign({"m0": member(A), "m1": member(A)}, {A: [0, 1, 2, 3]})
    members = {"m0": member(A, has=found["m0"]), "m1": member(A, has=found["m1"]), "m2": member(A)}
    moved = assign(members, {A: [0, 1, 2, 3]})
    assert sum(len(pairs(moved[one]) - pairs(found[one])) for one in found) == 0
    assert len(pairs(moved["m2"])) == 1


def test_members_that_share_stay_where_they_are() -> None:
    members = {f"m{number}": member(A) for number in range(5)}
    found = assign(members, {A: [0, 1]})
    again = assign({**after(members, found), "m5": member(A)}, {A: [0, 1]})
    assert {one: again[one] for one in found} == found
    assert set(sharers(again).values()) == {3}


def test_only_the_given_partitions_are_assigned() -> None:
    found = assign({"m": member(A, has={A: frozenset((0, 5))})}, {A: [5, 7]})
    assert found == {"m": {A: frozenset((5, 7))}}
