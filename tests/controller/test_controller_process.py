"""A single controller, whole: real files, real gRPC, asked as a broker asks."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import trio

from ottla.controller.listening_driver import warn_of_plaintext
from ottla.controller.main_driver import serve_controller
from ottla.metadata.features import SUPPORTED
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ConfiguredVoter, ListenAddress
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.identity import format_directories, quorum_identity, read_meta_properties
from ottla.node.local.local_nodes_driver import free_port
from ottla.node.quorum.quorum_driver import QuorumMember, open_quorum_member
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.rpc.cluster_id import cluster_id_of_quorum
from ottla.rpc.controller_client import ControllerClient
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.codec import decode, encode
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse

CONTROLLER = NodeId(101)
BROKER = NodeId(1)
DEADLINE_MS = 60_000


@dataclass
class RunningController:
    """A controller that serves, and the means to talk to it."""

    rpc: RpcRuntime
    client: ControllerClient
    voter: ConfiguredVoter
    cluster_id: str
    stop: Callable[[], None]


def config_of(directory: Path, port: int, *, session_timeout_ms: int = 9_000) -> ControllerConfig:
    return ControllerConfig(
        node_id=CONTROLLER,
        metadata_log_dir=str(directory / "controller"),
        listeners=(ListenAddress("CONTROLLER", "127.0.0.1", port),),
        controller_quorum_voters=(ConfiguredVoter(CONTROLLER, "127.0.0.1", port),),
        session_timeout_ms=session_timeout_ms,
    )


@asynccontextmanager
async def running(config: ControllerConfig) -> AsyncIterator[RunningController]:
    is_stopping, is_ready = trio.Event(), trio.Event()
    voter = config.controller_quorum_voters[0]
    async with open_rpc_runtime() as rpc, trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(serve_controller, config, ready=is_ready.set, is_stopping=is_stopping)
        )
        with trio.fail_after(60):
            await is_ready.wait()
            cluster_id = await cluster_id_of_quorum(rpc, [voter])
        client = ControllerClient(rpc, [voter], lambda: None)
        yield RunningController(rpc, client, voter, cluster_id, is_stopping.set)
        is_stopping.set()


@asynccontextmanager
async def observing(cluster: RunningController, directory: Path) -> AsyncIterator[QuorumMember]:
    disk, path = RealDisk(), str(directory / "broker")
    await format_directories(disk, {path: uuid4()}, cluster_id=cluster.cluster_id, node_id=BROKER)
    properties = await read_meta_properties(disk, path)
    assert properties is not None
    config = config_of(directory, cluster.voter.port)
    async with open_quorum_member(
        disk=disk,
        metadata_log_dir=path,
        identity=await quorum_identity(disk, path, properties, [cluster.voter]),
        config=config.quorum,
        rpc=cluster.rpc,
        clock=RealClock(),
        rng=RealRng(),
    ) as member:
        yield member


def registration(cluster: RunningController, incarnation: UUID) -> pb.RegisterRequest:
    return pb.RegisterRequest(
        cluster_id=cluster.cluster_id,
        broker_id=BROKER,
        incarnation_id=incarnation.bytes,
        listeners=[metadata_pb2.Endpoint(name="PLAINTEXT", host="localhost", port=9092)],
        features=[
            metadata_pb2.FeatureRange(
                name=name, min_supported_version=lowest, max_supported_version=highest
            )
            for name, (lowest, highest) in SUPPORTED.items()
        ],
        log_dirs=[uuid4().bytes],
        previous_broker_epoch=-1,
    )


async def registered(cluster: RunningController) -> int:
    """Register the broker, unfence it and return its epoch."""
    answer = await cluster.client.register(registration(cluster, uuid4()), deadline_ms=DEADLINE_MS)
    await send_heartbeat(cluster, answer.broker_epoch)
    return answer.broker_epoch


async def send_heartbeat(cluster: RunningController, epoch: int) -> pb.HeartbeatResponse:
    request = pb.HeartbeatRequest(
        broker_id=BROKER, broker_epoch=epoch, current_metadata_offset=epoch
    )
    return await cluster.client.heartbeat(request, deadline_ms=DEADLINE_MS)


async def create_topic(
    cluster: RunningController, name: str, partition_count: int
) -> CreateTopicsResponse:
    version = 7
    body = encode(
        CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=partition_count, replication_factor=1)]
        ),
        version,
    )
    request = pb.ForwardRequest(api_key=19, api_version=version, principal="User:a", body=body)
    answer = await cluster.client.forward(request, deadline_ms=DEADLINE_MS)
    return decode(CreateTopicsResponse, version, answer.body)


async def test_a_broker_registers_is_unfenced_and_its_topics_are_made(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        epoch = await registered(cluster)
        created = await create_topic(cluster, "otters", 3)
        async with observing(cluster, tmp_path) as broker:
            with trio.fail_after(60):
                await broker.wait_caught_up()
            topic = broker.image.topic("otters")
            assert topic is not None
            assert [state.leader for _, state in topic.partitions.items()] == [BROKER] * 3
            assert broker.image.brokers[BROKER].epoch == epoch
            assert not broker.image.brokers[BROKER].is_fenced
    assert [result.error_code for result in created.topics] == [ErrorCode.NONE]


async def test_what_was_decided_is_there_after_a_restart(tmp_path: Path) -> None:
    config = config_of(tmp_path, free_port())
    async with running(config) as cluster:
        await registered(cluster)
        await create_topic(cluster, "otters", 1)
    async with running(config) as cluster:
        again = await create_topic(cluster, "otters", 1)
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


async def test_an_observer_hears_of_a_topic_at_once(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        await registered(cluster)
        async with observing(cluster, tmp_path) as broker:
            with trio.fail_after(60):
                await broker.wait_caught_up()
                await create_topic(cluster, "otters", 1)
                while broker.image.topic("otters") is None:
                    await broker.wait_applied(Offset(broker.applied_end_offset + 1))


async def test_a_silent_broker_is_fenced_when_its_session_ends(tmp_path: Path) -> None:
    config = config_of(tmp_path, free_port(), session_timeout_ms=300)
    async with running(config) as cluster:
        await registered(cluster)
        await create_topic(cluster, "otters", 1)
        async with observing(cluster, tmp_path) as broker:
            with trio.fail_after(60):
                await broker.wait_caught_up()
                while not broker.image.brokers[BROKER].is_fenced:
                    await broker.wait_applied(Offset(broker.applied_end_offset + 1))
            topic = broker.image.topic("otters")
            assert topic is not None
            assert topic.partitions[0].leader == -1


async def test_a_live_broker_keeps_its_id_from_a_second_incarnation(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        await registered(cluster)
        with pytest.raises(RefusedError) as caught:
            await cluster.client.register(registration(cluster, uuid4()), deadline_ms=DEADLINE_MS)
        assert caught.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


async def test_a_heartbeat_of_a_past_epoch_is_refused(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        epoch = await registered(cluster)
        with pytest.raises(RefusedError) as caught:
            await send_heartbeat(cluster, epoch - 1)
        assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH


async def test_a_broker_of_another_cluster_is_refused(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        cluster.cluster_id = "another"
        with pytest.raises(RefusedError) as caught:
            await registered(cluster)
        assert caught.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


async def test_producer_ids_are_handed_out_once(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        request = pb.AllocateProducerIdsRequest(
            broker_id=BROKER, broker_epoch=await registered(cluster)
        )
        blocks = [
            await cluster.client.allocate_producer_ids(request, deadline_ms=DEADLINE_MS)
            for _ in range(3)
        ]
    assert [block.producer_id_start for block in blocks] == [0, 1000, 2000]


async def test_the_quorum_is_described_with_its_voter(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        asked = DescribeQuorumRequest(
            topics=[
                TopicData(
                    topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]
                )
            ]
        )
        request = pb.ForwardRequest(api_key=55, api_version=2, body=encode(asked, 2))
        answer = await cluster.client.forward(request, deadline_ms=DEADLINE_MS)
        described = decode(DescribeQuorumResponse, 2, answer.body).topics[0].partitions[0]
    assert described.leader_id == CONTROLLER
    assert [voter.replica_id for voter in described.current_voters] == [CONTROLLER]


async def test_a_forwarded_body_that_is_no_request_is_refused(tmp_path: Path) -> None:
    async with running(config_of(tmp_path, free_port())) as cluster:
        request = pb.ForwardRequest(api_key=19, api_version=7, body=b"\xff\xff\xff")
        with pytest.raises(RefusedError) as caught:
            await cluster.client.forward(request, deadline_ms=DEADLINE_MS)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert (await create_topic(cluster, "a", 1)).topics  # and it serves on


async def test_one_of_several_voters_never_formats_an_empty_directory(tmp_path: Path) -> None:
    port = free_port()
    voters = (
        ConfiguredVoter(CONTROLLER, "127.0.0.1", port),
        ConfiguredVoter(NodeId(102), "127.0.0.1", port + 1),
    )
    config = ControllerConfig(
        node_id=CONTROLLER, metadata_log_dir=str(tmp_path), controller_quorum_voters=voters
    )
    with pytest.raises(ConfigError, match="not formatted"):
        await serve_controller(config, ready=lambda: None, is_stopping=trio.Event())
    assert not (tmp_path / "meta.properties").exists()


async def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path, free_port())
    async with running(config):
        with pytest.raises(ConfigError, match="in use"):
            await serve_controller(config, ready=lambda: None, is_stopping=trio.Event())


@pytest.mark.parametrize(
    ("host", "warnings"), [("127.0.0.1", 0), ("localhost", 0), ("", 1), ("c1.example", 1)]
)
def test_a_listener_that_others_reach_in_plaintext_is_warned_of(
    host: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    warn_of_plaintext(ListenAddress("CONTROLLER", host, 9093))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == warnings
    assert all(line.startswith(f"CONTROLLER://{host}:9093 is neither encrypted") for line in lines)
