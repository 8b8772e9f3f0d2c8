"""Opening of all partition logs of one log directory at broker startup, several at a time.

After a clean shutdown, logs are only opened. Otherwise, everything above the recovery point is
checked (`recovery/recovery.py`). Interrupted deletions are listed, for the caller to complete. The
metadata log is not opened, because the quorum opens it.

If a log's directory has no readable topic id, the id is restored from the checkpoints. If the
checkpoints have no id either, the result depends on `partition.metadata`:
- If the file is missing or unfinished, the directory is renamed to `-stray`.
- If the file is damaged, the log is offline.

A damaged partition goes offline alone; a disk error takes the directory offline. A checkpoint line
of a partition is used only if its topic id is that of the directory.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.limits import MIB
from ottla.model.seams import Clock, Rng
from ottla.model.values import frozen
from ottla.storage.directories.checkpoint_file import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.disk.directory_names import DirectoryKind, parse_directory_name, stray_name
from ottla.storage.disk.disk_errors import DiskError, meaning_of
from ottla.storage.disk.disk_seam import DirectorySurvey, Disk
from ottla.storage.log.log import Log, open_log
from ottla.storage.manager.recovery_processes_driver import (
    MAY_START_PROCESSES,
    RecoverySlots,
    RecoveryTask,
)
from ottla.storage.recovery.recovery import Progress, load_topic_id
from ottla.storage.recovery.segment_swap import is_tidy
from ottla.storage.segments.directory_view import DirectoryView, small_files
from ottla.storage.segments.files import LOG, PARTITION_METADATA, file_name, offsets_of
from ottla.storage.segments.log_config import LogConfig
from ottla.storage.segments.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
    is_unfinished,
)

_LOGGER = logging.getLogger(__name__)

SURVEYED_AT_ONCE = 100
"""Number of partition directories whose names, sizes and small files are read in one call to the
disk's worker thread. A call costs as much as reading three directories. With a larger number, other
calls wait longer for the thread."""

LOGS_OPENED_AT_ONCE = 8
"""Number of logs of a log directory opened concurrently at broker startup. At most
num.recovery.threads.per.data.dir of these logs are checked concurrently. With a smaller number, the
disk is idle while logs with little to check are opened."""

CHECKED_BYTES_MIN = MIB
"""Number of unchecked bytes from which the opening of a log waits for a recovery thread. Logs with
fewer bytes are checked without a recovery thread."""

PROCESSES_BYTES_MIN = 1024 * MIB
"""Number of unchecked bytes in a log directory above which recovery starts worker processes.
Starting the processes takes half a second."""

CUT_TAIL = (
    "%s: %d bytes from offset %d on were not complete records and were cut off; likely cause: an "
    "unfinished write when the broker or its machine stopped, or damage"
)

ZERO = Offset(0)


@frozen(kw_only=True)
class RecoveryPlan:
    """The broker's settings and decisions for the recovery of its logs at startup."""

    config_of: Callable[[TopicPartition], LogConfig]
    worker_count: int
    is_all_checked: bool = False
    """True if recovery checks logs from their first byte, regardless of recovery points."""


@frozen(kw_only=True)
class DirectoryContents:
    """Logs and other directories that the broker found in one log directory at startup."""

    logs: dict[TopicPartition, Log]
    corrupt: dict[TopicPartition, str]
    to_delete: list[str]
    """Paths of partition directories whose deletion was interrupted."""
    moving: list[TopicPartition]
    """Partitions whose logs were being moved to this log directory when the broker stopped."""
    unopened: dict[tuple[TopicPartition, UUID], str]
    """Corrupt logs of the log directory whose topic id is known, each with the reason."""
    unnamed: list[TopicPartition]
    """Partitions whose log in this log directory has records but no topic id. Each log is offline,
    or its directory was renamed to `-stray`."""
    cut_bytes: dict[TopicPartition, int]
    """Number of bytes that recovery removed from the end of each log, because they were parts of
    incomplete records."""
    receded: list[TopicPartition]
    """Partitions whose log ends below its checkpointed recovery point. The next start must check
    these logs from a lower offset."""


