"""Mutants (deliberate bugs that the simulation must find) in the metadata log: missing flushes, and
wrong contents after a crash."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ottla.jepsen.world.bugs.mutant import patched, walk_mutant
from ottla.jepsen.world.bugs.raft_bugs import cut_at_own_end_of_epoch
from ottla.model.ids import OffsetAndEpoch
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.snapshot_store import SnapshotStore
from ottla.raft import election_state
from ottla.raft.effects import SnapshotChunk
from ottla.raft.election_state import ElectionState
from ottla.storage.disk.disk_seam import DiskFile
from ottla.storage.log.log import Log


def _written_is_flushed() -> Any:
    return patched(MetadataLog, flushed_offset=property(lambda log: log.end_offset))


def _election_not_flushed() -> Any:
    async def write(self: MetadataLog, state: ElectionState) -> None:
        path = f"{self.directory}/{election_state.QUORUM_STATE_FILE}"
        file = self._disk.open(path, create=True)
        data = election_state.encode(state)
        file.set_size(len(data))
        file.pwrite(0, [data])
        file.close()

    return patched(MetadataLog, write_election=write)


@contextmanager
def _truncation_not_flushed() -> Iterator[None]:
    original = Log.truncate_to

    class _Lazy:
        """A simulated disk on which fsync does nothing. A mutant uses it for truncations of the
        metadata log."""

        def __init__(self, disk: Any) -> None:
            self._disk = disk

        async def fsync(self, file: DiskFile) -> None:
            """Do nothing, so that the file's data is not durable."""

        def __getattr__(self, name: str) -> Any:
            return getattr(self._disk, name)

    async def truncate_to(self: Log, offset: Any) -> bool:
        disk = self.state.disk
        lazy: Any = _Lazy(disk)
        self.state.disk = lazy
        try:
            return await original(self, offset)
        finally:
            self.state.disk = disk

    with patched(Log, truncate_to=truncate_to):
        yield


def _log_emptied_before_snapshot() -> Any:
    async def write_chunk(self: MetadataLog, chunk: SnapshotChunk) -> None:
        if chunk.position == 0:
            self._part = self._snapshots.begin(chunk.snapshot_id)
        assert self._part is not None
        data: Any = chunk.data
        self._part.pwrite(chunk.position, [data])
        if chunk.is_last:
            part, self._part = self._part, None
            await self._log.truncate_fully_and_start_at(chunk.snapshot_id.offset)
            await self._snapshots.install(part, chunk.snapshot_id)
            await self._start_at(chunk.snapshot_id)
            await self._learn_voters(chunk.snapshot_id)

    return patched(MetadataLog, write_chunk=write_chunk)


def _log_forgotten_before_snapshot() -> Any:
    async def write_snapshot(
        self: MetadataLog, snapshot_id: OffsetAndEpoch, batches: Iterable[bytes], **options: Any
    ) -> None:
        if snapshot_id in self._snapshots:
            return
        await self._log.flush()
        if snapshot_id.offset > self.start_offset:
            await self._log.delete_records_before(snapshot_id.offset)
        await self._snapshots.write(snapshot_id, batches, **options)
        await self.forget_old()

    return patched(MetadataLog, write_snapshot=write_snapshot)


def _snapshot_not_flushed() -> Any:
    async def install(self: SnapshotStore, part: DiskFile, snapshot_id: OffsetAndEpoch) -> None:
        from ottla.node.quorum.snapshot_store import _facts_of

        facts = _facts_of(part)
        part.close()
        await self._disk.rename(self._part_path(snapshot_id), self._path(snapshot_id))
        await self._disk.fsync_directory(self._directory)
        self._kept[snapshot_id] = facts

    async def write(
        self: SnapshotStore, snapshot_id: OffsetAndEpoch, batches: Iterable[bytes]
    ) -> None:
        part = self.begin(snapshot_id)
        position = 0
        for batch in batches:
            part.pwrite(position, [batch])
            position += len(batch)
        await self.install(part, snapshot_id)

    return patched(SnapshotStore, install=install, write=write)


def _old_snapshot_stays() -> Any:
    async def recover(self: MetadataLog) -> None:
        latest = self.latest_snapshot_id
        if latest is not None and not self._is_continued_from(latest):
            await self._start_at(latest)
        if latest is not None:
            await self._learn_voters(latest)
        await self._log.flush()

    return patched(MetadataLog, recover=recover)


_row = partial(walk_mutant, seed_count=1_000, subject="raft-disk")

MUTANTS = (
    _row(
        "log-written-is-flushed",
        "written entries count as flushed",
        _written_is_flushed,
    ),
    _row(
        "log-election-unflushed",
        "epoch and vote are written, but neither flushed nor replaced at once",
        _election_not_flushed,
    ),
    _row(
        "log-truncation-unflushed",
        "a truncation is not flushed: old bytes return after new ones",
        _truncation_not_flushed,
    ),
    _row(
        "log-emptied-first",
        "the log is emptied before the leader's snapshot has replaced it",
        _log_emptied_before_snapshot,
    ),
    _row(
        "log-forgotten-first",
        "the log is deleted before the snapshot that replaces it is complete",
        _log_forgotten_before_snapshot,
    ),
    _row(
        "log-snapshot-unflushed",
        "a snapshot gets its name before its bytes are flushed",
        _snapshot_not_flushed,
    ),
    _row(
        "log-old-snapshot-stays",
        "after a crash an older snapshot outlives its part of the log",
        _old_snapshot_stays,
    ),
    _row(
        "raft-cut-short",
        "a follower truncates to its own end of the epoch, not to the leader's, and gets stuck",
        cut_at_own_end_of_epoch,
    ),
)
