"""Mutants (deliberate bugs that the simulation must find) in the handling of disks that have lost
acknowledged records."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ottla.broker.replicas import follower_fetch
from ottla.client.fetch import fetched
from ottla.controller.membership import brokers
from ottla.controller.replication import partition_change
from ottla.controller.replication.partition_change import Rules
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched, walk_mutant
from ottla.metadata.image import PartitionState
from ottla.model.ids import NO_EPOCH, NodeId, Offset
from ottla.storage.losses import log_losses
from ottla.storage.recovery.recovery import LogLoader
from ottla.storage.recovery.sealed_segments import SealedSegments
from ottla.storage.segments.segment import Segment


def _register_without_losses() -> Any:
    """Mutant: a broker registers without reporting lost records, if its last shutdown was clean.
    Kafka trusts a clean shutdown in this way."""
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


def _claim_what_is_behind_a_hole() -> Any:
    return patched(follower_fetch, log_end_of=lambda log: (log.end_offset, log.last_epoch))


def _see_no_shortfall() -> Any:
    """Mutant: lower the high watermark to the end of a log that has lost records, without reporting
    the lost records."""
    return patched(log_losses, kind_of_shortfall=lambda promise, *, end_offset: None)


def _see_no_absence() -> Any:
    return patched(log_losses, kind_of_absence=lambda promise, **known: None)


@contextmanager
def _see_no_hole() -> Iterator[None]:
    original = SealedSegments.load

    async def load(
        self: SealedSegments, segments: list[Segment], log_start_offset: Offset, *, is_clean: bool
    ) -> None:
        await original(self, segments, log_start_offset, is_clean=is_clean)
        self.hole_offset = None

    with patched(SealedSegments, load=load):
        yield


def _see_no_change_of_closed_segments() -> Any:
    return patched(SealedSegments, is_changed=lambda self, segment: False)


@contextmanager
def _trust_any_epoch_checkpoint() -> Iterator[None]:
    original = LogLoader._open_active

    async def open_active(self: LogLoader, segment: Segment) -> Offset | None:
        end_offset = await original(self, segment)
        self._last_epoch = NO_EPOCH
        return end_offset

    with patched(LogLoader, _open_active=open_active):
        yield


def _check_no_crc() -> Any:
    return patched(fetched, check_crc=lambda data, at, header: True)


def _whole(name: str, sentence: str, plant: Plant) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="whole",
        subject="losses",
        plant=plant,
        seed_count=40,
    )


KILLERS = (
    "LeaderCompleteness",
    "LeaderCandidateCompleteness",
    "CleanLeaderHoldsAll",
    "LostIsNotLastKnown",
    "HoleIsFilled",
)

_row = partial(walk_mutant, subject="replication-losses", killed_by=KILLERS)

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
    _row(
        "loss-hole-claimed",
        "a follower with a hole fetches from its log's end first, and is in sync at once",
        _claim_what_is_behind_a_hole,
        300,
    ),
    Mutant(
        name="loss-truncated-unseen",
        sentence="a log that ends below its checkpoints counts as complete",
        engine="whole",
        subject="losses",
        plant=_see_no_shortfall,
        seed_count=20,
    ),
    Mutant(
        name="loss-missing-unseen",
        sentence="a missing log is created again, empty, and counts as complete",
        engine="whole",
        subject="losses",
        plant=_see_no_absence,
        seed_count=20,
    ),
    _whole(
        "loss-hole-unseen",
        "a log with missing closed segments counts as complete",
        _see_no_hole,
    ),
    _whole(
        "loss-shorter-segment-unseen",
        "an emptied or halved closed segment counts as complete",
        _see_no_change_of_closed_segments,
    ),
    _whole(
        "loss-older-epochs-trusted",
        "an older copy of the epoch checkpoint is trusted over the batches",
        _trust_any_epoch_checkpoint,
    ),
    _whole(
        "loss-flipped-byte-read",
        "a consumer checks no CRC, and returns a flipped byte",
        _check_no_crc,
    ),
)
