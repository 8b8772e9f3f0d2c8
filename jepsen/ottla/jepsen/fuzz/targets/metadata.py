"""Fuzz target: the metadata log and its snapshots (protobuf values, application of records, raft's
control records).

Valid records must result in an image whose snapshot results in the same image. Invalid records must
leave the image unchanged.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from uuid import UUID

from ottla.jepsen.fuzz.target import FuzzTarget, number_of, numbered
from ottla.jepsen.fuzz.targets.batches import NOW_MS, with_right_crcs
from ottla.metadata import records
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.fold import apply_all
from ottla.metadata.image import (
    EMPTY,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FeatureRange,
    MetadataImage,
    PartitionState,
    Provenance,
)
from ottla.metadata.records import Record, decode_record, encode_record
from ottla.metadata.snapshot import records_of
from ottla.model.errors import CorruptDataError, NewerReleaseError
from ottla.model.ids import NO_NODE, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.security.delegation_tokens import DelegationToken
from ottla.model.security.scram import ScramCredential
from ottla.node.quorum.record_batches import batch_of, replay
from ottla.node.quorum.snapshot_file import SnapshotFile
from ottla.proto import metadata_pb2 as pb
from ottla.raft import snapshot
from ottla.raft.control_records import (
    control_type,
    leader_change_batch,
    read_kraft_version,
    read_leader_change,
    read_snapshot_header,
    read_voters,
    voters_record,
)
from ottla.raft.effects import LeaderChangeAppend
from ottla.raft.voters import Voter, VoterSet
from ottla.raft.voters import VoterEndpoint as VoterEndpoint
from ottla.wire.codec import encode
from ottla.wire.messages.kraft_version_record import KRaftVersionRecord
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.snapshot_header_record import SnapshotHeaderRecord

TOPIC_ID, OTHER_ID = UUID(int=1 << 100), UUID(int=2 << 100)
DIRECTORY_ID = UUID(int=3 << 100)
VOTERS = VoterSet(
    (
        Voter(id=NodeId(101), directory_id=DIRECTORY_ID, endpoints=(VoterEndpoint("C", "h", 1),)),
        Voter(id=NodeId(102)),
    )
)
ACL = AclEntry(
    resource_type=ResourceType.TOPIC,
    resource_name="t",
    pattern_type=PatternType.PREFIXED,
    principal="User:al",
    host="10.0.0.0/8",
    operation=AclOperation.READ,
    permission=AclPermission.ALLOW,
)
TOKEN = DelegationToken(
    id="id",
    owner="User:al",
    requester="User:al",
    renewers=("User:ben",),
    issued_ms=1,
    max_ms=9,
    expires_ms=5,
)
HISTORY_END = OffsetAndEpoch(Offset(40), Epoch(3))


def history() -> list[Record]:
    """Return metadata records of every kind, in an order in which they can be applied."""
    broker = BrokerRegistration(
        id=NodeId(1),
        epoch=10,
        incarnation_id=UUID(int=5),
        endpoints=(Endpoint("PLAINTEXT", "host", 9092, 0),),
        is_fenced=True,
        rack="r",
        log_dirs=(DIRECTORY_ID,),
    )
    controller = ControllerRegistration(
        id=NodeId(101),
        incarnation_id=UUID(int=6),
        endpoints=(Endpoint("CONTROLLER", "host", 9093, 0),),
        features=(FeatureRange("metadata.version", 30, 33),),
    )
    state = PartitionState(
        replicas=(NodeId(1), NodeId(2)),
        directories=(DIRECTORY_ID, DIRECTORY_ID),
        isr=(NodeId(1),),
        elr=(NodeId(2),),
        leader=NodeId(1),
        leader_epoch=Epoch(3),
        partition_epoch=4,
    )
    change = pb.PartitionChange(
        topic_id=TOPIC_ID.bytes, partition_id=0, leader=-1, isr=pb.NodeIds(ids=[1])
    )
    entity = (QuotaEntity("client-id", False, "c"), QuotaEntity("user", True, ""))
    return [
        records.feature_level_record("metadata.version", 25),
        records.register_broker_record(broker),
        records.broker_change_record(broker, is_fenced=False, log_dirs=(DIRECTORY_ID,)),
        records.topic_record("t", TOPIC_ID),
        records.partition_record(TOPIC_ID, 0, state),
        Record(partition_change=change),
        Record(clear_elr=pb.ClearElr(topic_name="t")),
        records.topic_record("u", OTHER_ID),
        records.partition_record(OTHER_ID, 3, state),
        records.config_record(records.TOPIC_RESOURCE, "t", "retention.ms", "7"),
        records.client_quota_record(entity, "producer_byte_rate", 5.0),
        records.scram_credential_record("al", 1, ScramCredential(b"s", b"k", b"v", 4_096)),
        records.scram_credential_record("al", 2, ScramCredential(b"s", b"k", b"v", 4_096)),
        records.remove_scram_credential_record("al", 2),
        records.delegation_token_record(TOKEN),
        records.delegation_token_record(replace(TOKEN, id="other")),
        records.remove_delegation_token_record("other"),
        records.acl_record(UUID(int=7), ACL),
        records.acl_record(UUID(int=8), replace(ACL, host="*")),
        records.remove_acl_record(UUID(int=8)),
        records.producer_ids_record(NodeId(1), 10, 1_000),
        Record(no_op=pb.NoOp()),
        records.remove_topic_record(OTHER_ID),
        records.unregister_broker_record(broker),
        records.register_controller_record(controller),
        records.unregister_controller_record(controller.id),
    ]


BASE = apply_all(EMPTY, history()[:-4])
"""Metadata image to which the target applies an input's records: a cluster with topics and
settings."""


def _fold(data: bytes) -> None:
    """Parse metadata records, each preceded by its length, and apply them all to the image
    `BASE`."""
    read: list[Record] = []
    at = 0
    while at < len(data):
        length = int.from_bytes(data[at : at + 2])
        read.append(decode_record(data[at + 2 : at + 2 + length]))
        at += 2 + length
    one_by_one = BASE
    try:
        for record in read:
            one_by_one = apply_all(one_by_one, (record,))
    finally:
        assert records_of_base() == BASE_RECORDS
    together = apply_all(BASE, read)
    check_image(together)
    assert _bytes_of(together) == _bytes_of(one_by_one)


def records_of_base() -> list[bytes]:
    """Return the records of a snapshot of the metadata image `BASE`. Applying other records to the
    image must never change it."""
    return _bytes_of(BASE)


def _bytes_of(image: MetadataImage) -> list[bytes]:
    return [encode_record(record) for record in records_of(image)]


BASE_RECORDS = records_of_base()


def check_image(image: MetadataImage) -> None:
    """Check that applying the snapshot of a metadata image results in the same image."""
    snapshot_records = _bytes_of(image)
    again = apply_all(EMPTY, map(decode_record, snapshot_records))
    assert _bytes_of(again) == snapshot_records
    MetadataDelta.between(BASE, image).changed_partitions  # noqa: B018


def _log(data: bytes) -> None:
    body = with_right_crcs(data)
    delta = MetadataDelta(BASE)
    provenance = replay(delta, body)
    if provenance is not None:
        check_image(delta.apply(provenance))


def _snapshot(data: bytes) -> None:
    body = with_right_crcs(data)
    snapshot.voters_of(body)
    snapshot.check_whole(body)
    delta = MetadataDelta(EMPTY)
    replay(delta, body)
    check_image(delta.apply(Provenance(Offset(39), Epoch(3), NOW_MS)))


def _voters(data: bytes) -> None:
    found = read_voters(data)
    assert read_voters(encode(voters_record(found), 0)) == found


def _control(data: bytes) -> None:
    control_type(data[:4])
    for read in (read_leader_change, read_snapshot_header, read_kraft_version):
        try:
            read(data)
        except CorruptDataError:
            continue


def _with_lengths(values: Iterator[bytes]) -> bytes:
    return b"".join(len(value).to_bytes(2) + value for value in values)


def _good() -> tuple[tuple[Callable[[bytes], None], tuple[bytes, ...]], ...]:
    all_records = history()
    values = [encode_record(record) for record in all_records]
    append = LeaderChangeAppend(
        leader_id=NodeId(101),
        leader_epoch=Epoch(3),
        voters=tuple(voter.key for voter in VOTERS),
        granting_voters=(),
    )
    file = SnapshotFile(id=HISTORY_END, last_contained_timestamp_ms=NOW_MS, voters=VOTERS)
    whole = b"".join(file.batches(records_of(BASE)))
    more = [records.producer_ids_record(NO_NODE, -1, 2_000), records.remove_topic_record(TOPIC_ID)]
    return (
        (
            _fold,
            (
                *(_with_lengths(iter([value])) for value in values),
                _with_lengths(map(encode_record, more)),
            ),
        ),
        (
            _log,
            (
                batch_of(more, timestamp_ms=NOW_MS)
                + leader_change_batch(append, timestamp_ms=NOW_MS, base_offset=Offset(2)),
                *(batch_of([record], timestamp_ms=NOW_MS) for record in all_records[-4:]),
            ),
        ),
        (_snapshot, (whole,)),
        (_voters, (encode(voters_record(VOTERS), 0),)),
        (
            _control,
            (
                encode(LeaderChangeMessage(version=0, leader_id=1), 0),
                encode(SnapshotHeaderRecord(), 0),
                encode(KRaftVersionRecord(kraft_version=1), 0),
            ),
        ),
    )


READERS = _good()


def _check(data: bytes) -> None:
    READERS[number_of(data, len(READERS))][0](data[2:])


def _seeds(random: Random) -> Iterator[bytes]:
    return numbered(good for _, good in READERS)


def _name_of(data: bytes) -> str:
    return READERS[number_of(data, len(READERS))][0].__name__.strip("_")


METADATA = FuzzTarget(
    name="metadata",
    sentence="metadata records and their fold, snapshots, raft's control records",
    check=_check,
    seeds=_seeds,
    refusals=(CorruptDataError, NewerReleaseError),
    name_of=_name_of,
)
