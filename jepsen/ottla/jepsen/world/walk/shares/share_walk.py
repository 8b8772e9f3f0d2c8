"""Random walk on a share partition (KIP-932): fetches, acknowledgements, state writes and
failovers.

Members fetch, acknowledge records whether or not they have acquired them, renew locks and vanish.
Acquisition locks expire. Calls to the share coordinator are delayed and reordered. A call may still
take effect after its caller has given up. The coordinator fails over and loses uncommitted writes.
Another leader takes over while the former leader continues to act. The log is compacted and cut
from the start, and the group's offsets are reset. In half of the runs, records are delayed, have a
back-off, and are ordered by key and priority. In half of the runs, the group has a dead letter
topic (KIP-1191), which breaks and is repaired.
"""

from collections.abc import Callable

from ottla.broker.coordinators.effects import Instant
from ottla.broker.shares.share_partition import AckType, ShareRules
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_in
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.jepsen.world.walk.shares.share_deliveries import ShareFacts, ShareInvariants
from ottla.jepsen.world.walk.shares.share_leader import WalkedLeader
from ottla.jepsen.world.walk.shares.share_letters import WalkedLetters
from ottla.jepsen.world.walk.shares.share_log import ShareLog
from ottla.jepsen.world.walk.shares.share_order import WalkedOrder
from ottla.jepsen.world.walk.shares.share_states import KEY, ShareCall, WalkedCoordinator

MEMBERS = ("x", "y", "z")
LEADERS_MAX = 2
CALLS_MAX = 12
LIMITS = (2, 3, 5)
LOCK_MS = 1_000
TIMES_MS = (10, 300, 1_000, 2_500)
RECORDS_IN_FLIGHT = (4, 12, 100)
RECORDS_IN_LOG_MAX = 120
TYPES = (
    AckType.ACCEPT,
    AckType.ACCEPT,
    AckType.RELEASE,
    AckType.REJECT,
    AckType.RENEW,
)
TYPES_WITH_LETTERS = (*TYPES, AckType.REJECT, AckType.REJECT)
SETTLING_ROUNDS = 400
CROWDED_ROUNDS = 30


