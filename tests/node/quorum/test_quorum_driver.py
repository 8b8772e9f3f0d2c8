"""Members of a quorum at work, on real files and over real gRPC."""

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import Record, config_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset
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
from ottla.node.quorum.metadata_log import MetadataLog
from ottla.node.quorum.quorum_driver import QuorumMember, open_quorum_member
from ottla.raft.snapshot import file_name
from ottla.rpc.quorum_client import quorum_handlers
from ottla.rpc.rpc_driver import RpcRuntime, open_rpc_runtime
from ottla.storage.disk.real_disk_driver import RealDisk

CONTROLLER = NodeId(101)
BROKER = NodeId(1)
TOPIC = 2
IMPOSSIBLE_PORT = 1


@dataclass
class Recorder:
    """A publisher that records its deltas and images."""

    name: str = "recorder"
    images: list[MetadataImage] = field(default_factory=list)
    changed: list[tuple[tuple[int, str], ...]] = field(default_factory=list)
    gap_count: int = 0
    """Deltas that did not begin where the one before ended."""

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.gap_count += delta.base is not (self.images[-1] if self.images else EMPTY)
        self.images.append(image)
        self.changed.append(delta.changed_configs)


@asynccontextmanager
async def open_voter(
    directory: Path, runtime: RpcRuntime, config: QuorumConfig | None = None
) -> AsyncIterator[QuorumMember]:
    """A lone voter on a directory, which it formats when it is empty."""
    voter = ConfiguredVoter(CONTROLLER, "127.0.0.1", IMPOSSIBLE_PORT)
    settings = ControllerConfig(
        node_id=CONTROLLER, metadata_log_dir=str(directory), controller_quorum_voters=(voter,)
    )
    disk = RealDisk([str(directory)])
    properties = await prepare_controller_directory(disk, settings, RealRng(), wall_ms=0)
    async with open_quorum_member(
        disk=disk,
        metadata_log_dir=str(directory),
        identity=await quorum_identity(disk, str(directory), properties, (voter,)),
        config=config or QuorumConfig(),
        rpc=runtime,
        clock=RealClock(),
        rng=RealRng(),
    ) as member:
        yield member


@asynccontextmanager
async def open_observer(
    directory: Path, runtime: RpcRuntime, cluster_id: str, port: int
) -> AsyncIterator[QuorumMember]:
    """A broker's member, that knows the voter by its address only."""
    disk = RealDisk([str(directory)])
    if await read_meta_properties(disk, str(directory)) is None:
        await format_directories(
            disk, {str(directory): RealRng().uuid()}, cluster_id=cluster_id, node_id=BROKER
        )
    properties = await read_meta_properties(disk, str(directory))
    assert properties is not None
    voter = ConfiguredVoter(CONTROLLER, "127.0.0.1", port)
    async with open_quorum_member(
        disk=disk,
        metadata_log_dir=str(directory),
        identity=await quorum_identity(disk, str(directory), properties, (voter,)),
        config=QuorumConfig(),
        rpc=runtime,
        clock=RealClock(),
        rng=RealRng(),
    ) as member:
        yield member


async def led_epoch(member: QuorumMember) -> Epoch:
    with trio.fail_after(60):
        await member.wait_caught_up()
    assert member.active_epoch is not None
    return member.active_epoch


async def commit(member: QuorumMember, *records: Record) -> None:
    epoch = await led_epoch(member)
    offset = await member.append(member.batch_of(records), epoch)
    await member.wait_committed(offset, epoch)
    await member.wait_applied(Offset(offset + 1))


def setting(name: str, value: str) -> Record:
    return config_record(TOPIC, "otters", name, value)


async def cluster_id_of(directory: Path) -> str:
    properties = await read_meta_properties(RealDisk(), str(directory))
    assert properties is not None
    return properties.cluster_id


