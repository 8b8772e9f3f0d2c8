"""Kafka's protocol on the listener of controllers: cost of one request, and frames of strangers.

No request of any served API holds a controller's loop or takes its memory beyond the bounds, and no
frame ends a controller or keeps it from serving nodes and clients. OTTLA_ORACLE_SECONDS and
OTTLA_ORACLE_SEED have the meaning that they have in `test_grpc_end_of_process`.
"""

from collections import deque
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic

import pytest
import trio

from ottla.client.network.connection import ConnectionLostError, open_connection
from ottla.controller.kafka.kafka_service import SERVED
from ottla.model.errors import ProtocolError
from ottla.node.admin.describe_cluster import CONTROLLERS
from ottla.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from tests.jepsen.oracles.end_of_process import (
    ANSWER_S_MAX,
    FRAMES_KEPT,
    BrokerHuntReport,
    BrokerPort,
    HuntPart,
    HuntReport,
    hunt,
    send_frames,
)
from tests.jepsen.oracles.grpc_end_of_process import ask_cluster_id, wait_for_leader
from tests.jepsen.oracles.grpc_loop_hold import LARGE_TOPIC_PARTITIONS, open_target
from tests.jepsen.oracles.grpc_target import fill, open_caller
from tests.jepsen.oracles.hostile_frames import FrameMaker
from tests.jepsen.oracles.loop_cost import Cost
from tests.jepsen.oracles.loop_hold import KafkaTarget, costs_of
from tests.jepsen.oracles.test_grpc_end_of_process import (
    REQUEST_COUNT,
    SECONDS,
    SEED,
    running,
)
from tests.jepsen.search_length import length

DESCRIBE_CLUSTER_VERSION = 1
NEIGHBOUR_REST_S = 0.1


async def test_no_request_of_clients_holds_a_controllers_loop_or_takes_its_memory(
    tmp_path: Path,
) -> None:
    async with open_target(tmp_path / "controller") as target:

        def judge() -> list[Cost]:
            _, names = fill(target.caller, large_topic_partitions=LARGE_TOPIC_PARTITIONS)
            address = target.caller.address
            host, _, port = address.rpartition(":")
            keys = SERVED - {SASL_HANDSHAKE, SASL_AUTHENTICATE}
            kafka = KafkaTarget((host, int(port)), keys, names, target.meter)
            try:
                costs = costs_of(kafka, SEED, is_every_version=False, stride=length(3, 1))
                return [cost for cost in costs if cost.is_too_much]
            finally:
                kafka.close()

        found = await trio.to_thread.run_sync(judge)
    assert not found, "\n".join(map(str, found))


async def ask_as_client(address: str, report: HuntReport) -> None:
    """Ask for the controllers again and again, on one connection."""
    host, _, port = address.rpartition(":")
    request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
    try:
        async with open_connection(host, int(port), timeout_s=ANSWER_S_MAX) as connection:
            while True:
                began_s = monotonic()
                with trio.fail_after(ANSWER_S_MAX):
                    answer = await connection.request(
                        request, DescribeClusterResponse, DESCRIBE_CLUSTER_VERSION
                    )
                assert len(answer.brokers) == 3
                report.add_answers(1, monotonic() - began_s)
                await trio.sleep(NEIGHBOUR_REST_S)
    except (ConnectionLostError, ProtocolError, trio.TooSlowError) as error:
        report.add_violation(f"a client of {address} was lost: {error!r}")


@pytest.mark.cluster
def test_no_frame_of_clients_ends_a_controller_or_keeps_it_from_serving(tmp_path: Path) -> None:
    with running(tmp_path) as controllers:
        report = BrokerHuntReport(SEED)

        async def hunt_by_frames() -> None:
            leader = await trio.to_thread.run_sync(wait_for_leader, controllers.addresses)
            assert leader is not None
            with open_caller(leader) as caller:
                prepare = partial(fill, large_topic_partitions=100)
                _, names = await trio.to_thread.run_sync(prepare, caller)
            parts: list[HuntPart] = []
            for at, address in enumerate(controllers.addresses):
                name = f"c{at}"
                report.last_frames[name] = deque(maxlen=FRAMES_KEPT)
                maker = FrameMaker(Random(f"{SEED} {name}"), names, SERVED)
                parts += [
                    partial(send_frames, BrokerPort(name, at, address), maker, report),
                    partial(ask_cluster_id, address, report),
                    partial(ask_as_client, address, report),
                ]

            def is_enough() -> bool:
                return REQUEST_COUNT is not None and report.sent.total() >= REQUEST_COUNT

            await hunt(report, parts, controllers.deaths, seconds=SECONDS, is_enough=is_enough)
            last = await trio.to_thread.run_sync(wait_for_leader, controllers.addresses)
            assert last is not None, "no controller leads after the last frame"

        trio.run(hunt_by_frames)
        report.unforeseen = controllers.unforeseen()
        print(report)
        assert not report.findings, report
    assert report.answered_count > 0
    assert report.neighbour_answers > 0
