"""The tables of the transaction coordinator, row by row: the effect of each request in each
state."""

from dataclasses import replace

import pytest

from ottla.broker.transactions.transaction import (
    ALLOWED_FROM,
    NO_TIMEOUT_MS,
    Transaction,
    TransactionFacts,
    TransactionStatus,
)
from ottla.broker.transactions.transaction_rules import (
    NamedProducer,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
    is_timed_out,
    verified,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition

S = TransactionStatus
E = ErrorCode
PID, NEW_PID, OLD_PID = ProducerId(7), ProducerId(1_000), ProducerId(3)
NOW_MS = 50_000
ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 2)
EMPTY, ONGOING = S.EMPTY, S.ONGOING
P_COMMIT, P_ABORT = S.PREPARE_COMMIT, S.PREPARE_ABORT
C_COMMIT, C_ABORT = S.COMPLETE_COMMIT, S.COMPLETE_ABORT
ALL = (EMPTY, ONGOING, P_COMMIT, P_ABORT, C_COMMIT, C_ABORT)


def in_state(
    status: TransactionStatus,
    *,
    epoch: int = 5,
    last: int = -1,
    previous: ProducerId = PID,
    client_version: int = 0,
) -> Transaction:
    is_open = status not in (EMPTY, C_COMMIT, C_ABORT)
    return Transaction(
        "t",
        TransactionFacts(
            producer_id=PID,
            previous_producer_id=previous,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=60_000,
            status=status,
            partitions=frozenset((ORDERS,)) if is_open else frozenset(),
            start_ms=40_000 if is_open else -1,
            last_update_ms=40_000,
            client_version=client_version,
        ),
    )


def take() -> ProducerId:
    return NEW_PID


def refuse() -> ProducerId:
    raise RefusedError(E.COORDINATOR_LOAD_IN_PROGRESS)


def init(
    transaction: Transaction, expected: tuple[int, int] | None = None, *, server_version: int = 2
) -> TransactionFacts | ErrorCode:
    identity = None
    if expected is not None:
        identity = NamedProducer(ProducerId(expected[0]), expected[1])
    try:
        return decide_init(
            transaction,
            identity,
            timeout_ms=9_000,
            server_version=server_version,
            take_id=take,
            now_ms=NOW_MS,
        )
    except RefusedError as refusal:
        return refusal.code


def end(
    transaction: Transaction | None,
    epoch: int = 5,
    *,
    is_commit: bool,
    version: int,
    producer_id: int = PID,
) -> TransactionFacts | ErrorCode | None:
    try:
        return decide_end(
            transaction,
            NamedProducer(ProducerId(producer_id), epoch),
            is_commit=is_commit,
            client_version=version,
            take_id=take,
            now_ms=NOW_MS,
        )
    except RefusedError as refusal:
        return refusal.code


def add(
    transaction: Transaction | None, epoch: int = 5, *, producer_id: int = PID, is_new: bool = True
) -> TransactionFacts | ErrorCode | None:
    try:
        return decide_add(
            transaction,
            NamedProducer(ProducerId(producer_id), epoch),
            [ORDERS, BILLS] if is_new else [ORDERS],
            client_version=0,
            now_ms=NOW_MS,
        )
    except RefusedError as refusal:
        return refusal.code


# ---- InitProducerId


@pytest.mark.parametrize("status", [EMPTY, C_COMMIT, C_ABORT])
@pytest.mark.parametrize(
    ("epoch", "last", "expected", "given", "remembered"),
    [
        (-1, -1, None, 0, -1),
        (-1, -1, (99, 4), 0, -1),
        (5, -1, None, 6, -1),
        (5, -1, (PID, 5), 6, 5),
        (5, 4, (PID, 4), 5, 4),
    ],
    ids=["new", "new-to-us", "another-life", "recovered", "retried"],
)
def test_a_producer_gets_the_next_epoch(
    status: TransactionStatus,
    epoch: int,
    last: int,
    expected: tuple[int, int] | None,
    given: int,
    remembered: int,
) -> None:
    transaction = in_state(status, epoch=epoch, last=last)
    facts = init(transaction, expected)
    assert isinstance(facts, TransactionFacts)
    assert (facts.producer_id, facts.producer_epoch) == (PID, given)
    assert facts.last_producer_epoch == remembered
    assert (facts.status, facts.partitions, facts.start_ms) == (EMPTY, frozenset(), -1)
    assert (facts.timeout_ms, facts.last_update_ms) == (9_000, NOW_MS)
    transaction.apply(facts)
    assert transaction.pending is None


