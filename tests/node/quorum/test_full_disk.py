"""A quorum member on a full disk: it continues with its reserve of disk space, and never ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.metadata.records import Record, config_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.model.settings.quorum import QuorumConfig
from ottla.node.clock_driver import RealClock, RealRng
from ottla.node.identity import (
    format_directories,
    prepare_controller_directory,
    quorum_identity,
    read_meta_properties,
)
from ottla.node.quorum.quorum_driver import QuorumMember, open_quorum_member
from ottla.node.quorum.reserved_space import RESERVED_BYTES, RESERVED_FILE, ReservedSpace
from ottla.rpc.quorum_client import quorum_handlers
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime

VOTER = NodeId(101)
BROKER = NodeId(1)
DIRECTORY = "/metadata"
TOPIC = 2
CONFIG = QuorumConfig(election_timeout_ms=100, segment_bytes=1 << 20)
SHORT = QuorumConfig(election_timeout_ms=100, segment_bytes=2_048, retention_bytes_max=0)


@asynccontextmanager
async def open_voter(
    disk: SimulatedDisk, runtime: RpcRuntime, config: QuorumConfig = CONFIG
) -> AsyncIterator[QuorumMember]:
    voter = ConfiguredVoter(VOTER, "127.0.0.1", 1)
    settings = ControllerConfig(
        node_id=VOTER, metadata_log_dir=DIRECTORY, controller_quorum_voters=(voter,)
    )
    properties = await prepare_controller_directory(disk, settings, RealRng(), wall_ms=0)
    async with open_quorum_member(
        disk=disk,
        metadata_log_dir=DIRECTORY,
        identity=await quorum_identity(disk, DIRECTORY, properties, (voter,)),
        config=config,
        rpc=runtime,
        clock=RealClock(),
        rng=RealRng(),
    ) as member:
        yield member


@asynccontextmanager
async def open_observer(
    disk: SimulatedDisk,
    runtime: RpcRuntime,
    leader: QuorumMember,
    port: int,
    *,
    room_bytes: int | None = None,
) -> AsyncIterator[QuorumMember]:
    voter = ConfiguredVoter(VOTER, "127.0.0.1", port)
    await format_directories(
        disk,
        {DIRECTORY: RealRng().uuid()},
        cluster_id=leader.identity.cluster_id,
        node_id=BROKER,
    )
    if room_bytes is not None:
        disk.capacity_bytes = disk.used_bytes + room_bytes
    properties = await read_meta_properties(disk, DIRECTORY)
    assert properties is not None
    async with open_quorum_member(
        disk=disk,
        metadata_log_dir=DIRECTORY,
        identity=await quorum_identity(disk, DIRECTORY, properties, (voter,)),
        config=CONFIG,
        rpc=runtime,
        clock=RealClock(),
        rng=RealRng(),
    ) as member:
        yield member


def setting(key: str, size: int = 10) -> Record:
    return config_record(TOPIC, "otters", key, "x" * size)


async def commit(member: QuorumMember, *records: Record) -> None:
    with trio.fail_after(60):
        await member.wait_caught_up()
    assert member.active_epoch is not None
    offset = await member.append(member.batch_of(records), member.active_epoch)
    await member.wait_committed(offset, member.active_epoch)
    await member.wait_applied(Offset(offset + 1))


async def wait_for_reserve(disk: SimulatedDisk) -> None:
    path = f"{DIRECTORY}/{RESERVED_FILE}"
    with trio.fail_after(60):
        while not disk.exists(path) or len(await disk.read_file(path)) < RESERVED_BYTES:
            await trio.sleep(0.01)


async def test_a_full_disk_takes_metadata_from_what_is_kept_in_reserve() -> None:
    disk = SimulatedDisk(RealRng())
    async with open_rpc_runtime() as runtime:
        async with open_voter(disk, runtime) as member:
            await commit(member, setting("before"))
            await wait_for_reserve(disk)
            disk.capacity_bytes = disk.used_bytes
            for number in range(20):
                await commit(member, setting(f"full.{number}", 5_000))
        # It starts again on the full disk too: elected, with a new record of its leadership.
        async with open_voter(disk, runtime) as member:
            await commit(member, setting("after"))
            keys = set(member.image.config(TOPIC, "otters"))
    assert keys == {"before", "after", *(f"full.{number}" for number in range(20))}


async def test_a_leader_without_any_room_refuses_and_goes_on_when_there_is_some() -> None:
    disk = SimulatedDisk(RealRng())
    async with open_rpc_runtime() as runtime, open_voter(disk, runtime) as member:
        await commit(member, setting("before"))
        await wait_for_reserve(disk)
        disk.capacity_bytes = disk.used_bytes
        refused = None
        for number in range(400):
            try:
                await commit(member, setting(f"full.{number % 5}", 50_000))
            except RefusedError as error:
                refused = error
                break
        assert refused is not None
        assert refused.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        committed = dict(member.image.config(TOPIC, "otters"))
        await trio.sleep(0.3)
        disk.capacity_bytes = None
        with trio.fail_after(60):
            while member.active_epoch is None:
                await trio.sleep(0.01)
        await commit(member, setting("after"))
        assert dict(member.image.config(TOPIC, "otters")).keys() == {*committed, "after"}


async def test_a_member_waits_for_room_where_not_even_votes_can_be_written() -> None:
    disk = SimulatedDisk(RealRng())
    async with open_rpc_runtime() as runtime:
        async with open_voter(disk, runtime) as member:
            await commit(member, setting("before"))
            await wait_for_reserve(disk)
            await disk.unlink(f"{DIRECTORY}/{RESERVED_FILE}")
            disk.capacity_bytes = disk.used_bytes
            async with trio.open_nursery() as nursery:
                nursery.start_soon(member.resign, member.epoch)
                await trio.sleep(0.3)
                disk.capacity_bytes = None
            await commit(member, setting("meanwhile"))
            disk.capacity_bytes = disk.used_bytes
        disk.capacity_bytes = disk.used_bytes + 3 * RESERVED_BYTES
        async with open_voter(disk, runtime) as member:
            await commit(member, setting("after"))
            assert set(member.image.config(TOPIC, "otters")) == {"before", "meanwhile", "after"}


async def test_an_observer_without_any_room_waits_and_catches_up_when_there_is_some() -> None:
    disk, full_disk = SimulatedDisk(RealRng()), SimulatedDisk(RealRng())
    async with open_rpc_runtime() as runtime, open_voter(disk, runtime) as leader:
        port = await runtime.serve("127.0.0.1", 0, quorum_handlers(leader.answer))
        async with open_observer(full_disk, runtime, leader, port) as observer:
            await commit(leader, setting("before"))
            with trio.fail_after(60):
                await observer.wait_caught_up()
            await wait_for_reserve(full_disk)
            full_disk.capacity_bytes = full_disk.used_bytes
            while ReservedSpace(full_disk, DIRECTORY).give(RESERVED_BYTES):
                full_disk.capacity_bytes = full_disk.used_bytes
            await commit(leader, setting("after", 1_000))
            await trio.sleep(0.2)
            assert "after" not in observer.image.config(TOPIC, "otters")
            full_disk.capacity_bytes = None
            with trio.fail_after(60):
                await observer.wait_applied(leader.applied_end_offset)
            assert "after" in observer.image.config(TOPIC, "otters")


async def test_an_observer_waits_for_room_for_the_leaders_snapshot() -> None:
    disk, full_disk = SimulatedDisk(RealRng()), SimulatedDisk(RealRng())
    async with open_rpc_runtime() as runtime, open_voter(disk, runtime, SHORT) as leader:
        port = await runtime.serve("127.0.0.1", 0, quorum_handlers(leader.answer))
        for number in range(30):
            await commit(leader, setting(f"key.{number}", 1_000))
        await leader.write_snapshot()
        assert leader.start_offset > 0
        async with open_observer(full_disk, runtime, leader, port, room_bytes=10_000) as observer:
            await trio.sleep(1)
            assert observer.applied_end_offset == 0
            full_disk.capacity_bytes = None
            with trio.fail_after(60):
                await observer.wait_applied(leader.applied_end_offset)
            assert observer.start_offset > 0


async def test_the_reserve_gives_what_is_asked_and_is_filled_up_only_with_room() -> None:
    disk = SimulatedDisk(RealRng())
    await disk.makedirs(DIRECTORY)
    reserve = ReservedSpace(disk, DIRECTORY)
    assert not reserve.give(1)
    await reserve.keep()
    used_bytes = disk.used_bytes
    assert used_bytes >= RESERVED_BYTES
    assert reserve.give(10_000)
    assert disk.used_bytes == used_bytes - 10_000
    disk.capacity_bytes = disk.used_bytes + RESERVED_BYTES
    await reserve.keep()
    assert disk.used_bytes == used_bytes - 10_000
    disk.capacity_bytes = None
    await reserve.keep()
    assert disk.used_bytes == used_bytes
    assert reserve.give(2 * RESERVED_BYTES)
    assert not reserve.give(1)
    # The last of it is for votes.
    assert reserve.give(2 * RESERVED_BYTES, is_for_election=True)
    assert not reserve.give(1, is_for_election=True)
