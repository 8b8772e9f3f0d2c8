"""A controller's process, from its settings to its last word."""

import time
from collections.abc import Callable

import trio

from ottla.controller.controller_driver import Controller
from ottla.controller.controller_metrics import controller_registry
from ottla.controller.controller_service import controller_handlers
from ottla.controller.upkeep_driver import Upkeep
from ottla.model.seams import Clock
from ottla.model.settings.controller import ControllerConfig
from ottla.node.identity import prepare_controller_directory, quorum_identity
from ottla.node.process_driver import freeze_long_lived_objects, open_stop_signal
from ottla.node.process_metrics_driver import process_families
from ottla.node.quorum_driver import QuorumMember, open_quorum_member
from ottla.node.quorum_metrics import quorum_families
from ottla.node.seams import NodeSeams
from ottla.node.seams_driver import real_seams
from ottla.raft.voters import QuorumIdentity
from ottla.rpc.cluster_id import cluster_id_handler
from ottla.rpc.quorum_client import quorum_handlers
from ottla.storage.directory_lock_driver import lock_directory
from ottla.storage.disk_seam import Disk
from ottla.telemetry.instruments import Registry
from ottla.telemetry.loop_pause_driver import LoopPauseMeter
from ottla.telemetry.metrics_http_driver import serve_metrics
from ottla.telemetry.prometheus_text import render

HAND_OVER_PATIENCE_MS = 2_000
"""How long a leader that stops waits for the others to know; they find out by themselves later."""


async def run_controller(config: ControllerConfig, *, ready: Callable[[], None]) -> None:
    """Run a controller until SIGTERM or SIGINT; call `ready` once it serves.

    A lone voter serves when it leads and has written a new cluster's first records; one of several
    when it listens.
    """

    def on_ready() -> None:
        freeze_long_lived_objects()
        ready()

    async with open_stop_signal() as is_stopping:
        await serve_controller(config, ready=on_ready, is_stopping=is_stopping)


async def serve_controller(
    config: ControllerConfig,
    *,
    ready: Callable[[], None],
    is_stopping: trio.Event,
    seams: NodeSeams | None = None,
) -> None:
    """Run a controller until the event is set."""
    seams = seams or real_seams()
    directory = config.metadata_log_dir
    async with seams.open_disk([directory]) as disk:
        await disk.makedirs(directory)
        lock = lock_directory(disk, directory, setting="metadata.log.dir")
        try:
            properties = await prepare_controller_directory(
                disk, config, seams.rng, wall_ms=seams.clock.wall_ms()
            )
            identity = await quorum_identity(
                disk, directory, properties, config.controller_quorum_voters
            )
            await _serve(seams, disk, config, identity, ready, is_stopping)
        finally:
            lock.close()


async def _serve(
    seams: NodeSeams,
    disk: Disk,
    config: ControllerConfig,
    identity: QuorumIdentity,
    ready: Callable[[], None],
    is_stopping: trio.Event,
) -> None:
    clock, rng = seams.clock, seams.rng
    async with (
        seams.open_rpc() as rpc,
        open_quorum_member(
            disk=disk,
            metadata_log_dir=config.metadata_log_dir,
            identity=identity,
            config=config.quorum,
            rpc=rpc,
            clock=clock,
            rng=rng,
        ) as member,
        trio.open_nursery() as nursery,
    ):
        controller = Controller(member, config, identity, clock, rng)
        if config.metrics.is_prometheus_served:
            await nursery.start(_serve_metrics, config, controller, member, clock)
        nursery.start_soon(Upkeep(controller, config).run)
        handlers = [
            *quorum_handlers(member.answer),
            *controller_handlers(controller),
            cluster_id_handler(identity.cluster_id),
        ]
        for listener in config.listeners:
            await rpc.serve(listener.host, listener.port, handlers)
        if not identity.peers:
            await controller.wait_active()
        ready()
        await is_stopping.wait()
        await member.hand_over(patience_ms=HAND_OVER_PATIENCE_MS)
        await rpc.stop_serving()
        nursery.cancel_scope.cancel()


async def _serve_metrics(
    config: ControllerConfig,
    controller: Controller,
    member: QuorumMember,
    clock: Clock,
    task_status: trio.TaskStatus[int],
) -> None:
    """Measure the loop, and serve /metrics, until cancelled."""
    controller.now_ns = time.perf_counter_ns
    pauses = LoopPauseMeter()
    registry = _registry(controller, member, clock, pauses)
    trio.lowlevel.add_instrument(pauses)
    try:
        await serve_metrics(
            lambda: render(registry.collect()),
            host=config.metrics.prometheus_host,
            port=config.metrics.prometheus_port,
            task_status=task_status,
        )
    finally:
        trio.lowlevel.remove_instrument(pauses)


def _registry(
    controller: Controller, member: QuorumMember, clock: Clock, pauses: LoopPauseMeter
) -> Registry:
    registry = controller_registry(
        controller.counts,
        is_active=lambda: controller.epoch is not None,
        image=lambda: member.image,
        committed_offset=lambda: member.high_watermark - 1,
        wall_ms=clock.wall_ms,
        now_ms=clock.monotonic_ms,
    )
    registry.register(lambda: quorum_families(member))
    pauses.register(registry)
    registry.register(process_families)
    return registry
