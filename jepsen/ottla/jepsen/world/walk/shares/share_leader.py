"""One leader of the share partition: its members, its deliveries, and its calls to the coordinator.

A replaced leader continues to act until it receives the metadata with its successor. Until then,
only the coordinator can refuse its calls.
"""

from ottla.broker.coordinators.share_persister import ShareState
from ottla.broker.shares.acquired_ranges import AcquiredRange, count_of
from ottla.broker.shares.dead_letters import DeadLetter
from ottla.broker.shares.share_partition import (
    AckBatch,
    AckType,
    LogBatch,
    SharePartition,
    ShareRules,
    Transition,
)
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.shares.share_deliveries import LeaderTable, ShareInvariants
from ottla.jepsen.world.walk.shares.share_letters import WalkedLetters
from ottla.jepsen.world.walk.shares.share_log import ShareLog
from ottla.jepsen.world.walk.shares.share_order import JITTER_SALT, WalkedOrder
from ottla.jepsen.world.walk.shares.share_states import KEY, ShareCall, WalkedCoordinator
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError

FENCED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
ENDS = (AckType.ACCEPT, AckType.REJECT)
BATCH_SIZE = 3


class WalkedLeader:
    """Leader of a share partition in one leader epoch, driven by a random walk."""

    def __init__(
        self,
        epoch: int,
        log: ShareLog,
        rules: ShareRules,
        *,
        order: WalkedOrder,
        coordinator: WalkedCoordinator,
        letters: WalkedLetters["WalkedLeader"],
        invariants: ShareInvariants,
        rare: RareStates,
    ) -> None:
        self.epoch = epoch
        self.share: SharePartition | None = None
        self.table = LeaderTable(epoch, -1)
        self._log = log
        self._rules = rules
        self._order = order
        self._coordinator = coordinator
        self._letters = letters
        self._invariants = invariants
        self._rare = rare
        self._is_loading = False
        self._sent: dict[Transition, tuple[tuple[int, int], ...]] = {}
        """For each state change, the offset and type of each acknowledgement that caused it. The
        member still waits for the outcome of these acknowledgements."""

    @property
    def _now_ms(self) -> int:
        return self._coordinator.now().mono_ms

    @property
    def is_at_rest(self) -> bool:
        """True if all share state changes are written, and the log has no records left that this
        leader can deliver."""
        share = self.share
        if share is None or not share.is_idle:
            return False
        if share.order is not None:
            return self._order.is_at_rest(share.order)
        offset = share.fetch_offset()
        return offset is not None and not self._log.read(offset)

    # ---- durable state

    def load(self) -> None:
        """Request the share state from the share coordinator, unless it is already loaded or
        requested."""
        if self.share is not None or self._is_loading:
            return
        self._is_loading = True
        call = ShareCall(
            lambda shard, responder: shard.read(
                KEY, responder, self._coordinator.now(), leader_epoch=self.epoch
            ),
            self._on_read,
        )
        self._coordinator.calls.append(call)

    def _on_read(self, answer: ShareState | ErrorCode) -> None:
        self._is_loading = False
        if isinstance(answer, ErrorCode) or answer.code is not ErrorCode.NONE:
            self._rare.sometimes("a load fails")
            return
        try:
            self.share = SharePartition.load(answer, self._rules)
        except CorruptDataError as damage:
            raise Violation("StatesCanBeLoaded", str(damage)) from damage
        self.share.set_order(self._order.rules, salt=JITTER_SALT)
        self.table = LeaderTable(self.epoch, answer.state_epoch)

    def write(self) -> None:
        """Send the leader's next share state write to the coordinator, if one is due and none is in
        flight."""
        share = self.share
        found = None if share is None else share.next_write()
        if share is None or found is None:
            return
        state_epoch = self.table.state_epoch

        def on_done(code: ErrorCode) -> None:
            if self.share is share:
                self._on_written(share, code)

        call = ShareCall(
            lambda shard, responder: shard.write(
                KEY,
                responder,
                self._coordinator.now(),
                state_epoch=state_epoch,
                leader_epoch=self.epoch,
                start_offset=found.start_offset,
                delivery_complete_count=found.delivery_complete_count,
                batches=found.batches,
            ),
            on_done,
            found.batches,
        )
        call.state_epoch = state_epoch
        self._coordinator.calls.append(call)

    def _on_written(self, share: SharePartition, code: ErrorCode) -> None:
        now_ms, holdings = self._now_ms, self.table.holdings
        for transition in share.on_written(code, now_ms):
            if transition.is_of_letters:
                continue
            for offset, kind in self._sent.pop(transition):
                holding = holdings.get(offset)
                if holding is None or not holding.is_pending:
                    continue
                holding.is_pending = False
                if code is ErrorCode.NONE or holding.until_ms <= now_ms:
                    del holdings[offset]
                    self._order.on_released(self.table, offset, now_ms)
                if code is ErrorCode.NONE and kind == AckType.RELEASE:
                    self._order.on_stored_release(self.table, offset, now_ms)
                if code is ErrorCode.NONE and kind in ENDS:
                    settled = self._invariants.facts[self.table.state_epoch].settled
                    settled[offset] = min(self.epoch, settled.get(offset, self.epoch))
        if code is not ErrorCode.NONE:
            self._rare.sometimes("an acknowledgement is taken back")
        if code in FENCED:
            self._rare.sometimes(f"a write is refused: {code.name}")
            self.forget()
            return
        self._invariants.check_leader(self.table, share)
        self.send_letters()

    def forget(self) -> None:
        """Delete the share state in the memory of this leader. The share coordinator still has the
        durable state."""
        self.share = None
        self._sent.clear()
        self.table = LeaderTable(self.epoch, -1)

    # ---- dead letters

    def send_letters(self) -> None:
        """Begin the due work on dead letters of this leader: sending them or recording their
        outcome."""
        share, table = self.share, self.table
        if share is None:
            return
        letters = share.begin_letter_steps(self._now_ms)
        self._invariants.on_letters_sent(table, letters)

        def on_done(done: list[DeadLetter], is_written: bool) -> None:
            if self.share is not share:
                self._rare.sometimes("letters: an outcome arrives at a leader without state")
                return
            for letter in done:
                share.on_letter(letter, is_written=is_written, now_ms=self._now_ms)
                if is_written:
                    table.acknowledged_letters.add(letter.offset)

        if letters:
            self._letters.send(self, table.state_epoch, letters, on_done, self._now_ms)

    # ---- members

    def fetch(self, member_id: str, records_max: int, is_strict: bool) -> int:
        """Deliver about `records_max` records to a share group member; with `is_strict`, never
        more. Returns the number of delivered records."""
        share = self.share
        if share is None:
            self.load()
            return 0
        if share.on_log_start(self._log.start_offset):
            self._rare.sometimes("the log start passes the window")
        if share.order is not None:
            return self._fetch_ordered(share, member_id, records_max)
        offset = share.fetch_offset()
        if offset is None:
            self._rare.sometimes("a window is full")
            return 0
        batches = self._log.read(offset)
        self._note_gap(offset, batches)
        acquired = share.acquire(
            member_id,
            batches,
            fetch_offset=offset,
            records_max=records_max,
            is_strict=is_strict,
            batch_size=BATCH_SIZE,
            now_ms=self._now_ms,
        )
        return self._note_delivered(share, member_id, acquired)

    def _fetch_ordered(self, share: SharePartition, member_id: str, records_max: int) -> int:
        """Deliver the records that are next in order by delay, back-off, key and priority to a
        member. Returns the number of delivered records."""
        acquired = self._order.fetch(share, member_id, records_max, self._coordinator.now())
        self._order.check_delivered(self.table, self._invariants, acquired, self._now_ms)
        return self._note_delivered(share, member_id, acquired)

    def _note_delivered(
        self, share: SharePartition, member_id: str, acquired: list[AcquiredRange]
    ) -> int:
        until_ms = self._now_ms + self._rules.lock_duration_ms
        self._invariants.on_delivered(self.table, member_id, acquired, until_ms)
        self._invariants.check_leader(self.table, share)
        if any(each.delivery_count >= self._rules.delivery_count_limit for each in acquired):
            self._rare.sometimes("a record is delivered for the last time")
        return count_of(acquired)

    def _note_gap(self, offset: int, batches: list[LogBatch]) -> None:
        if batches and batches[0].first_offset > offset:
            self._rare.sometimes("a gap of the log is passed")

    def acknowledge(self, member_id: str, offsets: tuple[int, ...], types: tuple[int, ...]) -> None:
        """Acknowledge records on behalf of a share group member, even if it has not acquired them.
        `types` are the acknowledgement types."""
        share, table = self.share, self.table
        if share is None:
            return
        facts = self._invariants.facts[table.state_epoch]
        held = set(table.held_by(member_id))
        below = share.window.start_offset
        is_owner = all(offset in held or offset < below for offset in offsets)
        acks = [AckBatch(at, at, (kind,)) for at, kind in zip(offsets, types, strict=True)]
        try:
            transition = share.acknowledge(member_id, acks, self._now_ms)
        except RefusedError as refusal:
            self._rare.sometimes("an acknowledgement of a stranger is refused")
            if is_owner:
                raise Violation("OwnersMayAcknowledge", f"{offsets}: {refusal}") from refusal
            return
        if not is_owner:
            raise Violation("OnlyOwnersAcknowledge", f"{member_id} acknowledged {offsets}")
        for offset, kind in zip(offsets, types, strict=True):
            holding = table.holdings.get(offset)
            if holding is None or offset < below:
                continue
            if kind == AckType.RENEW:
                holding.until_ms = self._now_ms + self._rules.lock_duration_ms
                continue
            holding.is_pending = True
            if kind in ENDS:
                facts.ended.add(offset)
            if kind == AckType.ACCEPT:
                facts.accepted.add(offset)
        if transition is not None:
            pairs = zip(offsets, types, strict=True)
            self._sent[transition] = tuple(pair for pair in pairs if pair[1] != AckType.RENEW)

    def end_locks(self) -> None:
        """Release the records whose acquisition lock has expired."""
        share = self.share
        if share is None:
            return
        if share.end_locks(self._now_ms):
            self._rare.sometimes("a lock ends")
        ended = [
            offset
            for offset, holding in self.table.holdings.items()
            if holding.until_ms <= self._now_ms and not holding.is_pending
        ]
        self._free(share, ended)

    def close_session(self, member_id: str) -> None:
        """Release the records that a member has acquired, as at the end of its share session."""
        share = self.share
        if share is None:
            return
        if share.release_member(member_id, self._now_ms):
            self._rare.sometimes("a session ends with records in hand")
        for holding in self.table.holdings.values():
            if holding.member_id == member_id and holding.is_pending:
                holding.until_ms = 0
        self._free(share, self.table.held_by(member_id))

    def _free(self, share: SharePartition, offsets: list[int]) -> None:
        self._invariants.check_released(self.table, share, offsets)
        for offset in offsets:
            del self.table.holdings[offset]
            self._order.on_released(self.table, offset, self._now_ms)
        self._invariants.check_leader(self.table, share)
