"""Fetch requests read by the flat codec: the same responses and states as by the generated one."""

from collections.abc import Iterator
from copy import copy
from typing import Any
from uuid import UUID

import pytest

from ottla.bench.requests import BENCH_CLIENT_ID, frame_of
from ottla.broker.logs.fetch_session import FetchSession
from ottla.broker.replicas.partition import Partition
from ottla.jepsen.fuzz.mini_broker import (
    LOCAL,
    NOW_MS,
    PARTITION_COUNT,
    TOPIC,
    WALL_MS,
    MiniBroker,
    cluster,
    id_of,
)
from ottla.jepsen.in_memory_controller import CountingRng
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.jepsen.world.rng import SeededRng
from ottla.metadata.acl_table import AclTable
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.errors import ErrorCode
from ottla.model.ids import Offset, ProducerId
from ottla.model.limits import INT64_MAX, MIB
from ottla.model.quotas.quota_limits import CLIENT_ID, QuotaEntity
from ottla.model.run_now import run_now
from ottla.model.security.acls import (
    ANONYMOUS,
    WILDCARD,
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.settings.quotas import CONSUMER_BYTE_RATE
from ottla.model.settings.security.authorizer import AuthorizerConfig
from ottla.storage.log.log import Log
from ottla.storage.producers.verification import UNGUARDED
from ottla.wire.apis import FETCH
from ottla.wire.batch_builder import build_batch
from ottla.wire.codec import decode
from ottla.wire.codec_types import Message
from ottla.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.search_length import length

VERSIONS = range(4, 19)
VERSION = 17
"""Version of the fetches that are not drawn from a seed."""
STEPS = 60
SEEDS = length(15, 40)
FLEXIBLE_FROM = 12
VALUE_BYTES = (1, 60, 126, 900, 3_000, 9_000)
PRODUCER = ProducerId(7)
UNKNOWN_TOPIC = UUID(int=99)


def partition_of(broker: MiniBroker, index: int) -> Partition:
    return broker.table.by_id[id_of(TOPIC)][index]


def log_of(partition: Partition) -> Log:
    assert partition.log is not None
    return partition.log


class BothCodecs:
    """Two brokers, one of which reads every fetch with the generated codec."""

    def __init__(self) -> None:
        self.flat = MiniBroker(frame_bytes_max=MIB)
        self.usual = MiniBroker(frame_bytes_max=MIB)
        self.usual.dispatcher.register(FETCH, self.usual.core.data.fetch.handle)

    def __iter__(self) -> Iterator[MiniBroker]:
        return iter((self.flat, self.usual))

    def send(self, data: bytes) -> bytes:
        """Deliver frames, and return the response, or no bytes while the request waits."""
        return self._same([_deliver(broker, data) for broker in self])

    def append(self, index: int, batch: bytes, **changes: Any) -> bytes:
        """Append to a partition, and return the response that this completes."""
        for broker in self:
            partition_of(broker, index).append(
                memoryview(bytearray(batch)), acks=1, now_ms=WALL_MS, mono_ms=NOW_MS, **changes
            )
        return self.send(b"")

    def end_waits(self) -> bytes:
        """Let the timeouts of all waiting requests pass, and return the response."""
        answers = []
        for broker in self:
            broker._channel.sent = sent = bytearray()
            broker._end_waits()
            answers.append(bytes(sent))
        return self._same(answers)

    def _same(self, answers: list[bytes]) -> bytes:
        assert answers[0] == answers[1]
        assert state_of(self.flat) == state_of(self.usual)
        assert not self.flat.faults
        return answers[0]


def _deliver(broker: MiniBroker, data: bytes) -> bytes:
    channel = broker._channel
    channel.sent = sent = bytearray()
    channel.left, channel.piece_bytes = memoryview(bytearray(data)), MIB
    broker._serve_unfinished()
    return bytes(sent)


def state_of(broker: MiniBroker) -> object:
    """Return everything that a fetch may change."""
    core = broker.core
    traffic = partition_of(broker, 0).traffic
    sessions = core.sessions
    return (
        traffic.fetch_requests,
        traffic.bytes_out,
        traffic.failed_fetches,
        traffic.replication_bytes_out,
        sorted(str(sample) for sample in broker.dispatcher.times.errors.samples()),
        broker.purgatory.waiting_by_kind(),
        broker.purgatory.next_deadline_ms,
        sorted(len(each) for each in broker.purgatory._listeners.values()),
        [session_state(session) for session in sessions._sessions.values()],
        sessions.partition_count,
        broker._channel.connection._muted_until_ms,
        [
            (part.high_watermark, part.isr, [repr(each) for each in part.followers.values()])
            for part in broker.table.by_id[id_of(TOPIC)].values()
            if part.log is not None
        ],
    )


def session_state(session: FetchSession) -> object:
    return (
        session.session_id,
        session.epoch,
        session.last_used_ms,
        session.cached_count,
        session.permissions_version,
        [target.key for target in session.due],
        [target.key for target in session.failed],
        [target.key for target in session.unchecked],
        [
            (
                target.key,
                target.topic,
                target.topic_id,
                target.fetch_offset,
                target.partition_bytes_max,
                target.current_leader_epoch,
                target.last_fetched_epoch,
                target.log_start_offset,
                target.replica_high_watermark,
                target.is_asked,
                target.seen_high_watermark,
                target.seen_log_start_offset,
                target.partition is None,
            )
            for target in session.targets.values()
        ],
    )


def read_topic_acls(*, is_allowed: bool) -> StandardAuthorizer:
    entry = AclEntry(
        resource_type=ResourceType.TOPIC,
        resource_name=TOPIC if is_allowed else "other",
        pattern_type=PatternType.LITERAL,
        principal=ANONYMOUS,
        host=WILDCARD,
        operation=AclOperation.READ,
        permission=AclPermission.ALLOW,
    )
    return StandardAuthorizer(
        AuthorizerConfig(), acls=AclTable().with_entries({UUID(int=1): entry})
    )


class History:
    """A sequence of appends and fetches drawn from a seed, delivered to both brokers."""

    def __init__(self, seed: int) -> None:
        self.both = BothCodecs()
        self.rng = SeededRng(seed)
        self.version = VERSIONS[4 + self.rng.below(11)] if seed % 4 == 0 else 13 + seed % 6
        self.is_guarded = seed % 3 == 0
        self.sessions: dict[int, int] = {}
        """Epoch of the next request, by session id."""
        self.ends = [0] * PARTITION_COUNT
        self.sequence = 0
        self.answers: list[bytes] = []
        self.is_over = False
        if self.is_guarded:
            self.change_acls(is_allowed=True)
        if seed % 5 == 0:
            self.set_quota((1e12, 30_000.0, 2_000.0)[self.below(3)])

    def below(self, bound: int) -> int:
        return self.rng.below(bound)

    def since(self, version: int, value: Any, default: Any) -> Any:
        """Return a field's value, or its default if the version of this history lacks it."""
        return value if self.version >= version else default

    def one_of(self, *values: Any) -> Any:
        return values[self.below(len(values))]

    def change_acls(self, *, is_allowed: bool) -> None:
        for broker in self.both:
            broker.core.authorization.use(read_topic_acls(is_allowed=is_allowed))

    def set_quota(self, rate: float) -> None:
        entity = (QuotaEntity(CLIENT_ID, False, BENCH_CLIENT_ID),)
        for broker in self.both:
            broker.core.quotas.set_quotas({entity: {CONSUMER_BYTE_RATE: rate}})

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.one_of(
                self.append, self.append, self.fetch, self.fetch, self.fetch, self.fetch,
                self.fetch, self.fetch, self.fetch_and_append, self.transact, self.evict, self.turn,
            )  # fmt: skip
            step()
            if self.is_over:
                return

    def append(self) -> bytes:
        index = self.below(PARTITION_COUNT)
        sizes = [self.one_of(*VALUE_BYTES) for _ in range(1 + self.below(3))]
        batch = build_batch([(WALL_MS, None, b"v" * size) for size in sizes])
        self.ends[index] += len(sizes)
        return self.both.append(index, batch)

    def transact(self) -> None:
        """Append a batch of a transaction, or end it."""
        if self.below(2):
            batch = build_batch(
                [(WALL_MS, None, b"v" * 20)],
                producer_id=PRODUCER,
                producer_epoch=0,
                base_sequence=self.sequence,
                is_transactional=True,
            )
            self.sequence += 1
            self.both.append(0, batch, guard=UNGUARDED)
        else:
            topic = WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0])
            marker = WritableTxnMarker(
                producer_id=PRODUCER,
                producer_epoch=0,
                transaction_result=bool(self.below(2)),
                topics=[topic],
            )
            self.deliver(WriteTxnMarkersRequest(markers=[marker]), 1)
        self.ends[0] = log_of(partition_of(self.both.flat, 0)).end_offset

    def evict(self) -> None:
        """Flush, and drop the records from memory."""
        for broker in self.both:
            for index in range(PARTITION_COUNT):
                log = log_of(partition_of(broker, index))
                disk = log.state.disk
                assert isinstance(disk, SimulatedDisk)
                disk.evict()

    def turn(self) -> None:
        """Change the ACLs, or delete records."""
        if self.is_guarded and self.below(2):
            self.change_acls(is_allowed=bool(self.below(3)))
            return
        index = self.below(PARTITION_COUNT)
        offset = Offset(self.below(1 + self.ends[index] // 2))
        for broker in self.both:
            log_of(partition_of(broker, index)).state.raise_log_start(offset)

    def deliver(self, request: Message, version: int) -> bytes:
        return self.both.send(frame_of(request, version))

    def fetch(self) -> None:
        answer = self.deliver(self.request(), self.version)
        self.note(answer or self.both.end_waits())

    def fetch_and_append(self) -> None:
        """Append while a fetch may wait."""
        request = self.request()
        request.max_wait_ms = 500
        request.min_bytes = self.one_of(1, 1, 500, 5_000)
        answer = self.deliver(request, self.version)
        for _ in range(self.below(4)):
            answer = answer or self.append()
        self.note(answer or self.both.end_waits())

    def note(self, data: bytes) -> None:
        """Note the session of a response."""
        self.answers.append(data)
        if not data:
            self.is_over = True  # the client is muted
            return
        answer = decode(FetchResponse, self.version, data[8 + (self.version >= FLEXIBLE_FROM) :])
        if answer.throttle_time_ms:
            self.is_over = True
        if answer.session_id and not answer.error_code:
            self.sessions[answer.session_id] = self.sessions.get(answer.session_id, 0) + 1

    def request(self) -> FetchRequest:
        session_id, epoch = self.session()
        follower = LOCAL if self.below(20) else 2
        is_follower = self.below(25) == 0
        replica = follower if is_follower else -1
        names = [self.topic() for _ in range(self.one_of(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2))]
        return FetchRequest(
            replica_id=replica if self.version < 15 else -1,
            replica_state=ReplicaState(replica_id=self.since(15, replica, -1)),
            max_wait_ms=self.one_of(0, 0, 0, 500),
            min_bytes=self.one_of(0, 1, 1, 1, 4_000),
            max_bytes=self.one_of(MIB, MIB, MIB, 5_000, 100, 1),
            isolation_level=self.below(2),
            session_id=session_id,
            session_epoch=epoch,
            topics=names,
            forgotten_topics_data=self.since(7, [self.forgotten()][self.below(15) :], []),
            rack_id=self.since(11, self.one_of("", "", "", "rack", "r\u00e4ck", "r" * 200), ""),
        )

    def session(self) -> tuple[int, int]:
        way = self.below(10) if self.version >= 7 else 0
        if way < 4 or (not self.sessions and way < 9):
            return 0, -1
        if way == 9:
            return self.one_of(*self.sessions, 0, 99), self.one_of(0, 0, -1, 1, 3)
        session_id = self.one_of(*self.sessions)
        return session_id, self.sessions[session_id]

    def topic(self) -> FetchTopic:
        parts = [self.part() for _ in range(self.one_of(1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 2))]
        is_known = self.below(20) > 0
        return FetchTopic(
            topic=TOPIC if is_known else "x",
            topic_id=id_of(TOPIC) if is_known else UNKNOWN_TOPIC,
            partitions=parts,
        )

    def part(self) -> FetchPartition:
        index = self.below(PARTITION_COUNT) if self.below(15) else 9
        end = self.ends[index] if index < PARTITION_COUNT else 0
        return FetchPartition(
            partition=index,
            fetch_offset=self.below(end + 2) - (self.below(20) == 0),
            partition_max_bytes=self.one_of(MIB, MIB, MIB, 200, 1, 0, -1),
            current_leader_epoch=self.since(9, self.one_of(-1, -1, -1, -1, -1, 0, 0, 1), -1),
            last_fetched_epoch=self.since(12, self.one_of(-1, -1, -1, -1, -1, 0, 0, 5), -1),
            log_start_offset=self.since(5, self.one_of(-1, -1, 0), -1),
            high_watermark=self.since(
                18, self.one_of(INT64_MAX, INT64_MAX, INT64_MAX, 0), INT64_MAX
            ),
        )

    def forgotten(self) -> ForgottenTopic:
        return ForgottenTopic(
            topic=TOPIC, topic_id=id_of(TOPIC), partitions=[self.below(PARTITION_COUNT)]
        )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_both_codecs_answer_in_the_same_bytes_and_leave_the_same_state(seed: int) -> None:
    history = History(seed)
    history.run()
    assert history.answers


def batch_of(value: bytes) -> bytes:
    return build_batch([(WALL_MS, None, value)])


def fetch_frame(offset: int, *, wait_ms: int = 0) -> bytes:
    """Return the frame of a consumer's fetch of partition 0, which the flat codec reads."""
    asked = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MIB)
    request = FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=MIB,
        session_epoch=-1,
        topics=[FetchTopic(topic_id=id_of(TOPIC), partitions=[asked])],
    )
    return frame_of(request, VERSION)