async def test_a_lone_voter_leads_and_commits(tmp_path: Path) -> None:
    async with open_rpc_runtime() as runtime, open_voter(tmp_path, runtime) as member:
        await commit(member, setting("retention.ms", "1"), setting("segment.ms", "2"))
        assert dict(member.image.config(TOPIC, "otters").items()) == {
            "retention.ms": "1",
            "segment.ms": "2",
        }
        assert member.leader_id == CONTROLLER
        assert member.high_watermark == member.end_offset == member.applied_end_offset


async def test_a_restarted_voter_has_the_same_image_in_a_later_epoch(tmp_path: Path) -> None:
    async with open_rpc_runtime() as runtime:
        async with open_voter(tmp_path, runtime) as member:
            for number in range(20):
                await commit(member, setting(f"key.{number}", str(number)))
            before, epoch = member.image, await led_epoch(member)
        async with open_voter(tmp_path, runtime) as member:
            assert await led_epoch(member) > epoch
            assert member.image.configs == before.configs


async def test_an_append_in_a_past_epoch_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    async with open_rpc_runtime() as runtime, open_voter(tmp_path, runtime) as member:
        epoch = await led_epoch(member)
        end_offset = member.end_offset
        with pytest.raises(RefusedError) as caught:
            await member.append(member.batch_of([setting("a", "1")]), Epoch(epoch - 1))
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert member.end_offset == end_offset


async def test_what_was_committed_survives_a_crash_in_the_middle_of_appends(
    tmp_path: Path,
) -> None:
    committed: list[str] = []

    async def write_until_killed(member: QuorumMember, epoch: Epoch) -> None:
        for number in range(10_000):
            offset = await member.append(member.batch_of([setting(f"key.{number}", "x")]), epoch)
            await member.wait_committed(offset, epoch)
            committed.append(f"key.{number}")

    class KilledError(Exception):
        pass

    async with open_rpc_runtime() as runtime:
        with pytest.RaisesGroup(KilledError, flatten_subgroups=True):
            async with open_voter(tmp_path, runtime) as member:
                epoch = await led_epoch(member)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(write_until_killed, member, epoch)
                    while len(committed) < 25:
                        await trio.lowlevel.checkpoint()
                    raise KilledError
        segment = next((tmp_path / "__cluster_metadata-0").glob("*.log"))
        with segment.open("ab") as file:
            file.write(b"\0\0\0 a batch that was cut off by the crash")
        async with open_voter(tmp_path, runtime) as member:
            await led_epoch(member)
            kept = set(member.image.config(TOPIC, "otters"))
    assert kept.issuperset(committed)


async def test_a_publisher_gets_the_whole_image_first_and_then_every_change_in_order(
    tmp_path: Path,
) -> None:
    recorder = Recorder()
    async with open_rpc_runtime() as runtime, open_voter(tmp_path, runtime) as member:
        await commit(member, setting("a", "1"))
        member.add_publisher(recorder)
        await commit(member, setting("a", "2"))
        await commit(member, setting("a", "3"))
        assert recorder.images[-1] is member.image
        values = [image.config(TOPIC, "otters")["a"] for image in recorder.images]
        assert values == sorted(values)
        assert values[-1] == "3"
        assert not recorder.gap_count


