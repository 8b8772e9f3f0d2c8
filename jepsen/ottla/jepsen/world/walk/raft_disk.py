"""Random walk on raft over real metadata logs, on disks that lose and tear data.

Replicas, messages and the adversary are the same as in `raft_walk`. Each replica has the metadata
log of a node on a simulated disk, whose power may also fail between two operations. The random walk
keeps a copy of the expected content of the disk, and compares it with the result of each recovery.
At the end all faults are healed, and the quorum must make progress. Invariants: FlushedIsKept,
SnapshotHoldsCommitted, ProgressAfterHealing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NoReturn

from ottla.jepsen.quorum.invariants import Invariants
from ottla.jepsen.quorum.member import MemoryMember, PowerCut
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.walk.raft_disk_log import DOOM_OPERATIONS_MAX, NOW_MS, Damage, DiskLog
from ottla.jepsen.world.walk.raft_walk import CONVERSATION_MAX, SLEEP_MS, RaftWalk, WalkedQuorum
from ottla.jepsen.world.walk.stepping import ProcessEnd
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset
from ottla.model.limits import MIB
from ottla.model.seams import Rng
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.effects import Append, Effects, SnapshotChunk
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import Records, Response
from ottla.raft.transitions import Standing
from ottla.raft.voters import QuorumIdentity
from ottla.wire.batch_builder import BatchBuilder

FAILING = (DiskOperation.FSYNC, DiskOperation.WRITE, DiskOperation.NAME)
"""Kinds of disk operations that may fail in a random walk on raft."""

NEVER = -1
"""Value of `boundary_count` that schedules no power cut."""

OPEN_MAX = 3
"""Maximum difference in entries between the leader's log and other replicas' logs after all faults
of a quorum have ended."""

CALM_STEPS_MAX = 4_000
CALM_MS_MAX = 60_000
"""Virtual time in ms on each replica's clock within which a healed quorum must have converged."""


def draw_config(chance: Chance) -> QuorumConfig:
    """Return a random configuration with small files and fetch responses, so that a short run has
    many events."""
    return QuorumConfig(
        segment_bytes=(300, 2_000, MIB)[chance.below(3)],
        retention_bytes_max=(1, 400, 100 * MIB)[chance.below(3)],
        fetch_bytes_max=(1, 200, MIB)[chance.below(3)],
        fetch_snapshot_bytes_max=(100, MIB)[chance.below(2)],
    )


class DiskRaftWalk(RaftWalk):
    """Search engine that tests raft over metadata logs on simulated disks by random walks."""

    subject = "raft-disk"
    required = (
        *RaftWalk.required,
        "power goes among changes of the disk",
        "power goes while a log is recovered",
        "a disk fails",
    )

    def make_walk(self, chance: Chance) -> WalkedQuorum:
        """Return a simulated quorum in which each replica has its log on a simulated disk."""
        return DiskWalk(chance)


class DamagedRaftWalk(DiskRaftWalk):
    """Search engine that tests raft by random walks in which files of stopped voters are damaged
    before they start again."""

    subject = "raft-damaged"
    required = (
        *RaftWalk.required,
        "a voter's log was cut",
        "a voter has forgotten its vote",
        "a file is put back from an older copy",
        "a damaged voter votes again",
        "a voter's lost vote is known from its checkpoint",
        "a leader shows a voter that is AMNESIAC",
        "a leader shows a voter that is CATCHING_UP",
        "a voter's damaged snapshot was all that it had",
        "a voter's damaged snapshot is made good by its log",
    )

    def make_walk(self, chance: Chance) -> WalkedQuorum:
        """Return a simulated quorum in which the files of voters may be damaged."""
        return DamagedWalk(chance)