def error_of(answer: bytes) -> int:
    """Return the error code of the partition in a response."""
    response = decode(FetchResponse, VERSION, answer[8 + 1 :])
    (topic,) = response.responses
    (part,) = topic.partitions
    return part.error_code


def image_without_topic() -> MetadataImage:
    controller = copy(cluster())
    controller.rng = CountingRng(drawn=controller.rng.drawn)
    controller.forward(DeleteTopicsRequest(topics=[DeleteTopicState(name=TOPIC)]))
    return controller.image


def publish(both: BothCodecs, image: MetadataImage) -> None:
    """Pass an image to the replicas of both brokers."""
    for broker in both:
        delta = MetadataDelta.between(broker.table.image, image)
        run_now(broker.core.metadata.publish(delta, image))
        run_now(broker.core.replicas.publish(delta, image))


def deliver_to_each(both: BothCodecs, data: bytes) -> bytes:
    """Deliver frames while no replica may be there, and return the response of both brokers."""
    answers = {_deliver(broker, data) for broker in both}
    (answer,) = answers
    return answer


def test_a_truncated_log_serves_the_records_that_replaced_the_old_ones() -> None:
    both = BothCodecs()
    both.append(0, batch_of(b"first"))
    both.append(0, batch_of(b"old"))
    assert b"old" in both.send(fetch_frame(1))

    for broker in both:
        run_now(log_of(partition_of(broker, 0)).truncate_to(Offset(1)))
    both.append(0, batch_of(b"new"))

    answer = both.send(fetch_frame(1))
    assert b"new" in answer
    assert b"old" not in answer


def test_a_partition_that_was_looked_up_is_unknown_once_removed_and_found_when_it_returns() -> None:
    both = BothCodecs()
    both.append(0, batch_of(b"before"))
    assert b"before" in both.send(fetch_frame(0))
    assert both.flat.core.data.fetch._places, "the flat path found the partition"

    publish(both, image_without_topic())
    assert error_of(deliver_to_each(both, fetch_frame(0))) == ErrorCode.UNKNOWN_TOPIC_ID

    publish(both, cluster().image)
    returned = partition_of(both.flat, 0)
    offset = log_of(returned).end_offset
    both.append(0, batch_of(b"after"))
    assert b"after" in both.send(fetch_frame(offset))
    assert list(both.flat.core.data.fetch._places.values()) == [returned]


def test_a_waiting_fetch_is_answered_when_its_partition_is_removed() -> None:
    both = BothCodecs()
    assert both.send(fetch_frame(0, wait_ms=500)) == b""

    publish(both, image_without_topic())

    assert error_of(deliver_to_each(both, b"")) == ErrorCode.UNKNOWN_TOPIC_ID
