"""A controller's process, started as operators start it, and killed as power cuts kill it."""

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from ottla.metadata.features import INITIAL_LEVELS
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.node.local.local_nodes_driver import free_port
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.rpc.cluster_id import cluster_id_of_quorum
from ottla.rpc.controller_client import ControllerClient
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime
from ottla.rpc.rpc_seam import join_address
from ottla.wire.apis import CREATE_TOPICS
from ottla.wire.codec import decode, encode
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.create_topics_response import CreateTopicsResponse

pytestmark = pytest.mark.cluster

CONTROLLER = NodeId(101)
VERSION = 7
DEADLINE_MS = 60_000
READY_TIMEOUT_S = 60


@contextmanager
def process(directory: Path, port: int) -> Iterator["subprocess.Popen[bytes]"]:
    """A controller that is ready; killed at the end if it still runs."""
    config = directory / "controller.properties"
    address = join_address("127.0.0.1", port)
    config.write_text(
        f"node.id={CONTROLLER}\nlisteners=CONTROLLER://{address}\n"
        f"metadata.log.dir={directory}/controller\n"
        f"controller.quorum.voters={CONTROLLER}@{address}\n"
    )
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-m", "ottla.cli", "controller", str(config)],
        pass_fds=(writer,),
        env={**os.environ, "OTTLA_READY_FD": str(writer), "OTTLA_PARENT_PID": str(os.getpid())},
    ) as child:
        os.close(writer)
        try:
            assert select.select([reader], [], [], READY_TIMEOUT_S)[0], "not ready in time"
            assert os.read(reader, 1) == b"+"
            yield child
        finally:
            os.close(reader)
            child.kill()


async def create(client: ControllerClient, *names: str) -> dict[str, ErrorCode]:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    )
    answer = await client.forward(
        pb.ForwardRequest(
            api_key=CREATE_TOPICS, api_version=VERSION, body=encode(request, VERSION)
        ),
        deadline_ms=DEADLINE_MS,
    )
    results = decode(CreateTopicsResponse, VERSION, answer.body).topics
    return {result.name: ErrorCode(result.error_code) for result in results}


async def register(client: ControllerClient, runtime: RpcRuntime, voter: ConfiguredVoter) -> None:
    request = pb.RegisterRequest(
        cluster_id=await cluster_id_of_quorum(runtime, [voter]),
        broker_id=1,
        incarnation_id=uuid4().bytes,
        listeners=[metadata_pb2.Endpoint(name="PLAINTEXT", host="localhost", port=9092)],
        features=[
            metadata_pb2.FeatureRange(name=name, min_supported_version=0, max_supported_version=100)
            for name in INITIAL_LEVELS
        ],
        log_dirs=[uuid4().bytes],
        previous_broker_epoch=-1,
    )
    epoch = (await client.register(request, deadline_ms=DEADLINE_MS)).broker_epoch
    heartbeat = pb.HeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch)
    assert not (await client.heartbeat(heartbeat, deadline_ms=DEADLINE_MS)).is_fenced


async def test_what_a_killed_controller_acknowledged_is_there_when_it_is_back(
    tmp_path: Path,
) -> None:
    voter = ConfiguredVoter(CONTROLLER, "127.0.0.1", free_port())
    async with open_rpc_runtime() as runtime:
        client = ControllerClient(runtime, [voter], lambda: None)
        with process(tmp_path, voter.port) as child:
            await register(client, runtime, voter)
            for number in range(10):
                assert await create(client, f"otter-{number}") == {
                    f"otter-{number}": ErrorCode.NONE
                }
            child.kill()
        names = [f"otter-{number}" for number in range(10)]
        with process(tmp_path, voter.port) as child:
            again = await create(client, *names)
            child.terminate()
            assert child.wait(READY_TIMEOUT_S) == 0
    assert again == dict.fromkeys(names, ErrorCode.TOPIC_ALREADY_EXISTS)
