"""Mutants (deliberate bugs that the simulation must find) in tiered storage."""

from typing import Any

from ottla.broker.tier import partition_tier_driver
from ottla.broker.tier.remote_log_manager import LogSnapshot
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.model.ids import NO_OFFSET, Offset
from ottla.storage.tier.remote_metadata import RemoteMetadata


def _delete_before_finished() -> Any:
    def copied_up_to(log: LogSnapshot, metadata: RemoteMetadata) -> Offset:
        started = [segment.end_offset for segment in metadata.all_segments()]
        return max(started, default=NO_OFFSET)

    return patched(partition_tier_driver, copied_up_to=copied_up_to)


def _start_of_disk() -> Any:
    def start_of_leader(log: LogSnapshot, metadata: RemoteMetadata) -> Offset:
        return log.local_start_offset

    return patched(partition_tier_driver, start_of_leader=start_of_leader)


def _row(name: str, sentence: str, plant: Plant, *killed_by: str, first_seed: int) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="whole",
        subject="tiered",
        plant=plant,
        seed_count=10,
        first_seed=first_seed,
        budget=15_000,
        killed_by=killed_by,
    )


MUTANTS: tuple[Mutant, ...] = (
    _row(
        "tier-delete-early",
        "local segments are deleted when their copy begins",
        _delete_before_finished,
        "DeletedIsCopied",
        first_seed=2,
    ),
    _row(
        "tier-start-of-disk",
        "the log of a new leader starts at its first local record",
        _start_of_disk,
        "NothingExpires",
        first_seed=3,
    ),
)
