"""Transfers add up, two threads share a transactional id, and one thread sees to the end."""

from random import Random

import pytest

from ottla.jepsen.checkers.transactions import amount_of
from ottla.jepsen.history import EventKind
from ottla.jepsen.workloads.load import CONFLUENT, OWN, Completion, LoadPlan, Op
from ottla.jepsen.workloads.transactions import END_TRIES, TransactionsLoad

OK = Completion(EventKind.OK)
FAIL = Completion(EventKind.FAIL)


@pytest.fixture
def load() -> TransactionsLoad:
    return TransactionsLoad(LoadPlan(prefix="t-", kinds=(OWN, OWN, CONFLUENT, CONFLUENT)))


def does(load: TransactionsLoad, thread: int, done: Completion = OK, *, seed: int = 1) -> Op:
    """Do a thread's next operation."""
    op = load.next_op(thread, 0, Random(seed))
    assert op is not None
    load.on_completion(thread, op, done)
    return op


def test_two_threads_share_a_transactional_id_and_a_mover_has_its_own(
    load: TransactionsLoad,
) -> None:
    ids = [does(load, thread).extra["transactional_id"] for thread in range(4)]
    assert ids == ["t-writer-0", "t-mover-1", "t-writer-0", "t-writer-1"]


def test_a_thread_has_a_producer_before_it_has_transactions(load: TransactionsLoad) -> None:
    assert does(load, 0, FAIL).f == "init"
    first = does(load, 0)
    second = does(load, 0)
    assert (first.f, second.f) == ("init", "assign")
    assert first.extra["producer"] == "0.2", "each attempt is another producer"


def test_the_amounts_of_a_transfer_add_up_to_nothing(load: TransactionsLoad) -> None:
    rng = Random(1)
    transfers: list[Op] = []
    while len(transfers) < 50:
        op = load.next_op(0, 0, rng)
        assert op is not None
        load.on_completion(0, op, OK)
        if op.f == "txn":
            transfers.append(op)
    values = [[value for _, _, value in op.value] for op in transfers]
    assert {sum(map(amount_of, each)) for each in values} == {0}
    assert len({value for each in values for value in each}) == sum(map(len, values))
    assert any(op.extra["abort"] for op in transfers)
    assert any("pause_s" in op.extra for op in transfers)


def test_a_producer_that_is_lost_is_replaced(load: TransactionsLoad) -> None:
    does(load, 1)
    assert does(load, 1, Completion(EventKind.INFO, extra={"lost": True})).extra["move"]
    assert does(load, 1).f == "init"


def ends(load: TransactionsLoad, thread: int, done: Completion = OK) -> str:
    op = load.final_op(thread, 0, Random(1))
    assert op is not None
    if op.f == "txn" and done is OK:
        done = Completion(EventKind.OK, [["send", key, [9, value]] for _, key, value in op.value])
    load.on_completion(thread, op, done)
    return op.f


def test_one_thread_settles_asks_and_marks_the_ends_before_all_read_them(
    load: TransactionsLoad,
) -> None:
    assert [ends(load, 0, FAIL), ends(load, 0), ends(load, 0)] == ["settle", "settle", "committed"]
    assert [ends(load, 2), ends(load, 2)] == ["settle", "settle"], "the others wait"
    assert [ends(load, 0), ends(load, 0)] == ["init", "txn"]
    assert [ends(load, thread) for thread in (0, 2)] == ["crash", "crash"]
    assert not load.is_caught_up


def test_an_end_that_does_not_settle_is_given_up(load: TransactionsLoad) -> None:
    assert [ends(load, 0, FAIL) for _ in range(END_TRIES)] == ["settle"] * END_TRIES
    assert load.final_op(0, 0, Random(1)) is None, "nothing is known to be there"
