"""Mutants (deliberate bugs that the simulation must find) in tiered storage."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from ottla.broker.tier import (
    deleted_topics_driver,
    partition_tier_driver,
    remote_log_manager,
    store_reads_driver,
)
from ottla.broker.tier.remote_log_manager import LogSnapshot
from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.model.ids import NO_OFFSET, Offset
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.tier import stored_partition
from ottla.storage.tier.copy_plan import LocalSegment
from ottla.storage.tier.expiry_plan import ExpiryStep, MoveLogStart
from ottla.storage.tier.lineage import Lineage
from ottla.storage.tier.reads.chunk_source_driver import ChunkedObject, ChunkKey
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import RemoteSegment, RemoteSegmentId, RemoteSegmentState
from ottla.storage.tier.stored_partition import Piece

FINISHED = RemoteSegmentState.COPY_FINISHED


def _delete_before_finished() -> Any:
    def copied_up_to(log: LogSnapshot, metadata: RemoteMetadata) -> Offset:
        started = [segment.end_offset for segment in metadata.all_segments()]
        return max(started, default=NO_OFFSET)

    return patched(partition_tier_driver, copied_up_to=copied_up_to)


def _start_of_disk() -> Any:
    def start_of_leader(log: LogSnapshot, metadata: RemoteMetadata) -> Offset:
        return log.local_start_offset

    return patched(partition_tier_driver, start_of_leader=start_of_leader)


def _copy_above_stable() -> Any:
    def copies_due(
        log: LogSnapshot, metadata: RemoteMetadata, settings: LogConfig, now_ms: int
    ) -> list[LocalSegment]:
        unstable = replace(log, last_stable_offset=log.end_offset)
        return remote_log_manager.copies_due(unstable, metadata, settings, now_ms)

    return patched(partition_tier_driver, copies_due=copies_due)


@contextmanager
def _read_any_lineage() -> Iterator[None]:
    def segment_at(
        metadata: RemoteMetadata, lineage: Lineage, offset: Offset
    ) -> RemoteSegment | None:
        for segment in metadata.all_segments():
            if segment.state is FINISHED and segment.start_offset <= offset <= segment.end_offset:
                return segment
        return None

    def shared_end_offset(lineage: Lineage, segment: RemoteSegment, offset: Offset) -> Offset:
        return Offset(segment.end_offset + 1)

    with (
        patched(store_reads_driver, _segment_at=segment_at),
        patched(Lineage, shared_end_offset=shared_end_offset),
    ):
        yield


def _count_copies_of_zombies() -> Any:
    def copied_up_to(log: LogSnapshot, metadata: RemoteMetadata) -> Offset:
        ends = [each.end_offset for each in metadata.all_segments() if each.state is FINISHED]
        return max(ends, default=NO_OFFSET)

    return patched(partition_tier_driver, copied_up_to=copied_up_to)


def _label_with_newest_epoch() -> Any:
    def started_copy(local: LocalSegment, log: LogSnapshot, **others: Any) -> RemoteSegment:
        segment = remote_log_manager.started_copy(local, log, **others)
        epoch = log.epochs[-1].epoch
        return replace(segment, leader_epochs=(EpochEntry(epoch, local.base_offset),))

    return patched(partition_tier_driver, started_copy=started_copy)


@contextmanager
def _keep_orphans() -> Iterator[None]:
    def orphans_among(*_: Any, **__: Any) -> list[str]:
        return []

    with (
        patched(partition_tier_driver, orphans_among=orphans_among),
        patched(deleted_topics_driver, orphans_among=orphans_among),
    ):
        yield


def _move_start_last() -> Any:
    def expiry_steps(
        log: LogSnapshot,
        metadata: RemoteMetadata,
        settings: LogConfig,
        *,
        being_copied: Collection[RemoteSegmentId],
        now_ms: int,
    ) -> list[ExpiryStep]:
        steps = remote_log_manager.expiry_steps(
            log, metadata, settings, being_copied=being_copied, now_ms=now_ms
        )
        return sorted(steps, key=lambda step: isinstance(step, MoveLogStart))

    return patched(partition_tier_driver, expiry_steps=expiry_steps)


def _cache_by_offset() -> Any:
    def key(source: ChunkedObject, chunk: int) -> ChunkKey:
        manifest = source.manifest
        place = f"{manifest.topic_id}/{manifest.partition}/{manifest.start_offset}"
        return uuid5(NAMESPACE_OID, place), chunk

    return patched(ChunkedObject, key=key)


def _restore_whole_segments() -> Any:
    def append(pieces: list[Piece], piece: Piece) -> None:
        manifest = piece.manifest
        if not pieces or pieces[-1].manifest is not manifest:
            pieces.append(Piece(manifest, manifest.start_offset, Offset(manifest.end_offset + 1)))

    return patched(stored_partition, _append=append)


def _row(
    name: str,
    sentence: str,
    plant: Plant,
    *killed_by: str,
    first_seed: int,
    subject: str = "tiered-expiring",
    budget: int = 15_000,
    is_quick: bool = False,
) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="whole",
        subject=subject,
        plant=plant,
        seed_count=10,
        first_seed=first_seed,
        budget=budget,
        killed_by=killed_by,
        is_quick=is_quick,
    )


MUTANTS: tuple[Mutant, ...] = (
    _row(
        "tier-delete-early",
        "local segments are deleted when their copy begins",
        _delete_before_finished,
        "DeletedIsCopied",
        first_seed=2,
        subject="tiered",
    ),
    _row(
        "tier-start-of-disk",
        "the log of a new leader starts at its first local record",
        _start_of_disk,
        "NothingExpires",
        first_seed=3,
        subject="tiered",
    ),
    _row(
        "tier-copy-above-stable",
        "segments above the last stable offset are copied",
        _copy_above_stable,
        "OnlyStableIsCopied",
        first_seed=3,
    ),
    _row(
        "tier-any-lineage",
        "a look-up of a copied segment ignores leader epochs",
        _read_any_lineage,
        "ReadInOneLineage",
        "OneRecordPerEpoch",
        first_seed=3,
    ),
    _row(
        "tier-zombie-counts",
        "copies of a deposed leader count as copies of the present log",
        _count_copies_of_zombies,
        first_seed=3,
    ),
    _row(
        "tier-newest-epoch",
        "a copy lists the newest leader epoch only",
        _label_with_newest_epoch,
        "CopiesAreLabelled",
        first_seed=3,
    ),
    _row(
        "tier-orphans-stay",
        "objects without a segment are never deleted",
        _keep_orphans,
        "EverythingEnds",
        first_seed=3,
    ),
    _row(
        "tier-start-last",
        "the log start moves after the segments are deleted",
        _move_start_last,
        "StartMovesFirst",
        first_seed=3,
    ),
    _row(
        "tier-cache-by-offset",
        "the cache of records distinguishes offsets, and not uploads",
        _cache_by_offset,
        first_seed=5,
        subject="tiered-forked",
        budget=8_000,
        is_quick=True,
    ),
    _row(
        "tier-restore-doubles",
        "a restore takes whole segments, also where they overlap",
        _restore_whole_segments,
        "RestoredOnce",
        "RestoredInOneLineage",
        first_seed=3,
    ),
)
