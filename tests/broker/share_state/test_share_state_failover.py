"""No acknowledged write is lost by failovers that truncate the log, by repeated or late writes, or
by the deletion of redundant records."""

from typing import Any
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ottla.broker.coordinators.effects import Instant
from ottla.broker.coordinators.share_persister import SharePartitionKey, StateBatch
from ottla.broker.share_state.share_state_shard import ShareStateShard, ShareWrite
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset
from tests.search_length import length

KEYS = [SharePartitionKey("g", UUID(int=1), index) for index in range(2)]
LEADER_EPOCH, STATE_EPOCH = 5, 1

Sent = tuple[SharePartitionKey, int, tuple[StateBatch, ...]]

BATCHES = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 15),
    st.integers(0, 4),
    st.sampled_from((0, 2, 4)),
    st.integers(1, 3),
)


class FailoverMachine(RuleBasedStateMachine):
    """One log of share states, its coordinators, and a leader that repeats its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[ShareWrite] = []
        self.log_start = 0
        self.high_watermark = 0
        self.waiting: list[tuple[int, Sent]] = []
        """Writes without an answer, with the end offset that acknowledges each."""
        self.unanswered: list[Sent] = []
        """Writes whose answer was lost, which may be repeated."""
        self.acknowledged: dict[tuple[SharePartitionKey, int], tuple[int, int]] = {}
        self.starts = dict.fromkeys(KEYS, 0)
        self.shard = self.loaded()
        for key in KEYS:
            self.shard.initialize(
                key, print, Instant(0, 0), state_epoch=STATE_EPOCH, start_offset=0
            )
            self.append()
            self.shard.read(key, print, Instant(0, 0), leader_epoch=LEADER_EPOCH)
            self.append()
        self.high_watermark = len(self.log)

    def loaded(self) -> ShareStateShard:
        """Return the shard of a new coordinator, which has replayed the log."""
        shard = ShareStateShard(
            updates_per_snapshot=2,
            idle_snapshot_ms=0,
            has_partition=lambda topic_id, partition: True,
            record_bytes_max=lambda: 100_000,
        )
        for offset in range(self.log_start, len(self.log)):
            shard.replay_at(Offset(offset), *self.log[offset].record)
        return shard

    def append(self) -> Any:
        effects = self.shard.take_effects()
        for write in effects.writes:
            self.shard.on_written(write, Offset(len(self.log)))
            self.log.append(write)
        ((_, answer),) = effects.committed_answers
        return answer

    def send(self, sent: Sent) -> None:
        key, start_offset, batches = sent
        self.shard.write(
            key,
            print,
            Instant(0, 0),
            state_epoch=STATE_EPOCH,
            leader_epoch=LEADER_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=0,
            batches=batches,
        )
        assert self.append() is ErrorCode.NONE
        self.waiting.append((len(self.log), sent))

    @rule(
        key=st.sampled_from(KEYS),
        start_offset=st.integers(0, 12),
        batches=st.lists(BATCHES, max_size=3),
    )
    def write(self, key: SharePartitionKey, start_offset: int, batches: list[StateBatch]) -> None:
        self.send((key, start_offset, tuple(batches)))

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        if self.unanswered:
            at = data.draw(st.integers(0, len(self.unanswered) - 1))
            self.send(self.unanswered[at])

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        self.high_watermark = data.draw(st.integers(self.high_watermark, len(self.log)))
        for end_offset, (key, start_offset, batches) in self.waiting:
            if end_offset <= self.high_watermark:
                self.starts[key] = max(self.starts[key], start_offset)
                for batch in batches:
                    rank = (batch.delivery_count, batch.delivery_state)
                    for offset in range(batch.first_offset, batch.last_offset + 1):
                        before = self.acknowledged.get((key, offset), rank)
                        self.acknowledged[key, offset] = max(before, rank)
        self.waiting = [one for one in self.waiting if one[0] > self.high_watermark]

    @rule(data=st.data())
    def fail_over(self, data: st.DataObject) -> None:
        """Another broker coordinates, whose log may lack uncommitted records."""
        end_offset = data.draw(st.integers(self.high_watermark, len(self.log)))
        del self.log[end_offset:]
        self.unanswered += [sent for _, sent in self.waiting]
        self.waiting.clear()
        self.shard = self.loaded()

    @rule()
    def delete_redundant_records(self) -> None:
        end_offset = self.shard.redundant.end_offset(Offset(self.high_watermark))
        assert end_offset <= self.high_watermark
        self.log_start = max(self.log_start, end_offset)

    @rule()
    def snapshot_idle_states(self) -> None:
        for _ in self.shard.snapshot_idle(Instant(0, 1)):
            pass
        for write in self.shard.take_effects().writes:
            self.shard.on_written(write, Offset(len(self.log)))
            self.log.append(write)

    @invariant()
    def acknowledged_writes_are_there(self) -> None:
        for shard in (self.shard, self.loaded()):
            held = {
                (key, offset): (batch.delivery_count, batch.delivery_state)
                for key, state in shard.states.items()
                for batch in state.batches
                for offset in range(batch.first_offset, batch.last_offset + 1)
            }
            for key in KEYS:
                state = shard.states[key]
                assert state.start_offset >= self.starts[key]
                assert (state.state_epoch, state.leader_epoch) == (STATE_EPOCH, LEADER_EPOCH)
            for (key, offset), rank in self.acknowledged.items():
                if offset >= shard.states[key].start_offset:
                    assert held[key, offset] >= rank


TestFailoverMachine = FailoverMachine.TestCase
TestFailoverMachine.settings = settings(
    max_examples=length(30, 80), stateful_step_count=30, deadline=None
)