class DiskWalk(WalkedQuorum):
    """One simulated quorum over real metadata logs, and its adversary."""

    def __init__(self, chance: Chance) -> None:
        self._drawn_config = draw_config(chance)
        self._disk_count = 0
        super().__init__(chance)

    def make_member(self, whoami: QuorumIdentity) -> MemoryMember:
        """Return a new replica of the quorum with an empty disk."""
        self._disk_count += 1
        rng = self.chance.stream(f"disk {self._disk_count}")
        return DiskMember(
            self._drawn_config, whoami, self._rng, self.invariants, rng, self.rare.sometimes
        )

    def _draw_actions(self) -> list[Callable[[], None]]:
        behind_count = (4, 0, 12)[self.chance.below(3)]
        failing_count = (0, 1, 4)[self.chance.below(3)]
        return [
            *super()._draw_actions(),
            *[self._leave_behind] * behind_count,
            *[self._fail_disk] * failing_count,
        ]

    def _fail_disk(self) -> None:
        """Inject a failing disk call or a full disk into one replica. Either fault ends the
        replica's process."""
        member = self.members[self.chance.below(len(self.members))]
        kind = self.chance.below(len(FAILING) + 1)
        skip_count = self.chance.below(6)
        assert isinstance(member, DiskMember)
        if kind < len(FAILING):
            member.log.fail(FAILING[kind], skip_count)
        else:
            member.log.fill(self.chance.below(500))

    def _leave_behind(self) -> None:
        """Delete the part of a leader's log that one replica lacks, so that the replica must fetch
        the snapshot."""
        leading = [at for at, member in enumerate(self.members) if member.is_leader]
        count = len(self.members)
        if not leading or count < 3:
            self._deliver()
            return
        leader = leading[self.chance.below(len(leading))]
        first = 1 + self.chance.below(count - 1)
        behind, other = ((leader + way) % count for way in (first, first % (count - 1) + 1))
        for _ in range(1 + self.chance.below(3)):
            self._propose()
            self._let_talk(leader, other, CONVERSATION_MAX)
        self._snapshot_of(leader)
        if self.chance.below(2):
            self.members[behind].cut_power_after(self.chance.below(5))
        self._let_talk(leader, behind, 1 + self.chance.below(2 * CONVERSATION_MAX))

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the quorum. A replayed run may end earlier.
        Then heal all faults, and check that the quorum makes progress."""
        self.walk(budget)
        self._come_together()
        self.invariants.check_end()

    # --- after healing ------------------------------------------------------------------------

    def _come_together(self) -> None:
        """Heal all faults and advance all clocks evenly. Checks that a leader commits an entry and
        that every log follows the leader's.

        Raises Violation(ProgressAfterHealing) if the quorum does not reach this state in time.
        """
        self.trace.add("calm")
        self._blocked, self._order, self._is_quiet = set(), 0, False
        for at in [*self._leaving]:
            if self.members[at].core is not None:
                self._stop(at)
        for member in self.members:
            assert isinstance(member, DiskMember)
            member.cut_power_after(NEVER)
            member.log.heal()
        wanted = len(self.invariants.committed) + 2
        passed_ms = 0
        for _ in range(CALM_STEPS_MAX):
            for at, member in enumerate(self.members):
                if member.core is None:
                    self._start(at)
            if self._is_together(wanted):
                return
            flushing = [at for at, member in enumerate(self.members) if member.wants_flush]
            if self._packets:
                self._arrive(self._packets.pop(0))
            elif flushing:
                self._finish_flush(flushing[0], 0)
            elif passed_ms < CALM_MS_MAX:
                passed_ms += self._pass_time(wanted)
            else:
                break
        raise Violation("ProgressAfterHealing", ", ".join(map(_state, self.members)))

    def _is_together(self, wanted: int) -> bool:
        whole = [one for at, one in enumerate(self.members) if at not in self._wiped]
        return self._are_all_shown_as_full(whole) and all(
            member.running.high_watermark >= wanted and member.running.standing is Standing.FULL
            for member in whole
        )

    def _are_all_shown_as_full(self, whole: list[MemoryMember]) -> bool:
        """Return whether a leader reports for all its voters that they have full voting rights."""
        ids = {member.identity.node_id for member in whole}
        shown = [one.running.describe() for one in whole if one.is_leader]
        return all(
            voter.standing is Standing.FULL
            for description in shown
            if description is not None
            for voter in description.voters
            if voter.key.id in ids
        )

    def _pass_time(self, wanted: int) -> int:
        """Advance the clock of every replica to the next timer. The leader also appends an entry if
        its log ends less than OPEN_MAX entries after the offset `wanted`. Returns the time in ms by
        which the clocks advanced."""
        wakes = [(wake, at) for at, wake in enumerate(self._wakes) if wake is not None]
        duration_ms = max(1, min((wake - self._clocks[at] for wake, at in wakes), default=100))
        for at in range(len(self.members)):
            self._sleep(at, duration_ms)
        ends = [one.log.end_offset for one in self.members if one.is_leader]
        if ends and min(ends) < wanted + OPEN_MAX:
            self._propose()
        return duration_ms


class DamagedWalk(DiskWalk):
    """One simulated quorum over real metadata logs, in which the files of a minority of the voters
    may be damaged at a time."""

    def _draw_actions(self) -> list[Callable[[], None]]:
        damage_count = (3, 6, 12)[self.chance.below(3)]
        return [
            *super()._draw_actions(),
            *[self._damage] * damage_count,
            *[self._copy] * (damage_count // 3),
            *[self._forget] * (damage_count // 3),
        ]

    def _copy(self) -> None:
        """Keep a copy of a random file of one voter. Later damage may replace the file by this
        older copy."""
        member = self.members[self.chance.below(self.voter_count)]
        assert isinstance(member, DiskMember)
        if member.identity.is_voter:
            member.log.copy_file()

    def _wipe(self) -> None:
        """Replace the disk of a voter by an empty one. Does nothing if another voter is damaged,
        because a majority of intact voters must remain."""
        if not any(self._is_damaged(at) for at in range(self.voter_count)):
            super()._wipe()

    def _damage(self) -> None:
        """Stop a voter and damage its files, if a majority of intact voters remains."""
        at = self.chance.below(self.voter_count)
        kind = list(Damage)[self.chance.below(len(Damage))]
        if not self._may_damage(at):
            self._deliver()
            return
        self._damage_one(at, kind)
        if self.chance.below(2):
            self._start(at)

    def _forget(self) -> None:
        """Delete the vote that a voter has just granted to a candidate. The candidate still counts
        the vote, while the old leader commits an entry with the same voter."""
        leading = [at for at, member in enumerate(self.members) if member.is_leader]
        if not leading or self.voter_count < 3:
            self._deliver()
            return
        self._is_quiet = False  # it has to find the old leader
        leader = leading[self.chance.below(len(leading))]
        first = 1 + self.chance.below(self.voter_count - 1)
        second = first % (self.voter_count - 1) + 1
        voter, candidate = ((leader + way) % self.voter_count for way in (first, second))
        for at in (voter, candidate):
            if self.members[at].core is None:
                self._start(at)
            else:
                self._sleep(at, SLEEP_MS)
        self._let_talk(candidate, voter, 1 + self.chance.below(CONVERSATION_MAX))
        if not self._may_damage(voter):
            return
        self._damage_one(voter, Damage.STATE_FILES)
        self._start(voter)
        self._let_talk(leader, voter, 1 + self.chance.below(CONVERSATION_MAX))
        self._propose()
        self._let_talk(leader, voter, 1 + self.chance.below(CONVERSATION_MAX))

    def _may_damage(self, at: int) -> bool:
        """Return True if a majority of intact voters remains when this voter is damaged."""
        damaged = {one for one in range(self.voter_count) if self._is_damaged(one)} | self._wiped
        minority_count = self.voter_count - self.voter_count // 2 - 1
        return len(damaged | {at}) <= minority_count and at not in self._wiped

    def _damage_one(self, at: int, kind: Damage) -> None:
        if self.members[at].core is not None:
            self._stop(at)
        member = self.members[at]
        assert isinstance(member, DiskMember)
        self.trace.add("damage", at, kind.name)
        has_lost = member.damage(kind)
        if kind is Damage.SNAPSHOTS and member.log.has_snapshot_damage:
            self.rare.sometimes(
                "a voter's damaged snapshot was all that it had"
                if has_lost
                else "a voter's damaged snapshot is made good by its log"
            )
        if has_lost:
            is_amnesiac = member.log.standing is Standing.AMNESIAC
            self.rare.sometimes(
                "a voter has forgotten its vote" if is_amnesiac else "a voter's log was cut"
            )
        elif kind is Damage.STATE:
            self.rare.sometimes("a voter's lost vote is known from its checkpoint")
        if kind is Damage.OLDER_COPY:
            self.rare.sometimes("a file is put back from an older copy")

    def _is_damaged(self, at: int) -> bool:
        """Return True if a voter knows that it may lack records that it acknowledged."""
        member = self.members[at]
        known = member.election
        return known is not None and known.standing is not Standing.FULL

    def _after(self, at: int, answers: list[tuple[int, Response]], effects: Effects) -> None:
        state = effects.persist_election
        member = self.members[at]
        assert isinstance(member, DiskMember)
        shown = member.running.describe() if member.is_leader else None
        if shown is not None:
            for standing in {voter.standing for voter in shown.voters} - {Standing.FULL}:
                self.rare.sometimes(f"a leader shows a voter that is {standing.name}")
        if state is not None and state.standing is Standing.FULL:
            if member.log.standing is not Standing.FULL:
                self.rare.sometimes("a damaged voter votes again")
            member.log.standing = Standing.FULL
        super()._after(at, answers, effects)


class DiskMember(MemoryMember):
    """One replica of a simulated quorum, whose log and `quorum-state` are files on a simulated
    disk."""

    __slots__ = ("_doom", "_invariants_of_all", "_sometimes", "log")

    log: DiskLog  # type: ignore[assignment]

    def __init__(
        self,
        config: QuorumConfig,
        identity: QuorumIdentity,
        rng: Rng,
        invariants: Invariants,
        disk_rng: Rng,
        sometimes: Callable[[str], None],
    ) -> None:
        self._doom: int | None = None
        """Number of disk operations until the power fails, within the replica's next change that
        consists of several operations. None means no power cut."""
        self._sometimes = sometimes
        super().__init__(config, identity, rng)
        self.log = DiskLog(config, identity, disk_rng, invariants)
        self._invariants = self._invariants_of_all = invariants
        invariants.watch(identity, self.log)

    def stop(self, survivor_count: int = 0) -> None:
        """Cut the power of the replica. The disk decides at random which data survives, and the
        replica's log is recovered at once."""
        super().stop(survivor_count)
        if self.log.was_cut_while_recovered:
            self._sometimes("power goes while a log is recovered")
        self.election = self.log.election

    def damage(self, kind: Damage) -> bool:
        """Damage files of this stopped voter. Returns whether the voter may no longer vote."""
        node_id = self.identity.node_id
        is_damaged = self.log.damage(kind)
        self.election = self.log.election
        if is_damaged:
            has_forgotten = self.log.standing is Standing.AMNESIAC
            self._invariants_of_all.note_damage(node_id, has_forgotten=has_forgotten)
        return is_damaged

    def cut_power_after(self, boundary_count: int) -> None:
        """Schedule a power cut of the replica after `boundary_count` effects, or within the next
        change that consists of several disk operations. If `boundary_count` is NEVER, no power cut
        is scheduled."""
        self._doom = None
        rng = self.log.rng
        if boundary_count == NEVER or rng.below(3) == 0:
            super().cut_power_after(boundary_count)
        else:
            self._doom = rng.below(DOOM_OPERATIONS_MAX)

    def flush(self, left: int) -> Offset:
        """End an fsync of all data written to the replica's log, and return the flushed end offset.
        `left` has no effect here."""
        with self._ending():
            self.log.flush()
        return self.log.flushed_offset

    def snapshot_at(self, offset: Offset, *, keeps_log: bool) -> None:
        """Write a snapshot of the log's entries below `offset`. The configuration decides which
        part of the log is deleted afterwards."""
        with self._ending(), self._doomed():
            self.log.snapshot_at(offset)

    # --- ports of its steps -------------------------------------------------------------------

    def commit(self, high_watermark: Offset, /) -> None:
        """Set the high watermark of the replica's log."""
        super().commit(high_watermark)
        self.log.note_high_watermark(high_watermark)

    def fail(self, error: Exception, /) -> NoReturn:
        """End the replica's process: a replica that cannot write its log must not send
        responses."""
        if not (isinstance(error, OSError | RefusedError) and self.log.is_failing):
            raise error
        self._sometimes("a disk fails")
        raise PowerCut from error

    # --- its log ------------------------------------------------------------------------------

    def _truncate(self, offset: Offset) -> None:
        with self._doomed():
            self.log.truncate_to(offset)

    def _append(self, append: Append) -> None:
        self.log.append(append)

    def _write_chunk(self, chunk: SnapshotChunk) -> None:
        with self._doomed() if chunk.is_last else nullcontext():
            self.log.write_chunk(chunk)

    def _keep_election(self, state: ElectionState) -> None:
        self.log.write_election(state)
        self.election = state

    def _records_of(self, epoch: Epoch, value: str) -> Records:
        builder = BatchBuilder()
        builder.append(NOW_MS, None, value.encode())
        return builder.build()

    @contextmanager
    def _doomed(self) -> Iterator[None]:
        """Return a context in which the replica's power fails during a change of several disk
        operations, if such a failure was scheduled."""
        self.log.disk.operations_left, self._doom = self._doom, None
        try:
            yield
        except ProcessEnd:
            self._sometimes("power goes among changes of the disk")
            raise PowerCut from None
        self.log.disk.operations_left = None

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Return a context in which an error ends the replica's process, as an error of the raft
        core does."""
        try:
            try:
                yield
            except (OSError, RefusedError) as error:
                self.fail(error)
        except PowerCut:
            self.is_cut = True


def _state(member: MemoryMember) -> str:
    core = member.core
    name = member.identity.node_id
    return (
        f"{name} down"
        if core is None
        else (f"{name} {core.role.value} {core.epoch} at {core.high_watermark}")
    )
