"""Opens every partition of one directory at the start, several at a time.

After a clean stop logs are only opened; else everything above the recovery point is checked again
(ST32, in `log.py`).  Waiting deletions go on, the metadata log is left to the quorum.  A log whose
topic id is gone gets it back from the checkpoints, else it is set aside under another name.  One
partition that is damaged goes offline alone; a disk error takes the directory.  What the
checkpoints say of a partition counts only for the topic id in its directory.
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
from ottla.storage.checkpoint_file import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
)
from ottla.storage.directory_names import DirectoryKind, parse_directory_name, stray_name
from ottla.storage.directory_view import DirectoryView, small_files
from ottla.storage.disk_errors import DiskError, meaning_of
from ottla.storage.disk_seam import DirectorySurvey, Disk
from ottla.storage.files import LOG, PARTITION_METADATA, file_name, offsets_of
from ottla.storage.log import Log, open_log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
    is_unfinished,
)
from ottla.storage.recovery import Progress, load_topic_id
from ottla.storage.recovery_processes_driver import (
    MAY_START_PROCESSES,
    CheckingPlaces,
    RecoveryTask,
)
from ottla.storage.segment_swap import is_tidy

_LOGGER = logging.getLogger(__name__)

SURVEYED_AT_ONCE = 100
"""Directories surveyed in one call of a worker, which costs as much as what it does for three.
More delay the first logs, and what else the worker has to do."""

LOGS_OPENED_AT_ONCE = 8
"""Logs under way at the same time, of which num.recovery.threads.per.data.dir are checked.  Fewer
leave the disk idle while logs are opened that have little to be checked."""

CHECKED_BYTES_MIN = MIB
"""Bytes to be checked from which on a log waits for one of these places."""

PROCESSES_BYTES_MIN = 1024 * MIB
"""Bytes of a directory that are worth processes of their own: these take half a second to begin."""

CUT_TAIL = (
    "%s: %d bytes from offset %d on were no whole records, and are cut off; likely cause: a write "
    "that had not ended when the broker or its machine stopped, or damage"
)

ZERO = Offset(0)


@frozen(kw_only=True)
class RecoveryPlan:
    """What the broker decides about the logs that are found."""

    config_of: Callable[[TopicPartition], LogConfig]
    worker_count: int
    is_all_checked: bool = False
    """Whether logs are checked from their first byte, whatever was flushed."""


@frozen(kw_only=True)
class DirectoryContents:
    """What a directory held."""

    logs: dict[TopicPartition, Log]
    corrupt: dict[TopicPartition, str]
    to_delete: list[str]
    """Paths of directories whose deletion was under way."""
    moving: list[TopicPartition]
    """Partitions whose logs were on their way to this directory."""
    unopened: dict[tuple[TopicPartition, UUID], str]
    """Of the corrupt ones those whose topic id is known."""
    unnamed: list[TopicPartition]
    """Partitions whose log has records, but lies under no topic id; it was set aside."""
    cut_bytes: dict[TopicPartition, int]
    """Bytes at the ends of logs that were no whole records, and were cut off."""
    receded: list[TopicPartition]
    """Logs that the next start must check from further back than their checkpoint says."""


async def recover_directory(
    disk: Disk, clock: Clock, rng: Rng, directory: LogDirectory, plan: RecoveryPlan
) -> DirectoryContents:
    """Open all logs of a directory; OSError and KAFKA_STORAGE_ERROR are the caller's to judge."""
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
    places = CheckingPlaces(
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
    """What the directories of partitions hold, asked for many at once and forgotten once given."""

    def __init__(
        self, disk: Disk, directory: LogDirectory, partitions: Sequence[TopicPartition]
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._waiting = list(partitions)
        self._found: dict[TopicPartition, DirectorySurvey | OSError] = {}
        self._asking = trio.Lock()

    async def view_of(self, partition: TopicPartition) -> DirectoryView:
        """Return what a partition's directory holds; asked in the order of the partitions.

        Raises OSError if the disk does.
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
    """Return whether this process lacks what the log needs, and its disk is as sound as ever."""
    # The compiler leaves out a `from`: of a compiled raise only the context is known.
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
            found.to_delete.append(path)  # what it holds lies in the log that is moved
            found.moving.append(partition)
        elif partition is None:
            _LOGGER.warning("%s is left alone: it is %s", path, kind.name.lower())
        else:
            partitions.append(partition)
    return partitions


async def _measure(
    disk: Disk, directory: LogDirectory, partitions: list[TopicPartition], plan: RecoveryPlan
) -> None:
    """Count the segments and bytes above the recovery points, for whoever waits."""
    lines = directory.checkpoints.lines(RECOVERY_POINT_FILE)
    recovery_points = {} if plan.is_all_checked else lines
    progress = directory.progress
    for first in range(0, len(partitions), SURVEYED_AT_ONCE):
        some = partitions[first : first + SURVEYED_AT_ONCE]
        paths = [f"{directory.path}/{partition}" for partition in some]
        surveys = await disk.survey(paths, lambda names: ())
        for partition, survey in zip(some, surveys, strict=True):
            if isinstance(survey, OSError):
                continue  # who opens the log meets it too
            count, size = unchecked(survey, recovery_points.get(partition, ZERO))
            progress.remaining_segment_count += count
            progress.bytes_total += size


def unchecked(survey: DirectorySurvey, recovery_point: Offset) -> tuple[int, int]:
    """Return how many segments of a log, and how many bytes, a start has to check."""
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
    places: CheckingPlaces,
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
        log.names.is_kept = False  # only memory may have it, as with what `_settle` looks after
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
    """Log and count what a log lost at its end, as far as sizes tell it."""
    cut_bytes = size_of_log(survey) - log.size_bytes
    # A cleaning that is finished here makes a log smaller, and so do the zeros of preallocation.
    if cut_bytes > 0 and is_tidy(sorted(survey.sizes)) and not log.config.preallocate:
        found.cut_bytes[partition] = cut_bytes
        _LOGGER.warning(CUT_TAIL, log.directory, cut_bytes, log.end_offset)


def size_of_log(survey: DirectorySurvey) -> int:
    """Return the bytes of a log's segments, without indexes."""
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
    """Return the topic id of a log; None if it has none, and is offline or set aside for that."""
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
        await set_stray_aside(disk, rng, directory, partition)
    else:
        _LOGGER.error("%s is offline: %s", view.path, damage)
        found.corrupt[partition] = damage
    return None


async def _name_again(
    disk: Disk, directory: LogDirectory, partition: TopicPartition, view: DirectoryView
) -> UUID | None:
    """Give a log back the topic id that the checkpoints know it by; None if they do not know it.

    A line is forgotten before another topic's log is made under its name, so it is of this log.
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


async def set_stray_aside(
    disk: Disk, rng: Rng, directory: LogDirectory, partition: TopicPartition
) -> None:
    """Rename a partition that the cluster does not place here; its operator may look at it."""
    source = f"{directory.path}/{partition}"
    target = f"{directory.path}/{stray_name(partition, rng.uuid())}"
    _LOGGER.warning("%s is stray and set aside as %s", source, target)
    await disk.rename(source, target)
    await disk.fsync_directory(directory.path)
