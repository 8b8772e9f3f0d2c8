"""Moves one partition's log to another directory of its broker, while it serves (KIP-113).

A copy grows under a name of its own (`-future`), as a follower's log does, in pieces that others
get their turn between.  When little is missing it is flushed and takes the partition's name in its
directory, the cluster is told, and in one turn of the loop the rest is copied and the partition
changes over to it.  Only then does the old log go.

A crash leaves one of these: the old log beside a `-future`, which the next start removes, to begin
again; or two logs of the name, of which the next start takes the longer one.  So what was written
to either is there.  Invariants: CopyIsAPrefix (what a truncation of the old log takes is gone from
the copy before anything is added to it), OneServes (the partition appends to one of them alone).
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
from ottla.storage.directory_names import future_name
from ottla.storage.disk_seam import Disk, NotCachedError
from ottla.storage.log import Log, open_log
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_names_driver import free_name, wait_until_idle
from ottla.storage.log_reads import LogRead
from ottla.storage.log_recovery_driver import set_stray_aside
from ottla.storage.slice import FileSlice, SliceError

_LOGGER = logging.getLogger(__name__)

PIECE_BYTES = 256 * KIB
"""Bytes copied in a turn.  More hold the loop for longer, fewer cost more reads."""

LAST_BYTES = MIB
"""What may be missing as the partition changes over, in a turn in which nothing else runs: some two
milliseconds."""

WRITE_BACK_EVERY_BYTES = 2 * MIB
"""The disk writes what is copied as it comes.  What it writes at once, more being more, is what
others' appends may wait for: in the file system's journal, and in the device's queue."""

FLUSH_EVERY_BYTES = 64 * MIB
"""The copy is flushed on its way, so that the disk is not asked for all of it at once."""

RETRY_S = 0.1
"""Between tries to change over that found too much missing."""

NOTHING = Offset(0)


@frozen(kw_only=True)
class MovePorts:
    """What a move needs of its log manager."""

    disk: Disk
    clock: Clock
    rng: Rng
    take: Callable[[int], Awaitable[None]]
    """Awaited before this number of bytes is copied: the seam of the throttle."""
    tell: Callable[[TopicPartition, UUID], Awaitable[None]]
    """Returns once the cluster knows the partition in the directory of this id."""
    served: Callable[[], Collection[TopicPartition]]
    """The partitions of the target directory."""
    fail_target: Callable[[str], None]
    """Takes the target directory offline."""
    change_over: Callable[[Log], None]
    """Has the partition use the new log from now on; called in the turn that completes it."""


