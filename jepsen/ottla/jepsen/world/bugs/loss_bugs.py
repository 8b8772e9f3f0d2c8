"""Mutants of what follows from a disk that holds less than was promised."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from ottla.controller import brokers, partition_change
from ottla.controller.partition_change import Rules
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.metadata.image import PartitionState
from ottla.model.ids import NodeId
from ottla.storage import log_losses


def _register_without_losses() -> Any:
    """What Kafka does: a broker that stopped cleanly has all that it had."""
    return patched(brokers, replicas_lost=lambda image, config, broker, lost: iter(()))


@contextmanager
def _keep_lost_eligible() -> Iterator[None]:
    original = partition_change._eligible

    def eligible(
        state: PartitionState, rules: Rules, isr: tuple[NodeId, ...], stopped: Collection[NodeId]
    ) -> tuple[NodeId, ...]:
        return original(state, rules, isr, ())

    with patched(partition_change, _eligible=eligible):
        yield


@contextmanager
def _keep_lost_as_last_known() -> Iterator[None]:
    original = partition_change._last_known

    def last_known(
        state: PartitionState,
        rules: Rules,
        isr: tuple[NodeId, ...],
        leader: NodeId,
        lost: Collection[NodeId],
    ) -> tuple[NodeId, ...]:
        return original(state, rules, isr, leader, ())

    with patched(partition_change, _last_known=last_known):
        yield


def _see_no_shortfall() -> Any:
    """What was there before: the high watermark is cut to the end of the log in silence."""
    return patched(log_losses, kind_of_shortfall=lambda promise, *, end_offset: None)


def _see_no_absence() -> Any:
    return patched(log_losses, kind_of_absence=lambda promise, **known: None)


def _row(name: str, sentence: str, plant: Plant, seed_count: int) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="walk",
        subject="replication-losses",
        plant=plant,
        seed_count=seed_count,
        is_quick=True,
        killed_by=KILLERS,
    )


KILLERS = (
    "LeaderCompleteness",
    "LeaderCandidateCompleteness",
    "CleanLeaderHoldsAll",
    "LostIsNotLastKnown",
)

MUTANTS: tuple[Mutant, ...] = (
    _row(
        "loss-unnamed",
        "a registration's lost replicas stay in ISR and ELR",
        _register_without_losses,
        300,
    ),
    _row(
        "loss-eligible",
        "a lost replica leaves the ISR and stays eligible",
        _keep_lost_eligible,
        300,
    ),
    _row(
        "loss-last-known",
        "a lost replica stays the last known leader, which is elected alone",
        _keep_lost_as_last_known,
        2_000,
    ),
    Mutant(
        name="loss-truncated-unseen",
        sentence="a log that ends below its checkpoints is taken for whole",
        engine="whole",
        subject="losses",
        plant=_see_no_shortfall,
        seed_count=20,
    ),
    Mutant(
        name="loss-missing-unseen",
        sentence="a log that is gone is made again, empty, and taken for whole",
        engine="whole",
        subject="losses",
        plant=_see_no_absence,
        seed_count=20,
    ),
)
