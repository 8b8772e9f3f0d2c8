"""Raft's own batches: the one that opens an epoch, and those around a snapshot's records.

Pure.  They are Kafka's control batches (KIP-595, KIP-630, KIP-853), so that Kafka's dump tool
reads our files.  A snapshot is `<20-digit end offset>-<10-digit epoch>.checkpoint`; its batches are
numbered from 0: a header (with kraft.version and the voters where they are known), the records of
an image, a footer.  The snapshot 0-0 is written by formatting and holds no image.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.metadata.records import Record
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.node.record_batches import snapshot_data_batches
from ottla.raft.effects import LeaderChangeAppend
from ottla.raft.voters import Endpoint, Voter, VoterSet
from ottla.wire.batch import batches
from ottla.wire.batch_builder import ControlType, build_control_batch
from ottla.wire.codec import decode, encode
from ottla.wire.messages import leader_change_message as leader_change
from ottla.wire.messages import voters_record
from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
from ottla.wire.messages.snapshot_footer_record import SnapshotFooterRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.records import scan

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
BOOTSTRAP_ID = OffsetAndEpoch(Offset(0), Epoch(0))

OFFSET_DIGITS = 20
EPOCH_DIGITS = 10

RECORD_VERSION = 0
LEADER_CHANGE_VERSION = 1
"""Version 1 names the directories of the voters (KIP-853)."""
KRAFT_VERSION = 1


def leader_change_batch(append: LeaderChangeAppend, *, timestamp_ms: int) -> bytes:
    """Return the batch that opens an epoch; its offset and epoch are the log's to patch."""
    message = leader_change.LeaderChangeMessage(
        version=LEADER_CHANGE_VERSION,
        leader_id=append.leader_id,
        voters=[
            leader_change.Voter(voter_id=key.id, voter_directory_id=key.directory_id)
            for key in append.voters
        ],
        granting_voters=[
            leader_change.Voter(voter_id=key.id, voter_directory_id=key.directory_id)
            for key in append.granting_voters
        ],
    )
    value = encode(message, LEADER_CHANGE_VERSION)
    return build_control_batch(
        [(ControlType.LEADER_CHANGE, value)],
        timestamp_ms=timestamp_ms,
        leader_epoch=append.leader_epoch,
    )


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return a snapshot's file name."""
    return f"{snapshot_id.offset:0{OFFSET_DIGITS}}-{snapshot_id.epoch:0{EPOCH_DIGITS}}{SUFFIX}"


def parse_snapshot_name(name: str) -> OffsetAndEpoch | None:
    """Return the id in a snapshot's file name; None when the name is of something else."""
    offset, dash, epoch = name.removesuffix(SUFFIX).partition("-")
    is_ours = name.endswith(SUFFIX) and dash and (offset + epoch).isdecimal()
    if not is_ours or len(offset) != OFFSET_DIGITS or len(epoch) != EPOCH_DIGITS:
        return None
    return OffsetAndEpoch(Offset(int(offset)), Epoch(int(epoch)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """What stands around the records of one snapshot."""

    end: OffsetAndEpoch
    timestamp_ms: int
    """Of the last record of the log that the snapshot contains."""
    voters: VoterSet | None
    """None where the set is known from settings only."""

    def batches(self, records: Iterable[Record]) -> Iterator[bytes]:
        """Yield the whole file, one batch at a time."""
        opening = self._opening()
        yield self._control(opening, Offset(0))
        end_offset = len(opening)
        for batch in snapshot_data_batches(
            records,
            timestamp_ms=self.timestamp_ms,
            epoch=self.end.epoch,
            base_offset=Offset(end_offset),
        ):
            yield batch
            end_offset = next(header.end_offset for _, header in batches(memoryview(batch)))
        footer = encode(SnapshotFooterRecord(), RECORD_VERSION)
        yield self._control([(ControlType.SNAPSHOT_FOOTER, footer)], Offset(end_offset))

    def _opening(self) -> list[tuple[ControlType, bytes]]:
        header = SnapshotHeaderRecord(last_contained_log_timestamp=self.timestamp_ms)
        opening = [(ControlType.SNAPSHOT_HEADER, encode(header, RECORD_VERSION))]
        if self.voters is not None:
            version = KRaftVersionRecord(kraft_version=KRAFT_VERSION)
            opening.append((ControlType.KRAFT_VERSION, encode(version, RECORD_VERSION)))
            voters = encode(_voters_record(self.voters), RECORD_VERSION)
            opening.append((ControlType.KRAFT_VOTERS, voters))
        return opening

    def _control(self, records: list[tuple[ControlType, bytes]], base_offset: Offset) -> bytes:
        return build_control_batch(
            records,
            timestamp_ms=self.timestamp_ms,
            base_offset=base_offset,
            leader_epoch=self.end.epoch,
        )


def voters_of(data: bytes) -> VoterSet | None:
    """Return the voters a snapshot names, None when it names none."""
    for at, header in batches(memoryview(data)):
        if not header.is_control:
            continue
        for record in scan(data, at, header):
            if record.key is None or record.value is None:
                raise CorruptDataError(f"snapshot: no control record at offset {record.offset}")
            if int.from_bytes(record.key[2:4], "big") == ControlType.KRAFT_VOTERS:
                return _voter_set(decode(voters_record.VotersRecord, RECORD_VERSION, record.value))
    return None


def _voters_record(voters: VoterSet) -> voters_record.VotersRecord:
    return voters_record.VotersRecord(
        voters=[
            voters_record.Voter(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=[
                    voters_record.Endpoint(name=name, host=host, port=port)
                    for name, host, port in voter.endpoints
                ],
                kraft_version_feature=voters_record.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=KRAFT_VERSION
                ),
            )
            for voter in voters
        ]
    )


def _voter_set(record: voters_record.VotersRecord) -> VoterSet:
    return VoterSet(
        tuple(
            Voter(
                id=NodeId(voter.voter_id),
                directory_id=voter.voter_directory_id,
                endpoints=tuple(
                    Endpoint(found.name, found.host, found.port) for found in voter.endpoints
                ),
            )
            for voter in record.voters
        )
    )