@pytest.mark.parametrize(
    ("epoch", "expected", "remembered"),
    [(32_766, None, -1), (32_766, (PID, 32_766), 32_766), (32_767, None, -1)],
)
def test_a_producer_whose_epochs_are_used_gets_another_id(
    epoch: int, expected: tuple[int, int] | None, remembered: int
) -> None:
    facts = init(in_state(C_ABORT, epoch=epoch), expected)
    assert isinstance(facts, TransactionFacts)
    assert (facts.producer_id, facts.producer_epoch) == (NEW_PID, 0)
    assert (facts.previous_producer_id, facts.last_producer_epoch) == (PID, remembered)


def test_a_retry_after_another_id_was_given_gets_it_again() -> None:
    transaction = in_state(EMPTY, epoch=0, last=32_766, previous=OLD_PID)
    facts = init(transaction, (OLD_PID, 32_766))
    assert isinstance(facts, TransactionFacts)
    assert (facts.producer_id, facts.producer_epoch, facts.last_producer_epoch) == (PID, 0, 32_766)


def test_a_retry_at_the_last_epoch_gets_the_same_answer() -> None:
    facts = init(in_state(EMPTY, epoch=32_766, last=32_765), (PID, 32_765))
    assert isinstance(facts, TransactionFacts)
    assert (facts.producer_id, facts.producer_epoch) == (PID, 32_766)


@pytest.mark.parametrize("expected", [(OLD_PID, 5), (PID, 4), (PID, 6), (99, 32_766)])
def test_a_producer_that_was_replaced_is_fenced(expected: tuple[int, int]) -> None:
    assert init(in_state(EMPTY, previous=OLD_PID), expected) is E.PRODUCER_FENCED


@pytest.mark.parametrize("status", [P_COMMIT, P_ABORT])
def test_a_new_producer_waits_for_the_markers(status: TransactionStatus) -> None:
    assert init(in_state(status)) is E.CONCURRENT_TRANSACTIONS


def test_one_step_at_a_time() -> None:
    transaction = in_state(EMPTY)
    assert isinstance(init(transaction), TransactionFacts)
    assert init(transaction) is E.CONCURRENT_TRANSACTIONS
    assert add(transaction) is E.CONCURRENT_TRANSACTIONS
    assert add(transaction, producer_id=99) is E.CONCURRENT_TRANSACTIONS
    assert end(transaction, is_commit=True, version=0) is E.CONCURRENT_TRANSACTIONS
    assert end(transaction, 4, is_commit=True, version=2) is E.CONCURRENT_TRANSACTIONS
    transaction.give_up()
    assert isinstance(init(transaction), TransactionFacts)


@pytest.mark.parametrize(
    ("server_version", "epoch", "written", "last", "next_id"),
    [
        (0, 5, 6, -1, NO_PRODUCER_ID),
        (1, 32_766, 32_767, -1, NO_PRODUCER_ID),
        (1, 32_767, 32_767, -1, NO_PRODUCER_ID),
        (2, 5, 6, 5, NO_PRODUCER_ID),
        (2, 32_766, 32_767, 32_766, NEW_PID),
        (2, 32_767, 32_767, 32_767, NEW_PID),
    ],
)
def test_a_new_producer_fences_and_aborts_what_the_old_one_has_open(
    server_version: int, epoch: int, written: int, last: int, next_id: ProducerId
) -> None:
    facts = init(in_state(ONGOING, epoch=epoch), server_version=server_version)
    assert isinstance(facts, TransactionFacts)
    assert (facts.status, facts.producer_id, facts.producer_epoch) == (P_ABORT, PID, written)
    assert (facts.last_producer_epoch, facts.next_producer_id) == (last, next_id)
    assert (facts.partitions, facts.start_ms) == (frozenset((ORDERS,)), 40_000)


