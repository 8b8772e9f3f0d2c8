"""Mutants (deliberate bugs that the simulation must find) in the quorum: each accepts forged
messages."""

from dataclasses import replace
from typing import Any

from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.model.errors import ErrorCode
from ottla.raft import answers
from ottla.raft.messages import EndQuorumEpochRequest
from ottla.raft.replica import Replica
from ottla.raft.trust import EPOCH_JUMP_MAX, EpochCredit


def _raise_to_any_epoch() -> Any:
    return patched(Replica, may_be_raised_to=lambda self, epoch, now_ms: True)


def _raise_again_and_again() -> Any:
    return patched(EpochCredit, is_enough=lambda self, rise, now_ms: rise <= EPOCH_JUMP_MAX)


def _believe_in_two_leaders() -> Any:
    return patched(Replica, contradicts=lambda self, leader_id, epoch: False)


def _believe_any_answer() -> Any:
    return patched(Replica, fault_of_answer=lambda self, response: None)


def _hear_other_clusters() -> Any:
    original = answers.end_error

    def end_error(replica: Replica, request: EndQuorumEpochRequest, now_ms: int) -> ErrorCode:
        ours = replace(request, cluster_id=replica.identity.cluster_id)
        return original(replica, ours, now_ms)

    return patched(answers, end_error=end_error)


def _mutant(name: str, sentence: str, plant: Plant, *killed_by: str) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="walk",
        subject="raft-forged",
        plant=plant,
        seed_count=400,
        killed_by=killed_by,
        is_quick=True,
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "any-epoch-believed",
        "an EndQuorumEpoch with an epoch far ahead is persisted",
        _raise_to_any_epoch,
        "ForgedEpochsAreRefused",
        "EpochsKeepRoom",
    ),
    _mutant(
        "epochs-used-up",
        "each message may raise the epoch by a jump, without a limit on their number",
        _raise_again_and_again,
        "EpochsKeepRoom",
    ),
    _mutant(
        "second-leader-believed",
        "any member that claims to lead the epoch is followed, although the leader is known",
        _believe_in_two_leaders,
    ),
    _mutant(
        "any-answer-believed",
        "the leader and epoch in a response are accepted unchecked",
        _believe_any_answer,
    ),
    _mutant(
        "other-clusters-heard",
        "an EndQuorumEpoch from another cluster is accepted",
        _hear_other_clusters,
        "StrangersChangeNothing",
    ),
)
