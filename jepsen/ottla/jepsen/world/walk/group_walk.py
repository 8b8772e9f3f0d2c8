"""Random walk on the groups of a broker core: members may do any action at any time.

Members join, leave, crash, fall silent, lose responses and commit with old epochs. Topics are
created, grow and are deleted. The log is committed late, and another coordinator takes over with a
part of the uncommitted records. In some runs all members use the classic protocol, in some the
consumer protocol, and in some both, so that the group is converted in both directions.
"""

from collections.abc import Callable

from ottla.broker.groups.classic.classic_group import ClassicGroup
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.invariants.groups import GroupInvariants
from ottla.jepsen.world.rare import RareStates
from ottla.jepsen.world.trace import Trace
from ottla.jepsen.world.violation import Violation, violation_in
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.jepsen.world.walk.group_host import GroupHost
from ottla.jepsen.world.walk.group_members import (
    SUBSCRIPTIONS,
    WalkedClassicMember,
    WalkedConsumerMember,
    WalkedMember,
)
from ottla.jepsen.world.walk.group_requests import GROUP, GroupRequest
from ottla.model.errors import ErrorCode

MEMBERS_MAX = 5
PARTITIONS = 6
PARTITIONS_MAX = 10
TIMES_MS = (10, 3_000, 12_000, 500)
COMMIT_TIMEOUTS_MS = (5_000, 60_000, 60_000, 60_000)
"""Values of `offsets.commit.timeout.ms` from which a random walk draws. One is Kafka's default;
with it, few responses arrive after the group has changed again. The others are longer."""
SETTLING_ROUNDS = 60
SETTLING_MS = 2_000