# ---- AddPartitionsToTxn


@pytest.mark.parametrize(
    ("status", "start_ms"),
    [(EMPTY, NOW_MS), (C_COMMIT, NOW_MS), (C_ABORT, NOW_MS), (ONGOING, 40_000)],
)
def test_partitions_are_added(status: TransactionStatus, start_ms: int) -> None:
    facts = add(in_state(status))
    assert isinstance(facts, TransactionFacts)
    assert (facts.status, facts.start_ms) == (ONGOING, start_ms)
    assert facts.partitions == {ORDERS, BILLS}


def test_partitions_that_are_there_cost_no_record() -> None:
    transaction = in_state(ONGOING)
    assert add(transaction, is_new=False) is None
    assert transaction.pending is None


@pytest.mark.parametrize(
    ("status", "producer_id", "epoch", "code"),
    [
        (None, PID, 5, E.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, 99, 5, E.INVALID_PRODUCER_ID_MAPPING),
        (ONGOING, PID, 4, E.PRODUCER_FENCED),
        (ONGOING, PID, 6, E.PRODUCER_FENCED),
        (P_COMMIT, PID, 5, E.CONCURRENT_TRANSACTIONS),
        (P_ABORT, PID, 5, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_an_add_is_refused(
    status: TransactionStatus | None, producer_id: int, epoch: int, code: ErrorCode
) -> None:
    transaction = None if status is None else in_state(status)
    assert add(transaction, epoch, producer_id=producer_id) is code
    with pytest.raises(RefusedError) as refused:
        verified(transaction, NamedProducer(ProducerId(producer_id), epoch), [ORDERS])
    assert refused.value.code is code


@pytest.mark.parametrize("status", [EMPTY, ONGOING, C_COMMIT, C_ABORT])
def test_a_verification_tells_of_each_partition_and_changes_nothing(
    status: TransactionStatus,
) -> None:
    transaction = in_state(status)
    found = verified(transaction, NamedProducer(PID, 5), [ORDERS, BILLS])
    in_it = E.NONE if status is ONGOING else E.TRANSACTION_ABORTABLE
    assert found == {ORDERS: in_it, BILLS: E.TRANSACTION_ABORTABLE}
    assert transaction.pending is None


# ---- EndTxn

DONE = None
TV1 = {
    EMPTY: (E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
    ONGOING: (P_ABORT, P_COMMIT),
    P_COMMIT: (E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    P_ABORT: (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
    C_COMMIT: (E.INVALID_TXN_STATE, DONE),
    C_ABORT: (DONE, E.INVALID_TXN_STATE),
}
TV2 = {
    # status: abort retried, abort, commit retried, commit
    ONGOING: (E.PRODUCER_FENCED, P_ABORT, E.PRODUCER_FENCED, P_COMMIT),
    EMPTY: (E.PRODUCER_FENCED, P_ABORT, E.PRODUCER_FENCED, E.INVALID_TXN_STATE),
    C_ABORT: (DONE, P_ABORT, E.PRODUCER_FENCED, E.INVALID_TXN_STATE),
    C_COMMIT: (E.INVALID_TXN_STATE, P_ABORT, DONE, E.INVALID_TXN_STATE),
    P_COMMIT: (
        E.INVALID_TXN_STATE,
        E.PRODUCER_FENCED,
        E.CONCURRENT_TRANSACTIONS,
        E.PRODUCER_FENCED,
    ),
    P_ABORT: (
        E.CONCURRENT_TRANSACTIONS,
        E.PRODUCER_FENCED,
        E.PRODUCER_FENCED,
        E.PRODUCER_FENCED,
    ),
}


@pytest.mark.parametrize("status", ALL)
@pytest.mark.parametrize("is_commit", [False, True])
def test_an_end_by_the_rules_of_version_1(status: TransactionStatus, is_commit: bool) -> None:
    due = TV1[status][is_commit]
    answer = end(in_state(status), is_commit=is_commit, version=0)
    if isinstance(due, TransactionStatus):
        assert isinstance(answer, TransactionFacts)
        assert answer.status is due
        assert (answer.producer_epoch, answer.next_producer_id) == (5, NO_PRODUCER_ID)
        assert (answer.partitions, answer.start_ms) == (frozenset((ORDERS,)), 40_000)
    else:
        assert answer is due


@pytest.mark.parametrize("status", ALL)
@pytest.mark.parametrize("is_commit", [False, True])
@pytest.mark.parametrize("is_retry", [False, True])
def test_an_end_by_the_rules_of_version_2(
    status: TransactionStatus, is_commit: bool, is_retry: bool
) -> None:
    due = TV2[status][2 * is_commit + (not is_retry)]
    state = in_state(status, client_version=2)
    answer = end(state, 4 if is_retry else 5, is_commit=is_commit, version=2)
    if isinstance(due, TransactionStatus):
        assert isinstance(answer, TransactionFacts)
        assert answer.status is due
        assert (answer.producer_epoch, answer.last_producer_epoch) == (6, 5)
        assert answer.start_ms == (40_000 if status is ONGOING else NOW_MS)
        assert answer.identity_after_end == (PID, 6)
    else:
        assert answer is due


@pytest.mark.parametrize("status", ALL)
@pytest.mark.parametrize("is_commit", [False, True])
def test_no_end_of_a_fenced_producer_is_a_retry_of_an_older_client_s(
    status: TransactionStatus, is_commit: bool
) -> None:
    """A client before transaction version 2 bumps no epoch: epoch 4 belongs to the fenced
    producer."""
    assert end(in_state(status), 4, is_commit=is_commit, version=2) is E.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 2])
def test_an_end_of_another_producer_is_refused(version: int) -> None:
    mapping = E.INVALID_PRODUCER_ID_MAPPING
    assert end(None, is_commit=True, version=version) is mapping
    other = end(in_state(ONGOING), is_commit=True, version=version, producer_id=99)
    assert other is mapping
    for epoch in (3, 6):
        fenced = end(in_state(ONGOING), epoch, is_commit=True, version=version)
        assert fenced is E.PRODUCER_FENCED


@pytest.mark.parametrize(("is_commit", "outcome"), [(True, C_COMMIT), (False, C_ABORT)])
def test_an_overflow_of_epochs_ends_with_another_producer_id(
    is_commit: bool, outcome: TransactionStatus
) -> None:
    transaction = in_state(ONGOING, epoch=32_766)
    prepared = end(transaction, 32_766, is_commit=is_commit, version=2)
    assert isinstance(prepared, TransactionFacts)
    # This is what the markers carry.
    assert (prepared.producer_id, prepared.producer_epoch) == (PID, 32_767)
    assert prepared.identity_after_end == (NEW_PID, 0)
    transaction.apply(prepared)
    transaction.begin_completion()
    done = transaction.completed_facts(NOW_MS + 1)
    assert (done.status, done.producer_id, done.producer_epoch) == (outcome, NEW_PID, 0)
    assert (done.previous_producer_id, done.last_producer_epoch) == (PID, 32_766)
    assert (done.next_producer_id, done.partitions) == (NO_PRODUCER_ID, frozenset())
    transaction.apply(done)
    # The client did not hear of it and asks again, as whom it was.
    assert end(transaction, 32_766, is_commit=is_commit, version=2) is None
    other = E.INVALID_TXN_STATE if is_commit else E.PRODUCER_FENCED
    assert end(transaction, 32_766, is_commit=not is_commit, version=2) is other


@pytest.mark.parametrize("epoch", [5, 32_766])
def test_a_commit_that_comes_after_the_coordinators_abort_is_fenced(epoch: int) -> None:
    transaction = in_state(ONGOING, epoch=epoch)
    transaction.apply(
        transaction.prepare_fence(
            server_version=2,
            next_producer_id=NEW_PID if epoch == 32_766 else NO_PRODUCER_ID,
            now_ms=NOW_MS,
        )
    )
    assert end(transaction, epoch, is_commit=True, version=2) is E.PRODUCER_FENCED
    transaction.begin_completion()
    assert end(transaction, epoch, is_commit=True, version=2) is E.CONCURRENT_TRANSACTIONS
    transaction.apply(transaction.completed_facts(NOW_MS + 1))
    assert end(transaction, epoch, is_commit=True, version=2) is E.PRODUCER_FENCED


def test_an_overflow_without_an_id_at_hand_is_retried_by_the_client() -> None:
    transaction = in_state(ONGOING, epoch=32_766)
    with pytest.raises(RefusedError) as refused:
        decide_end(
            transaction,
            NamedProducer(PID, 32_766),
            is_commit=True,
            client_version=2,
            take_id=refuse,
            now_ms=NOW_MS,
        )
    assert refused.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
    assert transaction.pending is None


def test_an_abort_at_the_highest_epoch_goes_on_with_another_id() -> None:
    prepared = end(in_state(ONGOING, epoch=32_767), 32_767, is_commit=False, version=2)
    assert isinstance(prepared, TransactionFacts)
    assert (prepared.producer_epoch, prepared.next_producer_id) == (32_767, NEW_PID)


def test_nothing_is_committed_at_the_highest_epoch() -> None:
    transaction = in_state(ONGOING, epoch=32_767)
    assert end(transaction, 32_767, is_commit=True, version=2) is E.PRODUCER_FENCED
    assert transaction.pending is None


# ---- time, markers, expiry


@pytest.mark.parametrize(
    ("status", "now_ms", "timeout_ms", "is_due"),
    [
        (ONGOING, 100_000, 60_000, False),
        (ONGOING, 100_001, 60_000, True),
        (ONGOING, 1 << 50, NO_TIMEOUT_MS, False),
        (P_COMMIT, 1 << 50, 60_000, False),
        (EMPTY, 1 << 50, 60_000, False),
    ],
)
def test_an_open_transaction_times_out(
    status: TransactionStatus, now_ms: int, timeout_ms: int, is_due: bool
) -> None:
    transaction = in_state(status)
    transaction.facts = replace(transaction.facts, timeout_ms=timeout_ms)
    assert is_timed_out(transaction, now_ms) is is_due


def test_nothing_times_out_while_a_step_is_pending() -> None:
    transaction = in_state(ONGOING)
    add(transaction)
    assert not is_timed_out(transaction, 1 << 50)


def test_a_fence_that_the_log_did_not_take_bumps_the_epoch_once() -> None:
    transaction = in_state(ONGOING)
    for _ in range(2):
        facts = decide_fence(transaction, server_version=1, take_id=take, now_ms=NOW_MS)
        assert facts.producer_epoch == 6
        transaction.give_up()


def test_partitions_with_a_marker_are_forgotten_while_others_wait() -> None:
    transaction = in_state(ONGOING)
    facts = add(transaction)
    assert isinstance(facts, TransactionFacts)
    transaction.apply(facts)
    prepared = end(transaction, is_commit=True, version=0)
    assert isinstance(prepared, TransactionFacts)
    transaction.apply(prepared)
    transaction.begin_completion()
    transaction.remove_marked([ORDERS])
    assert transaction.facts.partitions == {BILLS}
    assert add(transaction) is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("status", ALL)
def test_a_state_is_entered_from_where_kafka_allows_it(status: TransactionStatus) -> None:
    idle = {EMPTY, C_COMMIT, C_ABORT}
    allowed = {
        EMPTY: idle,
        ONGOING: idle | {ONGOING},
        P_COMMIT: {ONGOING},
        P_ABORT: idle | {ONGOING},
        C_COMMIT: {P_COMMIT},
        C_ABORT: {P_ABORT},
    }
    assert ALLOWED_FROM[status] == allowed[status]
    assert ALLOWED_FROM[S.DEAD] == idle


def test_states_have_kafkas_names() -> None:
    assert [status.title for status in S] == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
