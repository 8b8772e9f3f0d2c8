"""Which names in a log's directory are durable, its own name among them.

A new log's directory is made durable behind its back, as Kafka does it with the file of the topic's
id: an empty log that a power loss takes is made again.  Until then no flush of the log is over, so
that nothing is called flushed which a power loss may take with its directory.  Where the process is
killed before, the next start makes the directory durable, as it does with all that it finds.
"""

from uuid import UUID

from ottla.storage.disk_seam import Disk
from ottla.storage.files import PARTITION_METADATA
from ottla.storage.partition_metadata import encode_partition_metadata


class LogNames:
    """The names in one log's directory."""

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
        """Counts what gives the directory new names, so that a flush knows which are durable."""
        self.is_kept = True
        """Whether the directory itself is durable: not a new log's; nor that of a log which was
        killed before its first flush, until the start has seen to it."""
        self.is_new = False
        """Whether not even the names in the directory are durable."""
        self._disk = disk
        self._path = path
        self._topic_id = topic_id
        self._synced_count = 0

    async def keep(self) -> None:
        """Make the directory itself durable, if it is not.  Raises OSError if the disk does."""
        if not self.is_kept:
            await self.sync()

    async def sync(self) -> None:
        """Make all names durable that there are by now.  Raises OSError if the disk does.

        Calls overlap: what another one has begun is not durable, so each does what is left.
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
