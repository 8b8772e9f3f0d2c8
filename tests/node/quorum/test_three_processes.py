"""Three controllers as operators run them: processes killed, paused, wiped and brought back."""

import select
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import UUID, uuid4

import pytest
import trio

from ottla.metadata.features import SUPPORTED
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import ConfiguredVoter as Address
from ottla.node.clock_driver import RealRng
from ottla.node.identity import CONTROLLER_LISTENER, format_directories
from ottla.node.local.local_nodes_driver import free_ports, start_node
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.rpc.controller_client import ControllerClient
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.apis import DESCRIBE_QUORUM
from ottla.wire.codec import decode, encode
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse
from ottla.wire.messages.describe_quorum_response import PartitionData as QuorumState

pytestmark = pytest.mark.cluster

CLUSTER_ID = "31KS2JtqQaygF2owBPlqAQ"
VERSION = 2
READY_S = 60
DEADLINE_MS = 60_000
FETCH_TIMEOUT_MS, ELECTION_TIMEOUT_MS = 1_000, 500
ENDLESS_MS = 600_000
"""A fetch timeout that no test outlives: followers of a silent leader wait for it."""


class Controllers:
    """Three formatted controllers, each a process or not, and a client of theirs."""

    def __init__(
        self, directory: Path, runtime: RpcRuntime, fetch_timeout_ms: int, count: int
    ) -> None:
        self.directory = directory
        self.runtime = runtime
        self.fetch_timeout_ms = fetch_timeout_ms
        self.addresses = [
            Address(NodeId(101 + index), "127.0.0.1", port)
            for index, port in enumerate(free_ports(count))
        ]
        self.processes: dict[NodeId, subprocess.Popen[bytes]] = {}
        self.client = ControllerClient(runtime, self.addresses, lambda: None)
        self.voters = VoterSet((Voter(id=NodeId(0)),))
        """The voters, once formatted."""
        self._last_broker_id = 0

    async def format(self) -> None:
        self.voters = VoterSet(
            tuple(
                Voter(
                    id=one.id,
                    directory_id=RealRng().uuid(),
                    endpoints=(VoterEndpoint(CONTROLLER_LISTENER, one.host, one.port),),
                )
                for one in self.addresses
            )
        )
        for voter in self.voters:
            await self.format_one(voter.id, self.voters)

    async def format_one(self, node_id: NodeId, voters: VoterSet) -> None:
        """Format one directory as `ottla storage format --initial-controllers` does."""
        path, voter = str(self.path(node_id)), voters.get(node_id)
        assert voter is not None
        await format_directories(
            RealDisk(),
            {path: voter.directory_id},
            cluster_id=CLUSTER_ID,
            node_id=node_id,
            metadata_log_dir=path,
            initial_voters=voters,
        )

    @property
    def ids(self) -> list[NodeId]:
        return [one.id for one in self.addresses]

    def path(self, node_id: NodeId) -> Path:
        return self.directory / f"controller-{node_id}"

    def log_of(self, node_id: NodeId) -> str:
        return (self.directory / f"{node_id}.log").read_text()

    async def log_with(self, text: str, node_id: NodeId) -> str:
        """Wait until a log has a text, and return the log."""
        with trio.fail_after(READY_S):
            while text not in self.log_of(node_id):
                await trio.sleep(0.05)
        return self.log_of(node_id)

    def start(self, *node_ids: NodeId) -> None:
        """Start processes and wait until they listen."""
        voters = ",".join(f"{one.id}@{one.host}:{one.port}" for one in self.addresses)
        nodes = []
        for one in self.addresses:
            if one.id not in node_ids:
                continue
            config = self.directory / f"{one.id}.properties"
            config.write_text(
                f"node.id={one.id}\nlisteners=CONTROLLER://{one.host}:{one.port}\n"
                f"metadata.log.dir={self.path(one.id)}\ncontroller.quorum.voters={voters}\n"
                f"controller.quorum.fetch.timeout.ms={self.fetch_timeout_ms}\n"
                f"controller.quorum.election.timeout.ms={ELECTION_TIMEOUT_MS}\n"
            )
            with (self.directory / f"{one.id}.log").open("ab") as log:
                nodes.append(start_node("controller", config, output=log))
            self.processes[one.id] = nodes[-1].process
        for node in nodes:
            assert select.select([node.ready_reader], [], [], READY_S)[0], "not ready in time"
            node.read_readiness()  # some are to end at their start

    def kill(self, *node_ids: NodeId) -> None:
        for node_id in node_ids:
            process = self.processes.pop(node_id)
            process.kill()
            process.send_signal(signal.SIGCONT)
            process.wait()

    @contextmanager
    def paused(self, node_id: NodeId) -> Iterator[None]:
        """Hold a process still: its connections live on, it does nothing."""
        process = self.processes[node_id]
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    async def change(self, *, deadline_ms: int = DEADLINE_MS) -> int:
        """Change the metadata (a broker registers); return the new record's offset."""
        self._last_broker_id += 1
        request = pb.RegisterRequest(
            cluster_id=CLUSTER_ID,
            broker_id=self._last_broker_id,
            incarnation_id=uuid4().bytes,
            listeners=[metadata_pb2.Endpoint(name="PLAINTEXT", host="localhost", port=9092)],
            features=[
                metadata_pb2.FeatureRange(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in SUPPORTED.items()
            ],
            log_dirs=[UUID(int=1_000 + self._last_broker_id).bytes],
            previous_broker_epoch=-1,
        )
        return (await self.client.register(request, deadline_ms=deadline_ms)).broker_epoch

    async def quorum(self) -> QuorumState:
        """Return the DescribeQuorum response of the current leader."""
        request = DescribeQuorumRequest(
            topics=[
                TopicData(
                    topic_name="__cluster_metadata",
                    partitions=[PartitionData(partition_index=0)],
                )
            ]
        )
        answer = await self.client.forward(
            pb.ForwardRequest(
                api_key=DESCRIBE_QUORUM, api_version=VERSION, body=encode(request, VERSION)
            ),
            deadline_ms=DEADLINE_MS,
        )
        return decode(DescribeQuorumResponse, VERSION, answer.body).topics[0].partitions[0]

    async def leader_id(self) -> NodeId:
        return NodeId((await self.quorum()).leader_id)


@asynccontextmanager
async def three_controllers(
    directory: Path, *, fetch_timeout_ms: int = FETCH_TIMEOUT_MS, count: int = 3
) -> AsyncIterator[Controllers]:
    async with open_rpc_runtime() as runtime:
        controllers = Controllers(directory, runtime, fetch_timeout_ms, count)
        await controllers.format()
        try:
            controllers.start(*controllers.ids)
            yield controllers
        finally:
            controllers.kill(*controllers.processes)


async def test_the_quorum_goes_on_without_each_leader_that_is_killed(tmp_path: Path) -> None:
    async with three_controllers(tmp_path) as controllers:
        before = await controllers.change()
        for _round in range(3):
            leader = await controllers.leader_id()
            controllers.kill(leader)
            after = await controllers.change()
            assert after > before, "what was committed is there, the new comes after it"
            assert await controllers.leader_id() != leader
            controllers.start(leader)
            before = after


async def test_without_a_majority_a_change_times_out_and_works_again_with_one(
    tmp_path: Path,
) -> None:
    async with three_controllers(tmp_path) as controllers:
        await controllers.change()
        leader = await controllers.leader_id()
        others = [node_id for node_id in controllers.ids if node_id != leader]
        controllers.kill(*others)

        with trio.fail_after(60), pytest.raises(RefusedError) as caught:
            await controllers.change(deadline_ms=3_000)

        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "majority of the controllers" in caught.value.message
        controllers.start(others[0])
        await controllers.change()
        controllers.start(others[1])
        await controllers.change()


async def test_two_of_three_that_lost_their_directories_do_not_start_and_say_why(
    tmp_path: Path,
) -> None:
    async with three_controllers(tmp_path) as controllers:
        await controllers.change()
        controllers.kill(*controllers.ids)
        wiped = controllers.ids[:2]
        for node_id in wiped:
            shutil.rmtree(controllers.path(node_id))

        controllers.start(*controllers.ids)

        for node_id in wiped:
            assert controllers.processes.pop(node_id).wait(READY_S) == 1
            said = controllers.log_of(node_id).strip().splitlines()[-1]
            assert f"{controllers.path(node_id)} is not formatted" in said
            assert "bring the old directory back" in said
        with pytest.raises(RefusedError) as caught:
            await controllers.change(deadline_ms=2_000)
        assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


async def test_a_controller_that_was_wiped_and_formatted_again_has_no_vote(tmp_path: Path) -> None:
    """It may follow, but it and one other voter are no majority of voters with state."""
    async with three_controllers(tmp_path) as controllers:
        await controllers.change()
        leader = await controllers.leader_id()
        wiped, other = (node_id for node_id in controllers.ids if node_id != leader)
        controllers.kill(wiped)
        shutil.rmtree(controllers.path(wiped))
        fresh = replace(voter_of(controllers, wiped), directory_id=RealRng().uuid())
        kept = (voter for voter in controllers.voters if voter.id != wiped)
        await controllers.format_one(wiped, VoterSet((fresh, *kept)))

        controllers.start(wiped)
        await controllers.change()
        with trio.fail_after(READY_S):
            while not (state := await controllers.quorum()).observers:
                await trio.sleep(0.05)
        assert [one.replica_id for one in state.observers] == [wiped]
        controllers.kill(other)
        with pytest.raises(RefusedError) as caught:
            await controllers.change(deadline_ms=6_000)
        said = "it was wiped and may not vote; bring its old directory back"
        assert f"controller {wiped} at" in await controllers.log_with(said, leader)
        await controllers.log_with("bring its old directory back", wiped)

    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT


def voter_of(controllers: Controllers, node_id: NodeId) -> Voter:
    voter = controllers.voters.get(node_id)
    assert voter is not None
    return voter


async def test_a_paused_leader_is_replaced_and_follows_when_it_wakes(tmp_path: Path) -> None:
    async with three_controllers(tmp_path) as controllers:
        await controllers.change()
        paused = await controllers.leader_id()
        others = [one for one in controllers.addresses if one.id != paused]
        with controllers.paused(paused):
            controllers.client = ControllerClient(controllers.runtime, others, lambda: None)
            await controllers.change()
            epoch = (await controllers.quorum()).leader_epoch

        controllers.client = ControllerClient(
            controllers.runtime, controllers.addresses, lambda: paused
        )
        await controllers.change()
        state = await controllers.quorum()
        assert (state.leader_epoch, state.leader_id != paused) == (epoch, True)
        with trio.fail_after(READY_S):
            while (await end_offset_of(controllers, paused)) < state.high_watermark:
                await trio.sleep(0.05)


async def end_offset_of(controllers: Controllers, node_id: NodeId) -> int:
    state = await controllers.quorum()
    return next(one.log_end_offset for one in state.current_voters if one.replica_id == node_id)


async def test_a_leader_that_is_stopped_hands_over_at_once(tmp_path: Path) -> None:
    async with three_controllers(tmp_path, fetch_timeout_ms=ENDLESS_MS) as controllers:
        await controllers.change()
        for _round in range(3):
            leader = await controllers.leader_id()
            controllers.processes[leader].terminate()
            await controllers.change()
            assert controllers.processes.pop(leader).wait(READY_S) == 0
            assert await controllers.leader_id() != leader
            controllers.start(leader)


async def test_all_three_stop_together(tmp_path: Path) -> None:
    async with three_controllers(tmp_path, fetch_timeout_ms=ENDLESS_MS) as controllers:
        await controllers.change()
        for process in controllers.processes.values():
            process.terminate()
        codes = [process.wait(READY_S) for process in controllers.processes.values()]
        controllers.processes.clear()
    assert codes == [0, 0, 0]


async def test_a_controller_of_another_cluster_is_refused_in_one_line(tmp_path: Path) -> None:
    async with three_controllers(tmp_path) as controllers:
        await controllers.change()
        leader = await controllers.leader_id()
        stranger = next(node_id for node_id in controllers.ids if node_id != leader)
        controllers.kill(stranger)
        properties = controllers.path(stranger) / "meta.properties"
        properties.write_text(properties.read_text().replace(CLUSTER_ID, "AAAAAAAAQAygF2owBPlqAQ"))

        controllers.start(stranger)
        await controllers.log_with("another cluster", stranger)
        await trio.sleep(1)  # it asks on
        await controllers.change()

    said = [line for line in controllers.log_of(stranger).splitlines() if "another cluster" in line]
    assert 1 <= len(said) <= 2, "one line a peer, however often it asks"
    assert "controller.quorum.voters" in said[0]
