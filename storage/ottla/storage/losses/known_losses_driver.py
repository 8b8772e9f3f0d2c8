"""Losses of one broker's replicas, stored durably until each replica is complete again.

Each log directory stores the losses of its own replicas in the file `lost-logs`. At its start, the
broker reads these files, and compares the logs with the offsets in the checkpoints and in the
metadata image. It writes the files again before it continues.
"""

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import trio

from ottla.model.errors import CorruptDataError
from ottla.model.ids import TopicIdPartition
from ottla.storage.directories.log_directory_driver import LogDirectory
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.losses.log_losses import (
    DirectoryFindings,
    LogLoss,
    LossKind,
    ReplicaPlacement,
    StartFindings,
)
from ottla.storage.losses.loss_file import LOST_LOGS_FILE, format_losses, parse_losses

_LOGGER = logging.getLogger(__name__)


class KnownLosses:
    """The losses of records that a broker knows, by partition: logs that are missing, too short,
    unreadable or incomplete."""

    def __init__(self, disk: Disk) -> None:
        self.by_partition: dict[TopicIdPartition, LogLoss] = {}
        self.found_counts: Counter[LossKind] = Counter()
        """Number of logs with lost records found at this broker startup, by kind of loss. The
        numbers never decrease."""
        self.cut_bytes = 0
        """Number of bytes removed from the ends of logs at this broker startup, because they were
        parts of incomplete records."""
        self._disk = disk
        self._durable: dict[str, bytes] = {}
        """Contents of the `lost-logs` file of each log directory that are known to be durable, by
        the directory's path."""
        self._logged: set[TopicIdPartition] = set()
        self._writing = trio.Lock()

    async def load(self, directories: Sequence[LogDirectory]) -> None:
        """Read the losses in the `lost-logs` files of the log directories. Raises OSError if a disk
        fails."""
        for directory in directories:
            path = f"{directory.path}/{LOST_LOGS_FILE}"
            try:
                data = await self._disk.read_file(path)
                losses = parse_losses(data, directory.path)
            except FileNotFoundError:
                continue
            except CorruptDataError as error:
                _LOGGER.error("%s is ignored: %s", path, error.where)
                continue
            self._durable[directory.path] = data
            self.by_partition.update((loss.key, loss) for loss in losses)

    async def find_losses(
        self,
        directories: Sequence[LogDirectory],
        findings: Sequence[DirectoryFindings],
        placements: Sequence[ReplicaPlacement] | None,
        *,
        is_every_directory_live: bool,
    ) -> None:
        """Find the losses of records at this broker startup. Log each loss, and make all losses
        durable.

        `placements` are the replicas that the metadata image places on this broker, or None if no
        image is known. Raises OSError if a disk fails.
        """
        found = StartFindings(findings, is_every_directory_live=is_every_directory_live)
        paths = {directory.path for directory in directories}
        elsewhere = {
            key: loss for key, loss in self.by_partition.items() if loss.directory not in paths
        }
        losses = found.losses(
            placements,
            [loss for loss in self.by_partition.values() if loss.directory in paths],
        )
        for loss in losses:
            if loss.key not in self.by_partition:
                self.found_counts[loss.kind] += 1
            if loss.key not in self._logged:
                self._logged.add(loss.key)
                _LOGGER.error("%s in %s: %s", loss.partition, loss.directory, loss.reason)
        self.by_partition = elsewhere | {loss.key: loss for loss in losses}
        await self._write(directories)

    async def forget(
        self, directories: Sequence[LogDirectory], whole: Collection[TopicIdPartition]
    ) -> None:
        """Remove the recorded losses of replicas that are complete again, or deleted.

        Raises OSError if a disk fails.
        """
        known = self.by_partition
        self.by_partition = {key: loss for key, loss in known.items() if key not in whole}
        for key in known.keys() & set(whole):
            _LOGGER.info("%s is complete again", known[key].partition)
        await self._write(directories)

    async def _write(self, directories: Sequence[LogDirectory]) -> None:
        async with self._writing:
            for directory in directories:
                await self._write_file(directory.path)

    async def _write_file(self, path: str) -> None:
        """Write the known losses of a log directory to its `lost-logs` file, or remove the file if
        no losses are known."""
        file = f"{path}/{LOST_LOGS_FILE}"
        losses = [loss for loss in self.by_partition.values() if loss.directory == path]
        data = format_losses(losses) if losses else None
        if data == self._durable.get(path):
            return
        if data is None:
            await self._disk.unlink(file)
            await self._disk.fsync_directory(path)
            del self._durable[path]
        else:
            await self._disk.write_atomically(file, data)
            self._durable[path] = data


def count_by_kind(losses: Mapping[TopicIdPartition, LogLoss]) -> Counter[LossKind]:
    """Return the number of damaged logs for each kind of loss."""
    return Counter(loss.kind for loss in losses.values())
