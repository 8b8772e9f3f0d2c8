"""The log directories of log.dirs, each with its lock, identity, checkpoints and clean shutdown
marker.

A directory whose disk fails is offline until the next start. The reason is stored for reports.
"""

import logging
from dataclasses import dataclass, field
from uuid import UUID

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.seams import Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.disks import DiskConfig
from ottla.storage.directories.checkpoints_driver import Checkpoints
from ottla.storage.directories.clean_shutdown import (
    CLEAN_SHUTDOWN_FILE,
    NO_BROKER_EPOCH,
    format_clean_shutdown,
    parse_clean_shutdown,
)
from ottla.storage.directories.directory_lock_driver import lock_directory, unlock_directory
from ottla.storage.directories.free_space import FreeSpaceLevel
from ottla.storage.directories.free_space_driver import FreeSpaceMonitor
from ottla.storage.directories.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    check_identities,
    format_meta_properties,
    parse_meta_properties,
)
from ottla.storage.disk.disk_errors import is_disk_full, meaning_of
from ottla.storage.disk.disk_seam import Disk, DiskFile, Space

_LOGGER = logging.getLogger(__name__)

LOGS_CLOSED_AT_ONCE = 4
"""Number of logs of one directory that are closed concurrently. With fewer, the disk is idle
between the steps of closing a log. With more, requests only wait in a queue."""


@dataclass(slots=True, kw_only=True)
class RecoveryProgress:
    """Progress of the recovery of one log directory. All numbers are zero before the recovery
    starts, and after a clean shutdown."""

    remaining_log_count: int = 0
    remaining_segment_count: int = 0
    segment_counts_by_thread: list[int] = field(default_factory=list)
    """Number of segments that each recovery thread still has to check in its current log, by thread
    number."""
    bytes_total: int = 0
    bytes_done: int = 0


class LogDirectory:
    """One log directory of log.dirs, which this process has locked."""

    def __init__(self, disk: Disk, path: str, bounds: DiskConfig | None = None) -> None:
        self.path = path
        self.free_space = FreeSpaceMonitor(disk, path, bounds or DiskConfig())
        self.identity: MetaProperties | None = None
        self.failure: str | None = None
        """Reason why the log directory is offline, or None if the directory is online."""
        self.is_cordoned = False
        """True if no new replica may be placed in this log directory (setting
        `cordoned.log.dirs`)."""
        self.progress = RecoveryProgress()
        self.is_recovered = False
        """True if all logs of the log directory were opened. Otherwise a clean shutdown marker must
        not be written."""
        self.is_partly_unchecked = False
        """True if a log of the directory could not be opened. The clean shutdown marker is then not
        written, because it would make the next start trust that log."""
        self.was_clean = False
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self.checkpoints = Checkpoints(disk, path)
        self._disk = disk
        self._lock_file: DiskFile | None = None

    @property
    def is_live(self) -> bool:
        """True if the log directory is online."""
        return self.failure is None

    @property
    def is_full(self) -> bool:
        """True if the disk of the log directory is full."""
        return self.free_space.known.state is FreeSpaceLevel.FULL

    @property
    def directory_id(self) -> UUID | None:
        """Id of the log directory, which the cluster uses to assign replicas. None if the directory
        has no id."""
        return None if self.identity is None else self.identity.directory_id

    async def open(self) -> None:
        """Lock the log directory and read its identity, clean shutdown marker and checkpoints. If
        the disk fails, `failure` is set."""
        try:
            await self._disk.makedirs(self.path)
            self._lock_file = lock_directory(self._disk, self.path)
            self.identity = await self._read_identity()
            await self._read_clean_marker()
        except OSError as error:
            self.fail(f"{self.path}: {error.strerror or error}")

    def fail(self, reason: str) -> None:
        """Take the log directory offline until the next start of the broker. After several
        failures, the first reason is stored."""
        if self.failure is None:
            self.failure = reason
            _LOGGER.error("log directory is offline: %s", reason)
        self.release()

    def note_passing(self, error: OSError) -> None:
        """Log a temporary error of the directory's disk. A full disk is not logged here, but
        reported to the free-space monitor, which logs it once."""
        if is_disk_full(error):
            self.free_space.note_refused()
        else:
            _LOGGER.error("%s: %s: %s", self.path, meaning_of(error).value, error)

    def release(self) -> None:
        """Release the lock of the log directory."""
        if self._lock_file is not None:
            unlock_directory(self._lock_file)
            self._lock_file = None

    async def space(self) -> Space:
        """Return the size and free space of the log directory's volume. If the disk hangs, returns
        the last measurement."""
        return await self.free_space.fresh()

    async def write_identity(self, identity: MetaProperties) -> None:
        """Write the identity file (`meta.properties`), which assigns the directory to this node."""
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
        """Durably remove the clean shutdown marker before the first log is opened. A later crash
        then counts as an unclean shutdown.

        The directory is synced even if the marker does not exist, because an earlier process may
        have died between removal and fsync.
        """
        if self.was_clean:
            await self._disk.unlink(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
        await self._disk.fsync_directory(self.path)

    async def write_clean_marker(self, broker_epoch: int) -> None:
        """Write the clean shutdown marker, which records that every log of the directory was
        flushed and closed."""
        assert self.is_recovered
        await self._disk.write_atomically(
            f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch)
        )


async def open_directories(
    disk: Disk, config: BrokerConfig, rng: Rng, cluster_id: str | None
) -> tuple[LogDirectory, ...]:
    """Lock and check all directories of log.dirs, and return them. A failing disk only sets the
    `failure` of its directory.

    Raises ConfigError if another process, node or cluster uses one of the directories, or if no
    directory is usable.
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
    """Write the identity file (`meta.properties`) of a log directory that was added to log.dirs."""
    if directory.directory_id is None:
        identity = MetaProperties(
            cluster_id=cluster_id, node_id=config.node_id, directory_id=rng.uuid()
        )
        await directory.write_identity(identity)
