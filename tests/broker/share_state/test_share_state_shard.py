"""Rules of one shard: fencing, progress, snapshots, and the replay of its records."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.share_persister import SharePartitionKey, ShareState, StateBatch
from ottla.broker.share_state.share_partition_state import SharePartitionState
from ottla.broker.share_state.share_state_shard import ShareStateShard, ShareWrite
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from tests.search_length import length

TOPIC, GONE = UUID(int=1), UUID(int=2)
KEY = SharePartitionKey("g", TOPIC, 0)
E = ErrorCode


class Bench:
    """One shard, its log, and the committed answers."""

    def __init__(self, updates_per_snapshot: int = 3) -> None:
        self.topics = {TOPIC}
        self.updates_per_snapshot = updates_per_snapshot
        self.record_bytes_max = 100_000
        self.now_ms = 1_000
        self.log: list[ShareWrite] = []
        self.shard = self.new_shard()

    def new_shard(self) -> ShareStateShard:
        return ShareStateShard(
            updates_per_snapshot=self.updates_per_snapshot,
            idle_snapshot_ms=300_000,
            has_partition=lambda topic_id, partition: topic_id in self.topics and partition < 4,
            record_bytes_max=lambda: self.record_bytes_max,
        )

    def replayed(self) -> ShareStateShard:
        """Return another shard, into which the log is replayed."""
        shard = self.new_shard()
        for offset, write in enumerate(self.log):
            shard.replay_at(Offset(offset), *write.record)
        return shard

    def now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def take(self) -> list[Any]:
        """Append what was decided, and return the answers."""
        effects = self.shard.take_effects()
        for write in effects.writes:
            self.shard.on_written(write, Offset(len(self.log)))
            self.log.append(write)
        found = []
        for _, answer in (*effects.answers, *effects.committed_answers):
            found.append(answer.code if isinstance(answer, RefusedError) else answer)
        return found

    def ask(self, name: str, key: SharePartitionKey = KEY, **fields: Any) -> Any:
        arguments = () if name in ("delete", "read_summary") else (self.now(),)
        getattr(self.shard, name)(key, print, *arguments, **fields)
        (answer,) = self.take()
        return answer

    def initialize(self, state_epoch: int = 1, start_offset: int = 0, **fields: Any) -> Any:
        return self.ask("initialize", state_epoch=state_epoch, start_offset=start_offset, **fields)

    def write(self, *batches: tuple[int, int, int, int], **changes: Any) -> Any:
        fields: dict[str, Any] = {
            "state_epoch": 1,
            "leader_epoch": 0,
            "start_offset": 0,
            "delivery_complete_count": 0,
            "batches": [StateBatch(*batch) for batch in batches],
        }
        return self.ask("write", **(fields | changes))

    def read(self, leader_epoch: int = 0) -> Any:
        return self.ask("read", leader_epoch=leader_epoch)

    @property
    def kinds(self) -> str:
        """S for each snapshot in the log, U for each update, T for each tombstone."""
        return "".join(
            "U" if not one.is_snapshot else "T" if one.record.value is None else "S"
            for one in self.log
        )


def content_of(shard: ShareStateShard) -> dict[SharePartitionKey, tuple[Any, ...]]:
    """Return all fields of each state."""
    return {
        key: tuple(
            tuple(value) if isinstance(value := getattr(state, name), list) else value
            for name in SharePartitionState.__slots__
        )
        for key, state in shard.states.items()
    }


def test_a_state_is_initialised_written_and_read() -> None:
    bench = Bench()
    assert bench.initialize(start_offset=-1) is E.NONE
    assert bench.read() == ShareState(E.NONE, 1, -1, 0, ())
    assert bench.write((5, 9, 2, 1), (12, 12, 0, 1), start_offset=5) is E.NONE
    assert bench.read() == ShareState(
        E.NONE, 1, 5, 5, (StateBatch(5, 9, 2, 1), StateBatch(12, 12, 0, 1))
    )
    summary = bench.ask("read_summary")
    assert (summary.start_offset, summary.state_epoch, summary.leader_epoch) == (5, 1, 0)


def test_a_state_that_is_missing_is_refused_or_empty() -> None:
    bench = Bench()
    assert bench.read().name == "INVALID_REQUEST"
    assert bench.write() is E.INVALID_REQUEST
    assert bench.ask("delete") is E.NONE
    summary = bench.ask("read_summary")
    assert (summary.code, summary.start_offset, summary.delivery_complete_count) == (0, -1, -1)
    assert not bench.log


CHECKS: list[tuple[str, dict[str, Any], E]] = [
    ("write", {"key": KEY._replace(partition=-1), "leader_epoch": 0}, E.INVALID_REQUEST),
    ("write", {"leader_epoch": -1}, E.INVALID_REQUEST),
    ("write", {"state_epoch": -1}, E.INVALID_REQUEST),
    ("write", {"key": KEY._replace(partition=1), "leader_epoch": 0}, E.INVALID_REQUEST),
    ("write", {"leader_epoch": 4, "state_epoch": 0}, E.FENCED_LEADER_EPOCH),
    ("write", {"leader_epoch": 5, "state_epoch": 0}, E.FENCED_STATE_EPOCH),
    ("write", {"leader_epoch": 9, "state_epoch": 9}, E.NONE),
    ("write", {"leader_epoch": 5, "batches": [StateBatch(2, 1, 0, 1)]}, E.INVALID_REQUEST),
    ("write", {"leader_epoch": 5, "batches": [StateBatch(1, 2, 1, 1)]}, E.INVALID_REQUEST),
    ("write", {"leader_epoch": 5, "batches": [StateBatch(-1, 2, 0, 1)]}, E.INVALID_REQUEST),
    ("write", {"leader_epoch": 5, "batches": [StateBatch(1, 1, 2, 1)] * 10_001}, E.INVALID_REQUEST),
    ("read", {"leader_epoch": -1}, E.INVALID_REQUEST),
    ("read", {"leader_epoch": 4}, E.FENCED_LEADER_EPOCH),
    ("initialize", {"state_epoch": -1, "start_offset": 0}, E.INVALID_REQUEST),
    ("initialize", {"state_epoch": 0, "start_offset": 0}, E.FENCED_STATE_EPOCH),
    ("delete", {"key": KEY._replace(partition=-1)}, E.INVALID_REQUEST),
    ("delete", {"key": KEY._replace(topic_id=GONE)}, E.UNKNOWN_TOPIC_OR_PARTITION),
    ("read_summary", {"key": KEY._replace(partition=9)}, E.UNKNOWN_TOPIC_OR_PARTITION),
    (
        "initialize",
        {"key": KEY._replace(topic_id=GONE), "state_epoch": 0, "start_offset": 0},
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ),
]


@pytest.mark.parametrize(("name", "fields", "code"), CHECKS)
def test_a_request_is_checked_in_kafkas_order(name: str, fields: dict[str, Any], code: E) -> None:
    bench = Bench()
    bench.initialize()
    bench.read(leader_epoch=5)
    before = bench.kinds
    call: Callable[..., Any] = bench.write if name == "write" else lambda **f: bench.ask(name, **f)
    answer = call(**fields)
    assert (answer if isinstance(answer, E) else answer.code) is code
    assert (bench.kinds == before) == (code is not E.NONE)


def test_the_topic_of_a_state_is_checked_last() -> None:
    bench = Bench()
    bench.initialize()
    bench.topics.clear()
    assert bench.write(leader_epoch=-1) is E.INVALID_REQUEST
    assert bench.write() is E.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.read() is E.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_that_reads_fences_older_ones_and_a_write_does_not() -> None:
    bench = Bench()
    bench.initialize()
    assert bench.write(leader_epoch=7) is E.NONE
    assert bench.write(leader_epoch=3) is E.NONE
    bench.read(leader_epoch=7)
    assert bench.write(leader_epoch=3) is E.FENCED_LEADER_EPOCH
    assert bench.kinds == "SUUU"
    bench.read(leader_epoch=7)
    assert bench.kinds == "SUUU", "an epoch that is known already is not written"


def test_a_repeated_initialize_keeps_progress_and_a_reset_keeps_the_fence() -> None:
    bench = Bench()
    bench.initialize(start_offset=3)
    bench.read(leader_epoch=2)
    bench.write((4, 4, 2, 1), start_offset=3, leader_epoch=2)
    before = content_of(bench.shard)
    assert bench.initialize(start_offset=3) is E.NONE
    assert bench.initialize(start_offset=0) is E.NONE
    assert content_of(bench.shard) == before
    assert bench.initialize(state_epoch=2, start_offset=0) is E.NONE
    assert bench.read(leader_epoch=2) == ShareState(E.NONE, 2, 0, 0, ())
    assert bench.write(leader_epoch=2) is E.FENCED_STATE_EPOCH
    assert bench.read(leader_epoch=1) is E.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("start_offset", "count", "kept"),
    [(10, 1, (10, 7)), (10, 8, (10, 8)), (9, 50, (10, 7)), (11, 2, (11, 2)), (-1, 3, (10, 7))],
)
def test_a_write_that_was_overtaken_moves_neither_start_nor_count_back(
    start_offset: int, count: int, kept: tuple[int, int]
) -> None:
    bench = Bench(updates_per_snapshot=500)
    bench.initialize(start_offset=0)
    bench.write(start_offset=10, delivery_complete_count=7)
    bench.write(start_offset=start_offset, delivery_complete_count=count)
    summary = bench.ask("read_summary")
    assert (summary.start_offset, summary.delivery_complete_count) == kept


@pytest.mark.parametrize(("updates", "kinds"), [(0, "SSSSSSSS"), (3, "SUUUSUUU")])
def test_a_snapshot_follows_a_number_of_updates(updates: int, kinds: str) -> None:
    bench = Bench(updates_per_snapshot=updates)
    bench.initialize()
    for offset in range(7):
        bench.write((2 * offset, 2 * offset, 2, 1))
    assert bench.kinds == kinds
    assert len(bench.read().batches) == 7
    assert bench.shard.states[KEY].snapshot_epoch == kinds.count("S") - 1


def test_a_write_whose_state_fits_into_no_record_is_refused() -> None:
    bench = Bench(updates_per_snapshot=500)
    bench.record_bytes_max = 1_000
    bench.initialize()
    codes = [bench.write((2 * offset, 2 * offset, 2, 1)) for offset in range(60)]
    first_refused = codes.index(E.UNKNOWN_SERVER_ERROR)
    assert set(codes[first_refused:]) == {E.UNKNOWN_SERVER_ERROR}
    assert bench.write(start_offset=1_000) is E.NONE or first_refused < 60
    for _ in bench.shard.snapshot_idle(Instant(0, bench.now_ms + 300_000)):
        pass
    bench.take()
    record = bench.log[-1].record
    assert bench.log[-1].is_snapshot
    assert len(record.key) + len(record.value or b"") <= 1_000


def test_idle_states_are_snapshotted_until_all_are_idle() -> None:
    bench = Bench()
    other = KEY._replace(partition=1)
    bench.initialize()
    bench.initialize(key=other)

    def pass_time() -> None:
        bench.now_ms += 300_000
        for _ in bench.shard.snapshot_idle(bench.now()):
            pass
        bench.take()

    pass_time()
    assert bench.kinds == "SSSS"
    pass_time()
    assert bench.kinds == "SSSS", "no record would become redundant"
    for _ in range(4):
        bench.write((1, 1, 2, 1))
    pass_time()
    assert bench.kinds == "SSSSUUUSSS", "one state was not idle, so that both are repeated"
    assert content_of(bench.replayed()) == content_of(bench.shard)


def test_states_of_deleted_topics_are_deleted() -> None:
    bench = Bench()
    bench.topics.add(GONE)
    bench.initialize()
    bench.initialize(key=KEY._replace(topic_id=GONE))
    for _ in bench.shard.delete_states_of({GONE}):
        pass
    bench.take()
    assert bench.kinds == "SST"
    bench.topics.clear()
    for _ in bench.shard.delete_states_without_topic():
        pass
    bench.take()
    assert bench.kinds == "SSTT"
    assert not bench.shard.states
    assert not bench.replayed().states


def test_only_records_before_committed_snapshots_are_redundant() -> None:
    bench = Bench(updates_per_snapshot=1)
    redundant = bench.shard.redundant
    assert redundant.end_offset(Offset(0)) == 0
    bench.initialize()  # offset 0
    bench.write()  # 1, an update
    bench.write()  # 2, a snapshot
    assert redundant.end_offset(Offset(2)) == 0, "the snapshot at 2 may still be truncated"
    assert redundant.end_offset(Offset(3)) == 2
    bench.initialize(key=KEY._replace(partition=1))  # 3
    bench.ask("delete")  # 4
    assert redundant.end_offset(Offset(4)) == 2
    assert redundant.end_offset(Offset(5)) == 3
    bench.ask("delete", key=KEY._replace(partition=1))  # 5
    assert redundant.end_offset(Offset(6)) == 6, "nothing is left"
    assert bench.replayed().redundant.end_offset(Offset(6)) == 6


BATCHES = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 20),
    st.integers(0, 6),
    st.sampled_from((0, 2, 3, 4)),
    st.integers(0, 2),
)


class ShardMachine(RuleBasedStateMachine):
    """Random requests, beside a dictionary of offsets; the log is replayed after each."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(updates_per_snapshot=2)
        self.ranks: dict[int, tuple[int, int]] | None = None
        self.start_offset = -1
        self.epochs = (-1, 0)

    @rule(state_epoch=st.integers(0, 3), start_offset=st.integers(-1, 10))
    def initialize(self, state_epoch: int, start_offset: int) -> None:
        answer = self.bench.initialize(state_epoch=state_epoch, start_offset=start_offset)
        assert (answer is E.NONE) == (state_epoch >= self.epochs[0])
        if state_epoch > self.epochs[0]:
            self.epochs = (state_epoch, self.epochs[1])
            self.ranks, self.start_offset = {}, start_offset

    @rule(leader_epoch=st.integers(0, 3))
    def read(self, leader_epoch: int) -> None:
        answer = self.bench.read(leader_epoch=leader_epoch)
        if isinstance(answer, ShareState):
            self.epochs = (self.epochs[0], max(self.epochs[1], leader_epoch))
        else:
            assert self.ranks is None or leader_epoch < self.epochs[1]

    @rule(
        state_epoch=st.integers(0, 3),
        leader_epoch=st.integers(0, 3),
        start_offset=st.integers(-1, 25),
        batches=st.lists(BATCHES, max_size=4),
    )
    def write(
        self, state_epoch: int, leader_epoch: int, start_offset: int, batches: list[StateBatch]
    ) -> None:
        answer = self.bench.write(
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            batches=batches,
        )
        if answer is not E.NONE:
            assert self.ranks is None or (
                state_epoch < self.epochs[0] or leader_epoch < self.epochs[1]
            )
            return
        assert self.ranks is not None
        self.start_offset = max(self.start_offset, start_offset)
        for batch in batches:
            rank = (batch.delivery_count, batch.delivery_state)
            for offset in range(batch.first_offset, batch.last_offset + 1):
                self.ranks[offset] = max(rank, self.ranks.get(offset, rank))

    @rule()
    def delete(self) -> None:
        assert self.bench.ask("delete") is E.NONE
        self.ranks, self.start_offset, self.epochs = None, -1, (-1, 0)

    @invariant()
    def the_state_is_that_of_the_model_and_of_a_replay(self) -> None:
        shard = self.bench.shard
        assert content_of(self.bench.replayed()) == content_of(shard)
        state = shard.states.get(KEY)
        assert (state is None) == (self.ranks is None)
        if state is None or self.ranks is None:
            return
        assert state.start_offset == self.start_offset
        assert (state.state_epoch, state.leader_epoch) == self.epochs
        held = {
            offset: (batch.delivery_count, batch.delivery_state)
            for batch in state.batches
            for offset in range(batch.first_offset, batch.last_offset + 1)
        }
        expected = {at: rank for at, rank in self.ranks.items() if at >= self.start_offset}
        assert held == expected

    @invariant()
    def records_that_are_not_redundant_restore_everything(self) -> None:
        end_offset = self.bench.shard.redundant.end_offset(Offset(len(self.bench.log)))
        shard = self.bench.new_shard()
        for offset, write in enumerate(self.bench.log):
            if offset >= end_offset:
                shard.replay_at(Offset(offset), *write.record)
        kept, now = content_of(shard), content_of(self.bench.shard)
        assert kept == now


TestShardMachine = ShardMachine.TestCase
TestShardMachine.settings = settings(
    max_examples=length(25, 60), stateful_step_count=25, deadline=None
)
