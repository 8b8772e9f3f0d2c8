"""The process of a controller, from reading its settings to its shutdown."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import trio

from ottla.controller.attendance_driver import AttendanceKeeper
from ottla.controller.controller_driver import Controller
from ottla.controller.front.front_opening_driver import open_front
from ottla.controller.front.front_seam import OpenFront
from ottla.controller.listening_driver import open_listeners
from ottla.controller.own_telemetry_driver import ControllerTelemetry
from ottla.controller.registration_driver import (
    DEADLINE_MS,
    ControllerRegistrar,
    register_at,
    registration_of,
)
from ottla.controller.upkeep_driver import Upkeep
from ottla.model.background_driver import keep_running
from ottla.model.errors import only_error
from ottla.model.seams import Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.model.values import frozen
from ottla.node.address_probe import probe_nothing
from ottla.node.identity import (
    endpoints_of,
    prepare_controller_directory,
    quorum_identity,
    read_first_records,
)
from ottla.node.process_driver import (
    freeze_as_it_grows,
    freeze_long_lived_objects,
    open_stop_signal,
)
from ottla.node.quorum.quorum_driver import QuorumMember, open_quorum_member
from ottla.node.seams import NodeSeams
from ottla.node.seams_driver import real_seams
from ottla.proto import controller_pb2 as pb
from ottla.raft.voters import QuorumIdentity
from ottla.rpc.controller_client import ControllerClient, addresses_of
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.directories.directory_lock_driver import lock_directory, unlock_directory
from ottla.storage.directories.free_space_driver import FreeSpaceMonitor
from ottla.storage.disk.disk_seam import Disk

HAND_OVER_PATIENCE_MS = 2_000
"""Maximum time in ms for which a stopping leader of the quorum waits until the other controllers
have confirmed its resignation. A controller without this information detects only later that the
leader has stopped."""


async def run_controller(config: ControllerConfig, *, ready: Callable[[], None]) -> None:
    """Run a controller until SIGTERM or SIGINT.  Calls `ready` once the controller accepts
    requests.

    If it is the only voter, it accepts requests once it is the leader and has written the first
    records of a new cluster.  Otherwise, it accepts them as soon as it listens.
    """

    def on_ready() -> None:
        freeze_long_lived_objects()
        ready()

    try:
        async with open_stop_signal() as is_stopping, trio.open_nursery() as nursery:

            def on_opened(controller: Controller) -> None:
                nursery.start_soon(freeze_as_it_grows, partial(_replica_count, controller))

            await serve_controller(
                config, ready=on_ready, is_stopping=is_stopping, opened=on_opened
            )
            nursery.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise only_error(group) from None


def _replica_count(controller: Controller) -> int:
    """Return the number of replicas in the metadata image, which grows with the number of
    long-lived Python objects of a controller."""
    return sum(map(len, controller.known_image.partitions_by_broker.values()))


async def serve_controller(
    config: ControllerConfig,
    *,
    ready: Callable[[], None],
    is_stopping: trio.Event,
    seams: NodeSeams | None = None,
    errors: UnexpectedErrors | None = None,
    opened: Callable[[Controller], None] = lambda controller: None,
    open_front: OpenFront = open_front,
) -> None:
    """Run a controller until the event `is_stopping` is set.

    `errors` counts unexpected exceptions.  `opened` is called with the controller before it accepts
    requests.  `open_front` opens the listeners.
    """
    seams, errors = seams or real_seams(), errors or UnexpectedErrors()
    directory = config.metadata_log_dir
    async with seams.open_disk([directory]) as disk:
        await disk.makedirs(directory)
        lock = lock_directory(disk, directory, setting="metadata.log.dir")
        try:
            properties = await prepare_controller_directory(
                disk, config, seams.rng, wall_ms=seams.clock.wall_ms()
            )
            identity = await quorum_identity(
                disk,
                directory,
                properties,
                config.controllers,
                is_controller=True,
                endpoints=endpoints_of(config),
                listener=config.dialled_listener.name,
                are_voters_fixed=True,
                joins_automatically=config.quorum_auto_join_enable,
            )
            await _serve(
                seams, disk, config, identity, ready, is_stopping, errors, opened, open_front
            )
        finally:
            unlock_directory(lock)


async def _serve(
    seams: NodeSeams,
    disk: Disk,
    config: ControllerConfig,
    identity: QuorumIdentity,
    ready: Callable[[], None],
    is_stopping: trio.Event,
    errors: UnexpectedErrors,
    opened: Callable[[Controller], None],
    open_front: OpenFront,
) -> None:
    async with (
        seams.open_rpc(config.dial_tls) as rpc,
        open_controller(
            config,
            identity,
            seams,
            disk=disk,
            rpc=rpc,
            errors=errors,
            opened=opened,
            open_front=open_front,
        ) as running,
    ):
        if running.member.identity.is_alone:
            await running.controller.wait_active()
        ready()
        await is_stopping.wait()


@frozen(kw_only=True)
class RunningController:
    """A controller that accepts requests, its member of the quorum and its metrics."""

    controller: Controller
    member: QuorumMember
    telemetry: ControllerTelemetry


@asynccontextmanager
async def open_controller(
    config: ControllerConfig,
    identity: QuorumIdentity,
    seams: NodeSeams,
    *,
    disk: Disk,
    rpc: Rpc,
    errors: UnexpectedErrors,
    free_space: FreeSpaceMonitor | None = None,
    opened: Callable[[Controller], None] = lambda controller: None,
    open_front: OpenFront = open_front,
) -> AsyncIterator[RunningController]:
    """Run a controller for the duration of the block, and yield it. If it is the quorum's leader,
    it resigns when the block ends without an error.

    The caller locks and prepares the directory of the metadata log. `free_space` is a monitor of
    the directory's free space that the caller already runs, or None. `opened` and `open_front` have
    the same meaning as in `serve_controller`.
    """
    clock, rng = seams.clock, seams.rng
    async with (
        open_quorum_member(
            disk=disk,
            metadata_log_dir=config.metadata_log_dir,
            identity=identity,
            config=config.quorum,
            rpc=rpc,
            clock=clock,
            rng=rng,
            disks=config.disks,
            free_space=free_space,
            probe=seams.probe if config.early_failover else probe_nothing,
        ) as member,
        trio.open_nursery() as nursery,
    ):
        first_records = await read_first_records(disk, config.metadata_log_dir)
        controller = Controller(
            member, config, identity, clock, rng, seams.compute, first_records, errors
        )
        opened(controller)
        telemetry = ControllerTelemetry(config, controller, member, errors, clock=clock, rng=rng)
        await nursery.start(telemetry.run)
        nursery.start_soon(Upkeep(controller, config, errors).run)
        attendances = AttendanceKeeper(
            controller, seams.probe, clock=clock, errors=errors, is_early=config.early_failover
        )
        nursery.start_soon(attendances.run)
        registrar = _registrar(config, controller, member, rpc, rng)
        member.add_publisher(controller)
        member.add_publisher(registrar)
        nursery.start_soon(keep_running, registrar.name, registrar.run, errors)
        async with open_listeners(
            controller,
            attendances,
            member,
            config,
            rpc=rpc,
            disk=disk,
            seams=seams,
            errors=errors,
            registry=telemetry.registry,
            open_front=open_front,
        ):
            yield RunningController(controller=controller, member=member, telemetry=telemetry)
            await member.hand_over(patience_ms=HAND_OVER_PATIENCE_MS)
            await rpc.stop_serving()
        nursery.cancel_scope.cancel()


def _registrar(
    config: ControllerConfig, controller: Controller, member: QuorumMember, rpc: Rpc, rng: Rng
) -> ControllerRegistrar:
    """Return the task that registers this controller at the active controller."""
    client = ControllerClient(
        rpc,
        config.controllers,
        lambda: member.leader_id,
        lambda: addresses_of(member.identity),
    )

    async def remote(request: pb.RegisterControllerRequest) -> None:
        await client.register_controller(request, deadline_ms=DEADLINE_MS)

    wanted = registration_of(config, rng.uuid())
    return ControllerRegistrar(wanted, member.identity.cluster_id, register_at(controller, remote))
