"""The range assignor: runs of adjacent partitions, the same ones in equal topics."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.broker.groups.consumer.assignors.range import assign
from ottla.broker.groups.consumer.assignors.subscription import AssignedSubscription

TOPICS = [UUID(int=number) for number in range(1, 6)]
A, B, C, D, E = TOPICS


def member(*topic_ids: UUID, instance_id: str | None = None) -> AssignedSubscription:
    return AssignedSubscription(instance_id, None, frozenset(topic_ids), {})


def test_the_first_members_have_one_more() -> None:
    found = assign({"m2": member(A), "m0": member(A), "m1": member(A)}, {A: 8})
    assert found == {
        "m0": {A: frozenset({0, 1, 2})},
        "m1": {A: frozenset({3, 4, 5})},
        "m2": {A: frozenset({6, 7})},
    }


def test_topics_with_as_many_partitions_are_split_at_the_same_places() -> None:
    found = assign({f"m{at}": member(A, B) for at in range(3)}, {A: 7, B: 7})
    assert all(assignment[A] == assignment[B] for assignment in found.values())


def test_static_members_come_first_by_their_instance_and_not_by_their_member_id() -> None:
    members = {
        "a": member(A),
        "z": member(A, instance_id="i1"),
        "b": member(A, instance_id="i2"),
    }
    before = assign(members, {A: 3})
    assert before == {"z": {A: {0}}, "b": {A: {1}}, "a": {A: {2}}}

    members["c"] = members.pop("z")  # started again, it has another id
    assert assign(members, {A: 3}) == {"c": {A: {0}}, "b": {A: {1}}, "a": {A: {2}}}


def test_a_topic_is_split_among_its_own_subscribers_only() -> None:
    found = assign({"m0": member(A), "m1": member(A, B), "m2": member(B)}, {A: 3, B: 2})
    assert found == {
        "m0": {A: frozenset({0, 1})},
        "m1": {A: frozenset({2}), B: frozenset({0})},
        "m2": {B: frozenset({1})},
    }


def test_more_members_than_partitions_no_topics_and_topics_that_are_not_there() -> None:
    members = {"m0": member(A), "m1": member(A), "m2": member(), "m3": member(D)}
    assert assign(members, {A: 1, B: 4}) == {"m0": {A: {0}}, "m1": {}, "m2": {}, "m3": {}}
    assert assign({}, {A: 1}) == {}


@given(
    st.lists(
        st.tuples(st.frozensets(st.sampled_from(TOPICS)), st.none() | st.sampled_from("ijklm")),
        max_size=6,
        unique_by=lambda one: one[1] or object(),
    ),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
)
def test_each_partition_is_owned_once_and_each_topic_evenly_and_in_runs(
    drawn: list[tuple[frozenset[UUID], str | None]], counts: dict[UUID, int]
) -> None:
    members = {
        f"m{at}": AssignedSubscription(instance_id, None, topic_ids, {})
        for at, (topic_ids, instance_id) in enumerate(drawn)
    }

    found = assign(members, counts)

    assert found.keys() == members.keys()
    for topic_id, count in counts.items():
        who = [one for one in members if topic_id in members[one].topic_ids]
        runs = [sorted(found[one].get(topic_id, ())) for one in who]
        assert all(run == list(range(run[0], run[-1] + 1)) for run in runs if run)
        assert sorted(index for run in runs for index in run) == (list(range(count)) if who else [])
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1
    for member_id, assignment in found.items():
        assert assignment.keys() <= members[member_id].topic_ids & counts.keys()
        assert all(assignment.values())