async def recover_directory(
    disk: Disk, clock: Clock, rng: Rng, directory: LogDirectory, plan: RecoveryPlan
) -> DirectoryContents:
    """Open all logs of a log directory. Returns the logs, the directory's other contents, and any
    damage found.

    The caller handles OSError and RefusedError(KAFKA_STORAGE_ERROR).
    """
    found = DirectoryContents(
        logs={},
        corrupt={},
        to_delete=[],
        moving=[],
        receded=[],
        unopened={},
        unnamed=[],
        cut_bytes={},
    )
    partitions = await _sort_names(disk, directory, found)
    await _load_checkpoints(disk, directory, partitions)
    await directory.spend_clean_marker()
    directory.progress.remaining_log_count = len(partitions)
    directory.progress.segment_counts_by_thread = [0] * plan.worker_count
    if plan.is_all_checked or not directory.was_clean:
        await _measure(disk, directory, partitions, plan)

    failures: list[OSError | RefusedError] = []
    is_large = directory.progress.bytes_total >= PROCESSES_BYTES_MIN
    places = RecoverySlots(
        plan.worker_count,
        uses_processes=is_large and plan.worker_count > 1 and MAY_START_PROCESSES.get(),
    )
    surveys = Surveys(disk, directory, partitions)

    async def work(waiting: Iterator[TopicPartition]) -> None:
        for partition in waiting:
            if failures:
                return
            try:
                view = await surveys.view_of(partition)
                await _recover_log(
                    disk, clock, rng, directory, partition, view, plan, found, places
                )
                await trio.lowlevel.checkpoint()
            except (OSError, RefusedError) as error:
                if _lacks_resources(error):
                    _LOGGER.error("%s is offline until the next start: %s", partition, error)
                    found.corrupt[partition] = f"{error}; the next start tries again"
                else:
                    failures.append(error)
            directory.progress.remaining_log_count -= 1

    waiting = iter(partitions)
    async with places.opened(), trio.open_nursery() as nursery:
        for _ in range(min(LOGS_OPENED_AT_ONCE, len(partitions))):
            nursery.start_soon(work, waiting)
    if failures:
        _abandon_all(found)
        raise failures[0]
    directory.progress.remaining_segment_count = 0
    directory.progress.segment_counts_by_thread = [0] * plan.worker_count
    return found


