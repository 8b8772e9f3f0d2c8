"""Share coordinator for random walks: the shipped coordinator shard, over a log whose uncommitted
end may be lost.

A call to the coordinator arrives at any time, even after its caller has given up waiting. The
response is sent once everything written before it is committed.
"""

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

from ottla.broker.coordinators.effects import Instant, Responder
from ottla.broker.coordinators.share_persister import SharePartitionKey, StateBatch
from ottla.broker.share_state.share_partition_state import SharePartitionState
from ottla.broker.share_state.share_state_shard import ShareStateShard, ShareWrite
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset

KEY = SharePartitionKey("workers", UUID(int=7, version=4), 0)
UPDATES_PER_SNAPSHOT = 4
"""Number of share state updates after which the share coordinator writes a snapshot. It is small,
so that a short run replays snapshots and updates."""
RECORD_BYTES_MAX = 1 << 20


class ShareCall:
    """A share partition leader's call to the share coordinator, in flight or already delivered."""

    def __init__(
        self,
        run: Callable[[ShareStateShard, Responder], None],
        on_done: Callable[[Any], None],
        batches: tuple[StateBatch, ...] = (),
    ) -> None:
        self.run = run
        self.batches = batches
        """Share state batches that the call writes to the coordinator."""
        self._on_done = on_done
        self.is_answered = False
        self.state_epoch = -1
        """State epoch of the share partition that the call writes, or -1 if the call writes
        nothing."""

    def answer(self, answer: Any) -> None:
        """Pass the coordinator's first response to the caller. Later responses are ignored."""
        if not self.is_answered:
            self.is_answered = True
            self._on_done(answer)


class WaitingAnswer(NamedTuple):
    """Response to a call that waits until the share coordinator's log is committed up to an
    offset."""

    end_offset: int
    responder: Responder
    answer: Any


class WalkedCoordinator:
    """Share coordinator with its log, and the leaders' calls in flight to it."""

    def __init__(self, chance: Chance, rare: RareStates, now: Callable[[], Instant]) -> None:
        self._chance = chance
        self._rare = rare
        self.now = now
        self._log: list[ShareWrite] = []
        self._committed_offset = 0
        self._waiting: list[WaitingAnswer] = []
        self.calls: list[ShareCall] = []
        self.shard = self._new_shard()
        self.commit_count = 0

    @property
    def state(self) -> SharePartitionState | None:
        """State of the share partition at the share coordinator, including uncommitted writes, or
        None if the coordinator has none."""
        return self.shard.states.get(KEY)

    def _new_shard(self) -> ShareStateShard:
        shard = ShareStateShard(
            updates_per_snapshot=UPDATES_PER_SNAPSHOT,
            idle_snapshot_ms=1_000,
            has_partition=lambda topic_id, index: True,
            record_bytes_max=lambda: RECORD_BYTES_MAX,
        )
        for offset, write in enumerate(self._log):
            shard.replay_at(Offset(offset), write.record.key, write.record.value)
        return shard

    def deliver(self) -> ShareCall | None:
        """Deliver a leader's pending call to the share coordinator, most often the oldest call
        whose caller still waits. Returns the call, or None if the coordinator refused it."""
        if not self.calls:
            return None
        call = self.calls[0]
        if self._chance.below(4):
            call = next((each for each in self.calls if not each.is_answered), call)
        else:
            call = self._chance.pick(self.calls)
        self.calls.remove(call)
        if call.is_answered:
            self._rare.sometimes("a call arrives after its caller gave up")
        refused: list[Any] = []
        call.run(self.shard, self._responder(call, refused))
        self._take_effects()
        return None if refused else call

    def _responder(self, call: ShareCall, refused: list[Any]) -> Responder:
        def respond(answer: Any) -> None:
            if isinstance(answer, RefusedError):
                refused.append(answer)
                answer = answer.code
            call.answer(answer)

        return respond

    def _take_effects(self) -> None:
        effects = self.shard.take_effects()
        for write in effects.writes:
            self.shard.on_written(write, Offset(len(self._log)))
            self._log.append(write)
        for responder, answer in effects.answers:
            responder(answer)
        end = len(self._log)
        self._waiting += [WaitingAnswer(end, *each) for each in effects.committed_answers]
        self._answer_committed()

    def lose(self) -> bool:
        """End the wait of the leader that made a pending call. Returns False if no call is
        pending."""
        pending = [call for call in self.calls if not call.is_answered]
        if not pending:
            return False
        self._chance.pick(pending).answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return True

    def commit(self, offset: int | None = None) -> None:
        """Commit the share coordinator's log up to an offset. None commits all of it."""
        end = len(self._log) if offset is None else offset
        self.commit_count += end - self._committed_offset
        self._committed_offset = end
        self._answer_committed()

    def commit_some(self) -> None:
        """Commit a random part of the uncommitted records in the share coordinator's log."""
        pending = len(self._log) - self._committed_offset
        self.commit(self._committed_offset + self._chance.below(pending + 1))

    def _answer_committed(self) -> None:
        due = [each for each in self._waiting if each.end_offset <= self._committed_offset]
        self._waiting = [each for each in self._waiting if each.end_offset > self._committed_offset]
        for each in due:
            each.responder(each.answer)

    def fail_over(self) -> None:
        """Replace the share coordinator by another one, which replays the log. A part of the log's
        uncommitted end is lost."""
        pending = len(self._log) - self._committed_offset
        kept = self._chance.below(pending + 1)
        if kept < pending:
            self._rare.sometimes("a coordinator loses an uncommitted write")
        waiting, self._waiting = self._waiting, []
        del self._log[self._committed_offset + kept :]
        self.shard = self._new_shard()
        for each in waiting:
            each.responder(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.commit()

    def snapshot_idle(self) -> None:
        """Write the share coordinator's snapshots of share states that have not changed for a
        while."""
        for _ in self.shard.snapshot_idle(self.now()):
            pass
        self._take_effects()
