"""The active controller makes the moves of a plan, and adapts their throttle, in virtual time."""

import trio
from trio.testing import MockClock

from ottla.controller.replication.balance_plan import RATES, stored_moves
from ottla.controller.upkeep_driver import BALANCE_PACE_INTERVAL_S
from ottla.metadata.records import BROKER_RESOURCE
from ottla.model.ids import Epoch
from ottla.model.settings.balance import BALANCE_PLAN
from ottla.proto import controller_pb2 as pb
from ottla.wire.codec import encode
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.controller.test_controller_driver import ControllerBench, playing

USUAL_US = 10_000
SLOW_US = 80_000


async def set_plan(bench: ControllerBench, text: str) -> None:
    config = AlterableConfig(name=BALANCE_PLAN, config_operation=0, value=text)
    resource = AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name="", configs=[config]
    )
    body = encode(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    await bench.controller.decide_client_request(44, 1, body)


async def catch_up(bench: ControllerBench, topic: str) -> None:
    """Have the leader report that all replicas are in sync."""
    found = bench.controller.image.topic(topic)
    assert found is not None
    state = found.partitions[0]
    proposal = pb.AlterPartitionProposal(
        partition_id=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr=[
            pb.BrokerState(broker_id=one, broker_epoch=bench.epochs[one]) for one in state.replicas
        ],
    )
    await bench.controller.alter_partition(
        pb.AlterPartitionRequest(
            broker_id=state.leader,
            broker_epoch=bench.epochs[state.leader],
            topics=[pb.AlterPartitionTopic(topic_id=found.id.bytes, partitions=[proposal])],
        )
    )


def topics_left(bench: ControllerBench) -> list[str]:
    return [move.at.topic for move in stored_moves(bench.controller.image)]


def rate(bench: ControllerBench) -> str | None:
    return bench.controller.image.config(BROKER_RESOURCE, "").get(RATES[0])


class Beats:
    """Heartbeats of three brokers, one of which reports the latency of producers."""

    def __init__(self, bench: ControllerBench) -> None:
        self._bench = bench
        self.p99_us = USUAL_US

    async def run(self) -> None:
        while True:
            for broker in (1, 2, 3):
                request = pb.HeartbeatRequest(
                    broker_id=broker,
                    broker_epoch=self._bench.epochs[broker],
                    current_metadata_offset=self._bench.quorum.end_offset,
                    produce_p99_us=self.p99_us if broker == 2 else None,
                )
                await self._bench.controller.heartbeat(request)
            await trio.sleep(1)


async def test_moves_go_on_as_others_end_and_the_throttle_follows_the_producers(
    autojump_clock: MockClock,
) -> None:
    async with playing() as bench, trio.open_nursery() as nursery:
        await bench.register(1, 2, 3)
        for name in "abc":
            await bench.create(name, 1)
        beats = Beats(bench)
        nursery.start_soon(beats.run)
        await trio.sleep(20)
        await set_plan(bench, "a:0:1>2;b:0:1>2;c:0:1>3")
        assert rate(bench) == "20000000"
        beats.p99_us = SLOW_US
        await trio.sleep(2)
        assert rate(bench) == "5000000"
        await trio.sleep(2 * BALANCE_PACE_INTERVAL_S)
        slow = int(rate(bench) or 0)
        assert 1_000_000 <= slow <= 1_250_000
        beats.p99_us = USUAL_US
        await trio.sleep(3 * BALANCE_PACE_INTERVAL_S)
        assert int(rate(bench) or 0) > slow

        assert topics_left(bench) == ["a", "b", "c"]
        await catch_up(bench, "b")
        await trio.sleep(1)
        assert topics_left(bench) == ["a", "c"]
        await catch_up(bench, "a")
        await catch_up(bench, "c")
        await trio.sleep(1)
        assert topics_left(bench) == []
        assert rate(bench) is None
        nursery.cancel_scope.cancel()


async def test_a_controller_that_becomes_active_continues_the_plan(
    autojump_clock: MockClock,
) -> None:
    async with playing() as bench, trio.open_nursery() as nursery:
        await bench.register(1, 2, 3)
        for name in "abc":
            await bench.create(name, 1)
        nursery.start_soon(bench.keep_beating, 1, 2, 3)
        await set_plan(bench, "a:0:1>2;b:0:1>2;c:0:1>3")
        bench.quorum.elect(None)
        bench.quorum.elect(Epoch(2))
        await catch_up(bench, "a")
        await trio.sleep(2)
        assert topics_left(bench) == ["b", "c"]
        await catch_up(bench, "b")
        await catch_up(bench, "c")
        await trio.sleep(2)
        assert topics_left(bench) == []
        nursery.cancel_scope.cancel()
