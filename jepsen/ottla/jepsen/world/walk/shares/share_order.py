"""Delays, back-off, and order by key and priority in a random walk on a share partition, with their
invariants.

Half of the runs have such delivery rules. The invariants are checked against simple tables of
offsets, which share no code with the broker's heaps and queues.
"""

from collections.abc import Iterable

from ottla.broker.coordinators.effects import Instant
from ottla.broker.shares.acquired_ranges import AcquiredRange, add_range
from ottla.broker.shares.ordering.delivery_order import AheadRecord, DeliveryOrder
from ottla.broker.shares.ordering.ordering_rules import OrderingRules
from ottla.broker.shares.ordering.record_traits import PLAIN, Priority, Traits
from ottla.broker.shares.share_partition import LogBatch, SharePartition
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.shares.share_deliveries import LeaderTable, ShareInvariants
from ottla.jepsen.world.walk.shares.share_log import ShareLog

BACKOFF_MS_MIN, BACKOFF_MS_MAX = 200, 1_500
DELAYS_MS = (0, 0, 0, 400, 2_000)
KEYS = (None, 1, 2)
JITTER_SALT = 11


class WalkedOrder:
    """Delivery rules of one random walk (due time, key and priority of each record), and the checks
    of deliveries."""

    def __init__(self, chance: Chance, log: ShareLog, rare: RareStates) -> None:
        self._chance = chance
        self._log = log
        self._rare = rare
        self._records: dict[int, AheadRecord] = {}
        """Due time, key and priority of each record, by offset."""
        self._released: dict[tuple[int, int], tuple[int, int]] = {}
        """Leader epoch and virtual time in milliseconds of the last durable release of each record,
        by (state epoch, offset). A leader of an earlier state epoch may learn late that its release
        was stored."""
        self.is_crowded = False
        """True while the producers append only records of high priority."""
        self.low_count = 0
        """Number of deliveries so far of records with low priority, with or without key."""
        self.rules = self._drawn_rules()

    def _drawn_rules(self) -> OrderingRules | None:
        chance = self._chance
        if not chance.below(2):
            return None
        return OrderingRules(
            delay_ms=0,
            backoff_ms_min=chance.pick((0, BACKOFF_MS_MIN)),
            backoff_ms_max=BACKOFF_MS_MAX,
            key_concurrency=chance.below(3),
            has_priority=not chance.below(2),
            look_ahead_records=chance.pick((8, 1_000)),
        )

    def add(self, batch: LogBatch, now_ms: int) -> None:
        """Choose at random the due time, key and priority of each record in a batch that is
        appended to the log."""
        if self.rules is None:
            return
        for offset in range(batch.first_offset, batch.last_offset + 1):
            self._records[offset] = self._drawn_record(self.rules, offset, now_ms)

    def _drawn_record(self, rules: OrderingRules, offset: int, now_ms: int) -> AheadRecord:
        if self.is_crowded:
            return AheadRecord(offset, 0, Traits(Priority.HIGH))
        chance = self._chance
        delay_ms = chance.pick(DELAYS_MS)
        key = chance.pick(KEYS) if rules.key_concurrency else None
        priority = chance.pick(tuple(Priority)) if rules.has_priority else Priority.NORMAL
        is_plain = key is None and priority is Priority.NORMAL
        traits = PLAIN if is_plain else Traits(priority, key)
        return AheadRecord(offset, now_ms + delay_ms if delay_ms else 0, traits)

    # --- events -------------------------------------------------------------------------------

    def fetch(
        self, share: SharePartition, member_id: str, records_max: int, now: Instant
    ) -> list[AcquiredRange]:
        """Acquire up to `records_max` records for a share group member. The order of the records is
        the broker's delivery order."""
        order = share.order
        assert order is not None
        if self._log.start_offset > order.log_start_offset:
            order.drop_before(self._log.start_offset, now.mono_ms)
        order.ripen(now)
        self._read_ahead(share, order, now)
        self._note(order)
        found: list[AcquiredRange] = []
        for first, last in share.take_ready(order, records_max):
            for offset in range(first, last + 1):
                if offset not in self._log.records:
                    self._rare.sometimes("a record is removed before its turn")
                    share.drop_ready(order, offset, offset, now.mono_ms)
                    continue
                for one in share.own_ready(order, member_id, offset, offset, now.mono_ms):
                    add_range(found, *one)
        return found

    def _read_ahead(self, share: SharePartition, order: DeliveryOrder, now: Instant) -> None:
        log = self._log
        if order.scanned_offset < log.start_offset:
            share.pass_gap(order, log.start_offset - 1)
        for batch in log.read(order.scanned_offset):
            if order.is_full:
                self._rare.sometimes("the look-ahead is full")
                return
            if batch.first_offset > order.scanned_offset:
                share.pass_gap(order, batch.first_offset - 1)
            if not batch.is_delivered:
                share.pass_gap(order, batch.last_offset)
                continue
            for offset in range(order.scanned_offset, batch.last_offset + 1):
                _, due_ms, traits = self._records[offset]
                share.admit(order, offset, offset, traits=traits, due_ms=due_ms, now=now)

    def _note(self, order: DeliveryOrder) -> None:
        if order.delayed_count:
            self._rare.sometimes("a record is delayed")
        if order.backoff_count:
            self._rare.sometimes("a record is in back-off")
        if order.key_count:
            self._rare.sometimes("a record waits for its key")

    def is_at_rest(self, order: DeliveryOrder) -> bool:
        """Return whether all records of the log are delivered to the share group."""
        return not order.unsettled_count and not self._log.read(order.scanned_offset)

    def on_released(self, table: LeaderTable, offset: int, now_ms: int) -> None:
        """Record that the acquisition of a record ended at a leader, or that a new leader loaded
        the record as released."""
        table.released[offset] = now_ms

    def on_stored_release(self, table: LeaderTable, offset: int, now_ms: int) -> None:
        """Record the time at which the leader reported that the release of a record is durable."""
        table.released[offset] = now_ms
        self._released[table.state_epoch, offset] = table.epoch, now_ms

    # --- checks -------------------------------------------------------------------------------

    def check_delivered(
        self,
        table: LeaderTable,
        invariants: ShareInvariants,
        acquired: Iterable[AcquiredRange],
        now_ms: int,
    ) -> None:
        """Check NotBeforeItsTime, OneInFlightPerKey and KeysKeepTheirOrder for records that a
        member has just acquired. Called before they are stored as acquired."""
        rules = self.rules
        assert rules is not None
        taken: list[int] = []
        for first, last, _ in acquired:
            for offset in range(first, last + 1):
                self._check_time(rules, table, offset, now_ms)
                self._check_key(rules, table, invariants, offset, taken)
                taken.append(offset)
                self.low_count += self._records[offset].traits.priority is Priority.LOW

    def _check_time(
        self, rules: OrderingRules, table: LeaderTable, offset: int, now_ms: int
    ) -> None:
        where = f"offset {offset}, leader epoch {table.epoch}, at {now_ms} ms"
        due_ms = self._records[offset].due_ms
        if due_ms > now_ms:
            raise Violation("NotBeforeItsTime", f"{where}: due at {due_ms} ms")
        times = [table.released.get(offset)]
        epoch, stored_ms = self._released.get((table.state_epoch, offset), (table.epoch + 1, 0))
        if epoch <= table.epoch:
            times.append(stored_ms)
        for released_ms in times:
            if released_ms is not None and released_ms + rules.backoff_ms_min > now_ms:
                raise Violation("NotBeforeItsTime", f"{where}: released at {released_ms} ms")

    def _check_key(
        self,
        rules: OrderingRules,
        table: LeaderTable,
        invariants: ShareInvariants,
        offset: int,
        taken: list[int],
    ) -> None:
        _, due_ms, traits = self._records[offset]
        key = traits.key
        if key is None:
            return
        where = f"offset {offset}, key {key}, leader epoch {table.epoch}"
        others = [one for one in (*table.holdings, *taken) if self._key_of(one) == key]
        if len(others) >= rules.key_concurrency:
            raise Violation("OneInFlightPerKey", f"{where}: beside {others}")
        if due_ms or rules.key_concurrency > 1:
            return
        for earlier in self._log.records:
            if earlier >= offset or self._key_of(earlier) != key or self._records[earlier].due_ms:
                continue
            if not invariants.may_settle(table.state_epoch, earlier):
                raise Violation("KeysKeepTheirOrder", f"{where}: before offset {earlier}")

    def _key_of(self, offset: int) -> int | None:
        return self._records[offset].traits.key

    def low_records(self, invariants: ShareInvariants, table: LeaderTable) -> set[int]:
        """Return the offsets of undelivered records that have low priority and neither a key nor a
        delay."""
        if table.state_epoch not in invariants.facts:
            return set()
        return {
            offset
            for offset in self._log.records
            if self._records[offset].traits == Traits(Priority.LOW)
            and not table.counts.get(offset)
            and not invariants.may_settle(table.state_epoch, offset)
        }
