"""`leader-epoch-checkpoint`: written durably, where it would hold something else than it does."""

from ottla.storage.disk_seam import Disk
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.files import LEADER_EPOCH_CHECKPOINT

NO_EPOCHS = EpochCache().encode()


class EpochFile:
    """One log's."""

    def __init__(self, disk: Disk, directory: str, durable: bytes | None) -> None:
        """`durable` is what the file surely holds, NO_EPOCHS without one; None for not known."""
        self._disk = disk
        self._path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self._durable = durable
        self._written_change: int | None = None

    def forget(self) -> None:
        """Compare with the file again: the epochs are others."""
        self._written_change = None

    async def write(self, epochs: EpochCache) -> None:
        """Make the epochs durable.

        Raises OSError if the disk does.
        """
        change_count = epochs.change_count
        if change_count == self._written_change:
            return
        data = epochs.encode()
        if data != self._durable:
            self._durable = None
            await self._disk.write_atomically(self._path, data)
            self._durable = data
        self._written_change = change_count
