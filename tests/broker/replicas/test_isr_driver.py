"""Changes of the in-sync replicas of led partitions: proposed, retried, applied, abandoned."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest
import trio
from trio.testing import MockClock

from ottla.broker.replicas.isr_driver import REQUEST_TIMEOUT_MS, IsrDriver
from ottla.broker.replicas.isr_keeper import REJECTED_PAUSE_MS, IsrKeeper
from ottla.broker.replicas.partition import Partition
from ottla.metadata.image import RecoveryState
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.broker import BrokerConfig
from ottla.node.network.purgatory import WaitingEntry
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2

World = Any  # the class of the `world` fixture, in conftest.py

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
LAG_MS = 10_000
LOCAL_EPOCH = 7
FOLLOWER_EPOCH = 10
SOON = 0.01

Reply = Callable[[pb.AlterPartitionProposal], pb.AlterPartitionResult]


class TrioClock:
    """The virtual time of the test, in which pauses can be made up."""

    def __init__(self) -> None:
        self.paused_ms = 0

    def monotonic_ms(self) -> int:
        return int(trio.current_time() * 1000) + self.paused_ms

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    @property
    def now_ms(self) -> int:
        return self.monotonic_ms()


class ScriptedController:
    """Notes every request, and answers each when and as the test says."""

    def __init__(self) -> None:
        self.requests: list[pb.AlterPartitionRequest] = []
        self.reply: Reply = applied
        self.refusal: ErrorCode | None = None
        self.may_answer = trio.Event()
        self.may_answer.set()
        self.open_count = 0

    async def alter_partition(
        self, request: pb.AlterPartitionRequest, *, deadline_ms: int
    ) -> pb.AlterPartitionResponse:
        self.requests.append(request)
        self.open_count += 1
        assert self.open_count == 1, "one request at a time"
        try:
            with trio.move_on_after(deadline_ms / 1000) as scope:
                await self.may_answer.wait()
            if scope.cancelled_caught:
                raise RefusedError(ErrorCode.REQUEST_TIMED_OUT)
            if self.refusal is not None:
                raise RefusedError(self.refusal)
        finally:
            self.open_count -= 1
        response = pb.AlterPartitionResponse()
        for topic in request.topics:
            results = response.topics.add(topic_id=topic.topic_id).partitions
            results.extend(self.reply(proposal) for proposal in topic.partitions)
        return response

    @property
    def proposals(self) -> list[list[int]]:
        """The ISR of each proposal so far."""
        return [
            [member.broker_id for member in proposal.new_isr]
            for request in self.requests
            for topic in request.topics
            for proposal in topic.partitions
        ]


def applied(proposal: pb.AlterPartitionProposal) -> pb.AlterPartitionResult:
    return pb.AlterPartitionResult(
        partition_id=proposal.partition_id,
        leader_id=ONE,
        leader_epoch=proposal.leader_epoch,
        isr=[member.broker_id for member in proposal.new_isr],
        partition_epoch=proposal.partition_epoch + 1,
    )


def refused(code: ErrorCode) -> Reply:
    return lambda proposal: pb.AlterPartitionResult(
        partition_id=proposal.partition_id, error_code=code
    )


class CommitWatch(WaitingEntry):
    """Waits for the first commit."""

    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self._partition = partition
        self.has_seen_commit = False

    def try_complete(self) -> bool:
        self.has_seen_commit = self._partition.high_watermark > 0
        return self.has_seen_commit

    def on_expire(self) -> None:
        raise AssertionError("it came too late")

    def on_fault(self, fault: Exception) -> None:
        raise fault


class IsrBench(NamedTuple):
    keeper: IsrKeeper
    controller: ScriptedController
    world: World
    partition: Partition
    others: list[Partition]


@pytest.fixture
async def kept(world: World) -> AsyncIterator[IsrBench]:
    """Partition t-0 on brokers 1, 2 and 3, led by us; 3 is not in sync."""
    async with open_kept(world) as kept:
        yield kept


@asynccontextmanager
async def open_kept(world: World) -> AsyncIterator[IsrBench]:
    world.clock = TrioClock()
    controller = ScriptedController()
    partition, *others = [await led(world, name) for name in ("t", "u", "v")]
    config = BrokerConfig(node_id=ONE, replica_lag_time_ms_max=LAG_MS)
    keeper = IsrKeeper(world.table, config, lambda: LOCAL_EPOCH)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(IsrDriver(keeper, controller, world.clock).run)
        kept = IsrBench(keeper, controller, world, partition, others)
        for other in others:
            fetched(kept, TWO, of=other)
        yield kept
        nursery.cancel_scope.cancel()


async def led(world: World, topic: str) -> Partition:
    partition: Partition = await world.add(topic, replicas=(1, 2, 3), lag_ms_max=LAG_MS)
    decide(world, partition, isr=(1, 2), partition_epoch=1)
    return partition


def decide(world: World, partition: Partition, **changes: Any) -> None:
    """Publish a change of the partition's metadata."""
    partition.apply(
        world.state(replicas=(1, 2, 3), **changes),
        partition.config,
        world.clock.monotonic_ms(),
    )


