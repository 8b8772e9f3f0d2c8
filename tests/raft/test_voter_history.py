"""The voter sets of a log by offset, and how records, truncations and snapshots change them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.jepsen.quorum.world import voter
from ottla.model.ids import NO_OFFSET, Offset
from ottla.raft.voter_history import VoterHistory
from ottla.raft.voters import VoterSet


def voters(*ids: int) -> VoterSet:
    return VoterSet(tuple(voter(one) for one in ids))


def history_of(base: VoterSet | None, *sets: tuple[int, VoterSet]) -> VoterHistory:
    history = VoterHistory()
    history.start_with(base)
    history.add((Offset(offset), one) for offset, one in sets)
    return history


ONE, TWO, THREE = voters(1), voters(1, 2), voters(1, 2, 3)


def test_a_new_history_knows_no_set() -> None:
    history = VoterHistory()

    assert (history.latest, history.latest_offset) == (None, NO_OFFSET)
    assert history.at(Offset(100)) is None


def test_the_set_of_the_snapshot_is_in_effect_until_a_record_replaces_it() -> None:
    history = history_of(ONE)
    assert (history.latest, history.latest_offset) == (ONE, NO_OFFSET)

    history.add([(Offset(5), TWO)])

    assert (history.latest, history.latest_offset) == (TWO, Offset(5))


def test_a_set_is_in_effect_from_its_own_record_on() -> None:
    history = history_of(ONE, (5, TWO), (9, THREE))

    found = [history.at(Offset(end)) for end in (0, 5, 6, 9, 10, 99)]

    assert found == [ONE, ONE, TWO, TWO, THREE, THREE]


def test_truncated_records_lose_their_effect() -> None:
    history = history_of(ONE, (5, TWO), (9, THREE))

    history.truncate_to(Offset(10))
    assert history.latest == THREE
    history.truncate_to(Offset(9))
    assert (history.latest, history.latest_offset) == (TWO, Offset(5))
    history.truncate_to(Offset(0))
    assert (history.latest, history.latest_offset) == (ONE, NO_OFFSET)


def test_another_set_may_follow_a_truncated_one_at_the_same_offset() -> None:
    history = history_of(ONE, (5, TWO))

    history.truncate_to(Offset(5))
    history.add([(Offset(5), THREE)])

    assert history.at(Offset(6)) == THREE


def test_a_snapshot_that_replaces_the_log_replaces_the_history() -> None:
    history = history_of(ONE, (5, TWO))

    history.start_with(THREE)

    assert (history.latest, history.latest_offset) == (THREE, NO_OFFSET)
    assert history.at(Offset(0)) == THREE


def test_every_set_below_an_offset_counts() -> None:
    history = history_of(ONE, (5, TWO), (9, ONE))
    one, two, three = (voter(id_).key for id_ in (1, 2, 3))

    assert history.has_voter_below(one, Offset(0))
    assert not history.has_voter_below(two, Offset(5))
    assert history.has_voter_below(two, Offset(6))
    assert history.has_voter_below(two, Offset(99))
    assert not history.has_voter_below(three, Offset(99))


def test_records_arrive_in_the_order_of_their_offsets() -> None:
    history = history_of(ONE, (5, TWO))

    with pytest.raises(AssertionError):
        history.add([(Offset(5), THREE)])


@given(
    base=st.sampled_from([None, ONE]),
    offsets=st.sets(st.integers(0, 20), max_size=6),
    cut=st.integers(0, 21),
    end=st.integers(0, 21),
)
def test_it_equals_the_last_set_below_an_offset(
    base: VoterSet | None, offsets: set[int], cut: int, end: int
) -> None:
    sets = {offset: voters(1, 2 + offset) for offset in sorted(offsets)}
    history = history_of(base, *sets.items())

    history.truncate_to(Offset(cut))

    below = [one for offset, one in sets.items() if offset < min(cut, end)]
    assert history.at(Offset(end)) == (below[-1] if below else base)
    left = [offset for offset in sets if offset < cut]
    assert history.latest_offset == (left[-1] if left else NO_OFFSET)
