"""Writer of the `leader-epoch-checkpoint` file of a log. The file is written durably whenever the
log's leader epochs have changed."""

from ottla.storage.disk.disk_seam import Disk
from ottla.storage.segments.epoch_cache import EpochCache
from ottla.storage.segments.files import LEADER_EPOCH_CHECKPOINT

NO_EPOCHS = EpochCache().encode()


class EpochFile:
    """Writer of the `leader-epoch-checkpoint` file of one log."""

    __slots__ = ("_directory", "_disk", "_durable", "_written_change")

    def __init__(self, disk: Disk, directory: str, durable: bytes | None) -> None:
        """Create the file object. `durable` is the content of the file that is known to be durable
        (NO_EPOCHS if the file does not exist), or None if the durable content is unknown."""
        self._disk = disk
        self._directory = directory
        self._durable = durable
        self._written_change: int | None = None

    def forget(self) -> None:
        """Treat the durable contents of the epoch file as unknown, because the epochs in memory
        were replaced. The next `write` then writes the file."""
        self._written_change = None

    async def write(self, epochs: EpochCache) -> None:
        """Write the leader epochs to the file durably. Does nothing if the file already contains
        them.

        Raises OSError if the disk fails.
        """
        change_count = epochs.change_count
        if change_count == self._written_change:
            return
        data = epochs.encode()
        if data != self._durable:
            self._durable = None
            path = f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}"
            await self._disk.write_atomically(path, data)
            self._durable = data
        self._written_change = change_count
