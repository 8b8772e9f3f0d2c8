"""The controller and its periodic work over a simulated quorum, in virtual time."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.controller.attendance_driver import AttendanceKeeper
from ottla.controller.controller_driver import NO_RECORDS, Controller
from ottla.controller.controller_service import controller_handlers
from ottla.controller.decision import Decision, decided
from ottla.controller.replication import elections
from ottla.controller.upkeep_driver import Upkeep
from ottla.jepsen.in_memory_controller import IDENTITY, CountingRng, registration
from ottla.metadata import fold
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage, Provenance
from ottla.metadata.records import (
    Record,
    broker_change_record,
    config_record,
    decode_record,
    no_op_record,
    partition_change_record,
    scram_credential_record,
)
from ottla.model.errors import CorruptDataError, ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.security.scram import ScramCredential
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.quorum import QuorumConfig
from ottla.model.settings.resources import ConfigKind
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.address_probe import Probe, probe_nothing
from ottla.node.quorum.record_batches import batch_of
from ottla.node.quorum.snapshot_report import SnapshotReport
from ottla.node.seams import Compute, compute_inline
from ottla.proto import controller_pb2 as pb
from ottla.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    Request,
    Response,
    VoterChangeResponse,
)
from ottla.raft.progress import QuorumProgress
from ottla.raft.voters import QuorumIdentity, ReplicaKey
from ottla.rpc import controller_methods as methods
from ottla.rpc.method import guarded
from ottla.wire.apis import response_class
from ottla.wire.batch import batches
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.describe_quorum_request import DescribeQuorumRequest
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
)
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.write_snapshot_request import WriteSnapshotRequest
from ottla.wire.records import scan

T = TypeVar("T")

EPOCH = Epoch(1)
START = Offset(0)
SESSION_S = 9


@dataclass
class VirtualClock:
    """Trio's time as the clock of a controller; `stall_ms` pauses it and then lets it jump."""

    stall_ms: int = 0

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1000) + self.stall_ms

    def wall_ms(self) -> int:
        return self.monotonic_ms()


def records_of(batch: bytes) -> tuple[Record, ...]:
    """Return the metadata records of one batch."""
    return tuple(
        decode_record(record.value or b"")
        for at, header in batches(memoryview(batch))
        for record in scan(batch, at, header)
    )


@dataclass
class PlayedQuorum:
    """A log in memory that commits appended records at once, unless it has lost its majority."""

    identity: QuorumIdentity = IDENTITY
    batches: list[tuple[Record, ...]] = field(default_factory=list)
    has_majority: bool = True
    voter_sets_due: int = 0
    """Number of voter sets that raft appends before the next batch."""
    append_takes_s: float = 0
    committed: MetadataImage = EMPTY
    high_watermark: Offset = START
    end_offset: Offset = START
    problems: tuple[str, ...] = ()
    disk_problems: tuple[str, ...] = ()
    disk_warnings: tuple[str, ...] = ()
    epoch: Epoch | None = None
    listener: Callable[[Epoch | None], None] = lambda epoch: None
    moved: trio.Event = field(default_factory=trio.Event)
    asked: list[Request] = field(default_factory=list)
    changed: VoterChangeResponse | RefusedError = field(
        default_factory=lambda: VoterChangeResponse(leader_epoch=EPOCH)
    )
    """Response to a change of the voters."""
    snapshots: list[Offset] = field(default_factory=list)
    """Ends of the snapshots that were written."""

    @property
    def image(self) -> MetadataImage:
        return self.committed

    @property
    def applied_end_offset(self) -> Offset:
        return self.high_watermark

    def on_leadership(self, listener: Callable[[Epoch | None], None]) -> None:
        self.listener = listener

    def elect(self, epoch: Epoch | None) -> None:
        self.epoch = epoch
        self.listener(epoch)
        self._move()

    def batch_of(self, records: Sequence[Record]) -> bytes:
        return batch_of(records, timestamp_ms=0)

    async def append(self, batch: bytes, epoch: Epoch, *, at: Offset | None = None) -> Offset:
        await trio.sleep(self.append_takes_s)
        self.end_offset = Offset(self.end_offset + self.voter_sets_due)
        self.voter_sets_due = 0
        if epoch != self.epoch or at not in (None, self.end_offset):
            raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        records = records_of(batch)
        self.batches.append(records)
        self.end_offset = Offset(self.end_offset + len(records))
        if self.has_majority:
            self.commit()
        return Offset(self.end_offset - 1)

    def commit(self) -> None:
        self.committed = fold.apply_all(
            EMPTY, [record for batch in self.batches for record in batch]
        )
        self.high_watermark = self.end_offset
        self._move()

    async def wait_committed(self, offset: Offset, epoch: Epoch) -> None:
        while self.epoch == epoch:
            if self.high_watermark > offset:
                return
            await self.moved.wait()
        raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    async def answer(self, request: Request) -> Response:
        self.asked.append(request)
        if isinstance(self.changed, RefusedError):
            raise self.changed
        return self.changed

    async def report_snapshot(self, *, writes: bool) -> SnapshotReport:
        if writes:
            self.snapshots.append(self.high_watermark)
        return SnapshotReport(
            id=OffsetAndEpoch(self.high_watermark, EPOCH),
            size_bytes=512 if writes else -1,
            latest_end_offset=self.snapshots[-1] if self.snapshots else Offset(0),
            log_start_offset=Offset(0),
        )

    def describe(self) -> QuorumProgress | None:
        return None

    def _move(self) -> None:
        moved, self.moved = self.moved, trio.Event()
        moved.set()


