"""Snapshots of the metadata log: what their files are called, hold, and when one is due (KIP-630).

Pure.  A snapshot stands for every entry below its id's offset.  The file is a run of batches: a
control batch with header, kraft.version and voters, the application's batches, and a footer.  The
bootstrap snapshot 0-0, written when a directory is formatted, is where the voter set comes from.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, Offset, OffsetAndEpoch
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.control_records import (
    KRAFT_VERSION,
    control_type,
    read_voters,
    voters_record,
)
from ottla.raft.voters import VoterSet
from ottla.wire.batch import BatchHeader, batches, check_crc
from ottla.wire.batch_builder import ControlType, build_control_batch
from ottla.wire.codec import encode
from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.records import scan

SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"
"""Added while the file is being written; such a file is rubbish after a crash."""
DELETED_SUFFIX = ".deleted"
"""Added before the file is removed; rubbish too."""

BOOTSTRAP_ID = OffsetAndEpoch(Offset(0), Epoch(0))
"""The id of what a formatted directory begins with."""

_NAME = re.compile(r"(\d{20})-(\d{10})" + re.escape(SUFFIX))


def file_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the name of a snapshot's file: sorted by name is sorted by id."""
    assert snapshot_id.offset >= 0
    assert snapshot_id.epoch >= 0
    return f"{snapshot_id.offset:020d}-{snapshot_id.epoch:010d}{SUFFIX}"


def parse_name(name: str) -> OffsetAndEpoch | None:
    """Return the id a whole snapshot's file is named by; None for any other file."""
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
    """Return a snapshot's first batch, at offset 0: its header, then who votes if that is known.

    Its time is that of the log's last record, not of its writing: every replica's snapshot of one
    offset is the same, byte for byte.
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
    """Return a snapshot's last batch; `base_offset` continues the batches before it."""
    return build_control_batch(
        [(ControlType.SNAPSHOT_FOOTER, encode(SnapshotFooterRecord(), 0))],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def voters_of(data: bytes | memoryview) -> VoterSet | None:
    """Return the last voter set written in a snapshot (or a piece of log); None if there is none.

    CorruptDataError where the bytes lie.
    """
    found: VoterSet | None = None
    for kind, value in _control_records(memoryview(data)):
        if kind == ControlType.KRAFT_VOTERS:
            found = read_voters(value)
    return found


def check_whole(data: bytes | memoryview) -> None:
    """Raise CorruptDataError unless the bytes are a snapshot from its header to its footer."""
    kinds = [kind for kind, _ in _control_records(memoryview(data))]
    if not kinds or kinds[0] != ControlType.SNAPSHOT_HEADER:
        raise CorruptDataError("snapshot: it does not begin with its header")
    if kinds[-1] != ControlType.SNAPSHOT_FOOTER:
        raise CorruptDataError("snapshot: it does not end with its footer")


class KeptSnapshot(NamedTuple):
    """What retention asks of a snapshot that is on disk."""

    size_bytes: int
    last_contained_timestamp_ms: int
    """Of the last record of the log that it stands for."""


def expired_count(
    config: QuorumConfig, kept: Sequence[KeptSnapshot], *, log_bytes: int, wall_ms: int
) -> int:
    """Return how many of the snapshots, the oldest first, are past retention; the newest never is.

    A negative bound is no bound.  The log below the oldest one that stays goes with the others.
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
    """Return whether the next snapshot is due: enough bytes since the last one, or enough time.

    Nothing new needs no snapshot, however old the last one is.
    """
    if not has_new_records:
        return False
    interval_ms = config.snapshot_interval_ms_max
    is_old = interval_ms > 0 and ms_since >= interval_ms
    return bytes_since >= config.snapshot_bytes_between or is_old


def _control_records(data: memoryview) -> list[tuple[int, bytes]]:
    """Return type and value of every control record, each batch's CRC checked."""
    found: list[tuple[int, bytes]] = []
    for at, header in batches(data):
        if not check_crc(data, at, header):
            raise CorruptDataError(f"batch at {at}: its CRC does not match")
        if header.is_control:
            found.extend(_records_of(data, at, header))
    return found


def _records_of(data: memoryview, at: int, header: BatchHeader) -> list[tuple[int, bytes]]:
    return [(control_type(record.key), record.value or b"") for record in scan(data, at, header)]
