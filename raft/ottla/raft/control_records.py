"""Control records of raft in the log and in snapshots, byte for byte like Kafka's (KIP-595, 630,
853).

Pure: encoding of values as control batches, and decoding. Control batches occur between the
application's batches. They contain no application data, and the state machine skips them. Every
value starts with its own version.
"""

from typing import TypeVar

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.ids import NodeId, Offset
from ottla.raft.effects import LeaderChangeAppend, VotersAppend
from ottla.raft.voters import (
    VOTERS_MAX,
    ReplicaKey,
    Voter,
    VoterEndpoint,
    VoterSet,
)
from ottla.wire.batch import BatchHeader, batches
from ottla.wire.batch_builder import ControlType, build_control_batch
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages import leader_change_message as leader_change
from ottla.wire.messages import voters_record as voters_message
from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord
from ottla.wire.records import scan

LEADER_CHANGE_VERSION = 0
"""Version of LEADER_CHANGE records. Version 1 has directory ids, but Kafka writes 0. Kafka's tools
always decode this record as version 0, regardless of its version field
(ControlRecordUtils.LEADER_CHANGE_CURRENT_VERSION), so they fail on version 1."""

_VERSION_BYTES = 2
_BEGINNING = Offset(0)

_MessageT = TypeVar("_MessageT", bound=Message)


def leader_change_batch(
    append: LeaderChangeAppend, *, timestamp_ms: int, base_offset: Offset = _BEGINNING
) -> bytes:
    """Return the control batch with the LeaderChange record that a leader appends at the start of
    its epoch."""
    message = leader_change.LeaderChangeMessage(
        version=LEADER_CHANGE_VERSION,
        leader_id=append.leader_id,
        voters=[_leader_change_voter(key) for key in append.voters],
        granting_voters=[_leader_change_voter(key) for key in append.granting_voters],
    )
    return build_control_batch(
        [(ControlType.LEADER_CHANGE, encode(message, LEADER_CHANGE_VERSION))],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=append.leader_epoch,
    )


def voters_batch(
    append: VotersAppend, *, timestamp_ms: int, base_offset: Offset = _BEGINNING
) -> bytes:
    """Return the control batch with which a leader appends a new voter set."""
    return build_control_batch(
        [(ControlType.KRAFT_VOTERS, encode(voters_record(append.voters), 0))],
        timestamp_ms=timestamp_ms,
        base_offset=base_offset,
        leader_epoch=append.leader_epoch,
    )


def voter_sets_in(records: bytes | memoryview) -> list[tuple[Offset, VoterSet]]:
    """Return every voter set in complete batches of the log, with the offset of its record.

    The caller has checked the CRCs. Only control batches are read beyond their headers.
    """
    data = memoryview(records)
    found: list[tuple[Offset, VoterSet]] = []
    for at, header in batches(data):
        if header.is_control:
            found += _voter_sets_of(data, at, header)
    return found


def _voter_sets_of(data: memoryview, at: int, header: BatchHeader) -> list[tuple[Offset, VoterSet]]:
    return [
        (record.offset, read_voters(record.value or b""))
        for record in scan(data, at, header)
        if control_type(record.key) == ControlType.KRAFT_VOTERS
    ]


def voters_record(voters: VoterSet) -> voters_message.VotersRecord:
    """Return a voter set in the form of Kafka's VotersRecord."""
    return voters_message.VotersRecord(
        voters=[
            voters_message.Voter(
                voter_id=voter.id,
                voter_directory_id=voter.directory_id,
                endpoints=[
                    voters_message.Endpoint(name=each.name, host=each.host, port=each.port)
                    for each in voter.endpoints
                ],
                kraft_version_feature=voters_message.KRaftVersionFeature(
                    min_supported_version=voter.kraft_versions[0],
                    max_supported_version=voter.kraft_versions[1],
                ),
            )
            for voter in voters
        ]
    )


def read_leader_change(value: bytes) -> leader_change.LeaderChangeMessage:
    """Decode the value of a LEADER_CHANGE control record."""
    return _read(leader_change.LeaderChangeMessage, value)


def read_snapshot_header(value: bytes) -> SnapshotHeaderRecord:
    """Decode the value of a SNAPSHOT_HEADER control record."""
    return _read(SnapshotHeaderRecord, value)


def read_kraft_version(value: bytes) -> int:
    """Decode the value of a KRAFT_VERSION control record, and return its feature level."""
    return _read(KRaftVersionRecord, value).kraft_version


def read_voters(value: bytes) -> VoterSet:
    """Decode the value of a KRAFT_VOTERS control record, and return its voter set."""
    record = _read(voters_message.VotersRecord, value)
    ids = [voter.voter_id for voter in record.voters]
    if not 0 < len(ids) <= VOTERS_MAX or len(set(ids)) != len(ids):
        raise CorruptDataError(f"VotersRecord: the voters are {ids}")
    return VoterSet(
        tuple(
            Voter(
                id=NodeId(voter.voter_id),
                directory_id=voter.voter_directory_id,
                endpoints=tuple(
                    VoterEndpoint(each.name, each.host, each.port) for each in voter.endpoints
                ),
                kraft_versions=(
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )
    )


def control_type(key: bytes | None) -> int:
    """Return the record type in a control record's key: a ControlType, or the number of a type that
    only a later version knows."""
    if key is None or len(key) < 2 * _VERSION_BYTES:
        raise CorruptDataError(f"control record: its key is {key!r}")
    return int.from_bytes(key[_VERSION_BYTES : 2 * _VERSION_BYTES], "big", signed=True)


def _read(kind: type[_MessageT], value: bytes) -> _MessageT:
    version = int.from_bytes(value[:_VERSION_BYTES], "big", signed=True)
    if version not in kind.VERSIONS:
        raise CorruptDataError(f"{kind.__name__}: version {version} is not known")
    try:
        return decode(kind, version, value)
    except ProtocolError as error:
        # The bytes come from our own log: no peer is to blame.
        raise CorruptDataError(error.where) from error


def _leader_change_voter(key: ReplicaKey) -> leader_change.Voter:
    return leader_change.Voter(voter_id=key.id)
