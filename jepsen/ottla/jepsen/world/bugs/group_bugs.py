"""Mutants (deliberate bugs that the simulation must find) in group coordinators: owners of
partitions, committed offsets, state of a new coordinator."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ottla.broker.coordinators.commit_wait import CommitWait
from ottla.broker.coordinators.effects import CoordinatorRecord, Outbox
from ottla.broker.coordinators.timers import Timers
from ottla.broker.groups.classic.classic_groups import ClassicGroups
from ottla.broker.groups.classic.rebalance import Rebalancer
from ottla.broker.groups.consumer import reconcile
from ottla.broker.groups.consumer.assigned_changes import AssignedChanges
from ottla.broker.groups.consumer.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer.consumer_group import NO_OWNER, ConsumerGroup
from ottla.broker.groups.consumer.consumer_groups import ConsumerGroups
from ottla.broker.groups.consumer.consumer_rebalance import ConsumerRebalancer
from ottla.broker.groups.consumer.consumer_records import epoch_record
from ottla.broker.groups.consumer.mixed_group import MixedGroups
from ottla.broker.groups.offsets.committed_offsets import CommittedOffset, OffsetTable
from ottla.broker.groups.offsets.offset_store import OffsetStore
from ottla.broker.groups.shard import GroupShard
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.model.errors import ErrorCode, RefusedError


def _nothing(*arguments: Any, **more: Any) -> None:
    """Do nothing. A mutant installs this function in place of a function of the code under test."""


# --- responses that are sent too early ------------------------------------------------------------


def _answer_uncommitted() -> Any:
    return patched(Outbox, answer_when_committed=Outbox.answer)


@contextmanager
def _commit_of_anybody() -> Iterator[None]:
    with ExitStack() as stack:
        for kind in (ClassicGroups, ConsumerGroups):
            stack.enter_context(patched(kind, check_commit=_nothing))
        yield


def _give_before_released() -> Any:
    return patched(ConsumerGroup, owner_epoch_of=lambda self, topic_id, index: NO_OWNER)


def _believe_revoked() -> Any:
    return patched(reconcile, _owns_any=lambda owned, partitions: False)


def _sync_of_any_generation() -> Any:
    return patched(Rebalancer, _check_sync=_nothing)


def _removed_one_by_one() -> Any:
    def leave(
        self: MixedGroups, group: ConsumerGroup, identities: Any, now: Any
    ) -> list[ErrorCode]:
        codes = []
        for identity in identities:
            try:
                member = self._member_of(group, identity)
            except RefusedError as refusal:
                codes.append(refusal.code)
            else:
                self._consumers.remove(group, {member.member_id}, now)
                codes.append(ErrorCode.NONE)
        return codes

    return patched(MixedGroups, leave=leave)


# --- records that are not written -----------------------------------------------------------------


@contextmanager
def _unwritten(owner: type, name: str) -> Iterator[None]:
    """Suppress the records of one method of the group coordinator during the `with` block. The
    method still changes the state of the coordinator."""
    original = getattr(owner, name)

    def change(self: Any, *arguments: Any, **more: Any) -> Any:
        with patched(Outbox, write=_nothing):
            return original(self, *arguments, **more)

    with patched(owner, **{name: change}):
        yield


def _epoch_unwritten() -> Any:
    return _unwritten(ConsumerChanges, "raise_epoch")


def _place_unwritten() -> Any:
    return _unwritten(AssignedChanges, "place")


def _target_unwritten() -> Any:
    return _unwritten(AssignedChanges, "set_target")


def _removal_unwritten() -> Any:
    return _unwritten(AssignedChanges, "remove")


def _deletion_unwritten() -> Any:
    return _unwritten(GroupShard, "_drop_group")


def _offset_tombstone_unwritten() -> Any:
    return _unwritten(OffsetStore, "drop")


@contextmanager
def _first_offset_stays() -> Iterator[None]:
    original = OffsetTable.put

    def put(self: OffsetTable, group: str, topic: str, index: int, offset: CommittedOffset) -> None:
        known = self.find(group, topic, index)
        if known is None or known.commit_timestamp_ms != offset.commit_timestamp_ms:
            original(self, group, topic, index, offset)

    with patched(OffsetTable, put=put):
        yield


@contextmanager
def _old_kind_unwritten() -> Iterator[None]:
    original = Outbox.write

    def write(self: Outbox, record: CoordinatorRecord) -> None:
        if record.value is not None or record.key[:2] != b"\0\2":
            original(self, record)

    with patched(Outbox, write=write):
        yield


# --- epochs and time ------------------------------------------------------------------------------


def _epoch_not_raised() -> Any:
    def raise_epoch(self: ConsumerChanges, group: ConsumerGroup, metadata_hash: int) -> None:
        group.metadata_hash = metadata_hash
        self._outbox.write(epoch_record(group))

    return patched(ConsumerChanges, raise_epoch=raise_epoch)


@contextmanager
def _sessions_end_with_the_coordinator() -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(patched(ConsumerRebalancer, resume=_nothing))
        stack.enter_context(patched(Rebalancer, resume=_nothing))
        yield


@contextmanager
def _nearer_deadlines_lost() -> Iterator[None]:
    original = Timers.set

    def set_later(self: Timers[Any], name: Any, deadline_ms: int) -> None:
        known_ms = self.deadline_of(name)
        original(self, name, deadline_ms if known_ms is None else known_ms)

    with patched(Timers, set=set_later):
        yield


def _resign_in_silence() -> Any:
    return patched(GroupShard, resign=lambda self: iter(()))


def _silent_members_stay() -> Any:
    return patched(ConsumerRebalancer, on_member_timer=_nothing)


def _silent_classic_members_stay() -> Any:
    return patched(Rebalancer, on_session_timer=_nothing)


def _revocation_never_ends() -> Any:
    return patched(ConsumerRebalancer, on_topics=_nothing)


# --- responses whose records are not committed in time --------------------------------------------


def _expire_in_silence() -> Any:
    return patched(CommitWait, on_expire=_nothing)


def _answer_late_as_committed() -> Any:
    return patched(CommitWait, on_expire=lambda self: self._give(ErrorCode.NONE))


def _row(name: str, sentence: str, plant: Plant, seed_count: int = 400) -> Mutant:
    return Mutant(
        name=f"group-{name}",
        sentence=sentence,
        engine="walk",
        subject="group",
        plant=plant,
        seed_count=seed_count,
        is_quick=seed_count <= 400,
    )


MUTANTS = (
    _row(
        "answer-early",
        "a request is answered before its records are committed",
        _answer_uncommitted,
    ),
    _row("any-commit", "a commit of an old generation is accepted", _commit_of_anybody),
    _row(
        "given-early",
        "a partition is assigned before its owner has released it",
        _give_before_released,
    ),
    _row(
        "revoked-unasked",
        "a partition is reassigned before its owner has revoked it",
        _believe_revoked,
    ),
    _row(
        "removed-singly",
        "a group that becomes classic after one removal keeps the other members to be removed",
        _removed_one_by_one,
    ),
    _row("any-sync", "an assignment of an old generation is returned", _sync_of_any_generation),
    _row("epoch-unwritten", "a group's epoch rises in memory only", _epoch_unwritten),
    _row("place-unwritten", "a member's current assignment is not written", _place_unwritten),
    _row("target-unwritten", "a member's target assignment is not written", _target_unwritten),
    _row("removal-unwritten", "a removed member's tombstones are not written", _removal_unwritten),
    _row("deletion-unwritten", "a deleted group's tombstone is not written", _deletion_unwritten),
    _row(
        "offset-returns", "the tombstones of offsets are not written", _offset_tombstone_unwritten
    ),
    _row("first-offset", "of two concurrent commits the first one remains", _first_offset_stays),
    _row("old-kind", "a converted group keeps its old record", _old_kind_unwritten),
    _row("epoch-stands", "a group's epoch does not rise with its members", _epoch_not_raised),
    _row(
        "sessions-lost",
        "a new coordinator starts no session timers",
        _sessions_end_with_the_coordinator,
    ),
    _row("deadline-stands", "a deadline cannot be changed once set", _nearer_deadlines_lost),
    _row(
        "resign-mute",
        "waiting members get no response when the coordinator changes",
        _resign_in_silence,
    ),
    _row(
        "silent-stay",
        "a silent member of the consumer protocol is not removed",
        _silent_members_stay,
    ),
    _row(
        "silent-stay-classic",
        "a silent classic member is not removed",
        _silent_classic_members_stay,
    ),
    _row("topics-unseen", "a group does not follow its topics", _revocation_never_ends),
    _row(
        "expired-mute",
        "a request gets no response if its records are not committed in time",
        _expire_in_silence,
    ),
    _row(
        "expired-answered",
        "a request is answered at its timeout as if its records were committed",
        _answer_late_as_committed,
    ),
)
