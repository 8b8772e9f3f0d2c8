"""One directory of log.dirs: its lock, its identity, its checkpoints, its clean marker.

A checkpoint that cannot be read counts as empty, for it only saves work; a directory whose disk
fails goes offline with its reason until the next start.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import trio

from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.checkpoint_file import format_checkpoint, parse_checkpoint
from ottla.storage.clean_shutdown import (
    CLEAN_SHUTDOWN_FILE,
    NO_BROKER_EPOCH,
    format_clean_shutdown,
    parse_clean_shutdown,
)
from ottla.storage.directory_lock_driver import lock_directory
from ottla.storage.disk_seam import Disk, DiskFile, Space
from ottla.storage.meta_properties import (
    META_PROPERTIES_FILE,
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)

_LOGGER = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class RecoveryProgress:
    """How far one directory's recovery is; all zero before it starts and after a clean stop."""

    remaining_log_count: int = 0
    remaining_segment_count: int = 0
    bytes_total: int = 0
    bytes_done: int = 0


class LogDirectory:
    """One directory that this process holds locked."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.identity: MetaProperties | None = None
        self.failure: str | None = None
        """Why the directory is offline; None while it serves."""
        self.progress = RecoveryProgress()
        self.is_recovered = False
        """Whether all its logs were opened, without which a clean marker would lie."""
        self.was_clean = False
        self.previous_broker_epoch = NO_BROKER_EPOCH
        self._disk = disk
        self._lock_file: DiskFile | None = None
        self._writing = trio.Lock()

    @property
    def is_live(self) -> bool:
        """Say whether the directory serves."""
        return self.failure is None

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

    def release(self) -> None:
        """Give the lock up."""
        if self._lock_file is not None:
            self._lock_file.close()
            self._lock_file = None

    async def space(self) -> Space:
        """Return the room on the directory's volume."""
        return await self._disk.space(self.path)

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
        """Remove the marker before the first log is opened: a crash from now on is unclean."""
        if self.was_clean:
            await self._disk.unlink(f"{self.path}/{CLEAN_SHUTDOWN_FILE}")
            await self._disk.fsync_directory(self.path)

    async def write_clean_marker(self, broker_epoch: int) -> None:
        """Say that every log was flushed and closed."""
        assert self.is_recovered
        await self._disk.write_atomically(
            f"{self.path}/{CLEAN_SHUTDOWN_FILE}", format_clean_shutdown(broker_epoch)
        )

    async def read_checkpoint(self, name: str) -> dict[TopicPartition, Offset]:
        """Return a checkpoint's offsets; none when it is missing or cannot be read."""
        path = f"{self.path}/{name}"
        try:
            return parse_checkpoint(await self._disk.read_file(path))
        except FileNotFoundError:
            return {}
        except CorruptDataError as error:
            _LOGGER.warning("%s is ignored: %s", path, error.where)
            return {}

    async def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Replace a checkpoint; writers of one directory take turns."""
        async with self._writing:
            await self._disk.write_atomically(f"{self.path}/{name}", format_checkpoint(offsets))
