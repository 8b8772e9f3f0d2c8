"""Three voters on loopback: elections, majorities, and the state that survives a lost leader."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.metadata.records import Record, config_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.settings.endpoints import ConfiguredVoter as ConfiguredVoter
from ottla.model.settings.endpoints import controllers_of
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.address_probe import Probe, ProbeResult, probe_nothing
from ottla.node.address_probe_driver import probe_address
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.identity import format_directories, quorum_identity, read_meta_properties
from ottla.node.local.local_nodes_driver import free_ports
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.quorum_driver import QuorumMember, open_quorum_member
from ottla.raft.election_state import ElectionState
from ottla.raft.messages import EndQuorumEpochRequest
from ottla.raft.voters import QuorumIdentity, Voter, VoterEndpoint, VoterSet
from ottla.rpc.quorum_client import quorum_handlers
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime
from ottla.storage.directories.meta_properties import MetaProperties
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.batch import batches
from ottla.wire.records import scan

CLUSTER_ID = "31KS2JtqQaygF2owBPlqAQ"
FAST = QuorumConfig(
    election_timeout_ms=300,
    fetch_timeout_ms=1_000,
    election_backoff_ms_max=300,
    fetch_wait_ms_max=100,
    request_timeout_ms=2_000,
)
CALM = replace(FAST, fetch_timeout_ms=600_000, request_timeout_ms=60_000)
"""No leader is given up for its silence, and no peer for a slow response, however busy the machine
is: a stopping leader that gives up both others ends before they know that it resigns."""
TOPIC = 2


class SkewedClock(RealClock):
    """A machine with a wrong wall clock."""

    def __init__(self, skew_ms: int) -> None:
        self._skew_ms = skew_ms

    def wall_ms(self) -> int:
        return super().wall_ms() + self._skew_ms


class Quorum:
    """Three formatted directories and the members that run on them."""

    def __init__(self, directory: Path, nursery: trio.Nursery, config: QuorumConfig = FAST) -> None:
        self.members: dict[NodeId, QuorumMember] = {}
        self.config = config
        self.probe: Probe = probe_nothing
        self.skews_ms: dict[NodeId, int] = {}
        self._directory = directory
        self._nursery = nursery
        self._scopes: dict[NodeId, trio.CancelScope] = {}
        self._stopped: dict[NodeId, trio.Event] = {}
        self._configured: tuple[ConfiguredVoter, ...] = ()
        self.has_ids_in_settings = True
        """False if nodes find the quorum by addresses without ids."""
        self.are_voters_fixed = False
        """True if controllers start with a voter set that does not change before an upgrade."""

    async def format(self) -> None:
        rng = RealRng()
        self._configured = tuple(
            ConfiguredVoter(NodeId(101 + index), "127.0.0.1", port)
            for index, port in enumerate(free_ports(3))
        )
        voters = VoterSet(
            tuple(
                Voter(
                    id=one.id,
                    directory_id=rng.uuid(),
                    endpoints=(VoterEndpoint("CONTROLLER", one.host, one.port),),
                )
                for one in self._configured
            )
        )
        for voter in voters:
            path = self.path(voter.id)
            await format_directories(
                RealDisk(),
                {path: voter.directory_id},
                cluster_id=CLUSTER_ID,
                node_id=voter.id,
                metadata_log_dir=path,
                initial_voters=voters,
            )

    async def format_joining(self, node_id: NodeId) -> Voter:
        """Format a controller without voters, and return the entry under which it can be added."""
        (port,) = free_ports(1)
        self._configured += (ConfiguredVoter(node_id, "127.0.0.1", port),)
        path, directory_id = self.path(node_id), RealRng().uuid()
        await format_directories(
            RealDisk(),
            {path: directory_id},
            cluster_id=CLUSTER_ID,
            node_id=node_id,
            metadata_log_dir=path,
            is_joining=True,
        )
        endpoint = VoterEndpoint("CONTROLLER", "127.0.0.1", port)
        return Voter(id=node_id, directory_id=directory_id, endpoints=(endpoint,))

    def path(self, node_id: NodeId) -> str:
        return str(self._directory / f"controller-{node_id}")

    @property
    def ids(self) -> Sequence[NodeId]:
        return [voter.id for voter in self._configured]

    async def start(self, node_id: NodeId) -> None:
        self._stopped[node_id] = trio.Event()
        await self._nursery.start(self._run, node_id)

    async def stop(self, node_id: NodeId) -> None:
        """End a voter as a crash does."""
        self._scopes[node_id].cancel()
        await self._stopped[node_id].wait()

    async def _run(self, node_id: NodeId, task_status: trio.TaskStatus[None]) -> None:
        with trio.CancelScope() as self._scopes[node_id]:
            async with open_rpc_runtime() as runtime, self._open(node_id, runtime) as member:
                port = next(one.port for one in self._configured if one.id == node_id)
                await runtime.serve("127.0.0.1", port, quorum_handlers(member.answer))
                self.members[node_id] = member
                task_status.started()
                await trio.sleep_forever()
        del self.members[node_id]
        self._stopped[node_id].set()

    async def _identity(
        self, disk: RealDisk, path: str, properties: MetaProperties
    ) -> QuorumIdentity:
        known = self._configured
        own = [one for one in known if one.id == properties.node_id]
        if not self.has_ids_in_settings:
            known = controllers_of((), ((one.host, one.port) for one in known))
        return await quorum_identity(
            disk,
            path,
            properties,
            known,
            is_controller=True,
            endpoints=tuple(VoterEndpoint("CONTROLLER", one.host, one.port) for one in own),
            are_voters_fixed=self.are_voters_fixed,
        )

    @asynccontextmanager
    async def _open(self, node_id: NodeId, runtime: RpcRuntime) -> AsyncIterator[QuorumMember]:
        disk, path = RealDisk(), self.path(node_id)
        properties = await read_meta_properties(disk, path)
        assert properties is not None
        async with open_quorum_member(
            disk=disk,
            metadata_log_dir=path,
            identity=await self._identity(disk, path, properties),
            config=self.config,
            rpc=runtime,
            clock=SkewedClock(self.skews_ms.get(node_id, 0)),
            rng=RealRng(),
            probe=self.probe,
        ) as member:
            yield member

    @asynccontextmanager
    async def observer(self, node_id: NodeId) -> AsyncIterator[QuorumMember]:
        """A broker's member on a directory of its own, formatted when new."""
        path = self.path(node_id)
        if await read_meta_properties(RealDisk(), path) is None:
            await format_directories(
                RealDisk(), {path: RealRng().uuid()}, cluster_id=CLUSTER_ID, node_id=node_id
            )
        async with open_rpc_runtime() as runtime, self._open(node_id, runtime) as member:
            yield member

    def snapshots(self, node_id: NodeId) -> dict[str, bytes]:
        """Return the snapshot files of a node."""
        directory = Path(self.path(node_id)) / METADATA_DIRECTORY
        return {path.name: path.read_bytes() for path in directory.glob("*.checkpoint")}

    async def leader(self) -> QuorumMember:
        """Return the active leader, once there is one."""
        while True:
            for member in self.members.values():
                if member.active_epoch is not None:
                    return member
            await trio.testing.wait_all_tasks_blocked(0.01)

    async def commit(self, name: str, value: str) -> Offset:
        """Commit one setting under any leader; return its offset."""
        return await self.commit_record(config_record(TOPIC, "otters", name, value))

    async def commit_record(self, record: Record) -> Offset:
        """Commit one record under any leader; return its offset."""
        while True:
            leader = await self.leader()
            epoch = leader.active_epoch
            try:
                assert epoch is not None
                offset = await leader.append(leader.batch_of([record]), epoch)
                await leader.wait_committed(offset, epoch)
            except RefusedError as refusal:
                assert refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                continue
            return offset