class LogMove:
    """One log on its way; `run` ends when the partition has changed over, or raises."""

    def __init__(
        self, ports: MovePorts, partition: TopicPartition, source: Log, target: LogDirectory
    ) -> None:
        self.partition = partition
        self.source = source
        self.target = target
        self.copy: Log | None = None
        """The log that grows in the target directory."""
        self._path: str | None = None
        """The copy's directory, from before it is made on."""
        self.has_changed_over = False
        self.has_name = False
        """Whether the copy lies under the partition's own name."""
        self.is_told = False
        """Whether the cluster may know the partition in the target directory."""
        self.scope = trio.CancelScope()
        self.given_up = trio.Event()
        self.ended = trio.Event()
        self._ports = ports
        self._disk = ports.disk
        self._shared_end: Offset | None = None
        """From where on the old log was cut since it was last looked at."""
        self._lacking: FileSlice | None = None
        """What was not in memory as the partition was to change over; it is, as long as this is."""
        self._unwritten_bytes = 0
        """Bytes copied since the disk was last asked to write them."""
        self._unflushed_bytes = 0

    @property
    def lag(self) -> int:
        """How many offsets the copy is behind."""
        end_offset = self.source.log_start_offset if self.copy is None else self.copy.end_offset
        return max(0, self.source.end_offset - end_offset)

    def give_up(self) -> None:
        """End the move soon, unless the partition has changed over."""
        self.given_up.set()
        self.scope.cancel()

    async def run(self) -> None:
        """Copy, take the name, tell the cluster, change over.

        Raises RefusedError, CorruptDataError or OSError if either log or its disk fails.
        """
        self.source.on_cut = self._on_cut
        try:
            self.copy = await self._begin()
            await self._catch_up(self.copy)
            self.copy = await self._take_name(self.copy)
            assert self.target.directory_id is not None
            self.is_told = True
            await self._ports.tell(self.partition, self.target.directory_id)
            while not self.has_changed_over:
                await self._catch_up(self.copy)
                if not await self._change_over_in_a_quiet_turn(self.copy):
                    await self._bring_in_lacking()
                    await trio.sleep(RETRY_S)
        finally:
            self.source.on_cut = _ignore
            self.source.file_tasks.on_idle = _idle

    async def remove_copy(self) -> None:
        """Remove what there is of a copy that the partition does not use.

        Raises OSError if the disk does.
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
        """Make the copy's directory, under a name that no start takes for a log."""
        name = future_name(self.partition, self._ports.rng.uuid())
        path = self._path = f"{self.target.path}/{name}"
        await self._disk.makedirs(path)
        copy = await self._open(path)
        self._watch(copy)
        if self.source.log_start_offset > NOTHING:
            await copy.truncate_fully_and_start_at(self.source.log_start_offset)
        return copy

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

    def _watch(self, copy: Log) -> None:
        """Fail the target directory if a file of the copy fails."""
        copy.on_disk_failed = lambda failed: self._ports.fail_target(failed.failure or "")

    async def _catch_up(self, copy: Log) -> None:
        """Copy whole pieces until there is none."""
        while True:
            await self._mend(copy)
            try:
                read = await self._next(copy, PIECE_BYTES)
            except RefusedError:
                if self._shared_end is None and copy.end_offset >= self.source.log_start_offset:
                    raise
                continue  # it was cut, or lost its beginning, while it was brought in
            part = read.slice
            is_last = read.end_offset >= self.source.end_offset
            if part is None or (is_last and len(part) < PIECE_BYTES):
                return
            await self._ports.take(len(part))
            try:
                data = await self._disk.read(part.file, part.position, part.length)
            except OSError as error:
                self.source.refuse_slice(error)
            if self._shared_end is None:  # else what was read may have been cut meanwhile
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

    async def _mend(self, copy: Log) -> None:
        """Cut the copy as the old log was, and begin where that begins now."""
        while True:
            if self.source.failure is not None:
                raise RefusedError(ErrorCode.KAFKA_STORAGE_ERROR, self.source.failure)
            shared_end, self._shared_end = self._shared_end, None
            if shared_end is not None and shared_end < copy.end_offset:
                if shared_end > copy.log_start_offset:
                    await copy.truncate_to(shared_end)
                else:
                    await copy.truncate_fully_and_start_at(self.source.log_start_offset)
            elif copy.end_offset < self.source.log_start_offset:
                await copy.truncate_fully_and_start_at(self.source.log_start_offset)
            elif copy.log_start_offset < min(self.source.log_start_offset, copy.end_offset):
                await self._follow_log_start(copy)
            else:
                return

    async def _follow_log_start(self, copy: Log) -> None:
        """Delete from the copy the segments that retention or a client deleted from the source.

        Kafka's retention visits future logs by itself.  A copy that follows its source keeps the
        same records with one decision, made by the source.
        """
        copy.update_high_watermark(min(copy.end_offset, self.source.high_watermark))
        log_start_offset = min(self.source.log_start_offset, copy.end_offset)
        await copy.delete_records_before(min(log_start_offset, copy.high_watermark))

    async def _take_name(self, copy: Log) -> Log:
        """Close the copy, durably, and open it again under the partition's name."""
        path = f"{self.target.path}/{self.partition}"
        await copy.close()
        if self._disk.exists(path):
            await set_stray_aside(self._disk, self._ports.rng, self.target, self.partition)
        await self.target.checkpoints.forget(self.partition, self._ports.served)
        with trio.CancelScope(shield=True):  # who gives up knows the name it has
            await self._disk.rename(copy.directory, path)
            self.has_name = True
        await self._disk.fsync_directory(self.target.path)
        renamed = await self._open(path)
        self._watch(renamed)
        return renamed

    async def _change_over_in_a_quiet_turn(self, copy: Log) -> bool:
        """Change over in a turn without tasks on the old log's files; return whether it did."""
        tasks = self.source.file_tasks
        failure: list[Exception] = []
        if tasks.count:
            quiet = trio.Event()

            def on_idle() -> None:
                quiet.set()
                try:
                    self._change_over(copy)
                except Exception as error:  # another task's turn: its own work did not fail
                    failure.append(error)

            tasks.on_idle = on_idle
            await quiet.wait()
            tasks.on_idle = _idle
        else:
            self._change_over(copy)
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

    def _change_over(self, copy: Log) -> None:
        """Copy the rest and let the partition use the copy, unless too much is missing."""
        source = self.source
        if self.has_changed_over or self._shared_end is not None:
            return
        if source.failure is not None or copy.end_offset < source.log_start_offset:
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
        self._ports.change_over(copy)

    def _on_cut(self, offset: Offset) -> None:
        known = self._shared_end
        self._shared_end = offset if known is None else min(known, offset)


def _ignore(offset: Offset) -> None:
    """Nothing is copied."""


def _idle() -> None:
    """No task waits."""
