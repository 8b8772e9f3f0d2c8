"""Mutants (deliberate bugs that the simulation must find) in the handling of damaged voters: a
voter misses damage to its files, or grants votes that it must not grant."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.model.ids import Offset
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum_files.checkpoint_file import CheckpointFile
from ottla.raft import snapshot, voter_checkpoint
from ottla.raft.follower import Follower
from ottla.raft.leader import Leader
from ottla.raft.messages import FetchRequest
from ottla.raft.replica import Replica
from ottla.raft.transitions import Role, Standing
from ottla.raft.voter_checkpoint import Slot, VoterFiles, decode_file


def _votes_all_the_same() -> Any:
    return patched(Replica, votes=property(lambda replica: replica.is_voter))


@contextmanager
def _stands_all_the_same() -> Iterator[None]:
    from ottla.raft import quorum

    every = {standing: frozenset(Role) for standing in Standing}
    may = property(lambda replica: replica.is_voter and not replica.is_shutting_down)
    with patched(Replica, may_campaign=may), patched(quorum, ROLES_OF=every):
        yield


def _votes_too_early() -> Any:
    return patched(Follower, _has_all_committed=lambda self, replica: True)


def _log_not_compared() -> Any:
    return patched(voter_checkpoint, _compare_log=lambda flushed, files, damages: None)


@contextmanager
def _vote_is_only_in_quorum_state() -> Iterator[None]:
    original = voter_checkpoint._with_checkpoint

    def with_checkpoint(
        kept: Any, files: VoterFiles, damages: list[str], repairs: list[str]
    ) -> Any:
        election = original(kept, files, damages, repairs)
        state = files.election or replace(election, voted=None, leader_id=None)
        return replace(state, standing=election.standing)

    with patched(voter_checkpoint, _with_checkpoint=with_checkpoint):
        yield


@contextmanager
def _missing_files_are_new() -> Iterator[None]:
    original = voter_checkpoint._without_checkpoint

    def without_checkpoint(files: VoterFiles, damages: list[str]) -> Any:
        return original(files, [])

    with patched(voter_checkpoint, _without_checkpoint=without_checkpoint):
        yield


@contextmanager
def _standing_is_forgotten() -> Iterator[None]:
    from ottla.node.quorum_files import checkpoint_file

    def decode(data: bytes) -> Slot | None:
        slot = decode_file(data)
        if slot is None:
            return None
        kept = slot.checkpoint
        election = replace(kept.election, standing=Standing.FULL)
        return Slot(slot.sequence, replace(kept, election=election))

    with patched(checkpoint_file, decode_file=decode):
        yield


@contextmanager
def _amnesiac_asks_none() -> Iterator[None]:
    original = Replica.__init__

    def init(self: Replica, *arguments: Any) -> None:
        original(self, *arguments)
        if self.standing is Standing.AMNESIAC:
            self.standing = Standing.CATCHING_UP
            self.unheard.clear()

    with patched(Replica, __init__=init):
        yield


def _flushed_end_not_noted() -> Any:
    return patched(CheckpointFile, note_flushed=lambda self, flushed: None)


def _promise_not_lowered() -> Any:
    async def lower_to(self: CheckpointFile, flushed: Any) -> None:
        assert flushed.offset >= Offset(0)

    return patched(CheckpointFile, lower_to=lower_to)


def _damaged_snapshot_believed() -> Any:
    return patched(snapshot, check_whole=lambda data: None)


def _log_without_snapshot_kept() -> Any:
    async def drop_nothing(self: MetadataLog, snapshot_end: Offset) -> None:
        assert snapshot_end >= 0

    return patched(MetadataLog, _drop_log_after_gap=drop_nothing)


@contextmanager
def _shown_standing_sticks() -> Iterator[None]:
    original = Leader.note_standing

    def note_standing(self: Leader, replica: Replica, request: FetchRequest) -> None:
        if request.standing is not Standing.FULL:
            original(self, replica, request)

    with patched(Leader, note_standing=note_standing):
        yield


def _row(name: str, sentence: str, plant: Plant, *, seed_count: int = 2_000) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="walk",
        subject="raft-damaged",
        plant=plant,
        seed_count=seed_count,
        is_quick=seed_count <= 500,
    )


MUTANTS = (
    _row("voter-votes-with-less", "a voter that lost entries votes", _votes_all_the_same),
    _row(
        "voter-stands-with-less",
        "a voter that lost entries becomes a candidate",
        _stands_all_the_same,
    ),
    _row(
        "voter-returns-early",
        "a damaged voter votes after its leader's first response",
        _votes_too_early,
    ),
    _row(
        "voter-log-not-compared",
        "a truncated log is not detected",
        _log_not_compared,
        seed_count=500,
    ),
    _row(
        "voter-one-memory",
        "the vote in the checkpoint is not read",
        _vote_is_only_in_quorum_state,
        seed_count=500,
    ),
    _row(
        "voter-missing-is-new",
        "a voter with missing files counts as new",
        _missing_files_are_new,
        seed_count=500,
    ),
    _row(
        "voter-standing-forgotten",
        "a damaged voter does not store that it is damaged",
        _standing_is_forgotten,
    ),
    _row(
        "voter-amnesiac-asks-none",
        "a voter that lost its vote follows the first leader that it finds",
        _amnesiac_asks_none,
        seed_count=20_000,
    ),
    _row(
        "voter-end-not-noted",
        "the flushed end offset is not stored after a flush",
        _flushed_end_not_noted,
        seed_count=500,
    ),
    _row(
        "voter-promise-not-lowered",
        "truncated uncommitted entries stay promised",
        _promise_not_lowered,
    ),
    _row(
        "voter-snapshot-believed",
        "a damaged snapshot counts as intact",
        _damaged_snapshot_believed,
        seed_count=500,
    ),
    _row(
        "voter-log-above-nothing",
        "a log that begins above its newest snapshot is kept",
        _log_without_snapshot_kept,
    ),
    _row(
        "voter-shown-damaged-on",
        "a leader reports a voter as damaged after it votes again",
        _shown_standing_sticks,
    ),
)