@dataclass
class ControllerBench:
    """A running controller with its dependencies."""

    controller: Controller
    quorum: PlayedQuorum
    clock: VirtualClock
    errors: UnexpectedErrors
    attendances: AttendanceKeeper
    epochs: dict[int, int] = field(default_factory=dict)

    async def register(self, *ids: int) -> None:
        """Register brokers and unfence them."""
        for broker in ids:
            request = registration(broker)
            self.epochs[broker] = (await self.controller.register(request)).broker_epoch
            await self.send_heartbeat(broker)

    async def send_heartbeat(
        self, broker: int, *, want_fence: bool = False, want_shut_down: bool = False
    ) -> pb.HeartbeatResponse:
        return await self.controller.heartbeat(
            pb.HeartbeatRequest(
                broker_id=broker,
                broker_epoch=self.epochs[broker],
                current_metadata_offset=self.quorum.end_offset,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
            )
        )

    async def keep_beating(self, *ids: int) -> None:
        while True:
            for broker in ids:
                await self.send_heartbeat(broker)
            await trio.sleep(2)

    async def create(self, name: str, *replicas: int) -> Offset:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        if replicas:
            assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
            topic = CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
            )
        body = encode(CreateTopicsRequest(topics=[topic]), 7)
        return (await self.controller.decide_client_request(19, 7, body)).metadata_offset

    def is_fenced(self, broker: int) -> bool:
        return self.quorum.committed.brokers[NodeId(broker)].is_fenced


@asynccontextmanager
async def playing(
    *,
    idle_interval_ms: int = 0,
    first_records: Sequence[Record] = (),
    probe: Probe = probe_nothing,
    is_early: bool = True,
    compute: Compute = compute_inline,
) -> AsyncIterator[ControllerBench]:
    """A controller that is active, in a cluster without brokers."""
    errors = UnexpectedErrors()
    config = ControllerConfig(quorum=QuorumConfig(idle_interval_ms_max=idle_interval_ms))
    quorum, clock = PlayedQuorum(), VirtualClock()
    controller = Controller(quorum, config, IDENTITY, clock, CountingRng(), compute, first_records)
    keeper = AttendanceKeeper(controller, probe, clock=clock, errors=errors, is_early=is_early)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Upkeep(controller, config, errors).run)
        nursery.start_soon(keeper.run)
        await wait_all_tasks_blocked()
        quorum.elect(EPOCH)
        await controller.wait_active()
        yield ControllerBench(controller, quorum, clock, errors, keeper)
        nursery.cancel_scope.cancel()


async def test_a_new_cluster_begins_with_the_users_it_was_formatted_with(
    autojump_clock: MockClock,
) -> None:
    credential = ScramCredential(b"salt", b"stored", b"server", 4_096)
    first = [scram_credential_record("al", 1, credential)]
    async with playing(first_records=first) as played:
        await played.register(1)
        assert played.quorum.committed.scram_credentials[1]["al"] == credential
        assert played.quorum.committed.features


