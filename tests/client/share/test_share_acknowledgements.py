"""Records in hand: each is acknowledged once, and each acknowledgement has one result."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.share.acknowledgement_ranges import AcknowledgementRange, AcknowledgeType
from ottla.client.share.share_acknowledgements import RecordsInHand
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import TopicIdPartition, TopicPartition

KEY = TopicIdPartition(UUID(int=7), 0)
AT = TopicPartition("t", 0)
ACCEPT, RELEASE, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.RENEW


class ExpectedResults:
    """The result of one acknowledgement."""

    def __init__(self) -> None:
        self.left = 0
        self.errors: list[OttlaError | None] = []

    def _expect(self, count: int) -> None:
        self.left += count

    def _settle(self, error: OttlaError | None) -> None:
        self.left -= 1
        self.errors.append(error)

    @property
    def code(self) -> ErrorCode:
        """The first error's code, once there are all results."""
        assert self.left == 0, "each part has one result"
        found = [one for one in self.errors if one is not None]
        assert all(isinstance(one, RefusedError) for one in found)
        return found[0].code if found and isinstance(found[0], RefusedError) else ErrorCode.NONE


def in_hand(*offsets: int, at_ms: int = 0) -> RecordsInHand:
    hand = RecordsInHand()
    hand.acquire(KEY, AT, offsets, at_ms)
    return hand


def settled(hand: RecordsInHand, *offsets: int, kind: AcknowledgeType = ACCEPT) -> ExpectedResults:
    noted = ExpectedResults()
    hand.settle(KEY, offsets, kind, noted)
    return noted


def results(code: ErrorCode) -> dict[TopicIdPartition, tuple[int, str | None]]:
    return {KEY: (code, None)}


def test_an_acknowledgement_is_confirmed_by_the_result_of_its_partition() -> None:
    hand = in_hand(1, 2, 3)
    one, other = settled(hand, 1, 3), settled(hand, 2, kind=RELEASE)
    assert (hand.held_count, hand.waiting_count) == (0, 3)
    assert hand.take() == {KEY: [AcknowledgementRange(1, 3, (1, 2, 1))]}
    assert hand.is_acknowledging and not hand.waiting_keys()
    assert not hand.on_results(results(ErrorCode.NONE), 0)
    assert one.code is other.code is ErrorCode.NONE
    assert not hand.is_acknowledging


def test_a_partition_without_a_result_is_an_error() -> None:
    hand = in_hand(1)
    noted = settled(hand, 1)
    hand.take()
    hand.on_results({}, 0)
    assert noted.code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_busy_coordinator_gets_the_acknowledgement_again_until_the_lock_ends() -> None:
    hand = in_hand(1, at_ms=1_000)
    noted = settled(hand, 1)
    for _ in range(3):
        assert hand.take() == {KEY: [AcknowledgementRange(1, 1, (1,))]}
        assert hand.on_results(results(ErrorCode.COORDINATOR_NOT_AVAILABLE), 2_000)
        assert hand.waiting_count == 1
    hand.expire(1_000 + hand.lock_ms - 1)
    assert noted.errors == []
    hand.expire(1_000 + hand.lock_ms)
    assert noted.code is ErrorCode.COORDINATOR_NOT_AVAILABLE, "an attempt may have been stored"
    assert hand.waiting_count == 0 and not hand.is_acknowledging


def test_an_acknowledgement_that_was_never_sent_is_known_to_be_refused() -> None:
    hand = in_hand(1, at_ms=1_000)
    noted = settled(hand, 1)
    hand.expire(1_000 + hand.lock_ms)
    assert noted.code is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_a_refusal_after_an_attempt_that_may_have_been_stored_is_in_doubt(code: ErrorCode) -> None:
    hand = in_hand(1, 2)
    noted, fresh = settled(hand, 1), ExpectedResults()
    hand.take()
    hand.on_results(results(code), 0)
    hand.settle(KEY, (2,), ACCEPT, fresh)
    for _ in range(3):  # Both records, then each by itself.
        assert hand.take()
        hand.on_results(results(ErrorCode.INVALID_RECORD_STATE), 0)
    assert noted.code is code
    assert fresh.code is ErrorCode.INVALID_RECORD_STATE
    assert not hand.is_acknowledging


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.INVALID_REQUEST])
def test_other_refusals_are_final(code: ErrorCode) -> None:
    hand = in_hand(1, 2)
    noted = settled(hand, 1, 2)
    hand.take()
    assert not hand.on_results(results(code), 0)
    assert noted.code is code and not hand.is_acknowledging


