"""A producer's way through its transactions, decided without a coordinator."""

import pytest

from ottla.client.produce.accumulator import ProducerIdentity
from ottla.client.transactions.transaction_flow import (
    NEXT_STAGES,
    ResponseMeaning,
    TransactionCall,
    TransactionFlow,
    TransactionProtocol,
    TransactionStage,
    deciding_code,
    protocol_for,
    verdict_of,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId, TopicPartition

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
FIRST = ProducerIdentity(ProducerId(7), 0)
NEXT = ProducerIdentity(ProducerId(7), 1)
EXPLICIT, IMPLICIT = TransactionProtocol.EXPLICIT, TransactionProtocol.IMPLICIT
CALLS = TransactionCall
E = ErrorCode


def opened(protocol: TransactionProtocol) -> TransactionFlow:
    """Return a producer in its first transaction."""
    flow = TransactionFlow()
    flow.identify(FIRST)
    flow.begin(protocol)
    return flow


@pytest.mark.parametrize(
    ("call", "code", "verdict"),
    [
        # Of every call: what passes is asked again, also for a first id (KIP-98's bug list).
        *((call, E.CONCURRENT_TRANSACTIONS, ResponseMeaning.RETRY) for call in CALLS),
        *((call, E.COORDINATOR_LOAD_IN_PROGRESS, ResponseMeaning.RETRY) for call in CALLS),
        *((call, E.NOT_COORDINATOR, ResponseMeaning.RETRY) for call in CALLS),
        *((call, E.PRODUCER_FENCED, ResponseMeaning.FENCED) for call in CALLS),
        # Old versions name fencing by the other code; a group's partition does not know it.
        (CALLS.INITIALISE, E.INVALID_PRODUCER_EPOCH, ResponseMeaning.FENCED),
        (CALLS.ADD, E.INVALID_PRODUCER_EPOCH, ResponseMeaning.FENCED),
        (CALLS.COMMIT, E.INVALID_PRODUCER_EPOCH, ResponseMeaning.FENCED),
        (CALLS.COMMIT_OFFSETS, E.INVALID_PRODUCER_EPOCH, ResponseMeaning.ABORT),
        (CALLS.ADD, E.TOPIC_AUTHORIZATION_FAILED, ResponseMeaning.ABORT),
        (CALLS.ADD, E.INVALID_PRODUCER_ID_MAPPING, ResponseMeaning.ABORT),
        (CALLS.ADD, E.TRANSACTION_ABORTABLE, ResponseMeaning.ABORT),
        (CALLS.COMMIT_OFFSETS, E.ILLEGAL_GENERATION, ResponseMeaning.ABORT),
        (CALLS.COMMIT_OFFSETS, E.UNKNOWN_MEMBER_ID, ResponseMeaning.ABORT),
        (CALLS.COMMIT_OFFSETS, E.FENCED_INSTANCE_ID, ResponseMeaning.ABORT),
        (CALLS.COMMIT_OFFSETS, E.TRANSACTION_ABORTABLE, ResponseMeaning.ABORT),
        (CALLS.COMMIT, E.INVALID_TXN_STATE, ResponseMeaning.ABORT),
        (CALLS.COMMIT, E.TRANSACTION_ABORTABLE, ResponseMeaning.ABORT),
        # A fault of the server is no success, and no failure either.
        (CALLS.COMMIT, E.UNKNOWN_SERVER_ERROR, ResponseMeaning.UNKNOWN),
        (CALLS.ABORT, E.UNKNOWN_SERVER_ERROR, ResponseMeaning.IDENTIFY),
        (CALLS.ABORT, E.INVALID_TXN_STATE, ResponseMeaning.IDENTIFY),
        (CALLS.ABORT, E.INVALID_PRODUCER_ID_MAPPING, ResponseMeaning.IDENTIFY),
        (CALLS.ABORT, E.TRANSACTION_ABORTABLE, ResponseMeaning.FATAL),
        (CALLS.INITIALISE, E.INVALID_TRANSACTION_TIMEOUT, ResponseMeaning.FATAL),
        (CALLS.INITIALISE, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ResponseMeaning.FATAL),
    ],
)
def test_each_answer_has_one_meaning(
    call: TransactionCall, code: ErrorCode, verdict: ResponseMeaning
) -> None:
    assert verdict_of(call, code) is verdict


def test_a_code_of_a_later_release_is_never_a_success() -> None:
    for call in CALLS:
        assert verdict_of(call, 9_999) is not ResponseMeaning.DONE


@pytest.mark.parametrize(
    ("codes", "decides"),
    [
        ([], E.NONE),
        ([E.NONE, E.NONE], E.NONE),
        ([E.OPERATION_NOT_ATTEMPTED, E.UNKNOWN_TOPIC_OR_PARTITION], E.UNKNOWN_TOPIC_OR_PARTITION),
        ([E.NONE, E.CONCURRENT_TRANSACTIONS], E.CONCURRENT_TRANSACTIONS),
        (
            [E.UNKNOWN_TOPIC_OR_PARTITION, E.TOPIC_AUTHORIZATION_FAILED],
            E.TOPIC_AUTHORIZATION_FAILED,
        ),
        ([E.TOPIC_AUTHORIZATION_FAILED, E.PRODUCER_FENCED], E.PRODUCER_FENCED),
    ],
)
def test_the_gravest_partition_decides(codes: list[ErrorCode], decides: ErrorCode) -> None:
    assert deciding_code(CALLS.ADD, codes) is decides


@pytest.mark.parametrize(
    ("level", "produce", "offsets", "end", "protocol"),
    [
        (2, 13, 6, 5, IMPLICIT),
        (2, 12, 5, 5, IMPLICIT),
        (1, 13, 6, 5, EXPLICIT),
        (0, 13, 6, 5, EXPLICIT),
        # A version that is held back holds all back: EndTxn 5 after Produce 11 would be refused.
        (2, 11, 6, 5, EXPLICIT),
        (2, 13, 4, 5, EXPLICIT),
        (2, 13, 6, 4, EXPLICIT),
        (2, 13, -1, 5, EXPLICIT),
    ],
)
def test_the_protocol_goes_by_the_feature_and_by_every_version(
    level: int, produce: int, offsets: int, end: int, protocol: TransactionProtocol
) -> None:
    found = protocol_for(level, produce=produce, txn_offset_commit=offsets, end_txn=end)

    assert found is protocol


def test_explicit_adds_each_partition_once_before_its_first_batch() -> None:
    flow = opened(EXPLICIT)

    assert flow.want(AT)
    assert not flow.admits(AT)
    assert flow.wanted() == (AT,)
    flow.add([AT])
    assert flow.admits(AT)
    assert not flow.want(AT)
    assert flow.wanted() == ()
    assert not flow.admits(OTHER)
    assert flow.must_add_group("g")
    flow.add_group("g")
    assert not flow.must_add_group("g")


def test_what_was_added_to_one_transaction_is_added_to_the_next_again() -> None:
    flow = opened(EXPLICIT)
    flow.want(AT)
    flow.add([AT])
    flow.add_group("g")
    flow.on_sent()
    flow.begin_commit()
    flow.on_ended(None)
    flow.begin(EXPLICIT)

    assert flow.want(AT)
    assert flow.must_add_group("g")
    assert not flow.must_end


def test_implicit_adds_nothing() -> None:
    flow = opened(IMPLICIT)

    assert not flow.want(AT)
    assert flow.admits(AT)
    assert not flow.must_add_group("g")


@pytest.mark.parametrize("protocol", list(TransactionProtocol))
def test_a_transaction_without_a_request_needs_no_end(protocol: TransactionProtocol) -> None:
    flow = opened(protocol)
    flow.begin_commit()

    assert not flow.must_end
    assert not flow.on_ended(None)
    assert flow.stage is TransactionStage.READY
    assert flow.identity == FIRST


def test_implicit_continues_under_the_identity_that_the_end_gives() -> None:
    flow = opened(IMPLICIT)
    flow.on_sent()
    flow.begin_commit()

    assert flow.on_ended(NEXT)
    assert flow.identity == NEXT
    assert not flow.must_identify(IMPLICIT)


def test_after_the_last_epoch_the_end_gives_another_id() -> None:
    flow = TransactionFlow()
    flow.identify(ProducerIdentity(ProducerId(7), 32_766))
    flow.begin(IMPLICIT)
    flow.on_sent()
    flow.begin_abort()

    assert flow.on_ended(ProducerIdentity(ProducerId(8), 0))
    assert flow.identity == (8, 0)


def test_an_implicit_end_that_gives_no_identity_needs_one() -> None:
    flow = opened(IMPLICIT)
    flow.on_sent()
    flow.begin_commit()

    assert not flow.on_ended(None)
    assert flow.must_identify(IMPLICIT)


def test_explicit_commits_keep_their_epoch() -> None:
    flow = opened(EXPLICIT)
    flow.on_sent()
    flow.begin_commit()

    assert not flow.on_ended(None)
    assert flow.identity == FIRST
    assert not flow.must_identify(EXPLICIT)


def test_explicit_takes_a_new_epoch_after_an_abort() -> None:
    flow = opened(EXPLICIT)
    flow.on_sent()
    flow.begin_abort()
    flow.on_ended(None)

    assert flow.must_identify(EXPLICIT)


def test_explicit_takes_a_new_epoch_when_a_request_may_arrive_after_the_commit() -> None:
    flow = opened(EXPLICIT)
    flow.on_sent()
    flow.on_lost()
    flow.begin_commit()
    flow.on_ended(None)

    assert flow.must_identify(EXPLICIT)


@pytest.mark.parametrize(("before", "after"), [(EXPLICIT, IMPLICIT), (IMPLICIT, EXPLICIT)])
def test_a_used_epoch_is_not_carried_from_one_protocol_into_the_other(
    before: TransactionProtocol, after: TransactionProtocol
) -> None:
    flow = opened(before)
    flow.begin_commit()
    flow.on_ended(None)

    assert not flow.must_identify(before)
    assert flow.must_identify(after)


def test_a_refusal_after_a_lost_attempt_to_commit_says_nothing() -> None:
    flow = opened(IMPLICIT)
    flow.on_sent()
    flow.begin_commit()

    assert flow.commit_verdict(ResponseMeaning.ABORT) is ResponseMeaning.ABORT
    flow.on_lost()
    assert flow.commit_verdict(ResponseMeaning.ABORT) is ResponseMeaning.UNKNOWN
    assert flow.commit_verdict(ResponseMeaning.FENCED) is ResponseMeaning.UNKNOWN
    assert flow.commit_verdict(ResponseMeaning.DONE) is ResponseMeaning.DONE


def test_a_doomed_transaction_is_never_committed() -> None:
    flow = opened(IMPLICIT)
    flow.require_abort()

    with pytest.raises(AssertionError):
        flow.begin_commit()
    flow.begin_abort()
    flow.give_up()
    assert flow.must_identify(IMPLICIT)


def test_a_doomed_transaction_adds_nothing_more() -> None:
    flow = opened(EXPLICIT)
    flow.want(AT)
    flow.require_abort()

    assert flow.wanted() == ()


def test_the_end_for_good_can_be_met_anywhere_and_left_nowhere() -> None:
    for stage, after in NEXT_STAGES.items():
        is_final = stage is TransactionStage.FINAL
        assert (TransactionStage.FINAL in after) != is_final
    flow = opened(IMPLICIT)
    first = RefusedError(E.PRODUCER_FENCED, "first")
    flow.end_for_good(first)
    flow.end_for_good(RefusedError(E.INVALID_REQUEST, "second"))

    assert flow.final is first
    with pytest.raises(AssertionError):
        flow.begin(IMPLICIT)


@pytest.mark.parametrize("protocol", TransactionProtocol)
def test_a_prepared_transaction_is_ended_by_who_takes_it_over(
    protocol: TransactionProtocol,
) -> None:
    writer = opened(protocol)
    writer.prepare()
    assert TransactionStage.OPEN not in NEXT_STAGES[writer.stage]
    ender = TransactionFlow()
    ender.take_over(FIRST, protocol)
    assert (ender.stage, ender.identity, ender.must_end) == (writer.stage, FIRST, True)
    ender.begin_commit()
    assert ender.commit_verdict(ResponseMeaning.FENCED) is ResponseMeaning.FENCED
    ender.on_lost()
    # The attempt without an answer may have committed, and a later producer begun.
    assert ender.commit_verdict(ResponseMeaning.FENCED) is ResponseMeaning.UNKNOWN
