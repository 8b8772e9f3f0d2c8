"""Invariants of a share partition, checked against simple tables of offsets.

Unlike the code under test, the tables have no spans, batches or windows. A reset of the group's
offsets begins a new state epoch, in which every record may be delivered again.
"""

from collections.abc import Iterable, Mapping

from ottla.broker.coordinators.share_persister import StateBatch
from ottla.broker.share_state.share_partition_state import SharePartitionState
from ottla.broker.shares.acquired_ranges import AcquiredRange
from ottla.broker.shares.dead_letters import DeadLetter
from ottla.broker.shares.delivery_window import TERMINAL, DeliveryState
from ottla.broker.shares.share_partition import SharePartition
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.shares.share_log import ShareLog


class ShareFacts:
    """Facts about one state epoch of a share partition that no leader and no coordinator may
    contradict."""

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        """Offset at which the share group begins to read the partition in this state epoch."""
        self.settled: dict[int, int] = {}
        """For each acknowledged record, by offset, the leader epoch in which its acknowledgement
        was reported as durable."""
        self.ended: set[int] = set()
        """Offsets of records that a share group member has accepted or rejected, even if this did
        not become durable."""
        self.accepted: set[int] = set()
        """Offsets of records that a share group member has accepted, even if this did not become
        durable."""
        self.dead: dict[int, int] = {}
        """For each record with a dead letter, by offset, the leader epoch in which the dead letter
        was first sent."""
        self.used_up: set[int] = set()
        """Offsets of records that were delivered to members as often as the delivery limit
        allows."""
        self.applied: set[int] = set()
        """Offsets of the records whose final state (acknowledged or archived) has reached the share
        coordinator in a state write."""


class HeldRecord:
    """A record that a share group member has acquired and not yet finished."""

    __slots__ = ("is_pending", "member_id", "until_ms")

    def __init__(self, member_id: str, until_ms: int) -> None:
        self.member_id = member_id
        self.until_ms = until_ms
        self.is_pending = False
        """True while an acknowledgement of the record waits until its state write is durable."""


class LeaderTable:
    """Deliveries by one leader of a share partition since it loaded the share state, for the
    invariant checks."""

    def __init__(self, epoch: int, state_epoch: int) -> None:
        self.epoch = epoch
        self.state_epoch = state_epoch
        self.holdings: dict[int, HeldRecord] = {}
        self.counts: dict[int, int] = {}
        """Delivery count of each record when this leader last delivered it, by offset."""
        self.released: dict[int, int] = {}
        """Virtual time in ms at which this leader last released each record, by offset."""
        self.acknowledged_letters: set[int] = set()
        """Offsets of the records whose dead letters were written, as far as this leader knows."""

    def held_by(self, member_id: str) -> list[int]:
        """Return the offsets of the records that a member has acquired and not acknowledged,
        ascending."""
        return sorted(
            offset
            for offset, one in self.holdings.items()
            if one.member_id == member_id and not one.is_pending
        )