async def with_quorum(
    directory: Path,
    body: Callable[[Quorum], Awaitable[None]],
    config: QuorumConfig = FAST,
    probe: Probe = probe_nothing,
) -> None:
    async with trio.open_nursery() as nursery:
        quorum = Quorum(directory, nursery, config)
        quorum.probe = probe
        await quorum.format()
        for node_id in quorum.ids:
            await quorum.start(node_id)
        with trio.fail_after(60):
            await body(quorum)
        nursery.cancel_scope.cancel()


async def test_a_commit_reaches_all_three(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        offset = await quorum.commit("a", "1")
        for member in quorum.members.values():
            await member.wait_applied(Offset(offset + 1))
            assert member.image.config(TOPIC, "otters")["a"] == "1"
        assert len({member.leader_id for member in quorum.members.values()}) == 1

    await with_quorum(tmp_path, body, CALM)


async def test_commits_survive_the_leader_and_go_on_without_it(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        for number in range(5):
            await quorum.commit(f"before.{number}", "x")
        lost = (await quorum.leader()).leader_id
        assert lost is not None
        await quorum.stop(lost)
        offset = await quorum.commit("after", "x")
        assert (await quorum.leader()).leader_id != lost
        await quorum.start(lost)
        back = quorum.members[lost]
        await back.wait_applied(Offset(offset + 1))
        names = set(back.image.config(TOPIC, "otters"))
        assert names == {"after", *(f"before.{number}" for number in range(5))}

    await with_quorum(tmp_path, body)


async def test_a_leader_whose_process_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        await quorum.commit("before", "x")
        lost = (await quorum.leader()).leader_id
        assert lost is not None
        await quorum.stop(lost)
        await quorum.commit("after", "x")

    await with_quorum(tmp_path, body, CALM, probe_address)


@pytest.mark.parametrize("probed", [ProbeResult.ACCEPTED, ProbeResult.UNKNOWN])
async def test_a_leader_that_may_live_is_waited_for(tmp_path: Path, probed: ProbeResult) -> None:
    """Its connection closed, and something listens at its address, or no answer comes from it."""
    probe_count = 0

    async def probe(host: str, port: int, /) -> ProbeResult:
        nonlocal probe_count
        probe_count += 1
        return probed

    async def body(quorum: Quorum) -> None:
        await quorum.commit("before", "x")
        leader = await quorum.leader()
        lost, epoch = leader.leader_id, leader.epoch
        assert lost is not None
        await quorum.stop(lost)
        while probe_count < 8:
            await trio.sleep(0.01)
        assert {(one.leader_id, one.epoch) for one in quorum.members.values()} == {(lost, epoch)}

    await with_quorum(tmp_path, body, CALM, probe)


async def test_a_leader_without_a_majority_commits_nothing_and_resigns(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        await quorum.commit("a", "1")
        leader = await quorum.leader()
        epoch = leader.active_epoch
        assert epoch is not None
        for node_id in quorum.ids:
            if node_id != leader.leader_id:
                await quorum.stop(node_id)
        offset = await leader.append(
            leader.batch_of([config_record(TOPIC, "otters", "b", "2")]), epoch
        )
        try:
            await leader.wait_committed(offset, epoch)
        except RefusedError as refusal:
            assert refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            raise AssertionError("committed without a majority")
        assert "b" not in leader.image.config(TOPIC, "otters")

    await with_quorum(tmp_path, body)


async def test_a_leader_that_hands_over_is_followed_at_once(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        await quorum.commit("a", "1")
        leader = await quorum.leader()
        leaving = leader.leader_id
        assert leaving is not None
        await leader.hand_over(patience_ms=60_000)
        await quorum.stop(leaving)
        await quorum.commit("b", "2")
        assert (await quorum.leader()).leader_id != leaving

    await with_quorum(tmp_path, body, CALM)


async def test_snapshots_of_one_offset_are_the_same_bytes_everywhere(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        for number in range(30):
            await quorum.commit(f"key.{number % 7}", str(number))
        end = (await quorum.leader()).end_offset
        for member in quorum.members.values():
            await member.wait_applied(end)
            assert member.end_offset == end
            await member.write_snapshot()
        written = [quorum.snapshots(node_id) for node_id in quorum.ids]
        assert any(name.startswith(f"{end:020d}-") for name in written[0])
        assert written[0] == written[1] == written[2]

    await with_quorum(tmp_path, body, CALM)


async def test_a_member_that_is_left_ends_the_step_under_way_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages of a step are sent in the member's nursery, in whichever task the step runs."""
    is_writing = trio.Event()
    write = MetadataLog.write_election

    async def write_slowly(log: MetadataLog, state: ElectionState) -> None:
        is_writing.set()
        await trio.sleep(0.1)
        await write(log, state)

    async def body(quorum: Quorum) -> None:
        await quorum.commit("a", "1")
        leader_id = (await quorum.leader()).leader_id
        stopping = next(node_id for node_id in quorum.ids if node_id != leader_id)
        member = quorum.members[stopping]
        goodbye = EndQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            leader_id=next(one for one in quorum.ids if one != stopping),
            leader_epoch=Epoch(member.epoch + 1),
        )
        monkeypatch.setattr(MetadataLog, "write_election", write_slowly)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(member.answer, goodbye)
            await is_writing.wait()
            await quorum.stop(stopping)

    await with_quorum(tmp_path, body, CALM)


async def test_clocks_an_hour_apart_change_nothing(tmp_path: Path) -> None:
    hour_ms = 3_600_000

    async def body(quorum: Quorum) -> None:
        for index, node_id in enumerate(quorum.ids):
            await quorum.stop(node_id)
            quorum.skews_ms[node_id] = (index - 1) * hour_ms
            await quorum.start(node_id)
        for number in range(4):
            await quorum.commit(f"key.{number}", "x")
            leader = (await quorum.leader()).leader_id
            assert leader is not None
            await quorum.stop(leader)
            await quorum.commit(f"after.{number}", "x")
            await quorum.start(leader)
        end = (await quorum.leader()).end_offset
        for member in quorum.members.values():
            await member.wait_applied(end)
            await member.write_snapshot()
        assert all(
            len(member.image.config(TOPIC, "otters")) == 8 for member in quorum.members.values()
        )
        first, second, third = (
            quorum.snapshots(node_id)[max(quorum.snapshots(node_id))] for node_id in quorum.ids
        )
        assert first == second == third

    await with_quorum(tmp_path, body)


async def test_a_replica_begun_by_a_snapshot_equals_one_that_replayed_everything(
    tmp_path: Path,
) -> None:
    """A replica that starts below the log gets a snapshot and ends with equal image and bytes."""
    config = replace(CALM, segment_bytes=2_048, retention_bytes_max=0)
    early, late = NodeId(1), NodeId(2)

    async def body(quorum: Quorum) -> None:
        async with quorum.observer(early) as replaying:
            for number in range(60):
                await quorum.commit(f"key.{number % 7}", str(number))
            for member in quorum.members.values():
                await member.wait_applied((await quorum.leader()).end_offset)
                await member.write_snapshot()
            assert all(member.start_offset > 0 for member in quorum.members.values())
            offset = await quorum.commit("after", "the snapshot")
            async with quorum.observer(late) as begun:
                for observer in (replaying, begun):
                    await observer.wait_applied(Offset(offset + 1))
                assert replaying.start_offset == 0, "it has replayed everything"
                assert begun.start_offset > 0, "it was given a snapshot"
                assert begun.image == replaying.image
                assert begun.image == (await quorum.leader()).image
                for observer in (replaying, begun):
                    await observer.write_snapshot()
        name = max(quorum.snapshots(late))
        assert name.startswith(f"{offset + 1:020d}-")
        assert values_in(quorum.snapshots(late)[name]) == values_in(quorum.snapshots(early)[name])

    await with_quorum(tmp_path, body, config)


def values_in(snapshot: bytes) -> list[bytes | None]:
    """Return the records of a snapshot without raft's own."""
    return [
        record.value
        for at, header in batches(memoryview(snapshot))
        if not header.is_control
        for record in scan(snapshot, at, header)
    ]
