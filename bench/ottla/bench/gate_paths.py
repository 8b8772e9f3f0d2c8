"""Short code paths whose CPU instructions the gate counts.

The requests run through a whole broker core behind one connection (`MiniBroker`): frame, header,
handler, partition, response.  Its log is on a disk in memory and its clock does not advance, so
that a count is the same on every machine.  The costs of sockets, the kernel and real files are not
included.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import UUID

from ottla.bench.queues.share_paths import share_acknowledgements, share_fetches
from ottla.bench.requests import BENCH_CLIENT_ID, frame_of
from ottla.jepsen.fuzz.mini_broker import NOW_MS, TOPIC, MiniBroker, id_of
from ottla.metadata.acl_table import AclTable
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.ids import Epoch, ProducerId
from ottla.model.limits import MIB
from ottla.model.quotas.quota_limits import CLIENT_ID, QuotaEntity
from ottla.model.security.acls import (
    ANONYMOUS,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.storage.log.log import Log
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from ottla.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.records import scan

Path = Callable[[], object]
Record = tuple[int, bytes | None, bytes | None]

PRODUCE_VERSION = 12
FETCH_VERSION = 17
METADATA_VERSION = 12
COMMIT_VERSION = 8
COMMITS_PER_TURN = 10
HEARTBEAT_VERSION = 1
GROUP = "gate"
PRODUCER = ProducerId(7)
SEQUENCES = 100
"""Number of record batches prepared for the idempotent producer. It must exceed the number of
counted runs of a path."""
LARGE_RECORDS = 128
LARGE_RECORD_BYTES = 1_000
SMALL_BATCH = [(NOW_MS, b"key", b"v" * 100)]
LARGE_BATCH = [(NOW_MS, None, b"v" * LARGE_RECORD_BYTES)] * LARGE_RECORDS
CODEC_PARTITIONS = 20


def paths() -> dict[str, Path]:
    """Return the code paths whose CPU instructions are counted, by name. Each call of a path runs
    it once and restores the state."""
    small, large = MiniBroker(frame_bytes_max=MIB), MiniBroker(frame_bytes_max=MIB)
    group = MiniBroker(frame_bytes_max=MIB)
    member = _join(group)
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id=member, member_epoch=1, rebalance_timeout_ms=-1
    )
    log, batch = _log(small), build_batch(SMALL_BATCH)
    return {
        "produce small": _request(small, _produce(build_batch(SMALL_BATCH)), PRODUCE_VERSION),
        "produce, idempotent": _idempotent(MiniBroker(frame_bytes_max=MIB)),
        "produce, 1 limit": _request(_limited(1), _produce(batch), PRODUCE_VERSION),
        "produce, 10k": _request(_limited(10_000), _produce(batch), PRODUCE_VERSION),
        "produce, 10k ACLs": _request(
            _guarded(MiniBroker(frame_bytes_max=MIB)), _produce(batch), PRODUCE_VERSION
        ),
        "produce 128 KiB": _request(large, _produce(build_batch(LARGE_BATCH)), PRODUCE_VERSION),
        "fetch small": _request(_filled(SMALL_BATCH), _fetch(), FETCH_VERSION),
        "fetch, 10k ACLs": _request(_guarded(_filled(SMALL_BATCH)), _fetch(), FETCH_VERSION),
        "fetch, 1 limit": _request(_limited(1, SMALL_BATCH), _fetch(), FETCH_VERSION),
        "fetch 128 KiB": _request(_filled(LARGE_BATCH), _fetch(), FETCH_VERSION),
        "metadata": _request(
            small,
            MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
            METADATA_VERSION,
        ),
        "metadata, 1 limit": _request(
            _limited(1),
            MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
            METADATA_VERSION,
        ),
        "metadata, 10k ACLs": _request(
            _guarded(MiniBroker(frame_bytes_max=MIB)),
            MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
            METADATA_VERSION,
        ),
        "metadata, new": _renewed(
            MiniBroker(frame_bytes_max=MIB),
            MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]),
        ),
        "commit, logged": _in_turn(MiniBroker(frame_bytes_max=MIB), _commit(), COMMIT_VERSION),
        "10 commits, logged": _in_turn(
            MiniBroker(frame_bytes_max=MIB), _commit(), COMMIT_VERSION, COMMITS_PER_TURN
        ),
        "group heartbeat": _in_turn(group, heartbeat, HEARTBEAT_VERSION),
        "share fetch": share_fetches(),
        "share acknowledge": share_acknowledgements(),
        "append": lambda: log.append_as_leader(
            memoryview(bytearray(batch)), leader_epoch=Epoch(0), now_ms=NOW_MS
        ),
        "scan 128 records": _scan,
        "codec": _code,
    }


def _request(broker: MiniBroker, message: Message, version: int, count: int = 1) -> Path:
    data = frame_of(message, version) * count
    return lambda: broker.exchange(data)


def _in_turn(broker: MiniBroker, message: Message, version: int, count: int = 1) -> Path:
    data = frame_of(message, version) * count
    return lambda: broker.exchange_in_turn(data)


def _renewed(broker: MiniBroker, message: MetadataRequest) -> Path:
    """Return a code path that publishes a new metadata image before each request, so that no cached
    response is used."""
    data, metadata = frame_of(message, METADATA_VERSION), broker.core.metadata

    def ask() -> None:
        metadata.image = replace(metadata.image)
        broker.exchange(data)

    return ask


def _produce(batch: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=batch)]
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
    )


def _idempotent(broker: MiniBroker) -> Path:
    """Return a code path in which an idempotent producer sends produce requests, each with the next
    sequence number."""
    frames = iter(
        [
            frame_of(
                _produce(
                    build_batch(
                        SMALL_BATCH, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence
                    )
                ),
                PRODUCE_VERSION,
            )
            for sequence in range(SEQUENCES)
        ]
    )
    return lambda: broker.exchange(next(frames))


def _limited(count: int, records: Sequence[Record] = ()) -> MiniBroker:
    """Return a broker with quotas for `count` client ids, including the client id of the measured
    requests."""
    broker = _filled(records) if records else MiniBroker(frame_bytes_max=MIB)
    limits = {PRODUCER_BYTE_RATE: 1e12, CONSUMER_BYTE_RATE: 1e12, REQUEST_PERCENTAGE: 1e9}
    names = (BENCH_CLIENT_ID, *map(str, range(count - 1)))
    broker.core.quotas.set_quotas(
        {(QuotaEntity(CLIENT_ID, False, name),): limits for name in names}
    )
    return broker


def _guarded(broker: MiniBroker) -> MiniBroker:
    """Add an authorizer to a broker, with ACLs of ten thousand other topics and one ACL of the
    requested topic. Returns the broker."""
    names = (TOPIC, *(f"other-{number}" for number in range(10_000)))
    entries = {
        UUID(int=at): AclEntry(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            pattern_type=PatternType.LITERAL,
            principal=ANONYMOUS,
            host=WILDCARD,
            operation=AclOperation.ALL,
            permission=AclPermission.ALLOW,
        )
        for at, name in enumerate(names, 1)
    }
    acls = AclTable().with_entries(entries)
    broker.core.authorization.use(StandardAuthorizer(AuthorizerConfig(), acls=acls))
    return broker


def _fetch() -> FetchRequest:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=MIB)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=MIB,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=id_of(TOPIC), partitions=[asked])],
    )


def _filled(records: Sequence[Record]) -> MiniBroker:
    broker = MiniBroker(frame_bytes_max=MIB)
    broker.exchange(frame_of(_produce(build_batch(records)), PRODUCE_VERSION))
    return broker


def _commit() -> OffsetCommitRequest:
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
    return OffsetCommitRequest(
        group_id="committers", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=parts)]
    )


def _join(broker: MiniBroker) -> str:
    request = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="gate-member-000000000",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    answer = broker.take(frame_of(request, HEARTBEAT_VERSION), MIB)
    # The body follows a length, a correlation id and an empty set of tagged fields.
    answered = decode(ConsumerGroupHeartbeatResponse, HEARTBEAT_VERSION, answer[9:])
    assert answered.error_code == 0, answered.error_message
    assert answered.member_epoch == 1
    return str(answered.member_id)


def _log(broker: MiniBroker) -> Log:
    partition = broker.table.by_id[id_of(TOPIC)][1]
    assert partition.log is not None
    return partition.log


_SCANNED = build_batch(LARGE_BATCH)
_SCANNED_HEADER = parse_header(_SCANNED)


def _scan() -> None:
    for _ in scan(_SCANNED, 0, _SCANNED_HEADER):
        pass


_ANSWER = MetadataResponse(
    topics=[
        MetadataResponseTopic(
            name=TOPIC,
            partitions=[
                MetadataResponsePartition(
                    partition_index=index,
                    leader_id=1,
                    replica_nodes=[1, 2, 3],
                    isr_nodes=[1, 2, 3],
                )
                for index in range(CODEC_PARTITIONS)
            ],
        )
    ]
)


def _code() -> None:
    decode(MetadataResponse, METADATA_VERSION, encode(_ANSWER, METADATA_VERSION))
