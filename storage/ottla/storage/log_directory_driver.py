"""The directories of log.dirs: of each its lock, its identity, its checkpoints, its clean marker.

A directory whose disk fails goes offline with its reason until the next start.
"""

import logging
from dataclasses import dataclass, field
from uuid import UUID

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.seams import Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.disks import DiskConfig
from ottla.storage.checkpoints_driver import Checkpoints
from ottla.storage.clean_shutdown import (
    CLEAN_SHUTDOWN_FILE,
    NO_BROKER_EPOCH,
    format_clean_shutdown,
    parse_clean_shutdown,
)
from ottla.storage.directory_lock_driver import lock_directory, unlock_directory
from ottla.storage.disk_errors import is_disk_full, meaning_of
from ottla.storage.disk_room import RoomState
from ottla.storage.disk_room_driver import MeasuredRoom
from ottla.storage.disk_seam import Disk, DiskFile, Space
from ottla.storage.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    check_identities,
    format_meta_properties,
    parse_meta_properties,
)

_LOGGER = logging.getLogger(__name__)

LOGS_CLOSED_AT_ONCE = 4
"""Logs of one directory that are closed at the same time.  Fewer leaves its disk idle between the
steps of each; more only queues."""


@dataclass(slots=True, kw_only=True)
class RecoveryProgress:
    """How far one directory's recovery is; all zero before it starts and after a clean stop."""

    remaining_log_count: int = 0
    remaining_segment_count: int = 0
    segment_counts_by_thread: list[int] = field(default_factory=list)
    """Segments left of the log that each recovery thread checks, by the thread's number."""
    bytes_total: int = 0
    bytes_done: int = 0


class LogDirectory:
    """One directory that this process holds locked."""

    def __init__(self, disk: Disk, path: str, bounds: DiskConfig | None = None) -> None:
        self.path = path
        self.room = MeasuredRoom(disk, path, bounds or DiskConfig())
        self.identity: MetaProperties | None = None
        self.failure: str | None = None
        """Why the directory is offline; None while it serves."""
        self.is_cordoned = False
        """Whether it takes no new replica (`cordoned.log.dirs`)."""
        self.progress = RecoveryProgress()
        self.is_recovered = False
        """Whether all its logs were opened, without which a clean marker would lie."""
        self.is_partly_unchecked = False
        """Whether a log could not be opened: a clean marker would have the next start trust it."""
        self.was_clean = False
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self.checkpoints = Checkpoints(disk, path)
        self._disk = disk
        self._lock_file: DiskFile | None = None

    @property
    def is_live(self) -> bool:
        """Whether the directory serves."""
        return self.failure is None

    @property
    def is_full(self) -> bool:
        """Whether its disk has no room."""
        return self.room.known.state is RoomState.FULL

    @property
    def directory_id(self) -> UUID | None:
        """Return the directory's id, by which the cluster places replicas on disks."""
        return None if self.identity is None else self.identity.directory_id

    async def open(self) -> None:
        """Take the lock and read what the directory says of itself; a bad disk sets `failure`."""
        try:
            await self._disk.makedirs(self.path)
            self._lock_file = lock_directory(self._disk, self.path)
            self.identity = await self._read_identity()
            await self._read_clean_marker()
        except OSError as error:
            self.fail(f"{self.path}: {error.strerror or error}")

    def fail(self, reason: str) -> None:
        """Go offline until the next start; the first reason stays."""
        if self.failure is None:
            self.failure = reason
            _LOGGER.error("log directory is offline: %s", reason)
        self.release()

    def note_passing(self, error: OSError) -> None:
        """Log an error that passes by itself; of a full disk the room knows what to say, once."""
        if is_disk_full(error):
            self.room.note_refused()
        else:
            _LOGGER.error("%s: %s: %s", self.path, meaning_of(error).value, error)

    def release(self) -> None:
        """Give the lock up."""
        if self._lock_file is not None:
            unlock_directory(self._lock_file)
            self._lock_file = None

    async def space(self) -> Space:
        """Return the room on the directory's volume, the last known one while its disk hangs."""
        return await self.room.fresh()

    async def write_identity(self, identity: MetaProperties) -> None:
        """Make the directory this node's own."""
        await self._disk.write_atomically(
            f"{self.path}/{META_PROPERTIES_FILE}", format_meta_properties(identity)
        )
        self.identity = identity

    async def _read_identity(self) -> MetaProperties | None:
        path = f"{self.path}/{META_PROPERTIES_FILE}"
        try:
            return parse_meta_properties(await self._disk.read_file(path))
        except FileNotFoundError:
            return None
        except CorruptDataError as error:
            raise ConfigError("log.dirs", f"{self.path}: {error.where}") from None

    async def _read_clean_marker(self) -> None:
        try:
            data = await self._disk.read_file(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
        except FileNotFoundError:
            return
        self.was_clean = True
        self.previous_broker_epoch = parse_clean_shutdown(data)

    async def spend_clean_marker(self) -> None:
        """Remove the marker before the first log is opened: a crash from now on is unclean.

        Durably also if the process before removed it, which may have died before it was.
        """
        if self.was_clean:
            await self._disk.unlink(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
        await self._disk.fsync_directory(self.path)

    async def write_clean_marker(self, broker_epoch: int) -> None:
        """Say that every log was flushed and closed."""
        assert self.is_recovered
        await self._disk.write_atomically(
            f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch)
        )


async def open_directories(
    disk: Disk, config: BrokerConfig, rng: Rng, cluster_id: str | None
) -> tuple[LogDirectory, ...]:
    """Lock and check all directories of log.dirs; a bad disk only sets its directory's `failure`.

    Raises ConfigError if another process, node or cluster has one, or none can be used.
    """
    if len(set(config.log_dirs)) < len(config.log_dirs):
        raise ConfigError("log.dirs", "names a directory twice")
    directories = tuple(
        LogDirectory(disk, path.rstrip("/"), config.disks) for path in config.log_dirs
    )
    try:
        for directory in directories:
            await directory.open()
        live = [directory for directory in directories if directory.is_live]
        if not live:
            raise ConfigError("log.dirs", f"no directory can be used: {directories[0].failure}")
        shared_id = check_identities(
            {directory.path: directory.identity for directory in live},
            node_id=config.node_id,
            cluster_id=cluster_id,
        )
        for directory in live:
            await _complete_identity(directory, config, rng, shared_id)
    except BaseException:
        for directory in directories:
            directory.release()
        raise
    return directories


async def _complete_identity(
    directory: LogDirectory, config: BrokerConfig, rng: Rng, cluster_id: str
) -> None:
    """Give a directory that was added to log.dirs its identity."""
    if directory.directory_id is None:
        identity = MetaProperties(
            cluster_id=cluster_id, node_id=config.node_id, directory_id=rng.uuid()
        )
        await directory.write_identity(identity)