def fetched(
    kept: IsrBench, replica: NodeId, end_offset: int = 0, *, of: Partition | None = None
) -> None:
    """Do what a follower's fetch does."""
    partition = of or kept.partition
    partition.on_follower_fetch(
        replica,
        end_offset=Offset(end_offset),
        log_start_offset=Offset(0),
        broker_epoch=FOLLOWER_EPOCH,
        now_ms=kept.world.clock.monotonic_ms(),
    )
    if partition.may_join(replica):
        kept.keeper.note(partition)


def append(kept: IsrBench) -> None:
    clock = kept.world.clock
    kept.partition.append(
        kept.world.batch(b"v"), acks=-1, now_ms=clock.wall_ms(), mono_ms=clock.monotonic_ms()
    )


async def test_a_follower_that_caught_up_joins_and_counts_before_the_metadata_says_so(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    fetched(kept, THREE)
    await trio.sleep(SOON)
    (request,) = kept.controller.requests
    (proposal,) = request.topics[0].partitions
    assert (request.broker_id, request.broker_epoch) == (ONE, LOCAL_EPOCH)
    assert (proposal.leader_epoch, proposal.partition_epoch) == (3, 1)
    assert proposal.leader_recovery_state == metadata_pb2.RECOVERED
    assert [(one.broker_id, one.broker_epoch) for one in proposal.new_isr] == [
        (1, LOCAL_EPOCH),
        (2, -1),
        (3, FOLLOWER_EPOCH),
    ]
    assert kept.partition.isr == {1, 2, 3}
    assert kept.partition.partition_epoch == 2


async def test_the_metadata_that_comes_after_the_answer_ends_no_newer_change(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    fetched(kept, THREE)
    await trio.sleep(SOON)
    change = kept.partition.begin_isr_change(frozenset({ONE, TWO}), LOCAL_EPOCH)
    decide(kept.world, kept.partition, isr=(1, 2, 3), partition_epoch=2)
    assert kept.partition.pending_change is change
    decide(kept.world, kept.partition, isr=(1, 2), partition_epoch=1)
    assert kept.partition.isr == {1, 2, 3}


async def test_the_partitions_of_a_turn_go_in_one_request(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    for partition in (kept.partition, *kept.others):
        fetched(kept, THREE, of=partition)
    await trio.sleep(SOON)
    assert len(kept.controller.requests) == 1
    assert kept.controller.proposals == [[1, 2, 3]] * 3


async def test_what_becomes_due_meanwhile_waits_for_the_request_under_way(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    other = kept.others[0]
    kept.controller.may_answer = trio.Event()
    fetched(kept, THREE)
    await trio.sleep(SOON)
    fetched(kept, THREE, of=other)
    await trio.sleep(SOON)
    assert len(kept.controller.requests) == 1
    kept.controller.may_answer.set()
    await trio.sleep(SOON)
    assert len(kept.controller.requests) == 2
    assert other.isr == {1, 2, 3}


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.STALE_BROKER_EPOCH],
)
async def test_a_request_without_an_answer_is_repeated_and_keeps_its_guard(
    kept: IsrBench, code: ErrorCode, autojump_clock: MockClock
) -> None:
    kept.controller.refusal = code
    fetched(kept, TWO)
    fetched(kept, THREE)
    append(kept)
    await trio.sleep(5)
    assert len(kept.controller.requests) > 2
    assert all(one == kept.controller.requests[0] for one in kept.controller.requests)
    fetched(kept, TWO, 1)
    assert kept.partition.high_watermark == 0
    kept.controller.refusal = None
    await trio.sleep(2)
    assert kept.partition.isr == {1, 2, 3}


async def test_a_change_that_the_controller_did_not_answer_in_its_request_is_asked_again(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    kept.controller.reply = refused(ErrorCode.NOT_CONTROLLER)
    fetched(kept, THREE)
    await trio.sleep(SOON)
    assert kept.partition.pending_change is not None
    kept.controller.reply = applied
    await trio.sleep(1)
    assert kept.partition.isr == {1, 2, 3}


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
async def test_an_overtaken_change_is_not_repeated_but_guards_until_newer_metadata(
    kept: IsrBench, code: ErrorCode, autojump_clock: MockClock
) -> None:
    kept.controller.reply = refused(code)
    fetched(kept, THREE)
    await trio.sleep(5)
    assert len(kept.controller.requests) == 1
    append(kept)
    await trio.sleep(2 * LAG_MS / 1000)
    fetched(kept, TWO, 1)
    assert kept.partition.high_watermark == 0
    decide(kept.world, kept.partition, isr=(1, 2), partition_epoch=2)
    assert kept.partition.high_watermark == 1


async def test_after_newer_metadata_what_is_due_is_asked_from_there(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    kept.controller.reply = refused(ErrorCode.INVALID_UPDATE_VERSION)
    fetched(kept, THREE)
    await trio.sleep(SOON)
    kept.controller.reply = applied
    decide(kept.world, kept.partition, isr=(1,), partition_epoch=2)
    fetched(kept, THREE)
    await trio.sleep(SOON)
    assert kept.controller.proposals == [[1, 2, 3], [1, 3]]
    assert kept.partition.isr == {1, 3}


async def test_metadata_that_overtakes_a_request_under_way_makes_its_answer_void(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    kept.controller.may_answer = trio.Event()
    fetched(kept, THREE)
    await trio.sleep(SOON)
    decide(kept.world, kept.partition, isr=(1, 3), partition_epoch=5)
    fetched(kept, TWO)
    kept.controller.may_answer.set()
    await trio.sleep(SOON)
    assert kept.partition.isr == {1, 2, 3}
    assert kept.partition.partition_epoch == 6


async def test_a_change_begun_while_an_overtaken_one_is_under_way_is_not_lost(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    fetched(kept, TWO)
    append(kept)
    await trio.sleep(1.4 * LAG_MS / 1000)
    kept.controller.may_answer = trio.Event()
    fetched(kept, THREE, 1)
    await trio.sleep(SOON)
    assert kept.controller.open_count == 1
    decide(kept.world, kept.partition, isr=(1, 2), partition_epoch=5)
    await trio.sleep(0.11 * LAG_MS / 1000)
    assert kept.partition.pending_change is not None
    kept.controller.may_answer.set()
    await trio.sleep(SOON)
    assert kept.controller.proposals == [[1, 2, 3], [1, 3]]
    assert kept.partition.isr == {1, 3}


async def test_a_rejected_change_gives_way_to_the_committed_isr_and_is_tried_later(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    kept.controller.reply = refused(ErrorCode.INELIGIBLE_REPLICA)
    fetched(kept, THREE)
    await trio.sleep(SOON)
    assert kept.partition.pending_change is None
    for _ in range(10):
        fetched(kept, THREE)
        await trio.sleep(SOON)
    assert len(kept.controller.requests) == 1
    kept.controller.reply = applied
    await trio.sleep(2 * REJECTED_PAUSE_MS / 1000 + 1)
    assert kept.partition.isr == {1, 2, 3}


async def test_a_follower_that_is_stuck_leaves_and_what_waited_is_committed_by_metadata(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    fetched(kept, TWO)
    append(kept)
    produce = CommitWatch(kept.partition)
    kept.world.purgatory.watch([kept.partition.high_watermark_key], produce, 1_000_000)
    await trio.sleep(0.9 * LAG_MS / 1000)
    assert kept.controller.requests == []
    await trio.sleep(0.8 * LAG_MS / 1000)
    assert kept.controller.proposals == [[1]]
    assert kept.partition.isr == {1}
    assert kept.partition.high_watermark == 0
    decide(kept.world, kept.partition, isr=(1,), partition_epoch=2)
    assert kept.partition.high_watermark == 1
    assert produce.has_seen_commit


async def test_a_follower_that_has_everything_stays_however_silent(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    fetched(kept, TWO)
    await trio.sleep(5 * LAG_MS / 1000)
    assert kept.controller.requests == []


async def test_a_leader_that_was_paused_counts_no_follower_as_late(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    fetched(kept, TWO)
    append(kept)
    await trio.sleep(0.8 * LAG_MS / 1000)
    kept.world.clock.paused_ms += 15_000
    await trio.sleep(0.15 * LAG_MS / 1000)
    assert kept.controller.requests == []
    await trio.sleep(LAG_MS / 1000)
    assert kept.controller.proposals == [[1]]


async def test_a_leader_elected_uncleanly_says_at_once_that_it_has_recovered(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    decide(
        kept.world,
        kept.partition,
        isr=(1,),
        leader_epoch=4,
        partition_epoch=2,
        recovery_state=RecoveryState.RECOVERING,
    )
    kept.keeper.note(kept.partition)
    await trio.sleep(SOON)
    (request,) = kept.controller.requests
    (proposal,) = request.topics[0].partitions
    assert kept.controller.proposals == [[1]]
    assert proposal.leader_recovery_state == metadata_pb2.RECOVERED
    kept.keeper.note(kept.partition)
    await trio.sleep(SOON)
    assert len(kept.controller.requests) == 1


async def test_a_removed_partition_is_forgotten_whatever_the_answer(
    kept: IsrBench, autojump_clock: MockClock
) -> None:
    kept.controller.may_answer = trio.Event()
    fetched(kept, THREE)
    await trio.sleep(SOON)
    log = kept.partition.remove()
    assert log is not None
    log.abandon()
    kept.controller.may_answer.set()
    await trio.sleep(2 * REQUEST_TIMEOUT_MS / 1000)
    assert len(kept.controller.requests) == 1