async def test_a_decision_for_an_offset_that_a_voter_set_has_taken_is_made_again(
    autojump_clock: MockClock,
) -> None:
    """EpochOfRegistration: a broker's epoch is the offset of its registration."""
    async with playing() as bench:
        await bench.register(1)
        end_offset = bench.quorum.end_offset
        bench.quorum.voter_sets_due = 1

        await bench.register(2)

        assert bench.epochs[2] == end_offset + 1


async def test_a_client_is_refused_if_another_controller_leads_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with playing() as bench:
        await bench.register(1)
        count = len(bench.quorum.batches)
        bench.quorum.epoch = Epoch(EPOCH + 1)
        with pytest.raises(RefusedError) as refused:
            await bench.register(2)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert len(bench.quorum.batches) == count


async def test_an_answer_tells_where_its_records_end(autojump_clock: MockClock) -> None:
    """A broker waits for that offset, so that it shows its own change; without records there is no
    wait."""
    async with playing() as played:
        await played.register(1)
        changed = await played.create("orders")
        again = await played.create("orders")

        assert changed == played.quorum.end_offset - 1
        assert again == NO_RECORDS


async def test_decisions_go_on_with_the_image_of_committed_records_once_it_has_them_all(
    autojump_clock: MockClock,
) -> None:
    """HeldOnce: a controller holds the state of a partition twice only until it is committed."""
    published: list[MetadataImage] = []

    async def publish_and_compute(function: Callable[[], T]) -> T:
        for image in published:
            await played.controller.publish(MetadataDelta(image), image)
        return function()

    async with playing(compute=publish_and_compute) as played:
        controller = played.controller
        await played.register(1)

        def committed(offset: int) -> MetadataImage:
            return replace(controller.image, provenance=Provenance(Offset(offset), EPOCH, 0))

        older, image = (committed(controller.last_appended - lag) for lag in (1, 0))
        await controller.publish(MetadataDelta(older), older)
        assert controller.image is not older
        await controller.publish(MetadataDelta(image), image)
        assert controller.image is image

        again = committed(controller.last_appended)
        published.append(again)
        await controller.decide(nothing_decided, is_long=True)
        assert controller.image is image  # the decision was made on it
        await controller.publish(MetadataDelta(again), again)
        assert controller.image is again


def nothing_decided(image: MetadataImage, next_offset: Offset) -> Decision[None]:
    return decided(image, (), None)


async def test_a_silent_broker_is_fenced_when_its_session_ends(autojump_clock: MockClock) -> None:
    async with playing() as played, trio.open_nursery() as nursery:
        await played.register(1, 2)
        nursery.start_soon(played.keep_beating, 2)

        await trio.sleep(SESSION_S - 0.1)
        before = played.is_fenced(1)
        await trio.sleep(0.2)

        assert (before, played.is_fenced(1), played.is_fenced(2)) == (False, True, False)
        nursery.cancel_scope.cancel()


