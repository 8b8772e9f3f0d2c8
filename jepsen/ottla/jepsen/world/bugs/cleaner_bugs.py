"""Mutants (deliberate bugs that the simulation must find) in the log cleaner: compaction loses
records, or keeps records that it should remove."""

from contextlib import AbstractContextManager
from typing import Any

from ottla.jepsen.world.bugs.mutant import Mutant, Plant, patched
from ottla.storage.cleaner import cleaner_manager
from ottla.storage.cleaner.batch_filter import BatchFilter, KeptBatch
from ottla.storage.cleaner.cleanable import Cleanable, cleanable_of
from ottla.storage.cleaner.cleaned_segment import CleanedSegment
from ottla.storage.cleaner.record_work import KeptRecords
from ottla.storage.cleaner.transactions import AbortedTransactions
from ottla.storage.disk.disk_seam import Disk
from ottla.wire.records import Body


def _forget_deletions_at_once() -> AbstractContextManager[None]:
    original = BatchFilter.__init__

    def begin(self: BatchFilter, *arguments: Any, **named: Any) -> None:
        original(self, *arguments, **named)
        self._horizon_ms = self._task.now_ms

    return patched(BatchFilter, __init__=begin)


def _drop_single_values() -> AbstractContextManager[None]:
    original = BatchFilter._decided

    def decided(self: BatchFilter, at: int, body: Body, verdict: KeptRecords) -> KeptBatch | None:
        if verdict.kept_count == 1 < body.header.record_count:
            return self._emptied(body.header)
        return original(self, at, body, verdict)

    return patched(BatchFilter, _decided=decided)


class _NoFlushDisk:
    """A simulated disk whose fsync does nothing. A mutant uses it to leave compacted segments
    unflushed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    async def fsync(self, file: Any) -> None:
        """Do nothing, so that the file's data is not durable."""


def _swap_unflushed() -> AbstractContextManager[None]:
    original = CleanedSegment.__init__

    def begin(self: CleanedSegment, disk: Disk, *arguments: Any, **named: Any) -> None:
        unflushed: Any = _NoFlushDisk(disk)
        original(self, unflushed, *arguments, **named)

    return patched(CleanedSegment, __init__=begin)


def _stamp_no_horizon() -> AbstractContextManager[None]:
    original = BatchFilter._decided

    def decided(self: BatchFilter, at: int, body: Body, verdict: KeptRecords) -> KeptBatch | None:
        return original(self, at, body, verdict._replace(has_tombstone=False))

    return patched(BatchFilter, _decided=decided)


def _keep_aborted() -> AbstractContextManager[None]:
    return patched(AbortedTransactions, holds=lambda self, header: False)


def _drop_producers() -> AbstractContextManager[None]:
    original = BatchFilter._must_stay

    def must_stay(self: BatchFilter, header: Any) -> bool:
        return original(self, header._replace(producer_id=-1))

    return patched(BatchFilter, _must_stay=must_stay)


def _clean_the_undecided() -> AbstractContextManager[None]:
    def found_of(log: Any, now_ms: int) -> Cleanable:
        found = cleanable_of(log, now_ms)
        ends = [
            each.base_offset for each in log.segments[1:] if each.base_offset > found.end_offset
        ]
        if not ends or not found.cleanable_bytes:
            return found
        return found._replace(end_offset=ends[0])

    return patched(cleaner_manager, cleanable_of=found_of)


def _mutant(name: str, sentence: str, plant: Plant, *, is_quick: bool = False) -> Mutant:
    return Mutant(
        name=name,
        sentence=sentence,
        engine="whole",
        subject="compaction",
        plant=plant,
        seed_count=60,
        is_quick=is_quick,
    )


MUTANTS: tuple[Mutant, ...] = (
    _mutant(
        "deletion-forgotten-early",
        "a tombstone is removed at its second cleaning, whatever its age",
        _forget_deletions_at_once,
    ),
    _mutant(
        "last-value-dropped",
        "a batch with one remaining record is removed as empty",
        _drop_single_values,
        is_quick=True,
    ),
    _mutant(
        "swapped-in-unflushed",
        "a new segment replaces the old ones before it is flushed",
        _swap_unflushed,
        is_quick=True,
    ),
    _mutant(
        "horizon-not-stamped",
        "a tombstone gets no delete horizon, and stays permanently",
        _stamp_no_horizon,
        is_quick=True,
    ),
    _mutant(
        "aborted-data-cleaned-as-committed",
        "data of an aborted transaction counts as a value and stays",
        _keep_aborted,
    ),
    _mutant(
        "last-batch-of-producer-dropped",
        "the last batch of an active producer is removed when it is empty",
        _drop_producers,
    ),
    _mutant(
        "undecided-cleaned",
        "a log is cleaned beyond the last stable offset",
        _clean_the_undecided,
    ),
)