class GroupWalk:
    """Search engine that tests a group coordinator by random walks (runs of randomly chosen
    events)."""

    name = "walk"
    subject = "group"
    budget = 250
    required = (
        "a partition waits for its owner to give it up",
        "a coordinator takes over with a lost tail",
        "a coordinator takes over with an uncommitted tail",
        "a member is fenced",
        "a silent member is let go",
        "a commit of an old epoch is refused",
        "a commit waits for the log",
        "a group goes over to the consumer protocol",
        "a group goes back to the classic protocol",
        "a static member comes back",
        "a group is deleted",
        "an offset is read while a commit waits",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` events, with random choices from `chance`.
        Returns the outcome."""
        walk = WalkedGroup(chance)
        violation = violation_in(lambda: walk.go(budget))
        walk.figures["commits"] = walk.invariants.commit_count
        walk.figures["records"] = walk.host.end_offset
        return outcome_of(self, chance, walk, violation, sim_ms=walk.host.mono_ms)


class WalkedGroup:
    """One consumer group, and the adversary that chooses the group's events from one seed."""

    def __init__(self, chance: Chance) -> None:
        self.chance = chance
        self.trace = Trace()
        self.rare = RareStates()
        self.figures = {"failovers": 0, "rebalances": 0, "crashes": 0, "commits": 0, "records": 0}
        # Derived from the seed and not drawn, so that one draw more does not move all schedules.
        self.host = GroupHost(COMMIT_TIMEOUTS_MS[chance.seed % len(COMMIT_TIMEOUTS_MS)])
        self.members: list[WalkedMember] = []
        self.invariants = GroupInvariants(self.host, self.members)
        self._kinds = chance.below(3)
        """Protocols that the group's members use in this random walk. 0: all the consumer protocol;
        1: all the classic protocol; 2: both."""
        self._orders = self.host.make_topic("orders", PARTITIONS)
        self._made_count = 0
        self._offset = 0
        self._reading: list[tuple[int, GroupRequest]] = []
        self._deleting: list[GroupRequest] = []
        self._before: tuple[str, int] = ("", 0)
        for instance_id in ("i", None, None):
            self._add(instance_id)
        self._actions = self._draw_actions()

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the group. A replayed run may end earlier.
        Then check that the group converges: its members own each partition exactly once."""
        for action in actions_taken(self.chance, self._actions, budget):
            action()
            self._after(action.__name__)
        self._settle()

    def _draw_actions(self) -> list[Callable[[], None]]:
        """Return the actions of the adversary. The list contains each action as often as its weight
        in this random walk."""
        rows: tuple[tuple[Callable[[], None], int, bool], ...] = (
            (self._step, 60, True),
            (self._revoke, 40, True),
            (self._commit, 10, True),
            (self._commit_old, 4, False),
            (self._read, 5, True),
            (self._pass_time, 8, True),
            (self._lose, 6, False),
            (self._hold, 4, False),
            (self._release, 8, True),
            (self._come, 4, True),
            (self._leave, 2, False),
            (self._crash, 2, False),
            (self._bounce, 2, False),
            (self._subscribe, 3, False),
            (self._change_topics, 3, False),
            (self._fail_over, 3, True),
            (self._delete, 1, False),
            (self._all_go, 1, False),
        )
        return drawn_actions(self.chance, rows)

    # --- members ------------------------------------------------------------------------------

    def _add(self, instance_id: str | None) -> None:
        is_classic = self._kinds == 1 or (self._kinds == 2 and self.chance.below(2) == 1)
        if is_classic:
            if self._kinds == 2:
                instance_id = None
            self.members.append(WalkedClassicMember(self.host, instance_id))
            return
        self._made_count += 1
        self.members.append(
            WalkedConsumerMember(
                self.host,
                f"m{self._made_count}",
                instance_id,
                self.chance.pick(SUBSCRIPTIONS),
            )
        )

    def _one(self) -> WalkedMember:
        return self.members[self.chance.below(len(self.members))]

    def _step(self) -> None:
        member = self._one()
        epoch = member.epoch
        member.step()
        if epoch > 0 and member.epoch == 0:
            self.rare.sometimes("a member is fenced")

    def _revoke(self) -> None:
        self._one().revoke()

    def _commit(self) -> None:
        self._offset += 1
        self._one().commit(self._orders, self._offset)
        if not self.host.is_committing:
            self.rare.sometimes("a commit waits for the log")

    def _commit_old(self) -> None:
        """Commit an offset with the epoch before the group member's current one, like a member that
        was paused."""
        member = self._one()
        if member.epoch < 2 or not member.id:
            return
        group = self.host.shard.groups.get(GROUP)
        if group is None or member.id not in group.member_ids:
            return
        asked = self.host.commit(
            1 << 40,
            topic_id=self._orders,
            version=9,
            member_id=member.id,
            generation_id=member.epoch - 1,
            instance_id=member.instance_id,
        )
        if not asked.is_answered or not isinstance(asked.answer, ErrorCode):
            raise Violation("OldGenerationsAreRefused", f"{member.id} in {member.epoch - 1}")
        self.rare.sometimes("a commit of an old epoch is refused")

    def _read(self) -> None:
        """Fetch a committed offset. The group must never lose an offset that it has returned to a
        client."""
        index = self.chance.below(PARTITIONS)
        self._reading.append((index, self.host.fetch(index=index)))
        if not self.host.is_committing:
            self.rare.sometimes("an offset is read while a commit waits")

    def _lose(self) -> None:
        self._one().lose_answer()

    def _come(self) -> None:
        if len(self.members) < MEMBERS_MAX:
            self._add(None)

    def _leave(self) -> None:
        if len(self.members) > 1:
            self._take_away().leave()

    def _crash(self) -> None:
        """Remove a group member without sending a request, so that its session expires."""
        at = self.chance.below(len(self.members))
        if len(self.members) > 1 and self.members[at].instance_id is None:
            self.figures["crashes"] += 1
            self.members.pop(at)

    def _all_go(self) -> None:
        """Remove all group members but one by a single request of an admin client. The members may
        use either protocol."""
        removed = []
        while len(self.members) > 1:
            removed.append(self._take_away())
        names = [(one.id, one.instance_id) for one in removed if one.id]
        before = self._member_ids()
        asked = self.host.leave(*names)
        if not asked.is_answered or not isinstance(asked.answer, list):
            return
        after = self._member_ids()
        for (member_id, _), code in zip(names, asked.answer, strict=True):
            if member_id in after if code is ErrorCode.NONE else member_id in before - after:
                raise Violation("RemovedAreGone", f"{member_id}: {code.name}")
            if code is ErrorCode.UNKNOWN_MEMBER_ID and member_id in before:
                raise Violation("RemovedAreGone", f"{member_id} is a member, and not known")

    def _take_away(self) -> WalkedMember:
        return self.members.pop(self.chance.below(len(self.members)))

    def _bounce(self) -> None:
        """Restart a static group member, which rejoins with the same instance id."""
        for at, member in enumerate(self.members):
            if member.instance_id is None or member.epoch == 0:
                continue
            self.members.pop(at)
            if not member.is_classic:
                self.host.consumer_heartbeat(member.id, -2, instance_id=member.instance_id)
            self._add(member.instance_id)
            self.rare.sometimes("a static member comes back")
            return

    def _subscribe(self) -> None:
        member = self._one()
        if isinstance(member, WalkedConsumerMember):
            member.subscription = self.chance.pick(SUBSCRIPTIONS)
            member.is_to_tell_all = True

    # --- the environment of the members -------------------------------------------------------

    def _pass_time(self) -> None:
        before = self._member_ids()
        self.host.pass_time(self.chance.pick(TIMES_MS))
        if before - self._member_ids():
            self.rare.sometimes("a silent member is let go")

    def _member_ids(self) -> set[str]:
        group = self.host.shard.groups.get(GROUP)
        return set() if group is None else set(group.member_ids)

    def _hold(self) -> None:
        self.host.is_committing = False

    def _release(self) -> None:
        """Commit records of the group by raising the high watermark of the coordinator's log to the
        end of the log, or to an offset before it."""
        host = self.host
        span = host.end_offset - host.committed_count
        if span > 1 and self.chance.below(3) == 2:
            host.commit_log(host.committed_count + self.chance.below(span))
            return
        host.is_committing = True
        host.commit_log()

    def _change_topics(self) -> None:
        image = self.host.topics.image
        kind = self.chance.below(3)
        orders, bills = image.topic("orders"), image.topic("bills")
        assert orders is not None
        if kind == 0 and len(orders.partitions) < PARTITIONS_MAX:
            self.host.grow_topic("orders", len(orders.partitions) + 1)
        elif kind == 1 and bills is None:
            self.host.make_topic("bills", 3)
        elif kind == 2 and bills is not None:
            self.host.drop_topic("bills")

    def _fail_over(self) -> None:
        host = self.host
        span = host.end_offset - host.committed_count
        kept = self.chance.below(span + 1)
        self.figures["failovers"] += 1
        if kept < span:
            self.rare.sometimes("a coordinator takes over with a lost tail")
        if kept:
            self.rare.sometimes("a coordinator takes over with an uncommitted tail")
        host.is_committing = True
        host.fail_over(host.committed_count + kept)

    def _delete(self) -> None:
        """Request the deletion of the group, which the coordinator refuses while the group has
        members."""
        for member in self.members if self.chance.below(2) else ():
            member.leave()
        asked = self.host.delete()
        if asked.is_answered and asked.code is not ErrorCode.NONE:
            return
        self.rare.sometimes("a group is deleted")
        self.invariants.forget_offsets()
        self._reading.clear()
        if asked.is_answered:
            self._check_deleted()

    def _check_deleted(self) -> None:
        """Check DeletedStaysDeleted: no record of the deleted group remains in the coordinator's
        log."""
        loaded = self.host.replayed()
        if GROUP in loaded.groups or loaded.offsets.has_group(GROUP):
            raise Violation("DeletedStaysDeleted", "the group comes back with the log")

    # --- invariants ---------------------------------------------------------------------------

    def _after(self, name: str) -> None:
        host = self.host
        for member in self.members:
            member.look()
        waiting: list[tuple[int, GroupRequest]] = []
        for index, asked in self._reading:
            if not asked.is_answered:
                waiting.append((index, asked))
            elif not isinstance(asked.answer, ErrorCode):
                self._take_read(index, asked)
        self._reading = waiting
        self.invariants.check()
        group = host.shard.groups.get(GROUP)
        epoch = 0
        if isinstance(group, ConsumerGroup):
            epoch = group.group_epoch
            self._note(group)
        elif isinstance(group, ClassicGroup):
            epoch = group.generation_id
        kind = "" if group is None else group.type
        self._note_change(kind, epoch)
        self.trace.add(name, host.end_offset, host.committed_count, epoch, kind, host.mono_ms)

    def _take_read(self, index: int, asked: GroupRequest) -> None:
        ((_, _, found),) = asked.answer
        if found is not None:
            known = self.invariants.acknowledged
            known[index] = max(found.offset, known.get(index, -1))

    def _note(self, group: ConsumerGroup) -> None:
        if any(one.state.name == "UNRELEASED_PARTITIONS" for one in group.members.values()):
            self.rare.sometimes("a partition waits for its owner to give it up")

    def _note_change(self, kind: str, epoch: int) -> None:
        before, last = self._before
        if before == "classic" and kind == "consumer":
            self.rare.sometimes("a group goes over to the consumer protocol")
        if before == "consumer" and kind == "classic":
            self.rare.sometimes("a group goes back to the classic protocol")
        if epoch > last:
            self.figures["rebalances"] += 1
        self._before = (kind, epoch)

    def _settle(self) -> None:
        """End all faults, and run the remaining members until each partition has exactly one owner.
        Then check ReplayEqualsState. Raises Violation(EverybodyConverges) if the members do not
        reach that state."""
        host = self.host
        host.is_committing = True
        host.commit_log()
        if self.chance.below(2):
            self._add(None)
        for _ in range(SETTLING_ROUNDS):
            for member in self.members:
                member.step()
                member.revoke()
            self._after("settle")
            if not self.invariants.missing_assignment():
                break
            host.pass_time(SETTLING_MS)
        self.invariants.check_replay()
        missing = self.invariants.missing_assignment()
        if missing:
            raise Violation("EverybodyConverges", missing)