async def test_a_paused_controller_fences_no_broker(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played, trio.open_nursery() as nursery:
        await played.register(1, 2)
        nursery.start_soon(played.keep_beating, 2)
        await trio.sleep(5)
        await played.send_heartbeat(1)
        await trio.sleep(1)

        played.clock.stall_ms += 60_000
        await trio.sleep(SESSION_S - 1 - 0.5)
        before = played.is_fenced(1)
        await trio.sleep(1)

        assert (before, played.is_fenced(1), played.is_fenced(2)) == (False, True, False)
        nursery.cancel_scope.cancel()


async def test_a_long_decision_ends_no_session_of_a_broker_that_was_heard(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played, trio.open_nursery() as nursery:
        await played.register(1)
        played.quorum.append_takes_s = 15
        nursery.start_soon(played.create, "long")
        await trio.sleep(8)

        nursery.start_soon(partial(played.send_heartbeat, 1, want_shut_down=True))
        await trio.sleep(4)

        now_ms = played.clock.monotonic_ms()
        assert played.controller.sessions.expired(played.controller.image, now_ms) == ()
        nursery.cancel_scope.cancel()


async def test_an_unchanged_heartbeat_writes_no_record_and_is_answered_at_once(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played, trio.open_nursery() as nursery:
        await played.register(1)
        played.quorum.has_majority = False
        nursery.start_soon(played.create, "pending")
        await wait_all_tasks_blocked()
        batch_count = len(played.quorum.batches)

        with trio.fail_after(0.001):
            answer = await played.send_heartbeat(1)

        assert not answer.is_fenced
        assert len(played.quorum.batches) == batch_count
        nursery.cancel_scope.cancel()


async def test_a_heartbeat_is_not_answered_out_of_what_no_majority_holds(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played:
        await played.register(1)
        await played.send_heartbeat(1, want_fence=True)
        played.quorum.has_majority = False
        answers = []
        for _ in ("unfences", "finds it unfenced, if that is ever committed"):
            with trio.move_on_after(1):
                answers.append(await played.send_heartbeat(1))
        assert answers == []

        played.quorum.commit()
        assert not (await played.send_heartbeat(1)).is_fenced


async def test_waiting_requests_fail_when_leadership_ends(autojump_clock: MockClock) -> None:
    async with playing() as played, trio.open_nursery() as nursery:
        await played.register(1)
        played.quorum.has_majority = False

        async def lose() -> None:
            await trio.sleep(3)
            played.quorum.elect(None)

        nursery.start_soon(lose)
        with pytest.raises(RefusedError) as caught:
            await played.create("never")

        assert caught.value.code is ErrorCode.NOT_CONTROLLER


async def test_a_new_active_controller_gives_every_broker_a_full_session(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played:
        await played.register(1)
        await trio.sleep(SESSION_S - 1)
        played.quorum.elect(None)
        await trio.sleep(100)

        played.quorum.elect(Epoch(2))
        now_ms = played.clock.monotonic_ms()
        assert played.controller.sessions.expired(played.controller.image, now_ms) == ()
        await trio.sleep(SESSION_S - 0.1)
        before = played.is_fenced(1)
        await trio.sleep(0.2)

        assert (before, played.is_fenced(1)) == (False, True)


def many(image: MetadataImage, count: int, *, is_atomic: bool) -> Decision[None]:
    return decided(image, (no_op_record(),) * count, None, is_atomic=is_atomic)


async def test_a_decision_of_many_records_is_appended_in_parts(autojump_clock: MockClock) -> None:
    async with playing() as played:
        del played.quorum.batches[1:]

        await played.controller.decide(lambda image, _: many(image, 25_000, is_atomic=False))
        await played.controller.decide(lambda image, _: many(image, 25_000, is_atomic=True))

        sizes = [len(batch) for batch in played.quorum.batches[1:]]
        assert sizes == [10_000, 10_000, 5_000, 25_000]


async def test_the_speculative_image_is_the_one_that_the_decision_carries(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played:
        carried: list[MetadataImage] = []

        def make(image: MetadataImage, _next_offset: Offset) -> Decision[None]:
            decision = decided(image, (config_record(4, "", "k", "v"),), None)
            carried.append(decision.image)
            return decision

        await played.controller.decide(make)
        assert played.controller.image is carried[0]

        await played.controller.decide(lambda image, _: many(image, 25_000, is_atomic=False))
        assert played.controller.image == played.quorum.committed


async def test_an_asker_that_goes_away_leaves_no_decision_half_written(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played:
        played.quorum.append_takes_s = 1
        with trio.move_on_after(1.5):
            await played.controller.decide(lambda image, _: many(image, 25_000, is_atomic=False))

        assert [len(batch) for batch in played.quorum.batches[1:]] == [10_000, 10_000, 5_000]
        assert played.controller.last_appended == played.quorum.end_offset - 1


async def test_what_a_dead_controller_left_half_done_the_next_one_puts_right(
    autojump_clock: MockClock,
) -> None:
    """It wrote that a broker is back, and not yet that this broker leads its partitions."""
    async with playing() as played:
        await played.register(1)
        await played.create("a")
        await trio.sleep(SESSION_S + 1)
        broker = played.quorum.committed.brokers[NodeId(1)]
        down = played.quorum.committed.topic("a")
        unfenced = broker_change_record(broker, is_fenced=False)
        await played.quorum.append(played.quorum.batch_of([unfenced]), EPOCH)

        played.quorum.elect(None)
        played.quorum.elect(Epoch(2))
        await wait_all_tasks_blocked()

        up = played.quorum.committed.topic("a")
        assert down is not None
        assert up is not None
        assert (down.partitions[0].leader, up.partitions[0].leader) == (-1, 1)


async def test_leaderships_go_back_run_after_run_until_none_is_left(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elections, "PREFERRED_ELECTIONS_MAX", 1)
    async with playing() as played, trio.open_nursery() as nursery:
        await played.register(1, 2)
        nursery.start_soon(played.keep_beating, 1, 2)
        for name in ("a", "b", "c"):
            await played.create(name, 1, 2)
            await lead(played, name, 2)

        await trio.sleep(301)

        for name in ("a", "b", "c"):
            topic = played.quorum.committed.topic(name)
            assert topic is not None
            assert topic.partitions[0].leader == 1
        nursery.cancel_scope.cancel()


async def lead(played: ControllerBench, name: str, leader: int) -> None:
    """Make another replica the leader."""
    topic = played.controller.image.topic(name)
    assert topic is not None
    record = partition_change_record(topic.id, 0, leader=NodeId(leader))
    await played.controller.decide(lambda image, _: decided(image, (record,), None))


async def test_an_idle_log_moves_and_a_busy_one_is_left_alone(autojump_clock: MockClock) -> None:
    async with playing(idle_interval_ms=500) as played:
        busy = config_record(4, "", "k", "v")
        for _ in range(20):
            await played.controller.decide(lambda image, _: decided(image, (busy,), None))
            await trio.sleep(0.4)
        after_work = played.quorum.batches.count((no_op_record(),))
        await trio.sleep(10)
        after_rest = played.quorum.batches.count((no_op_record(),))
        played.quorum.elect(None)
        await trio.sleep(10)

        assert after_work <= 1
        assert 18 <= after_rest - after_work <= 20
        assert played.quorum.batches.count((no_op_record(),)) == after_rest


async def test_an_unexpected_error_of_a_decision_leaves_nothing_of_it(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played:
        await played.register(1)
        image, end_offset = played.controller.image, played.quorum.end_offset

        def stumble(_image: MetadataImage, _next_offset: Offset) -> Decision[None]:
            raise KeyError("planted")

        def unfit(image: MetadataImage, _next_offset: Offset) -> Decision[None]:
            gone = registration(7)
            change = partition_change_record(UUID(bytes=gone.incarnation_id), 0, isr=(NodeId(1),))
            return decided(image, (no_op_record(), change), None, is_atomic=True)

        for make in (stumble, unfit):
            with pytest.raises((KeyError, CorruptDataError)):
                await played.controller.decide(make)
            assert played.controller.image is image
            assert played.quorum.end_offset == end_offset

        assert await played.create("orders") == played.quorum.end_offset - 1


async def test_an_unexpected_error_ends_one_round_of_upkeep_and_no_task(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with playing() as played:
        await played.register(1)
        is_broken = True
        fence = Upkeep._fence

        def sometimes(self: Upkeep, image: MetadataImage, next_offset: Offset) -> Decision[bool]:
            if is_broken:
                raise RuntimeError("planted")
            return fence(self, image, next_offset)

        monkeypatch.setattr(Upkeep, "_fence", sometimes)
        await trio.sleep(2 * SESSION_S)
        was_fenced = played.is_fenced(1)
        is_broken = False
        await trio.sleep(2)

        assert (was_fenced, played.is_fenced(1)) == (False, True)
        assert played.errors.counts["background task"] > 1


@pytest.mark.parametrize(
    ("request_", "version", "codes"),
    [
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=ConfigKind.BROKER,
                        resource_name="9" * 5_000,
                        configs=[AlterableConfig(name="log.retention.ms", value="1")],
                    )
                ]
            ),
            1,
            [ErrorCode.INVALID_REQUEST],
        ),
        (
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=ConfigKind.CLIENT_METRICS,
                        resource_name="all",
                        configs=[
                            AlterableConfig(name="match", value="client_id=a{99999999999999999999}")
                        ],
                    )
                ]
            ),
            1,
            [ErrorCode.INVALID_CONFIG],
        ),
        (
            CreateTopicsRequest(
                topics=[CreatableTopic(name="x" * 32_700, num_partitions=1, replication_factor=1)]
            ),
            4,
            [ErrorCode.INVALID_TOPIC_EXCEPTION],
        ),
    ],
)
async def test_a_request_that_is_too_much_of_something_is_answered_with_its_code(
    autojump_clock: MockClock, request_: Message, version: int, codes: list[ErrorCode]
) -> None:
    async with playing() as played:
        await played.register(1)
        handlers = guarded(
            controller_handlers(played.controller, played.attendances), played.errors
        )
        forward = next(one for one in handlers if one.method is methods.FORWARD)
        asked = pb.ForwardRequest(
            api_key=request_.API_KEY, api_version=version, body=encode(request_, version)
        )
        data = await forward.answer_bytes(asked.SerializeToString())
        body = pb.ForwardResponse.FromString(data).body
        answer: Any = decode(response_class(request_.API_KEY), version, body)
        results = getattr(answer, "topics", None) or answer.responses
        assert [one.error_code for one in results] == codes
        assert not played.errors.counts


@pytest.mark.parametrize("next_epoch", [None, Epoch(2)])
async def test_a_decision_made_beside_the_loop_is_dropped_when_leadership_ends_meanwhile(
    autojump_clock: MockClock, next_epoch: Epoch | None
) -> None:
    async with playing() as played:
        await played.register(1)
        end_offset = played.quorum.end_offset

        async def lose(function: Callable[[], Any]) -> Any:
            made = function()
            played.quorum.elect(None)
            if next_epoch is not None:
                played.quorum.elect(next_epoch)
            return made

        played.controller._beside = lose
        with pytest.raises(RefusedError) as caught:
            await played.create("orders")
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert played.quorum.end_offset == end_offset


@pytest.mark.parametrize(
    "request_",
    [
        DescribeQuorumRequest(topics=[]),
        ListPartitionReassignmentsRequest(topics=None),
        CreateTopicsRequest(topics=[CreatableTopic(name="a")], validate_only=True),
    ],
)
async def test_a_deposed_controller_answers_nothing_even_where_it_writes_nothing(
    autojump_clock: MockClock, request_: Message
) -> None:
    async with playing() as played:
        played.quorum.elect(None)
        version = request_.VERSIONS[-1]
        with pytest.raises(RefusedError) as caught:
            await played.controller.decide_client_request(
                request_.API_KEY, version, encode(request_, version)
            )
        assert caught.value.code is ErrorCode.NOT_CONTROLLER


NEW_DIRECTORY = UUID(int=40)


async def test_a_controller_that_becomes_active_meanwhile_reads_no_quorum_status_beside_the_loop(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_beside_the_loop() -> None:
        raise RuntimeError("must be called from async context")

    async with playing() as played:
        played.quorum.elect(None)
        monkeypatch.setattr(played.quorum, "describe", read_beside_the_loop)
        request = DescribeQuorumRequest(topics=[])
        version = request.VERSIONS[-1]
        codes: list[int] = []

        async def ask() -> None:
            with pytest.raises(RefusedError) as caught:
                await played.controller.decide_client_request(
                    request.API_KEY, version, encode(request, version)
                )
            codes.append(caught.value.code)

        async with trio.open_nursery() as nursery, played.controller._deciding:
            nursery.start_soon(ask)
            await wait_all_tasks_blocked()
            played.quorum.elect(Epoch(EPOCH + 1))
        assert codes == [ErrorCode.NOT_CONTROLLER]


def adding(**fields: Any) -> AddRaftVoterRequest:
    listeners = [Listener(name="CONTROLLER", host="c104.example", port=9093)]
    known: dict[str, Any] = {
        "cluster_id": None,
        "voter_id": 104,
        "voter_directory_id": NEW_DIRECTORY,
        "listeners": listeners,
    }
    return AddRaftVoterRequest(**{**known, **fields})


async def change(played: ControllerBench, request: Message, version: int) -> Any:
    answer = await played.controller.decide_client_request(
        request.API_KEY, version, encode(request, version)
    )
    return decode(response_class(request.API_KEY), version, answer.body)


@pytest.mark.parametrize(("version", "acks"), [(0, True), (1, True), (1, False)])
async def test_a_client_s_new_voter_is_passed_to_the_quorum(
    autojump_clock: MockClock, version: int, acks: bool
) -> None:
    async with playing() as played:
        answer = await change(played, adding(ack_when_committed=acks), version)
        assert (answer.error_code, answer.error_message) == (0, None)
        [asked] = played.quorum.asked
        assert isinstance(asked, AddVoterRequest)
        assert asked.ack_when_committed is acks
        assert asked.voter.key == (104, NEW_DIRECTORY)
        assert asked.voter.endpoints == (("CONTROLLER", "c104.example", 9093),)
        assert asked.cluster_id == IDENTITY.cluster_id


@pytest.mark.parametrize("validate_only", [False, True])
async def test_a_client_s_snapshot_is_written_by_the_active_controller(
    autojump_clock: MockClock, validate_only: bool
) -> None:
    async with playing() as played:
        response = await change(played, WriteSnapshotRequest(validate_only=validate_only), 0)
        end_offset = played.quorum.high_watermark
    assert (response.end_offset, response.node_id) == (end_offset, IDENTITY.node_id)
    assert played.quorum.snapshots == ([] if validate_only else [end_offset])
    assert response.size_bytes == (-1 if validate_only else 512)


async def test_a_voter_that_a_client_removes_is_passed_to_the_quorum(
    autojump_clock: MockClock,
) -> None:
    async with playing() as played:
        request = RemoveRaftVoterRequest(
            cluster_id=IDENTITY.cluster_id, voter_id=103, voter_directory_id=NEW_DIRECTORY
        )
        assert (await change(played, request, 0)).error_code == 0
        assert played.quorum.asked == [
            RemoveVoterRequest(
                cluster_id=IDENTITY.cluster_id, voter_key=ReplicaKey(NodeId(103), NEW_DIRECTORY)
            )
        ]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.VOTER_NOT_FOUND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ],
)
async def test_a_client_gets_the_quorum_s_refusal(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    async with playing() as played:
        played.quorum.changed = VoterChangeResponse(
            error=code, message="A reason.", leader_epoch=EPOCH
        )
        for request in (adding(), RemoveRaftVoterRequest(cluster_id=None)):
            answer = await change(played, request, 0)
            assert (answer.error_code, answer.error_message) == (code, "A reason.")
        assert len(played.quorum.asked) == 2


async def test_a_stopping_member_s_refusal_of_a_voter_is_raised(autojump_clock: MockClock) -> None:
    async with playing() as played:
        played.quorum.changed = RefusedError(ErrorCode.NETWORK_EXCEPTION, "stopping")
        with pytest.raises(RefusedError) as caught:
            await change(played, adding(), 1)
        assert caught.value.code is ErrorCode.NETWORK_EXCEPTION


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (adding(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (RemoveRaftVoterRequest(cluster_id=""), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (adding(listeners=[Listener(name="L")] * 9), ErrorCode.INVALID_REQUEST),
        (adding(listeners=[Listener(name="L", host="h", port=0)]), ErrorCode.INVALID_REQUEST),
        (adding(listeners=[Listener(name="L", host="", port=1)]), ErrorCode.INVALID_REQUEST),
    ],
)
async def test_a_change_that_no_quorum_could_make_is_refused_before_it_is_asked(
    autojump_clock: MockClock, request_: Message, code: ErrorCode
) -> None:
    async with playing() as played:
        with pytest.raises(RefusedError) as caught:
            await change(played, request_, 0)
        assert caught.value.code is code
        assert not played.quorum.asked


async def test_a_passive_controller_asks_the_quorum_for_nothing(autojump_clock: MockClock) -> None:
    async with playing() as played:
        played.quorum.elect(None)
        with pytest.raises(RefusedError) as caught:
            await change(played, adding(), 1)
        assert caught.value.code is ErrorCode.NOT_CONTROLLER
        assert not played.quorum.asked
