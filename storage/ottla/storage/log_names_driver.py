"""Gives a partition's name to a new log, and takes it from one that is deleted.

The caller lets one change of a name happen at a time, and none while a task of its log works.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, RefusedError
from ottla.model.ids import Offset, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.storage.directory_names import deleted_name
from ottla.storage.disk_errors import is_disk_full
from ottla.storage.disk_seam import Disk
from ottla.storage.files import LOG, PARTITION_METADATA, file_name
from ottla.storage.log import Log, new_log, open_log
from ottla.storage.log_config import LogConfig
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_recovery_driver import set_stray_aside
from ottla.storage.partition_metadata import encode_partition_metadata, is_unfinished
from ottla.storage.recovery import load_topic_id

KEPT_AFTER_S = 0.05
"""How long a new log waits for others that are made durable with it.  Less makes them durable while
more are made, which lets both wait; more leaves them longer to what a power loss takes."""

NOTED_AFTER_S = 1.0
"""How long the checkpoint waits for other new logs.  Until it has a line, a log that is removed
while the broker is down is taken for one that was never made; less writes the file more often."""

KEPT_TOGETHER = 32
"""New logs that are made durable together.  Fewer hands over to the disk's worker more often, more
holds the loop for longer when they are begun."""

NOTHING = Offset(0)
EMPTY_SEGMENT = {file_name(0, LOG): b""}
"""The files that a log begins with: its indexes are made with their first entries."""


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
    """Make a log of a name that no log serves; `served` are the directory's others.

    `is_there` says whether there is a directory of the name.

    What another topic left under the name is set aside, and what the checkpoints say of it is
    forgotten, before there is a directory of the name.  The first flush, or `keep_soon`, makes the
    directory durable.  Raises OSError if the disk does.
    """
    path = f"{directory.path}/{partition}"
    is_whole = False
    if is_there:
        try:
            is_whole = await _is_whole(disk, path, topic_id)
        except (CorruptDataError, RefusedError):
            await set_stray_aside(disk, rng, directory, partition)
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
    """New logs whose directories are made durable behind their backs, those made together at once.

    What is deleted before its turn costs nothing more.
    """

    def __init__(self, errors: UnexpectedErrors, checkpoint: Callable[[], Awaitable[None]]) -> None:
        """`checkpoint` writes a line for each log whose directory is durable."""
        self._errors = errors
        self._checkpoint = checkpoint
        self._is_noting = False
        self._waiting: deque[tuple[TopicPartition, Log]] = deque()
        self._is_running = False

    def keep_soon(self, nursery: trio.Nursery, partition: TopicPartition, log: Log) -> None:
        """Have a log's directory made durable."""
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
            pass  # the log went, or failed, which its directory knows
        except Exception as error:
            self._errors.note("new log", partition, error)


async def _is_whole(disk: Disk, path: str, topic_id: UUID) -> bool:
    """Return whether a directory says that it is the topic's; False where its making was cut off.

    Raises RefusedError or CorruptDataError if it is not the topic's.
    """
    file = f"{path}/{PARTITION_METADATA}"
    if not disk.exists(file) or is_unfinished(await disk.read_file(file)):
        return False
    return await load_topic_id(disk, path, topic_id) == topic_id


async def free_name(
    disk: Disk, rng: Rng, directory: LogDirectory, partition: TopicPartition
) -> str | None:
    """Durably take a deleted log's directory from its name; return its new path, None if gone.

    Raises OSError if the disk does; a full one only makes the directory go at once.
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
        await disk.remove_tree(path)  # a name takes room too; the files give it back
        await disk.fsync_directory(directory.path)
        return None
    await disk.fsync_directory(directory.path)
    return target


async def wait_until_idle(log: Log) -> None:
    """Wait until no task of a log that was given up works on its files."""
    while log.file_tasks.count:
        idle = trio.Event()
        log.file_tasks.on_idle = idle.set
        await idle.wait()
