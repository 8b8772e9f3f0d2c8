"""Mutants of the groups: who owns what, what was committed, what a new coordinator knows."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from ottla.broker.groups import reconcile, shard
from ottla.broker.groups.consumer_changes import ConsumerChanges
from ottla.broker.groups.consumer_group import NO_OWNER, ConsumerGroup
from ottla.broker.groups.consumer_rebalance import ConsumerRebalancer
from ottla.broker.groups.consumer_records import epoch_record
from ottla.broker.groups.effects import Outbox
from ottla.broker.groups.group_records import GroupRecord
from ottla.broker.groups.mixed_group import MixedGroups
from ottla.broker.groups.offset_store import OffsetStore
from ottla.broker.groups.offsets import CommittedOffset, OffsetTable
from ottla.broker.groups.rebalance import Rebalancer
from ottla.broker.groups.shard import GroupShard
from ottla.broker.groups.timers import Timers
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.model.errors import ErrorCode, RefusedError


def _nothing(*arguments: Any, **more: Any) -> None:
    """Stand in for what is left out."""


# --- what is told too early -----------------------------------------------------------------------


def _answer_uncommitted() -> Any:
    return patched(Outbox, answer_when_committed=Outbox.answer)


def _commit_of_anybody() -> Any:
    return patched(shard, check_commit=_nothing)


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


# --- what is not written --------------------------------------------------------------------------


@contextmanager
def _unwritten(owner: type, name: str) -> Iterator[None]:
    """Have a method change what it changes and write nothing."""
    original = getattr(owner, name)

    def change(self: Any, *arguments: Any, **more: Any) -> Any:
        with patched(Outbox, write=_nothing):
            return original(self, *arguments, **more)

    with patched(owner, **{name: change}):
        yield


def _epoch_unwritten() -> Any:
    return _unwritten(ConsumerChanges, "raise_epoch")


def _place_unwritten() -> Any:
    return _unwritten(ConsumerChanges, "place")


def _target_unwritten() -> Any:
    return _unwritten(ConsumerChanges, "aim")


def _removal_unwritten() -> Any:
    return _unwritten(ConsumerChanges, "remove")


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

    def write(self: Outbox, record: GroupRecord) -> None:
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
        "answer-early", "what was written is answered before it is committed", _answer_uncommitted
    ),
    _row("any-commit", "a commit of an old generation is taken", _commit_of_anybody),
    _row("given-early", "a partition is given before it is released", _give_before_released),
    _row(
        "revoked-unasked",
        "a partition is passed on before its owner gives it up",
        _believe_revoked,
    ),
    _row(
        "removed-singly",
        "a group that is classic after one removal keeps the others that it is to lose",
        _removed_one_by_one,
    ),
    _row("any-sync", "an assignment of an old generation is handed out", _sync_of_any_generation),
    _row("epoch-unwritten", "a group's epoch rises in memory alone", _epoch_unwritten),
    _row("place-unwritten", "what a member has is not written", _place_unwritten),
    _row("target-unwritten", "what a member is to have is not written", _target_unwritten),
    _row("removal-unwritten", "a member's tombstones are forgotten", _removal_unwritten),
    _row("deletion-unwritten", "a deleted group's tombstone is forgotten", _deletion_unwritten),
    _row("offset-returns", "the tombstones of offsets are forgotten", _offset_tombstone_unwritten),
    _row("first-offset", "of two commits at once the first one stays", _first_offset_stays),
    _row("old-kind", "a group that goes over leaves its old record", _old_kind_unwritten),
    _row("epoch-stands", "a group's epoch does not rise with its members", _epoch_not_raised),
    _row("sessions-lost", "a new coordinator times no session", _sessions_end_with_the_coordinator),
    _row("deadline-stands", "a deadline that was set cannot be moved", _nearer_deadlines_lost),
    _row("resign-mute", "who waits is not told of the next coordinator", _resign_in_silence),
    _row("silent-stay", "a silent member of the newer protocol stays", _silent_members_stay),
    _row("silent-stay-classic", "a silent classic member stays", _silent_classic_members_stay),
    _row("topics-unseen", "a group does not follow its topics", _revocation_never_ends),
)
