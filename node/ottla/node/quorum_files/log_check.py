"""Checks the metadata log for errors that recovery does not find: wrong offsets and epochs, which
no CRC covers.

The log of a topic's partition may have gaps, due to compaction. The metadata log has none, and its
epochs never decrease. A replica with an undetected wrong epoch would raise the epoch of the quorum,
or would treat another replica's log as equal to its own.
"""

import logging
from itertools import pairwise

from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.model.limits import MIB
from ottla.node.quorum_files.checkpoint_file import epoch_max
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.log.log import Log
from ottla.storage.recovery.segment_swap import end_offset_of
from ottla.wire.batch import batches

CHECK_BYTES = MIB
"""Number of bytes of the metadata log that are read and checked at a time."""

_LOGGER = logging.getLogger(__name__)


async def cut_false_batches(
    disk: Disk, log: Log, latest: OffsetAndEpoch | None, *, epoch_min: Epoch
) -> None:
    """Truncate the recovered metadata log at the first batch that does not continue the previous
    batch or the latest snapshot.

    Logs the dropped part. The whole log is dropped if the epochs in its index differ from the epoch
    of the snapshot or of a batch, because the wrong epochs would be compared with the epochs of
    other replicas.
    """
    start = log.log_start_offset
    at, epoch = start, epoch_min
    if latest is not None and latest.offset > start:
        if latest.offset > log.end_offset:
            return  # The log is about to be emptied, because the snapshot replaces it.
        if not await _has_no_gap(disk, log, latest.offset):
            _LOGGER.error(
                "%s: damaged segments of the metadata log below offset %s are dropped: a snapshot"
                " has their records",
                log.directory,
                latest.offset,
            )
            log.update_high_watermark(latest.offset)
            await log.delete_records_before(latest.offset)
        at, epoch = latest.offset, log.epoch_of(Offset(latest.offset - 1))
        if epoch != latest.epoch:
            await _drop(log, at, f"epoch {epoch} below its snapshot of epoch {latest.epoch}")
            return
    highest = await epoch_max(disk, log.directory)
    while at < log.end_offset:
        data = await log.read_bytes(at, bytes_max=CHECK_BYTES, end_offset=log.end_offset)
        for _, header in batches(memoryview(data), is_partial_end_allowed=True):
            found = Epoch(header.partition_leader_epoch)
            if header.base_offset != at or not epoch <= found <= highest:
                await _cut(log, at, f"a batch of offset {header.base_offset} and epoch {found}")
                return
            if log.epoch_of(at) != found:
                await _drop(log, at, f"epoch {log.epoch_of(at)} before a batch of epoch {found}")
                return
            at, epoch = header.end_offset, found
        if not data:
            return


async def _has_no_gap(disk: Disk, log: Log, end_offset: Offset) -> bool:
    """Return whether every segment of the metadata log that starts below `end_offset` ends at the
    start of the next segment."""
    for older, newer in pairwise(log.segments):
        if older.base_offset >= end_offset:
            break
        try:
            if await end_offset_of(disk, older) != newer.base_offset:
                return False
        except CorruptDataError:
            return False
    return True


async def _cut(log: Log, at: Offset, what: str) -> None:
    _LOGGER.error(
        "%s: the metadata log is damaged at offset %s, where it has %s: all from there up to %s is"
        " dropped",
        log.directory,
        at,
        what,
        log.end_offset,
    )
    if at > log.log_start_offset:
        await log.truncate_to(at)
    else:
        await log.truncate_fully_and_start_at(at)


async def _drop(log: Log, at: Offset, what: str) -> None:
    _LOGGER.error(
        "%s: the metadata log is damaged below offset %s, where it has %s: all up to %s is dropped",
        log.directory,
        at,
        what,
        log.end_offset,
    )
    await log.truncate_fully_and_start_at(at)


def check_epochs(records: memoryview, lowest: Epoch, highest: Epoch) -> None:
    """Check the leader epochs of fetched batches of the metadata log. The epochs must never
    decrease, be at least `lowest` (the last epoch of this log), and at most `highest` (the epoch of
    the leader).

    Raises RefusedError(CORRUPT_MESSAGE) if an epoch is wrong. The check is needed because the next
    startup trusts the epochs in the log.
    """
    try:
        for _, header in batches(records, is_partial_end_allowed=True):
            if not lowest <= header.partition_leader_epoch <= highest:
                raise RefusedError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"a batch of epoch {header.partition_leader_epoch}, not between {lowest} and"
                    f" {highest}",
                )
            lowest = header.partition_leader_epoch
    except CorruptDataError as error:
        raise RefusedError(ErrorCode.CORRUPT_MESSAGE, error.where) from None