class Surveys:
    """Surveys of partition directories (their file names, sizes and small files), made in batches.
    Each survey is used once, and then dropped."""

    def __init__(
        self, disk: Disk, directory: LogDirectory, partitions: Sequence[TopicPartition]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._waiting = list(partitions)
        self._found: dict[TopicPartition, DirectorySurvey | OSError] = {}
        self._asking = trio.Lock()

    async def view_of(self, partition: TopicPartition) -> DirectoryView:
        """Return the surveyed contents of a partition's directory. The caller must request the
        partitions in order.

        Raises OSError if the disk fails.
        """
        async with self._asking:
            if partition not in self._found:
                await self._ask()
        found = self._found.pop(partition)
        if isinstance(found, OSError):
            raise found
        return DirectoryView(self._disk, f"{self._directory.path}/{partition}", found)

    async def _ask(self) -> None:
        asked, self._waiting = self._waiting[:SURVEYED_AT_ONCE], self._waiting[SURVEYED_AT_ONCE:]
        paths = [f"{self._directory.path}/{partition}" for partition in asked]
        found = await self._disk.survey(paths, small_files)
        self._found.update(zip(asked, found, strict=True))


def _lacks_resources(error: OSError | RefusedError) -> bool:
    """Return whether an error is caused by a lack of resources in this process, and not by the
    disk."""
    # The compiler omits `from`: a compiled raise has only the context.
    cause = error if isinstance(error, OSError) else error.__cause__ or error.__context__
    return isinstance(cause, OSError) and meaning_of(cause) is DiskError.RESOURCES


async def _load_checkpoints(
    disk: Disk, directory: LogDirectory, partitions: list[TopicPartition]
) -> None:
    await directory.checkpoints.load()
    if directory.was_clean and not directory.checkpoints.is_side_file_known:
        topic_ids: dict[TopicPartition, UUID] = {}
        for partition in partitions:
            with suppress(CorruptDataError):
                topic_id = await load_topic_id(disk, f"{directory.path}/{partition}", None)
                if topic_id is not None:
                    topic_ids[partition] = topic_id
        await directory.checkpoints.adopt(topic_ids)


def _abandon_all(found: DirectoryContents) -> None:
    for log in found.logs.values():
        log.abandon()


async def _sort_names(
    disk: Disk, directory: LogDirectory, found: DirectoryContents
) -> list[TopicPartition]:
    partitions: list[TopicPartition] = []
    (survey,) = await disk.survey([directory.path], lambda names: ())
    if isinstance(survey, OSError):
        raise survey
    for name in await disk.listdir(directory.path):
        path = f"{directory.path}/{name}"
        kind, partition = parse_directory_name(name)
        if kind is DirectoryKind.OTHER or name in survey.sizes:
            continue
        if kind is DirectoryKind.DELETE:
            found.to_delete.append(path)
        elif kind is DirectoryKind.FUTURE and partition is not None:
            found.to_delete.append(path)  # its contents are in the log that was being moved
            found.moving.append(partition)
        elif partition is None:
            _LOGGER.warning("%s is left alone: it is %s", path, kind.name.lower())
        else:
            partitions.append(partition)
    return partitions


async def _measure(
    disk: Disk, directory: LogDirectory, partitions: list[TopicPartition], plan: RecoveryPlan
) -> None:
    """Add the segments and bytes that recovery has to check, above the recovery points, to the
    directory's recovery progress."""
    lines = directory.checkpoints.lines(RECOVERY_POINT_FILE)
    recovery_points = {} if plan.is_all_checked else lines
    progress = directory.progress
    for first in range(0, len(partitions), SURVEYED_AT_ONCE):
        some = partitions[first : first + SURVEYED_AT_ONCE]
        paths = [f"{directory.path}/{partition}" for partition in some]
        surveys = await disk.survey(paths, lambda names: ())
        for partition, survey in zip(some, surveys, strict=True):
            if isinstance(survey, OSError):
                continue  # opening the log fails with the same error
            count, size = unchecked(survey, recovery_points.get(partition, ZERO))
            progress.remaining_segment_count += count
            progress.bytes_total += size


def unchecked(survey: DirectorySurvey, recovery_point: Offset) -> tuple[int, int]:
    """Return the number and the total bytes of a log's segments that recovery has to check.

    Recovery checks the segments that end above `recovery_point`, and always the last segment.
    """
    bases = offsets_of(list(survey.sizes), LOG)
    below_count = sum(1 for end in bases[1:] if end <= recovery_point)
    sizes = [survey.sizes[file_name(base, LOG)] for base in bases[below_count:]]
    return len(sizes), sum(sizes)


async def _recover_log(
    disk: Disk,
    clock: Clock,
    rng: Rng,
    directory: LogDirectory,
    partition: TopicPartition,
    view: DirectoryView,
    plan: RecoveryPlan,
    found: DirectoryContents,
    places: RecoverySlots,
) -> None:
    progress = directory.progress
    thread: int | None = None

    def on_progress(segment_count: int, size: int) -> None:
        progress.remaining_segment_count -= min(segment_count, progress.remaining_segment_count)
        progress.bytes_done += size
        if thread is not None:
            counts = progress.segment_counts_by_thread
            counts[thread] = max(0, counts[thread] - segment_count)

    path, survey = view.path, view.survey
    topic_id = await _find_topic_id(disk, rng, directory, partition, view, found)
    if topic_id is None:
        return
    try:

        def checkpointed(name: str) -> Offset | None:
            return directory.checkpoints.offset_of(name, partition, topic_id)

        recovery_point = checkpointed(RECOVERY_POINT_FILE) or ZERO
        if plan.is_all_checked:
            recovery_point = ZERO
        task = RecoveryTask(
            path=path,
            config=plan.config_of(partition),
            topic_id=topic_id,
            recovery_point=recovery_point,
            log_start_offset=checkpointed(LOG_START_FILE) or ZERO,
            now_ms=clock.wall_ms(),
        )
        is_clean = directory.was_clean and not plan.is_all_checked
        if is_clean or unchecked(view.survey, recovery_point)[1] < CHECKED_BYTES_MIN:
            log = await _opened(disk, rng, task, view, on_progress, is_clean=is_clean)
        else:
            async with places.place() as (thread, worker):
                segment_count = unchecked(view.survey, recovery_point)[0]
                progress.segment_counts_by_thread[thread] = segment_count
                if worker is not None:
                    is_clean = await worker.recover(task, on_progress)
                    view = DirectoryView(disk, path)
                log = await _opened(disk, rng, task, view, on_progress, is_clean=is_clean)
                progress.segment_counts_by_thread[thread] = 0
    except CorruptDataError as error:
        _LOGGER.error("%s is offline: %s", path, error.where)
        found.corrupt[partition] = found.unopened[partition, topic_id] = error.where
        return
    if not directory.was_clean and not recovery_point:
        log.names.is_kept = False  # may be in memory only, as the names that `_settle` checks
        await log.keep()
    high_watermark = checkpointed(HIGH_WATERMARK_FILE)
    if high_watermark is not None:
        log.update_high_watermark(min(high_watermark, log.end_offset))
    first_dirty_offset = checkpointed(CLEANER_OFFSET_FILE)
    if first_dirty_offset is not None:
        log.note_clean_to(first_dirty_offset)
    _note_cut(found, partition, survey, log)
    if log.recovery_checkpoint < recovery_point:
        found.receded.append(partition)
    found.logs[partition] = log


def _note_cut(
    found: DirectoryContents, partition: TopicPartition, survey: DirectorySurvey, log: Log
) -> None:
    """Log and count the bytes that recovery removed from the end of a log, according to the sizes
    of its files."""
    cut_bytes = size_of_log(survey) - log.size_bytes
    # Sizes also shrink if recovery finishes a cleaning or removes preallocated zeros.
    if cut_bytes > 0 and is_tidy(sorted(survey.sizes)) and not log.config.preallocate:
        found.cut_bytes[partition] = cut_bytes
        _LOGGER.warning(CUT_TAIL, log.directory, cut_bytes, log.end_offset)


def size_of_log(survey: DirectorySurvey) -> int:
    """Return the total size in bytes of the `.log` files in a partition's directory, without
    indexes."""
    return sum(size for name, size in survey.sizes.items() if name.endswith(LOG))


async def _opened(
    disk: Disk,
    rng: Rng,
    task: RecoveryTask,
    view: DirectoryView,
    on_progress: Progress,
    *,
    is_clean: bool,
) -> Log:
    return await open_log(
        disk,
        task.path,
        config=task.config,
        topic_id=task.topic_id,
        is_clean=is_clean,
        recovery_point=task.recovery_point,
        log_start_offset=task.log_start_offset,
        now_ms=task.now_ms,
        rng=rng,
        progress=on_progress,
        view=view,
    )


async def _find_topic_id(
    disk: Disk,
    rng: Rng,
    directory: LogDirectory,
    partition: TopicPartition,
    view: DirectoryView,
    found: DirectoryContents,
) -> UUID | None:
    """Return the topic id of a partition's log, or None if it has no topic id. If it has none, the
    log is marked as corrupt, or its directory is renamed to `-stray`."""
    damage: str | None = None
    try:
        data = await view.read_file(PARTITION_METADATA)
        if not is_unfinished(data):
            return decode_partition_metadata(data)
    except FileNotFoundError:
        pass
    except CorruptDataError as error:
        damage = error.where
    topic_id = await _name_again(disk, directory, partition, view)
    if topic_id is not None:
        return topic_id
    if size_of_log(view.survey):
        found.unnamed.append(partition)
    if damage is None:
        await rename_to_stray(disk, rng, directory, partition)
    else:
        _LOGGER.error("%s is offline: %s", view.path, damage)
        found.corrupt[partition] = damage
    return None


async def _name_again(
    disk: Disk, directory: LogDirectory, partition: TopicPartition, view: DirectoryView
) -> UUID | None:
    """Restore the topic id of a partition's log from the checkpoints. Returns the topic id, or None
    if the checkpoints lack it.

    The checkpoint lines certainly belong to this log, because lines of a partition's name are
    removed before another topic's log is created under that name.
    """
    topic_id = directory.checkpoints.topic_id_of(partition)
    if topic_id is not None:
        _LOGGER.error(
            "%s had no readable partition.metadata: it is topic id %s by the checkpoints",
            view.path,
            topic_id,
        )
        data = encode_partition_metadata(topic_id)
        await disk.write_atomically(f"{view.path}/{PARTITION_METADATA}", data)
    return topic_id


async def rename_to_stray(
    disk: Disk, rng: Rng, directory: LogDirectory, partition: TopicPartition
) -> None:
    """Durably add the suffix `-stray` to a partition's directory, so that no log uses it and the
    partition's name is free. The operator may inspect its files.

    Used for partitions that the cluster does not place on this broker, for logs without a topic id,
    and for logs of another topic with the same name. Also used for the log that was not chosen if a
    partition has two logs, and by a move if the target directory already has the partition's name.
    """
    source = f"{directory.path}/{partition}"
    target = f"{directory.path}/{stray_name(partition, rng.uuid())}"
    _LOGGER.warning("%s is stray and set aside as %s", source, target)
    await disk.rename(source, target)
    await disk.fsync_directory(directory.path)