class ShareWalk:
    """Search engine that tests a share partition by random walks."""

    name = "walk"
    subject = "shares"
    budget = 160
    required = (
        "a lock ends",
        "a session ends with records in hand",
        "a record is delivered for the last time",
        "a gap of the log is passed",
        "the log start passes the window",
        "a window is full",
        "an acknowledgement of a stranger is refused",
        "an acknowledgement is taken back",
        "a write is refused: FENCED_LEADER_EPOCH",
        "a write is refused: FENCED_STATE_EPOCH",
        "a call arrives after its caller gave up",
        "a coordinator loses an uncommitted write",
        "a load fails",
        "two leaders deliver",
        "a record is delayed",
        "a record is in back-off",
        "a record waits for its key",
        "a record is removed before its turn",
        "the look-ahead is full",
        "a low priority has its turn",
        "letters: the topic is its own source",
        "letters: the topic is deleted",
        "letters: the topic is unauthorised",
        "letters: the topic is full",
        "letters: the topic is of small batches",
        "letters: a record is no longer in the log",
        "letters: an answer is lost",
        "letters: a letter is lost",
        "letters: a letter arrives after its sender gave up",
        "letters: a record has two",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` events, with random choices from `chance`.
        Returns the outcome."""
        walk = WalkedShare(chance)
        violation = violation_in(lambda: walk.go(budget))
        walk.figures["commits"] = walk.coordinator.commit_count
        walk.figures["deliveries"] = walk.invariants.delivered_count
        return outcome_of(self, chance, walk, violation, sim_ms=walk.now_ms)


class WalkedShare:
    """One share partition, and the adversary that chooses its events from one seed."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {"elections": 0, "failovers": 0, "commits": 0, "deliveries": 0}
        self.now_ms = 0
        limit = chance.pick(LIMITS)
        self._rules = ShareRules(
            lock_duration_ms=LOCK_MS,
            delivery_count_limit=limit,
            record_locks_max=chance.pick(RECORDS_IN_FLIGHT),
            has_dead_letters=bool(chance.below(2)),
        )
        self._log = ShareLog(chance)
        self._order = WalkedOrder(chance, self._log, self.rare)
        self.invariants = ShareInvariants(self._log, limit)
        self._letters: WalkedLetters[WalkedLeader] = WalkedLetters(chance, self.rare, self._log)
        if self._rules.has_dead_letters:
            self.invariants.written_letters = self._letters.written
        self.coordinator = WalkedCoordinator(chance, self.rare, self._now)
        self._leaders: list[WalkedLeader] = []
        self._epoch = 0
        self._state_epoch = 0
        self._reset_to(0)
        self._settle_calls()
        self._elect()
        self._actions = self._draw_actions()

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions. A replayed run may end earlier. Then check that
        all records are delivered."""
        for action in actions_taken(self.chance, self._actions, budget):
            action()
            self._after(action.__name__)
        self._finish()

    def _draw_actions(self) -> list[Callable[[], None]]:
        """Return the actions of the adversary. The list contains each action as often as its weight
        in this random walk."""
        rows: tuple[tuple[Callable[[], None], int, bool], ...] = (
            (self._fetch, 40, True),
            (self._acknowledge, 30, True),
            (self._write, 30, True),
            (self._deliver, 50, True),
            (self._commit, 20, True),
            (self._append, 20, True),
            (self._pass_time, 10, True),
            (self._meddle, 4, False),
            (self._vanish, 3, False),
            (self._give_up, 4, False),
            (self._elect, 3, True),
            (self._depose, 4, True),
            (self._fail_over, 3, False),
            (self._compact, 3, False),
            (self._delete_records, 2, False),
            (self._reset, 2, False),
            (self._snapshot_idle, 2, False),
        )
        if self._rules.has_dead_letters:
            rows += (
                (self._send_letters, 20, True),
                (self._deliver_letters, 40, True),
                (self._give_up_letters, 10, False),
                (self._lose_letters, 10, False),
                (self._change_letter_topic, 12, False),
            )
        return drawn_actions(self.chance, rows)

    def _now(self) -> Instant:
        return Instant(self.now_ms, self.now_ms)

    def _after(self, name: str) -> None:
        state = self.coordinator.state
        self.invariants.check_state(state)
        start = -1 if state is None else state.start_offset
        window = [
            -1 if one.share is None else one.share.window.start_offset for one in self._leaders
        ]
        self.trace.add(name, self.now_ms, start, len(self.coordinator.calls), *window)

    # --- leaders and members ------------------------------------------------------------------

    def _leader(self) -> WalkedLeader:
        return self.chance.pick(self._leaders[::-1])

    def _fetch(self) -> None:
        """Deliver records from a leader of the share partition to a random member."""
        leader, strict = self._leader(), self.chance.below(3) == 2
        count = leader.fetch(self.chance.pick(MEMBERS), 1 + self.chance.below(6), strict)
        if count and leader is not self._leaders[-1]:
            self.rare.sometimes("two leaders deliver")

    def _acknowledge(self) -> None:
        """Acknowledge some of the records that a share group member has acquired."""
        leader, member_id = self._leader(), self.chance.pick(MEMBERS)
        held = leader.table.held_by(member_id)
        if held:
            at = self.chance.below(len(held))
            offsets = tuple(held[at : at + 1 + self.chance.below(4)])
            leader.acknowledge(member_id, offsets, self._types(len(offsets)))

    def _meddle(self) -> None:
        """Acknowledge records for a share group member that may not have acquired them."""
        first = self.chance.below(self._log.end_offset + 2)
        offsets = tuple(range(first, first + 1 + self.chance.below(3)))
        self._leader().acknowledge(self.chance.pick(MEMBERS), offsets, self._types(len(offsets)))

    def _types(self, count: int) -> tuple[int, ...]:
        types = TYPES_WITH_LETTERS if self._rules.has_dead_letters else TYPES
        return tuple(self.chance.pick(types) for _ in range(count))

    def _vanish(self) -> None:
        """End the share session of a random member."""
        self._leader().close_session(self.chance.pick(MEMBERS))

    def _write(self) -> None:
        """Send the next share state write of a leader to the share coordinator, if one is due."""
        self._leader().write()

    def _pass_time(self) -> None:
        """Advance the virtual time, so that acquisition locks expire."""
        self.now_ms += self.chance.pick(TIMES_MS)
        for leader in self._leaders:
            leader.end_locks()

    def _elect(self) -> None:
        """Elect another leader of the share partition. The former leader does not know it yet."""
        self._epoch += 1
        self.figures["elections"] += 1
        leader = WalkedLeader(
            self._epoch,
            self._log,
            self._rules,
            order=self._order,
            coordinator=self.coordinator,
            letters=self._letters,
            invariants=self.invariants,
            rare=self.rare,
        )
        self._leaders = [*self._leaders, leader][-LEADERS_MAX:]
        leader.load()

    def _depose(self) -> None:
        """Inform the former leader of the share partition that a successor was elected."""
        del self._leaders[:-1]

    # --- dead letters -------------------------------------------------------------------------

    def _send_letters(self) -> None:
        """Do the due work on dead letters of a share partition's leader: send them or record their
        outcome."""
        self._leader().send_letters()

    def _deliver_letters(self) -> None:
        """Deliver a leader's request with dead letters to the dead letter topic."""
        self._letters.deliver()

    def _give_up_letters(self) -> None:
        """End a leader's wait for the response to a request with dead letters."""
        self._letters.give_up()

    def _lose_letters(self) -> None:
        """Lose a leader's request with dead letters on its way to the dead letter topic."""
        self._letters.lose()

    def _change_letter_topic(self) -> None:
        """Break the dead letter topic in a random way, or repair it."""
        self._letters.change()

    # --- coordinator --------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Deliver a leader's call to the share coordinator. If too many calls are then in flight,
        deliver all of them."""
        self._let_arrive()
        if len(self.coordinator.calls) > CALLS_MAX:
            self._settle_calls()

    def _let_arrive(self) -> None:
        """Deliver a leader's call to the share coordinator, and check the share state that the call
        writes."""
        call = self.coordinator.deliver()
        if call is not None and call.batches:
            self.invariants.on_applied(call.state_epoch, call.batches)

    def _commit(self) -> None:
        """Commit some of the uncommitted records in the share coordinator's log."""
        self.coordinator.commit_some()

    def _give_up(self) -> None:
        """End a leader's wait for the response of the share coordinator."""
        self.coordinator.lose()

    def _fail_over(self) -> None:
        """Replace the share coordinator by another one, which replays the log."""
        self.figures["failovers"] += 1
        self.coordinator.fail_over()

    def _snapshot_idle(self) -> None:
        """Write the share coordinator's snapshots of share states that have not changed for a
        while."""
        self.coordinator.snapshot_idle()

    def _reset(self) -> None:
        """Reset the share group's offsets for the partition, which begins a new state epoch."""
        span = self._log.end_offset - self._log.start_offset
        self._reset_to(self._log.start_offset + self.chance.below(span + 1))

    def _reset_to(self, start_offset: int) -> None:
        self._state_epoch += 1
        state_epoch = self._state_epoch
        self.invariants.facts[state_epoch] = ShareFacts(start_offset)
        call = ShareCall(
            lambda shard, responder: shard.initialize(
                KEY, responder, self._now(), state_epoch=state_epoch, start_offset=start_offset
            ),
            lambda answer: None,
        )
        self.coordinator.calls.append(call)

    # --- the log ------------------------------------------------------------------------------

    def _append(self) -> None:
        """Append a random batch to the partition's log."""
        if len(self._log.records) < RECORDS_IN_LOG_MAX:
            self._order.add(self._log.append(), self.now_ms)

    def _compact(self) -> None:
        """Remove a batch from the partition's log, as compaction does."""
        self._log.compact()

    def _delete_records(self) -> None:
        """Raise the log start offset of the partition, as DeleteRecords does."""
        span = self._log.end_offset - self._log.start_offset
        self._log.delete_before(self._log.start_offset + self.chance.below(span + 1))

    # --- the end ------------------------------------------------------------------------------

    def _settle_calls(self) -> None:
        """Deliver all pending calls of leaders to the share coordinator, and commit its whole
        log."""
        while self.coordinator.calls:
            self._let_arrive()
        self.coordinator.commit()

    def _finish(self) -> None:
        """End all faults, accept all records for one member, and check that every record was
        delivered."""
        self._settle_calls()
        if self.chance.below(2):
            self._elect()
        del self._leaders[:-1]
        (leader,) = self._leaders
        self._letters.repair()
        self._check_priorities(leader)
        for _ in range(SETTLING_ROUNDS):
            has_work = self._accept(leader, 50)
            if not has_work and leader.is_at_rest:
                break
        else:
            raise Violation("EverythingHeals", "the share partition does not come to rest")
        state = self.coordinator.state
        assert state is not None
        self.invariants.check_state(state)
        if leader.table.state_epoch == state.state_epoch:
            self.invariants.check_all_delivered(state.state_epoch)

    def _accept(self, leader: WalkedLeader, records_max: int) -> bool:
        """Accept up to `records_max` records for a member, after all locks, delays and back-offs
        have ended. Returns False if there were no records to accept."""
        self._settle_calls()
        self.now_ms += LOCK_MS
        leader.end_locks()
        leader.send_letters()
        while self._letters.posts:
            self._letters.deliver()
        count = leader.fetch(MEMBERS[0], records_max, False)
        held = leader.table.held_by(MEMBERS[0])
        if held:
            leader.acknowledge(MEMBERS[0], tuple(held), (AckType.ACCEPT,) * len(held))
        leader.write()
        return bool(count or held)

    def _check_priorities(self, leader: WalkedLeader) -> None:
        """Check NoClassStarves: if a record of low priority is ready, records of low priority are
        delivered although records of high priority keep arriving.

        The delivery of any record of low priority suffices. A single record may wait long, because
        records with lower offsets are delivered first, even if they were released or waited for
        their key. A reset of the group's offsets can end the wait without a delivery.
        """
        rules = self._order.rules
        if rules is None or not rules.has_priority:
            return
        self.now_ms += 60_000
        self._accept(leader, 1)
        before = self._order.low_records(self.invariants, leader.table)
        low_count = self._order.low_count
        self._order.is_crowded = True
        for _ in range(CROWDED_ROUNDS if before else 0):
            for _ in range(3):
                self._order.add(self._log.append(), self.now_ms)
            self._accept(leader, 3)
            if self._order.low_count > low_count:
                self.rare.sometimes("a low priority has its turn")
                return
        waiting = before & self._order.low_records(self.invariants, leader.table)
        if waiting and leader.share is not None:
            raise Violation("NoClassStarves", f"offsets {sorted(waiting)}")
