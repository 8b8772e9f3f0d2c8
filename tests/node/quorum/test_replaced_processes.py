"""Three controllers that run as processes are replaced one by one while metadata is written."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.node.clock_driver import RealRng
from ottla.node.identity import CONTROLLER_LISTENER, format_directories
from ottla.node.local.local_nodes_driver import free_ports
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import Voter, VoterEndpoint
from ottla.rpc.controller_client import ControllerClient
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.apis import response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest
from tests.node.quorum.test_three_processes import (
    CLUSTER_ID,
    DEADLINE_MS,
    Controllers,
    three_controllers,
)

pytestmark = pytest.mark.cluster

PAUSE_S_MAX = 20.0
"""Bound of the longest pause of metadata. A busy machine lengthens pauses; the test prints the one
that was seen."""

MADE = (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND)


class Writer:
    """Metadata that is written without a break: brokers that register."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers
        self.written: list[int] = []
        """Ids of the brokers whose registration was acknowledged."""
        self.pauses_s: list[float] = []
        """Time between two acknowledged writes."""

    async def run(self) -> None:
        """Write until cancelled."""
        last_s = trio.current_time()
        broker_id = 0
        while True:
            broker_id += 1
            self._controllers._last_broker_id = broker_id - 1
            with suppress(RefusedError):
                await self._controllers.change(deadline_ms=DEADLINE_MS)
                self.written.append(broker_id)
                now_s = trio.current_time()
                self.pauses_s.append(now_s - last_s)
                last_s = now_s
            await trio.sleep(0.01)


async def ask(controllers: Controllers, request: Message) -> Any:
    """Return the response of the active controller."""
    key, version = request.API_KEY, request.VERSIONS[-1]
    forward = pb.ForwardRequest(api_key=key, api_version=version, body=encode(request, version))
    answer = await controllers.client.forward(forward, deadline_ms=DEADLINE_MS)
    return decode(response_class(key), version, answer.body)


async def change_voters(controllers: Controllers, request: Message) -> None:
    """Request a change until it is made."""
    while True:
        with suppress(RefusedError):
            if (await ask(controllers, request)).error_code in MADE:
                return
        await trio.sleep(0.05)


async def replace(controllers: Controllers, old_id: NodeId, new_id: NodeId) -> None:
    """Add a new controller, remove an old one, and stop it."""
    (port,) = free_ports(1)
    path, directory_id = str(controllers.path(new_id)), RealRng().uuid()
    await format_directories(
        RealDisk(),
        {path: directory_id},
        cluster_id=CLUSTER_ID,
        node_id=new_id,
        metadata_log_dir=path,
        is_joining=True,
    )
    controllers.addresses.append(ConfiguredVoter(new_id, "127.0.0.1", port))
    endpoint = VoterEndpoint(CONTROLLER_LISTENER, "127.0.0.1", port)
    known = (one for one in controllers.voters if one.id != new_id)
    new = Voter(id=new_id, directory_id=directory_id, endpoints=(endpoint,))
    controllers.voters = type(controllers.voters)((*known, new))
    await trio.to_thread.run_sync(controllers.start, new_id)
    controllers.client = ControllerClient(controllers.runtime, controllers.addresses, lambda: None)
    listener = Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
    await change_voters(
        controllers,
        AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=new_id,
            voter_directory_id=directory_id,
            listeners=[listener],
        ),
    )
    old = controllers.voters.get(old_id)
    assert old is not None
    await change_voters(
        controllers,
        RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=old_id, voter_directory_id=old.directory_id
        ),
    )
    process = controllers.processes.pop(old_id)
    process.terminate()
    await trio.to_thread.run_sync(process.wait)
    controllers.addresses = [one for one in controllers.addresses if one.id != old_id]
    controllers.client = ControllerClient(controllers.runtime, controllers.addresses, lambda: None)


async def test_three_controllers_are_replaced_while_metadata_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with three_controllers(tmp_path) as controllers:
        await controllers.change()
        writer = Writer(controllers)
        with trio.fail_after(240):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(writer.run)
                for old_id in tuple(controllers.ids):
                    await replace(controllers, old_id, NodeId(old_id + 100))
                await trio.sleep(1)
                nursery.cancel_scope.cancel()
            state = await controllers.quorum()
            lost = [
                broker_id
                for broker_id in writer.written
                if (await ask(controllers, UnregisterBrokerRequest(broker_id=broker_id))).error_code
                != ErrorCode.NONE
            ]

    with capsys.disabled():
        print(
            f"\n{len(writer.written)} metadata writes while three controllers were replaced,"
            f" longest pause {max(writer.pauses_s):.2f} s"
        )
    assert sorted(one.replica_id for one in state.current_voters) == [201, 202, 203]
    assert lost == []
    assert max(writer.pauses_s) < PAUSE_S_MAX