def test_acknowledgements_during_a_request_wait_for_the_next_one() -> None:
    hand = in_hand(1, 2)
    settled(hand, 1)
    hand.take()
    later = settled(hand, 2)
    hand.on_results(results(ErrorCode.NONE), 0)
    assert later.errors == []
    assert hand.take() == {KEY: [AcknowledgementRange(2, 2, (1,))]}


def test_a_renewal_restarts_the_lock_of_records_that_are_still_in_hand() -> None:
    hand = in_hand(1, 2, 3)
    noted = ExpectedResults()
    hand.renew_due(hand.lock_ms // 2 - 1, noted)
    assert not hand.has_renewals
    hand.renew_due(hand.lock_ms // 2, noted)
    accepted = settled(hand, 2)  # settled before the renewal is sent
    assert hand.take(renewals=True) == {
        KEY: [AcknowledgementRange(1, 1, (4,)), AcknowledgementRange(3, 3, (4,))]
    }
    hand.on_results(results(ErrorCode.NONE), 20_000)
    assert noted.code is ErrorCode.NONE
    assert hand.renewal_due_ms() == 20_000 + hand.lock_ms // 2
    hand.expire(hand.lock_ms)
    assert accepted.code is ErrorCode.INVALID_RECORD_STATE, "its own lock was not renewed"


def test_a_refused_renewal_is_not_repeated_and_the_record_can_still_be_accepted() -> None:
    hand = in_hand(1)
    hand.renew_due(hand.lock_ms // 2, noted := ExpectedResults())
    hand.take(renewals=True)
    hand.on_results(results(ErrorCode.INVALID_RECORD_STATE), 0)
    assert noted.code is ErrorCode.INVALID_RECORD_STATE
    assert hand.renewal_due_ms() is None
    assert settled(hand, 1).errors == [] and hand.waiting_count == 1


def test_a_record_that_is_acquired_again_is_another_one() -> None:
    hand = RecordsInHand()
    first = hand.acquire(KEY, AT, (5,), 0)
    hand.lose(RefusedError(ErrorCode.NETWORK_EXCEPTION))
    assert hand.held_count == 0
    second = hand.acquire(KEY, AT, (5,), 10)
    assert hand.unsettled(KEY, (5,), first) == []
    assert hand.unsettled(KEY, (5,), second) == [5]
    hand.drop_held(KEY, (5,), first)
    assert hand.held_count == 1


def test_a_lost_partition_fails_what_waits_and_what_is_in_flight() -> None:
    hand = in_hand(1, 2, 3, 4)
    flying = settled(hand, 1)
    hand.take()
    waiting, renewed = settled(hand, 2), settled(hand, 3, kind=RENEW)
    hand.lose_partition(KEY, RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    for noted in (flying, waiting, renewed):
        assert noted.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (hand.held_count, hand.waiting_count) == (0, 0)
    hand.on_results(results(ErrorCode.NONE), 0)  # the late response changes nothing


@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from((ACCEPT, RELEASE))), max_size=30),
    st.data(),
)
def test_only_records_that_the_broker_refuses_fail(
    parts: list[tuple[int, AcknowledgeType]], data: st.DataObject
) -> None:
    """A broker refuses all acknowledgements of a request for one record whose lock has ended."""
    total = sum(count for count, _ in parts)
    ended = data.draw(st.sets(st.integers(0, max(0, total - 1)), max_size=6))
    hand = in_hand(*range(total))
    noted, at = [], 0
    for count, kind in parts:
        offsets = range(at, at + count)
        noted.append((offsets, kind, settled(hand, *offsets, kind=kind)))
        at += count
    stored: dict[int, int] = {}
    for _ in range(4 * total + 4):
        if not (request := hand.take()):
            break
        asked = {
            offset: one.types[min(place, len(one.types) - 1)]
            for one in request[KEY]
            for place, offset in enumerate(range(one.first, one.last + 1))
        }
        is_refused = not ended.isdisjoint(asked)
        if not is_refused:
            assert stored.keys().isdisjoint(asked), "a record is acknowledged once"
            stored |= asked
        code = ErrorCode.INVALID_RECORD_STATE if is_refused else ErrorCode.NONE
        hand.on_results(results(code), 0)
    assert not hand.is_acknowledging and hand.waiting_count == 0
    expected = {o: kind for offsets, kind, _ in noted for o in offsets if o not in ended}
    assert stored == expected
    for offsets, _, one in noted:
        has_failed = one.code is ErrorCode.INVALID_RECORD_STATE
        assert has_failed is not ended.isdisjoint(offsets)
