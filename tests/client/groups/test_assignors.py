"""Distribution of partitions among a group's members."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.groups.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSubscription,
    cooperative_sticky_assignment,
    range_assignment,
    round_robin_assignment,
    sticky_assignment,
)
from ottla.model.ids import TopicPartition

MEMBERS = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(6)]),
    st.builds(
        MemberSubscription,
        topics=st.frozensets(st.sampled_from("abc"), min_size=1),
        owned=st.lists(
            st.builds(TopicPartition, st.sampled_from("abcd"), st.integers(0, 7)), max_size=8
        ).map(tuple),
        generation_id=st.integers(-1, 3),
        rack=st.sampled_from([None, "r0", "r1", "r2"]),
    ),
    min_size=1,
)
RACKS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("abcd"), st.integers(0, 6)),
    st.frozensets(st.sampled_from(["r0", "r1", "r2"])),
)
COUNTS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 6))


def member(*topics: str, owned: str = "", generation: int = 1) -> MemberSubscription:
    """`owned` is written as a0 b3."""
    return MemberSubscription(
        frozenset(topics),
        owned=tuple(TopicPartition(one[0], int(one[1:])) for one in owned.split()),
        generation_id=generation,
    )


def shown(found: Assignment) -> dict[str, str]:
    return {
        member_id: " ".join(f"{at.topic}{at.partition}" for at in partitions)
        for member_id, partitions in found.items()
    }


@pytest.mark.parametrize("name", [name for name in ASSIGNORS if name != "cooperative-sticky"])
@given(members=MEMBERS, counts=COUNTS, racks=RACKS)
def test_every_partition_has_exactly_one_owner_who_subscribed(
    name: str,
    members: dict[str, MemberSubscription],
    counts: dict[str, int],
    racks: dict[TopicPartition, frozenset[str]],
) -> None:
    found = ASSIGNORS[name](members, counts, racks)

    assert set(found) == set(members)
    owned = Counter(at for partitions in found.values() for at in partitions)
    topics = {topic for one in members.values() for topic in one.topics}
    wanted = {TopicPartition(t, n) for t in topics for n in range(counts.get(t, 0))}
    assert owned == dict.fromkeys(wanted, 1)
    for member_id, partitions in found.items():
        assert {at.topic for at in partitions} <= members[member_id].topics
    shuffled = dict(reversed(members.items()))
    assert ASSIGNORS[name](shuffled, counts, racks) == found


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=MEMBERS, counts=COUNTS, racks=RACKS)
def test_racks_never_change_how_many_partitions_a_new_member_gets(
    name: str,
    members: dict[str, MemberSubscription],
    counts: dict[str, int],
    racks: dict[TopicPartition, frozenset[str]],
) -> None:
    fresh = {
        one: found._replace(owned=(), topics=frozenset("abc")) for one, found in members.items()
    }

    near, plain = ASSIGNORS[name](fresh, counts, racks), ASSIGNORS[name](fresh, counts)

    assert sorted(map(len, near.values())) == sorted(map(len, plain.values()))


@pytest.mark.parametrize("name", ["range", "sticky", "cooperative-sticky"])
def test_partitions_go_to_members_in_the_racks_of_their_replicas(name: str) -> None:
    members = {"x": member("a")._replace(rack="r0"), "y": member("a")._replace(rack="r1")}
    at = [TopicPartition("a", index) for index in range(4)]
    racks = {one: frozenset({"r1" if one.partition < 2 else "r0"}) for one in at}

    found = shown(ASSIGNORS[name](members, {"a": 4}, racks))

    assert found == {"x": "a2 a3", "y": "a0 a1"}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_a_partition_of_unknown_racks_is_not_exchanged(name: str) -> None:
    members = {"x": member("a")._replace(rack="r2"), "y": member("a")._replace(rack="r0")}
    racks = {TopicPartition("a", 1): frozenset({"r2"})}

    found = ASSIGNORS[name](members, {"a": 2}, racks)

    assert sorted(map(len, found.values())) == [1, 1]


def test_racks_that_every_partition_has_leave_the_ranges_as_they_are() -> None:
    members = {"x": member("a")._replace(rack="r0"), "y": member("a")._replace(rack="r1")}
    everywhere = frozenset({"r0", "r1"})
    racks = {TopicPartition("a", index): everywhere for index in range(4)}

    assert shown(range_assignment(members, {"a": 4}, racks)) == {"x": "a0 a1", "y": "a2 a3"}


@given(members=MEMBERS, counts=COUNTS)
def test_sticky_is_even_and_stays_as_it_is(
    members: dict[str, MemberSubscription], counts: dict[str, int]
) -> None:
    same = {one: found._replace(topics=frozenset("abc")) for one, found in members.items()}

    first = sticky_assignment(same, counts)
    loads = [len(partitions) for partitions in first.values()]
    assert max(loads) - min(loads) <= 1
    again = {
        one: found._replace(owned=tuple(first[one]), generation_id=9) for one, found in same.items()
    }
    assert sticky_assignment(again, counts) == first


def test_range_gives_runs_of_each_topic() -> None:
    found = range_assignment({"x": member("a", "b"), "y": member("a", "b")}, {"a": 3, "b": 2})

    assert shown(found) == {"x": "a0 a1 b0", "y": "a2 b1"}


def test_round_robin_deals_over_topics() -> None:
    found = round_robin_assignment({"x": member("a", "b"), "y": member("b")}, {"a": 2, "b": 3})

    assert shown(found) == {"x": "a0 a1 b1", "y": "b0 b2"}


def test_sticky_moves_no_more_than_it_must_when_a_member_comes() -> None:
    before = {"x": member("a", owned="a0 a1 a2"), "y": member("a", owned="a3 a4 a5")}

    found = sticky_assignment({**before, "z": member("a")}, {"a": 6})

    assert shown(found) == {"x": "a0 a1", "y": "a3 a4", "z": "a2 a5"}


def test_of_two_who_claim_a_partition_the_later_generation_has_it() -> None:
    members = {
        "x": member("a", owned="a0 a1", generation=1),
        "y": member("a", owned="a0 a1", generation=2),
    }

    assert shown(sticky_assignment(members, {"a": 2}))["y"] in ("a0", "a1")
    assert shown(sticky_assignment(members, {"a": 1})) == {"x": "", "y": "a0"}


@given(members=MEMBERS, counts=COUNTS)
def test_cooperative_members_never_share_a_partition_and_soon_have_them_all(
    members: dict[str, MemberSubscription], counts: dict[str, int]
) -> None:
    # Where two claim one partition before the first round, that is not the assignor's doing.
    owned = {at: one for one, member in members.items() for at in member.owned}
    members = {
        one: member._replace(owned=tuple(at for at, who in owned.items() if who == one))
        for one, member in members.items()
    }
    for generation in range(4, 7):
        found = cooperative_sticky_assignment(members, counts)
        for one, partitions in found.items():
            taken = set(partitions) - set(members[one].owned)
            had = {at for other in members if other != one for at in members[other].owned}
            assert not taken & had, "another member reads it until it learns of this round"
        given_up = any(set(members[one].owned) - set(found[one]) for one in members)
        members = {
            one: member._replace(owned=tuple(found[one]), generation_id=generation)
            for one, member in members.items()
        }
        if not given_up:
            break
    assert not given_up, "the second round gives what the first one freed, the third moves nothing"
    held = Counter(at for member in members.values() for at in member.owned)
    topics = {topic for member in members.values() for topic in member.topics}
    wanted = {TopicPartition(t, n) for t in topics for n in range(counts.get(t, 0))}
    assert held == dict.fromkeys(wanted, 1)


def test_a_partition_that_changes_hands_is_nobodys_for_one_round() -> None:
    before = {"x": member("a", owned="a0 a1"), "y": member("a")}

    assert shown(cooperative_sticky_assignment(before, {"a": 2})) == {"x": "a0", "y": ""}
    after = {"x": member("a", owned="a0", generation=2), "y": member("a", generation=2)}
    assert shown(cooperative_sticky_assignment(after, {"a": 2})) == {"x": "a0", "y": "a1"}


def test_what_two_claim_in_one_generation_is_taken_from_both() -> None:
    members = {"x": member("a", owned="a0"), "y": member("a", owned="a0")}

    assert shown(cooperative_sticky_assignment(members, {"a": 1})) == {"x": "", "y": ""}