class ShareInvariants:
    """Facts that one run on a share partition has shown, and the invariant checks that use them."""

    def __init__(self, log: ShareLog, limit: int) -> None:
        self._log = log
        self._limit = limit
        self.facts: dict[int, ShareFacts] = {}
        """Facts about the share partition (start offset, acknowledgements, dead letters), by state
        epoch."""
        self.written_letters: Mapping[tuple[int, int], int] | None = None
        """Number of written dead letters by (state epoch, offset), or None if the group has no dead
        letter topic."""
        self.delivered_count = 0

    def on_delivered(
        self, table: LeaderTable, member_id: str, acquired: Iterable[AcquiredRange], until_ms: int
    ) -> None:
        """Check the invariants for records that a member has just acquired, and store the
        acquisition. `until_ms` is the end of the acquisition lock."""
        facts, records = self.facts[table.state_epoch], self._log.records
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                where = f"offset {offset}, leader epoch {table.epoch}"
                if offset not in records:
                    raise Violation("OnlyRecordsAreDelivered", where)
                if offset in table.holdings:
                    raise Violation("OneOwner", f"{where}: {table.holdings[offset].member_id}")
                if facts.settled.get(offset, table.epoch + 1) <= table.epoch:
                    raise Violation("SettledStaysSettled", where)
                if facts.dead.get(offset, table.epoch + 1) <= table.epoch:
                    raise Violation("NotDeliveredAfterItsLetter", where)
                if count > self._limit:
                    raise Violation("DeliveredWithinTheLimit", f"{where}: {count} times")
                if count <= table.counts.get(offset, 0):
                    raise Violation("CountsRise", f"{where}: {count}")
                table.counts[offset] = count
                table.holdings[offset] = HeldRecord(member_id, until_ms)
                self.delivered_count += 1
                if count >= self._limit:
                    facts.used_up.add(offset)

    def may_settle(self, state_epoch: int, offset: int) -> bool:
        """Return whether a record no longer has to be delivered in a state epoch. That is true in
        four cases:

        - a member has accepted or rejected the record;
        - the record was delivered up to the limit;
        - the record is below the group's start offset;
        - the record is not in the log.
        """
        facts = self.facts[state_epoch]
        return (
            offset < facts.start_offset
            or offset in facts.ended
            or offset in facts.used_up
            or offset not in self._log.records
        )

    def on_applied(self, state_epoch: int, batches: Iterable[StateBatch]) -> None:
        """Check OnlyAcknowledgedIsSettled for a write that the share coordinator has applied: only
        finished records become acknowledged or archived."""
        for batch in batches:
            if batch.delivery_state not in TERMINAL:
                continue
            for offset in range(batch.first_offset, batch.last_offset + 1):
                if not self.may_settle(state_epoch, offset):
                    raise Violation("OnlyAcknowledgedIsSettled", f"offset {offset}")
                if batch.delivery_state == DeliveryState.ARCHIVED:
                    self._check_letter(state_epoch, offset)
                self.facts[state_epoch].applied.add(offset)

    def _check_letter(self, state_epoch: int, offset: int) -> None:
        """Check ArchivedAfterItsLetter: the archived record at `offset` has a dead letter, if it
        needs one."""
        written = self.written_letters
        if written is None or offset not in self._log.records:
            return
        if not written.get((state_epoch, offset)):
            raise Violation("ArchivedAfterItsLetter", f"offset {offset}")

    def on_letters_sent(self, table: LeaderTable, letters: Iterable[DeadLetter]) -> None:
        """Check the dead letters that a share partition's leader sends, and store them for later
        checks."""
        dead = self.facts[table.state_epoch].dead
        for letter in letters:
            offset = letter.offset
            if offset in table.acknowledged_letters:
                raise Violation("WrittenLettersAreNotRepeated", f"offset {offset}")
            dead[offset] = min(table.epoch, dead.get(offset, table.epoch))

    def check_state(self, state: SharePartitionState | None) -> None:
        """Check NothingSkipped and LagIsNotNegative for the share state of the coordinator."""
        if state is None or state.state_epoch not in self.facts or state.start_offset < 0:
            return
        facts = self.facts[state.state_epoch]
        for offset in range(facts.start_offset, state.start_offset):
            if not self.may_settle(state.state_epoch, offset):
                raise Violation("NothingSkipped", f"start {state.start_offset}, offset {offset}")
        settled = [each for each in state.batches if each.delivery_state in TERMINAL]
        left = sum(each.last_offset - each.first_offset + 1 for each in settled)
        if self._log.end_offset < state.start_offset + left:
            raise Violation("LagIsNotNegative", f"start {state.start_offset} and {left} settled")

    def check_leader(self, table: LeaderTable, share: SharePartition) -> None:
        """Check NothingSkipped for a share partition's leader: each record that it treats as
        finished was written as such to the coordinator, was delivered up to the limit, or no longer
        exists."""
        facts, window = self.facts[table.state_epoch], share.window
        settled = [span for span in window.spans if span.is_settled]
        offsets = [offset for span in settled for offset in range(span.first, span.last + 1)]
        for offset in (*range(facts.start_offset, window.start_offset), *offsets):
            is_known = offset in facts.applied or offset in facts.used_up
            is_gone = offset not in self._log.records or offset < facts.start_offset
            if not (is_known or is_gone):
                raise Violation("NothingSkipped", f"leader epoch {table.epoch}, offset {offset}")
            if not is_gone and offset not in facts.accepted:
                self._check_letter(table.state_epoch, offset)

    def check_released(
        self, table: LeaderTable, share: SharePartition, offsets: Iterable[int]
    ) -> None:
        """Check EveryLockEnds: the share partition's leader shows none of the records at `offsets`
        as acquired."""
        for offset in offsets:
            for span in share.window.within(offset, offset):
                if span.is_acquired:
                    raise Violation("EveryLockEnds", f"leader {table.epoch}, offset {offset}")

    def check_all_delivered(self, state_epoch: int) -> None:
        """Check EverythingIsDelivered: each record was accepted, rejected, or delivered up to the
        limit. If the group has a dead letter topic, each record that no member has accepted has a
        dead letter."""
        for offset in sorted(self._log.records):
            if not self.may_settle(state_epoch, offset):
                raise Violation("EverythingIsDelivered", f"offset {offset}")
            facts = self.facts[state_epoch]
            if offset >= facts.start_offset and offset not in facts.accepted:
                self._check_letter(state_epoch, offset)
