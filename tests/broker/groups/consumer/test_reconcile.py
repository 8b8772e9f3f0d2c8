"""Reconciliation of a member's current assignment with its target: every rule, one by one."""

from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest

from ottla.broker.groups.consumer.consumer_group import NO_OWNER
from ottla.broker.groups.consumer.consumer_member import ConsumerMember, MemberState
from ottla.broker.groups.consumer.reconcile import reconcile
from ottla.model.errors import ErrorCode, RefusedError

T, U = UUID(int=1), UUID(int=2)
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def sets(**parts: str) -> dict[UUID, frozenset[int]]:
    """Return partitions by topic: `t="12"` are partitions 1 and 2 of T."""
    ids = {"t": T, "u": U}
    return {ids[name]: frozenset(map(int, indexes)) for name, indexes in parts.items()}


def member(
    epoch: int, *, state: MemberState = STABLE, previous: int = -1, has: str = "", gives: str = ""
) -> ConsumerMember:
    return ConsumerMember(
        member_id="a",
        member_epoch=epoch,
        previous_member_epoch=previous,
        state=state,
        assigned=sets(t=has) if has else {},
        pending_revocation=sets(t=gives) if gives else {},
    )


def moved(
    one: ConsumerMember,
    epoch: int,
    target: Mapping[UUID, frozenset[int]],
    *,
    owned: Mapping[UUID, frozenset[int]] | None = None,
    taken: str = "",
) -> ConsumerMember:
    others = set(map(int, taken))
    return reconcile(
        one,
        target_epoch=epoch,
        target=target,
        owner_epoch_of=lambda topic, index: 3 if topic == T and index in others else NO_OWNER,
        owned=owned,
    )


def test_who_is_where_the_target_wants_it_stays_the_same_value() -> None:
    one = member(5, has="12")
    assert moved(one, 5, sets(t="12")) is one


def test_a_new_member_gets_what_is_free_at_once() -> None:
    assert moved(member(0), 5, sets(t="12", u="0"), owned={}) == replace(
        member(5, previous=0), assigned=sets(t="12", u="0")
    )


def test_what_others_still_have_is_waited_for_in_the_new_epoch() -> None:
    assert moved(member(0), 5, sets(t="123"), owned={}, taken="23") == member(
        5, previous=0, state=UNRELEASED, has="1"
    )


def test_with_nothing_free_it_comes_into_the_epoch_all_the_same() -> None:
    assert moved(member(4, has="1"), 5, sets(t="12"), taken="2") == member(
        5, previous=4, state=UNRELEASED, has="1"
    )


def test_what_is_released_meanwhile_is_given_and_the_member_is_stable() -> None:
    waiting = member(5, previous=4, state=UNRELEASED, has="1")
    assert moved(waiting, 5, sets(t="123"), taken="3") == member(
        5, previous=5, state=UNRELEASED, has="12"
    )
    assert moved(waiting, 5, sets(t="123")) == member(5, previous=5, has="123")


def test_what_it_is_to_give_up_keeps_it_in_its_epoch() -> None:
    assert moved(member(4, has="123"), 5, sets(t="14")) == member(
        4, previous=4, state=UNREVOKED, has="1", gives="23"
    )


def test_it_is_given_nothing_new_before_it_gave_up_the_old() -> None:
    assert moved(member(4, has="12"), 5, sets(u="0"), owned=sets(t="12")).assigned == {}


@pytest.mark.parametrize("owned", [None, sets(t="12"), sets(t="2", u="7")])
def test_until_it_says_that_it_gave_everything_up_nothing_moves(
    owned: Mapping[UUID, frozenset[int]] | None,
) -> None:
    giving = member(4, previous=4, state=UNREVOKED, has="1", gives="23")
    assert moved(giving, 5, sets(t="14"), owned=owned) is giving


def test_when_it_gave_everything_up_it_comes_into_the_epoch_with_what_it_gets() -> None:
    giving = member(4, previous=4, state=UNREVOKED, has="1", gives="23")
    assert moved(giving, 5, sets(t="14"), owned=sets(t="1")) == member(5, previous=4, has="14")


def test_a_target_that_came_meanwhile_may_ask_for_more() -> None:
    giving = member(4, previous=4, state=UNREVOKED, has="12", gives="3")
    assert moved(giving, 6, sets(t="1"), owned=sets(t="12")) == member(
        4, previous=4, state=UNREVOKED, has="1", gives="2"
    )


def test_what_it_gave_up_and_is_given_back_is_its_own() -> None:
    giving = member(4, previous=4, state=UNREVOKED, has="1", gives="2")
    assert moved(giving, 6, sets(t="12"), owned=sets(t="1"), taken="2") == member(
        6, previous=4, has="12"
    )


def test_what_it_does_not_own_need_not_be_given_up() -> None:
    assert moved(member(4, has="123"), 5, sets(t="1"), owned=sets(t="1")) == member(
        5, previous=4, has="1"
    )


def test_one_that_waits_gives_up_what_a_newer_target_takes() -> None:
    waiting = member(5, previous=4, state=UNRELEASED, has="12")
    assert moved(waiting, 6, sets(t="13"), owned=sets(t="12"), taken="3") == member(
        5, previous=5, state=UNREVOKED, has="1", gives="2"
    )


def test_a_state_of_a_later_release_restarts_the_reconciliation() -> None:
    strange = member(5, state=MemberState.UNKNOWN, has="1")
    with pytest.raises(RefusedError) as refusal:
        moved(strange, 6, sets(t="1"), owned=sets(t="1"))
    assert refusal.value.code is ErrorCode.FENCED_MEMBER_EPOCH
    assert moved(strange, 6, sets(t="1"), owned={}) == member(6, previous=5, has="1")
