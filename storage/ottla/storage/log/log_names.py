"""Durability of the file names in a log's directory, and of the directory's own name.

As in Kafka, a new log is online before its directory is durable. If a power failure removes an
empty log, the log is created again. No flush of the log completes before its directory is durable,
because a power failure could remove the flushed records with the directory. If the process is
killed earlier, the next start makes the directory durable, like all directories.
"""

from uuid import UUID

from ottla.storage.disk.disk_seam import Disk
from ottla.storage.segments.files import PARTITION_METADATA
from ottla.storage.segments.partition_metadata import encode_partition_metadata


class LogNames:
    """Durability of names: whether the file names in one log's directory are durable, and whether
    the directory itself is durable."""

    __slots__ = (
        "_disk",
        "_path",
        "_synced_count",
        "_topic_id",
        "change_count",
        "is_kept",
        "is_new",
    )

    def __init__(self, disk: Disk, path: str, topic_id: UUID | None) -> None:
        self.change_count = 1
        """Number of changes of file names in the log's directory. A flush compares its values
        before and after the fsync, to determine which changes are durable."""
        self.is_kept = True
        """True if the log's directory itself is durable. False for a new log. Also False after
        a process was killed before its first flush, until the next start has flushed the
        directory."""
        self.is_new = False
        """True if not even the names of the files in the log's directory are durable."""
        self._disk = disk
        self._path = path
        self._topic_id = topic_id
        self._synced_count = 0

    async def keep(self) -> None:
        """Make the log's directory itself durable if it is not durable yet. Raises OSError if the
        disk fails."""
        if not self.is_kept:
            await self.sync()

    async def sync(self) -> None:
        """Make all current file names of the log durable by an fsync of its directory. Raises
        OSError if the disk fails.

        Names that another call is still flushing are not durable yet. Each call therefore flushes
        all names that are not known to be durable.
        """
        change_count = self.change_count
        if self._synced_count < change_count:
            if self.is_kept:
                await self._disk.fsync_directory(self._path)
            else:
                assert self._topic_id is not None
                metadata = encode_partition_metadata(self._topic_id)
                await self._disk.keep_directory(self._path, {PARTITION_METADATA: metadata})
                self.is_kept, self.is_new = True, False
            self._synced_count = max(self._synced_count, change_count)
