"""Snapshots of the metadata log: their file names, contents and schedule (KIP-630).

Pure. A snapshot replaces all entries below the offset in its id. The file is a series of batches: a
control batch with header, kraft.version and voters, then the application's batches, then a footer.
The bootstrap snapshot 0-0, written when a directory is formatted, contains the voter set.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.control_records import (
    control_type,
    read_voters,
    voters_record,
)
from ottla.raft.voters import KRAFT_VERSION, VoterSet
from ottla.wire.batch import BatchHeader, batches, check_crc
from ottla.wire.batch_builder import ControlType, build_control_batch
from ottla.wire.codec import encode
from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.records import scan

SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"
"""Suffix of a snapshot file that is being written. A file with this suffix at the startup of a node
is left over from a crash."""
DELETED_SUFFIX = ".deleted"
"""Suffix of a snapshot file that is being deleted. A file with this suffix at the startup of a node
is left over from a crash."""

BOOTSTRAP_ID = OffsetAndEpoch(Offset(0), Epoch(0))
"""Id of the bootstrap snapshot, which a freshly formatted directory contains."""

_NAME = re.compile(r"(\d{20})-(\d{10})" + re.escape(SUFFIX))


def file_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the name of a snapshot's file. The order of names is the order of snapshot ids."""
    assert snapshot_id.offset >= 0
    assert snapshot_id.epoch >= 0
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> OffsetAndEpoch | None:
    """Return the snapshot id in the name of a complete snapshot's file, or None for any other
    file."""
    match = _NAME.fullmatch(name)
    if match is None or not name.isascii():
        return None
    return OffsetAndEpoch(Offset(int(match[1])), Epoch(int(match[2])))


def opening_batch(
    voters: VoterSet | None,
    *,
    last_contained_timestamp_ms: int,
    leader_epoch: Epoch,
) -> bytes:
    """Return a snapshot's first batch, at offset 0: its header, then the voters if they are known.

    Its timestamp is taken from the log's last record, not from the time of the write. Therefore
    every replica's snapshot of one offset is the same, byte for byte.
    """
    header = SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_timestamp_ms)
    values = [(ControlType.SNAPSHOT_HEADER, encode(header, 0))]
    if voters is not None:
        kraft_version = KRaftVersionRecord(kraft_version=KRAFT_VERSION)
        values.append((ControlType.KRAFT_VERSION, encode(kraft_version, 0)))
        values.append((ControlType.KRAFT_VOTERS, encode(voters_record(voters), 0)))
    return build_control_batch(
        values, timestamp_ms=last_contained_timestamp_ms, leader_epoch=leader_epoch
    )


def footer_batch(*, base_offset: Offset, timestamp_ms: int, leader_epoch: Epoch) -> bytes:
    """Return a snapshot's last batch. `base_offset` is the end offset of the batches before it."""
    return build_control_batch(
        [(ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), 0))],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def voters_of(data: bytes | memoryview) -> VoterSet | None:
    """Return the last voter set in the bytes of a snapshot or of a range of the log. Returns None
    if the bytes contain no voter set.

    Raises CorruptDataError if a CRC or a length does not match.
    """
    found: VoterSet | None = None
    for kind, value in _control_records(memoryview(data)):
        if kind == ControlType.KRAFT_VOTERS:
            found = read_voters(value)
    return found


def check_whole(data: bytes | memoryview) -> None:
    """Raise CorruptDataError unless the bytes are a complete snapshot, from its header to its
    footer."""
    kinds = [kind for kind, _ in _control_records(memoryview(data))]
    if not kinds or kinds[0] != ControlType.SNAPSHOT_HEADER:
        raise CorruptDataError("snapshot: it does not begin with its header")
    if kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        raise CorruptDataError("snapshot: it does not end with its footer")


class KeptSnapshot(NamedTuple):
    """The properties of a snapshot on disk that decide whether retention deletes it."""

    size_bytes: int
    last_contained_timestamp_ms: int
    """Timestamp, in ms since 1970, of the last log record below the snapshot's end."""


def expired_count(
    config: QuorumConfig, kept: Sequence[KeptSnapshot], *, log_bytes: int, wall_ms: int
) -> int:
    """Return the number of snapshots that may be deleted because of the retention limits, counted
    from the oldest. The newest is always kept.

    A negative retention limit is disabled. The log below the oldest remaining snapshot is deleted
    as well.
    """
    total_bytes = log_bytes + sum(each.size_bytes for each in kept)
    for count, each in enumerate(kept[:-1]):
        is_old = 0 <= config.retention_ms_max < wall_ms - each.last_contained_timestamp_ms
        is_too_much = 0 <= config.retention_bytes_max < total_bytes
        if not is_old and not is_too_much:
            return count
        total_bytes -= each.size_bytes
    return max(0, len(kept) - 1)


def is_due(config: QuorumConfig, *, bytes_since: int, ms_since: int, has_new_records: bool) -> bool:
    """Return whether the next snapshot of the metadata log is due. A snapshot is due after enough
    bytes or time since the last snapshot, but only if there are new records."""
    if not has_new_records:
        return False
    interval_ms = config.snapshot_interval_ms_max
    is_old = interval_ms > 0 and ms_since >= interval_ms
    return bytes_since >= config.snapshot_bytes_between or is_old


def _control_records(data: memoryview) -> list[tuple[int, bytes]]:
    """Return the type and value of every control record in a snapshot, after checking each batch's
    CRC."""
    found: list[tuple[int, bytes]] = []
    for at, header in batches(data):
        if not check_crc(data, at, header):
            raise CorruptDataError(f"batch at {at}: its CRC does not match")
        if header.is_control:
            found.extend(_records_of(data, at, header))
    return found


def _records_of(data: memoryview, at: int, header: BatchHeader) -> list[tuple[int, bytes]]:
    return [(control_type(record.key), record.value or b"") for record in scan(data, at, header)]
