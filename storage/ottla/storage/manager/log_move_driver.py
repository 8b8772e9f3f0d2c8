"""One move of a partition's log to another log directory of its broker, while the log is online
(KIP-113).

The copy is a separate log in a directory with the suffix `-future`. It grows like a follower's log,
one piece at a time; other tasks run between pieces. When few bytes are missing, the copy is flushed
and gets the partition's name in its directory, and the cluster is informed. One event-loop
iteration then copies the remaining bytes and switches the partition to the copy. Only afterwards is
the old log removed.

No written record is lost in a crash, which leaves one of two states:
- The old log and a `-future` copy exist. The next start removes the copy, and repeats the move.
- Two logs of the same name exist. The next start uses the longer one.

Invariants:
- CopyIsAPrefix: records that a truncation removes from the old log are removed from the copy before
  anything is added to it.
- OneServes: the partition appends to only one of the two logs.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import KIB, MIB
from ottla.model.seams import Clock, Rng
from ottla.model.values import frozen
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.disk.directory_names import future_name
from ottla.storage.disk.disk_seam import Disk, NotCachedError
from ottla.storage.disk.slice import FileSlice, SliceError
from ottla.storage.log.file_tasks import ignore_idle_files
from ottla.storage.log.log import Log, open_log
from ottla.storage.log.log_owner import LogOwner, ignore_truncation
from ottla.storage.log.log_reader import LogRead
from ottla.storage.manager.log_names_driver import free_name, wait_until_idle
from ottla.storage.manager.log_recovery_driver import rename_to_stray

_LOGGER = logging.getLogger(__name__)

PIECE_BYTES = 256 * KIB
"""Number of bytes of a moving log that are copied per event-loop iteration. With more, the event
loop is blocked for longer. With fewer, the copy needs more reads."""

LAST_BYTES = MIB
"""Maximum number of bytes copied in the event-loop iteration that switches the partition to the
copy of its log. No other task runs in that iteration, which takes about two milliseconds. With a
smaller maximum, the copy of a busy log may never reach the log's end. A larger one blocks the event
loop for longer."""

WRITE_BACK_EVERY_BYTES = 2 * MIB
"""Number of bytes of a moving log that are copied before the kernel is asked to write the bytes to
the device. During this write, appends to other logs may have to wait. With more bytes, these
appends wait for longer."""

FLUSH_EVERY_BYTES = 64 * MIB
"""Number of bytes of a moving log that are copied between two flushes of the copy. With more, the
final flush is larger."""

RETRY_S = 0.1
"""Interval in seconds between attempts to switch to the copy, if the last attempt found too many
bytes missing."""

NOTHING = Offset(0)


@frozen(kw_only=True)
class MovePorts:
    """Callbacks of the log manager that the move of a log uses."""

    disk: Disk
    clock: Clock
    rng: Rng
    throttle: Callable[[int], Awaitable[None]]
    """Function that waits until the replication throttle permits the copy of a number of bytes."""
    announce: Callable[[TopicPartition, UUID], Awaitable[None]]
    """Function that informs the cluster of the partition's new log directory. Its arguments are the
    partition and the directory id. Returns once the cluster has recorded the directory."""
    served: Callable[[], Collection[TopicPartition]]
    """Function that returns the partitions whose logs are online in the target directory."""
    fail_target: Callable[[str], None]
    """Function that takes the target directory offline. Its argument is the reason."""
    switch_log: Callable[[Log], None]
    """Function that makes the copy the log of the partition. Called in the event-loop iteration
    that completes the copy."""


class LogMove:
    """The move of one partition's log to another log directory. `run` returns when the partition
    has switched to the copy, or raises an error."""

    def __init__(
        self, ports: MovePorts, partition: TopicPartition, source: Log, target: LogDirectory
    ) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.copy: Log | None = None
        """The copy of the moving log, which grows in the target directory. None before the copy is
        created."""
        self._path: str | None = None
        """Path of the directory of the moving log's copy, or None before the move creates it."""
        self.has_changed_over = False
        self.has_name = False
        """True if the copy's directory has the partition's own name instead of a `-future` name."""
        self.is_announced = False
        """True if the cluster may already have assigned the partition to the target directory."""
        self.scope = trio.CancelScope()
        self.given_up = trio.Event()
        self.ended = trio.Event()
        self._ports = ports
        self._disk = ports.disk
        self._shared_end: Offset | None = None
        """Lowest offset at which the moving log was truncated since the move last checked for
        truncations, or None without a truncation."""
        self._lacking: FileSlice | None = None
        """Slice of the moving log that was not in the page cache when the partition was about to
        switch to the copy. None if all data was cached."""
        self._unwritten_bytes = 0
        """Number of bytes copied since the kernel was last asked to write the copy to the
        device."""
        self._unflushed_bytes = 0

    @property
    def lag(self) -> int:
        """Number of offsets by which the copy is behind the moving log."""
        end_offset = self.source.local_start_offset if self.copy is None else self.copy.end_offset
        return max(0, self.source.end_offset - end_offset)

    def give_up(self) -> None:
        """Request the cancellation of the move. Has no effect if the partition has already switched
        to the copy."""
        self.given_up.set()
        self.scope.cancel()

    async def run(self) -> None:
        """Copy the log, rename the directory of the copy, inform the cluster, and switch to the
        copy.

        Raises RefusedError, CorruptDataError or OSError if either log or its disk fails.
        """
        self.source.state.on_truncated = self._on_truncated
        try:
            self.copy = await self._begin()
            await self._catch_up(self.copy)
            self.copy = await self._use_partition_name(self.copy)
            assert self.target.directory_id is not None
            self.is_announced = True
            await self._ports.announce(self.partition, self.target.directory_id)
            while not self.has_changed_over:
                await self._catch_up(self.copy)
                if not await self._switch_in_idle_iteration(self.copy):
                    await self._bring_in_lacking()
                    await trio.sleep(RETRY_S)
        finally:
            self.source.state.on_truncated = ignore_truncation
            self.source.on_files_idle = ignore_idle_files

    async def remove_copy(self) -> None:
        """Remove the files of the log's copy, which the partition does not use.

        Raises OSError if the disk fails.
        """
        copy, self.copy = self.copy, None
        if copy is not None:
            copy.abandon()
            await wait_until_idle(copy)
        path = self._path
        if self.has_name:
            path = await free_name(self._disk, self._ports.rng, self.target, self.partition)
        if path is not None:
            await self._disk.remove_tree(path)
            await self._disk.fsync_directory(self.target.path)

    # ---- steps

    async def _begin(self) -> Log:
        """Create an empty log as the copy of the moving log, and return it.

        The name of the copy's directory is one that a broker startup does not mistake for a
        partition's log.
        """
        name = future_name(self.partition, self._ports.rng.uuid())
        path = self._path = f"{self.target.path}/{name}"
        await self._disk.makedirs(path)
        copy = await self._open(path)
        copy.state.owner = _CopyOwner(self._ports)
        if self.source.local_start_offset > NOTHING:
            await self._begin_again(copy)
        return copy

    async def _begin_again(self, copy: Log) -> None:
        """Remove all records of the copy, and restart the copy at the offset at which the moving
        log begins on disk.

        The copy of a tiered log also receives the log start offset, and the leader epochs and
        producers of records that are only in the object store.
        """
        source = self.source
        if source.local_start_offset == source.log_start_offset:
            await copy.truncate_fully_and_start_at(source.log_start_offset)
            return
        snapshot = await source.producers_at_local_start()
        await copy.begin_at(
            source.local_start_offset,
            log_start_offset=source.log_start_offset,
            epochs=source.epochs(),
            producer_snapshot=snapshot,
            now_ms=self._ports.clock.wall_ms(),
        )

    async def _open(self, path: str) -> Log:
        return await open_log(
            self._disk,
            path,
            config=self.source.config,
            topic_id=self.source.topic_id,
            is_clean=True,
            recovery_point=NOTHING if self.copy is None else self.copy.end_offset,
            log_start_offset=NOTHING if self.copy is None else self.copy.log_start_offset,
            now_ms=self._ports.clock.wall_ms(),
            rng=self._ports.rng,
        )

    async def _catch_up(self, copy: Log) -> None:
        """Copy the moving log in pieces until less than one piece (`PIECE_BYTES`) is missing."""
        while True:
            await self._align_copy(copy)
            try:
                read = await self._next(copy, PIECE_BYTES)
            except RefusedError:
                if self._shared_end is None and copy.end_offset >= self.source.local_start_offset:
                    raise
                continue  # truncated, or its oldest segments removed, while it was loaded
            part = read.slice
            is_last = read.end_offset >= self.source.end_offset
            if part is None or (is_last and len(part) < PIECE_BYTES):
                return
            await self._ports.throttle(len(part))
            try:
                data = await self._disk.read(part.file, part.position, part.length)
            except OSError as error:
                self.source.refuse_slice(error)
            if self._shared_end is None:  # otherwise the bytes read may have been truncated
                self._add(copy, memoryview(data))
            if self._unflushed_bytes >= FLUSH_EVERY_BYTES:
                await copy.flush()
                self._unflushed_bytes = self._unwritten_bytes = 0
            elif self._unwritten_bytes >= WRITE_BACK_EVERY_BYTES:
                await copy.write_back()
                self._unwritten_bytes = 0
            await trio.lowlevel.checkpoint()

    async def _next(self, copy: Log, bytes_max: int) -> LogRead:
        source = self.source
        return await source.read_cold(
            copy.end_offset, bytes_max=bytes_max, end_offset=source.end_offset, at_least_one=True
        )

    def _add(self, copy: Log, data: memoryview) -> None:
        before = copy.end_offset
        copy.append_as_follower(data, now_ms=self._ports.clock.wall_ms())
        if copy.end_offset == before:
            raise CorruptDataError(f"{self.source.directory}: no batch at offset {before}")
        self._unflushed_bytes += len(data)
        self._unwritten_bytes += len(data)

    async def _align_copy(self, copy: Log) -> None:
        """Truncate the copy where the moving log was truncated, and raise the copy's log start
        offset to that of the moving log."""
        while True:
            if self.source.failure is not None:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.source.failure)
            shared_end, self._shared_end = self._shared_end, None
            if shared_end is not None and shared_end < copy.end_offset:
                if shared_end > copy.log_start_offset:
                    await copy.truncate_to(shared_end)
                else:
                    await self._begin_again(copy)
            elif copy.end_offset < self.source.local_start_offset:
                await self._begin_again(copy)
            elif copy.log_start_offset < min(self.source.log_start_offset, copy.end_offset):
                await self._follow_log_start(copy)
            else:
                return

    async def _follow_log_start(self, copy: Log) -> None:
        """Delete from the copy the segments that retention or a client has deleted from the moving
        log.

        Kafka applies retention to future logs separately. In Ottla, the copy follows the old log,
        so both have the same records.
        """
        copy.update_high_watermark(min(copy.end_offset, self.source.high_watermark))
        log_start_offset = min(self.source.log_start_offset, copy.end_offset)
        await copy.delete_records_before(min(log_start_offset, copy.high_watermark))

    async def _use_partition_name(self, copy: Log) -> Log:
        """Close the copy durably, rename its directory to the partition's name, and open the copy
        again. Returns the opened log."""
        path = f"{self.target.path}/{self.partition}"
        await copy.close()
        if self._disk.exists(path):
            await rename_to_stray(self._disk, self._ports.rng, self.target, self.partition)
        await self.target.checkpoints.forget(self.partition, self._ports.served)
        with trio.CancelScope(shield=True):  # a cancellation must not hide which name the copy has
            await self._disk.rename(copy.directory, path)
            self.has_name = True
        await self._disk.fsync_directory(self.target.path)
        renamed = await self._open(path)
        renamed.state.owner = _CopyOwner(self._ports)
        return renamed

    async def _switch_in_idle_iteration(self, copy: Log) -> bool:
        """Switch to the copy in an event-loop iteration in which no task uses the files of the
        moving log. Returns True if the partition switched."""
        source = self.source
        failure: list[Exception] = []
        if source.file_task_count:
            quiet = trio.Event()

            def on_idle() -> None:
                quiet.set()
                try:
                    self._switch_to_copy(copy)
                except Exception as error:  # raised in another task, which must not fail
                    failure.append(error)

            source.on_files_idle = on_idle
            await quiet.wait()
            source.on_files_idle = ignore_idle_files
        else:
            self._switch_to_copy(copy)
        if failure:
            raise failure[0]
        return self.has_changed_over

    async def _bring_in_lacking(self) -> None:
        lacking = self._lacking
        if lacking is None:
            return
        try:
            await self._disk.read_ahead(lacking.file, lacking.position, lacking.length)
        except OSError as error:
            self.source.refuse_slice(error)

    def _switch_to_copy(self, copy: Log) -> None:
        """Copy the remaining records and make the copy the partition's log. Does nothing if too
        many bytes are missing."""
        source = self.source
        if self.has_changed_over or self._shared_end is not None:
            return
        if source.failure is not None or copy.end_offset < source.local_start_offset:
            return
        left_bytes = LAST_BYTES
        while copy.end_offset < source.end_offset:
            try:
                part = source.read(
                    copy.end_offset,
                    bytes_max=left_bytes,
                    end_offset=source.end_offset,
                    at_least_one=True,
                ).slice
                if part is None or len(part) > left_bytes:
                    return
                left_bytes -= len(part)
                self._add(copy, memoryview(part.read_cached()))
            except NotCachedError as missing:
                self._lacking = FileSlice(missing.file, missing.position, missing.size)
                return
            except SliceError as error:
                source.refuse_slice(error)
        copy.take_over(source)
        self.has_changed_over = True
        self._ports.switch_log(copy)

    def _on_truncated(self, offset: Offset) -> None:
        known = self._shared_end
        self._shared_end = offset if known is None else min(known, offset)


class _CopyOwner(LogOwner):
    """Owner of the copy of a moving log, which takes the target directory offline if a file of the
    copy fails."""

    __slots__ = ("_ports",)

    def __init__(self, ports: MovePorts) -> None:
        self._ports = ports

    def on_disk_failed(self, reason: str) -> None:
        """Take the target directory offline."""
        self._ports.fail_target(reason)