async def test_a_publisher_that_meets_a_bug_keeps_no_other_from_the_image(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class FailingPublisher:
        name = "failing"

        async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
            async with trio.open_nursery():
                raise RuntimeError("a bug of ours")

    recorder = Recorder()
    async with open_rpc_runtime() as runtime, open_voter(tmp_path, runtime) as member:
        await commit(member, setting("a", "1"))
        member.add_publisher(FailingPublisher())
        member.add_publisher(recorder)
        await commit(member, setting("a", "2"))
        await commit(member, setting("a", "3"))
        assert recorder.images[-1].config(TOPIC, "otters")["a"] == "3"
        assert not recorder.gap_count
    lines = [record for record in caplog.records if "publisher failing" in record.getMessage()]
    assert "a bug of ours" in caplog.text
    assert sum(record.exc_info is not None for record in lines) == 1


async def test_a_voter_restarts_from_a_snapshot_and_the_log_after_it(tmp_path: Path) -> None:
    config = QuorumConfig(snapshot_bytes_between=2_000, segment_bytes=4_096, retention_bytes_max=0)
    async with open_rpc_runtime() as runtime:
        async with open_voter(tmp_path, runtime, config) as member:
            for number in range(60):
                await commit(member, setting(f"key.{number % 7}", str(number)))
            await member.write_snapshot()
            await commit(member, setting("after", "snapshot"))
            before = member.image
        names = sorted(path.name for path in (tmp_path / "__cluster_metadata-0").iterdir())
        snapshots = [name for name in names if name.endswith(".checkpoint")]
        assert len(snapshots) == 1
        async with open_voter(tmp_path, runtime, config) as member:
            await led_epoch(member)
            assert member.image.configs == before.configs


async def test_a_snapshot_that_is_requested_is_written_and_reported(tmp_path: Path) -> None:
    async with open_rpc_runtime() as runtime, open_voter(tmp_path, runtime) as member:
        await commit(member, setting("a", "1"))
        planned = await member.report_snapshot(writes=False)
        written = await member.report_snapshot(writes=True)
        assert (planned.size_bytes, planned.latest_end_offset) == (-1, 0)
        assert written.id.offset >= planned.id.offset > 0
        assert written.latest_end_offset == written.id.offset == member.latest_snapshot_offset
        path = tmp_path / "__cluster_metadata-0" / file_name(written.id)
        assert path.stat().st_size == written.size_bytes


async def test_an_observer_receives_every_change_over_grpc(tmp_path: Path) -> None:
    recorder = Recorder()
    async with (
        open_rpc_runtime() as runtime,
        open_voter(tmp_path / "controller", runtime) as leader,
    ):
        port = await runtime.serve("127.0.0.1", 0, quorum_handlers(leader.answer))
        await commit(leader, setting("a", "1"))
        cluster_id = await cluster_id_of(tmp_path / "controller")
        async with open_observer(tmp_path / "broker", runtime, cluster_id, port) as observer:
            observer.add_publisher(recorder)
            with trio.fail_after(60):
                await observer.wait_caught_up()
                await commit(leader, setting("a", "2"))
                await observer.wait_applied(leader.applied_end_offset)
            assert observer.leader_id == CONTROLLER
            assert observer.image.configs == leader.image.configs
            assert not observer.is_leader
    assert recorder.images[-1].config(TOPIC, "otters")["a"] == "2"
    assert not recorder.gap_count


async def test_an_observer_far_behind_is_given_the_snapshot(tmp_path: Path) -> None:
    config = QuorumConfig(segment_bytes=2_048, retention_bytes_max=0)
    async with (
        open_rpc_runtime() as runtime,
        open_voter(tmp_path / "controller", runtime, config) as leader,
    ):
        port = await runtime.serve("127.0.0.1", 0, quorum_handlers(leader.answer))
        for number in range(3):
            for inner in range(30):
                await commit(leader, setting(f"key.{inner}", str(number)))
            await leader.write_snapshot()
        assert leader.start_offset > 0
        cluster_id = await cluster_id_of(tmp_path / "controller")
        for _start in range(2):
            async with open_observer(tmp_path / "broker", runtime, cluster_id, port) as observer:
                with trio.fail_after(60):
                    await observer.wait_caught_up()
                assert observer.start_offset == leader.latest_snapshot_offset
                assert observer.image.configs == leader.image.configs


async def test_a_disk_failure_ends_the_member_in_whichever_task_it_is_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that catches every error, as edges do, must not keep such a replica at work."""
    codes: list[ErrorCode] = []

    def fail(*_arguments: object) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with pytest.RaisesGroup(OSError, allow_unwrapped=True, flatten_subgroups=True):
        async with open_rpc_runtime() as runtime, open_voter(tmp_path, runtime) as member:
            epoch = await led_epoch(member)
            monkeypatch.setattr(MetadataLog, "append", fail)
            try:
                await member.append(member.batch_of([setting("a", "1")]), epoch)
            except RefusedError as refusal:
                codes.append(refusal.code)
            await trio.sleep_forever()
    assert codes == [ErrorCode.NETWORK_EXCEPTION]
