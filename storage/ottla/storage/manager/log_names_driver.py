"""Names of partition directories: assigned to new logs, and freed when a log is deleted.

The caller ensures that changes of one name do not overlap, and that no task of the log with that
name is running.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.disk.directory_names import deleted_name
from ottla.storage.disk.disk_errors import is_disk_full
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log, new_log, open_log
from ottla.storage.manager.log_recovery_driver import rename_to_stray
from ottla.storage.recovery.recovery import load_topic_id
from ottla.storage.segments.files import LOG, PARTITION_METADATA, file_name
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.partition_metadata import encode_partition_metadata, is_unfinished

KEPT_AFTER_S = 0.05
"""Seconds that a new log waits for other new logs, so that one flush makes all of them durable.
With a shorter time, flushes delay the creation of further logs. With a longer time, new logs can be
lost in a power failure for longer."""

NOTED_AFTER_S = 1.0
"""Time in seconds after which a new log's line is written to the checkpoint file, together with the
lines of further new logs. Without its line, a log whose directory is removed while the broker is
down is not detected as missing. With a shorter time, the checkpoint file is written more often."""

KEPT_TOGETHER = 32
"""Number of new logs whose directories are made durable together. With fewer, more calls are passed
to the disk's worker threads. With more, starting these calls blocks the event loop for longer."""

NOTHING = Offset(0)
EMPTY_SEGMENT = {file_name(0, LOG): b""}
"""The initial files of a log's directory: names and contents. Index files are created with their
first entries."""


async def make_log(
    disk: Disk,
    clock: Clock,
    rng: Rng,
    directory: LogDirectory,
    partition: TopicPartition,
    topic_id: UUID,
    config: LogConfig,
    served: Callable[[], Collection[TopicPartition]],
    *,
    is_there: bool,
) -> Log:
    """Create the log of a partition whose name no log uses. `served` returns the other partitions
    whose logs are in the directory.

    `is_there` means that a directory with the partition's name exists. A directory of another topic
    is first renamed to `-stray`. The name's checkpoint lines are removed before a directory of the
    name is created. The first flush, or `schedule_directory_sync`, makes the directory durable.
    Raises OSError if the disk fails.
    """
    path = f"{directory.path}/{partition}"
    is_whole = False
    if is_there:
        try:
            is_whole = await _is_whole(disk, path, topic_id)
        except (CorruptDataError, RefusedError):
            await rename_to_stray(disk, rng, directory, partition)
            is_there = disk.exists(path)
    await directory.checkpoints.forget(partition, served)
    if not is_whole:
        files = {PARTITION_METADATA: encode_partition_metadata(topic_id), **EMPTY_SEGMENT}
        await disk.make_directory(path, files)
    now_ms = clock.wall_ms()
    if is_there:
        log = await open_log(
            disk,
            path,
            config=config,
            topic_id=topic_id,
            is_clean=True,
            recovery_point=NOTHING,
            log_start_offset=NOTHING,
            now_ms=now_ms,
            rng=rng,
        )
    else:
        log = new_log(disk, path, config=config, topic_id=topic_id, now_ms=now_ms, rng=rng)
    log.names.is_kept, log.names.is_new = False, True
    return log


class NewLogs:
    """Collection of new logs whose directories are made durable in the background, in groups.

    A log that is deleted before its group's fsync causes no fsync.
    """

    def __init__(self, errors: UnexpectedErrors, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Create a collection without logs. `checkpoint` writes a checkpoint line for each log
        whose directory is durable."""
        self._errors = errors
        self._checkpoint = checkpoint
        self._is_noting = False
        self._waiting: deque[tuple[TopicPartition, Log]] = deque()
        self._is_running = False

    def schedule_directory_sync(
        self, nursery: trio.Nursery, partition: TopicPartition, log: Log
    ) -> None:
        """Schedule the fsync that makes a new log's directory durable, together with the fsyncs for
        other new logs."""
        self._waiting.append((partition, log))
        if not self._is_running:
            self._is_running = True
            nursery.start_soon(self._keep_all)

    async def _keep_all(self) -> None:
        try:
            await trio.sleep(KEPT_AFTER_S)
            while self._waiting:
                async with trio.open_nursery() as nursery:
                    for _ in range(min(KEPT_TOGETHER, len(self._waiting))):
                        nursery.start_soon(self._keep, *self._waiting.popleft())
        finally:
            self._is_running = False
        if not self._is_noting:
            self._is_noting = True
            try:
                await trio.sleep(NOTED_AFTER_S)
            finally:
                self._is_noting = False
            await self._checkpoint()

    async def _keep(self, partition: TopicPartition, log: Log) -> None:
        try:
            await log.keep()
        except RefusedError:
            pass  # the log was deleted, or failed, which its directory has reported
        except Exception as error:
            self._errors.note("new log", partition, error)


async def _is_whole(disk: Disk, path: str, topic_id: UUID) -> bool:
    """Return whether the directory at `path` belongs to the topic with this id. Returns False if
    the directory's creation was interrupted.

    Raises RefusedError or CorruptDataError if the directory belongs to another topic.
    """
    file = f"{path}/{PARTITION_METADATA}"
    if not disk.exists(file) or is_unfinished(await disk.read_file(file)):
        return False
    return await load_topic_id(disk, path, topic_id) == topic_id


async def free_name(
    disk: Disk, rng: Rng, directory: LogDirectory, partition: TopicPartition
) -> str | None:
    """Durably rename the directory of a deleted log, so that a new log can use its name. Returns
    the new path, or None if the directory was removed.

    On a full disk, the directory is removed instead. Raises OSError if the disk fails.
    """
    path = f"{directory.path}/{partition}"
    target = f"{directory.path}/{deleted_name(partition, rng.uuid())}"
    try:
        await disk.rename(path, target)
    except FileNotFoundError:
        return None
    except OSError as error:
        if not is_disk_full(error):
            raise
        await disk.remove_tree(path)  # a new name needs space too; removing the files frees some
        await disk.fsync_directory(directory.path)
        return None
    await disk.fsync_directory(directory.path)
    return target


async def wait_until_idle(log: Log) -> None:
    """Wait until no task uses the files of a log that was taken out of use."""
    while log.file_task_count:
        idle = trio.Event()
        log.on_files_idle = idle.set
        await idle.wait()
