"""Every final reader reaches the end of every key, or its time-out."""

from ottla.jepsen.workloads.final_reads import TIME_NS, TURN_NS, FinalReads
from ottla.jepsen.workloads.load import CONFLUENT, OWN, Op

KINDS = (OWN, OWN, CONFLUENT, OWN, CONFLUENT, CONFLUENT)


class FinalOffsets:
    def __init__(self, highest: dict[str, int]) -> None:
        self._highest = highest

    def highest(self) -> dict[str, int]:
        return self._highest


def names(reads: FinalReads, thread: int, now_ns: int) -> str | None:
    op: Op | None = reads.next_op(thread, now_ns)
    return None if op is None else op.f


def test_two_threads_of_each_client_read_everything() -> None:
    assert FinalReads(KINDS, FinalOffsets({"q0-0": 3})).readers == {0, 1, 2, 4}


def test_a_reader_begins_with_a_fresh_client_and_ends_with_the_last_record() -> None:
    reads = FinalReads((OWN,), FinalOffsets({"q0-0": 3, "q0-1": 0}))
    assert names(reads, 0, 0) == "crash"
    assign = reads.next_op(0, 1)
    assert assign is not None
    assert (assign.f, assign.value, dict(assign.extra)) == (
        "assign",
        ["q0-0", "q0-1"],
        {"final": True},
    )
    reads.on_assigned(0)
    reads.on_read(0, "q0-0", 3)
    assert names(reads, 0, 2) == "poll"
    assert not reads.is_caught_up
    reads.on_read(0, "q0-1", 0)
    assert names(reads, 0, 3) is None
    assert reads.is_caught_up


def test_who_gets_nothing_new_for_a_turn_takes_a_fresh_client() -> None:
    reads = FinalReads((OWN,), FinalOffsets({"q0-0": 3}))
    assert names(reads, 0, 0) == "crash"
    reads.on_assigned(0)
    reads.on_read(0, "q0-0", 1)
    assert names(reads, 0, TURN_NS - 1) == "poll"
    # It came further in the first turn, so a second one begins there.
    assert names(reads, 0, 2 * TURN_NS - 2) == "poll"
    assert names(reads, 0, 2 * TURN_NS - 1) == "crash"
    assert names(reads, 0, 2 * TURN_NS) == "assign"


def test_readers_give_up_when_the_time_is_over() -> None:
    reads = FinalReads((OWN,), FinalOffsets({"q0-0": 3}))
    now_ns = 0
    crashes = 0
    while (name := names(reads, 0, now_ns)) is not None:
        crashes += name == "crash"
        now_ns += TURN_NS
    assert now_ns >= TIME_NS
    assert crashes == TIME_NS // TURN_NS
    assert not reads.is_caught_up


def test_where_nothing_was_sent_nothing_is_read() -> None:
    reads = FinalReads((OWN,), FinalOffsets({}))
    assert names(reads, 0, 0) is None
    assert reads.is_caught_up
