"""Runs a process with both roles, broker and controller, from startup to shutdown.

Both roles run in one event loop and share one member of the quorum, as in Kafka: one metadata log,
one directory id, one voter. With two members, the broker would fetch metadata with the voter's id
and another directory id. With automatic joining, the voter would then seem to have lost its disk.
`docs/ARCHITECTURE.md` has measurements of both roles in one loop and in two.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import OwnController, serve_broker
from ottla.cli.cluster.server.combined_config import CombinedConfig
from ottla.controller.main_driver import RunningController, open_controller
from ottla.model.errors import only_error
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.identity import endpoints_of, prepare_controller_directory, quorum_identity
from ottla.node.process_driver import open_stop_signal
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.node.seams import NodeSeams
from ottla.node.seams_driver import real_seams
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.directories.directory_lock_driver import lock_directory, unlock_directory
from ottla.storage.directories.free_space_driver import FreeSpaceMonitor
from ottla.storage.directories.meta_properties import MetaProperties
from ottla.storage.disk.disk_seam import Disk, DiskFile
from ottla.telemetry.metrics.instruments import Family, Registry


async def run_combined(config: CombinedConfig, *, ready: Callable[[], None]) -> None:
    """Run a broker and a controller until SIGTERM or SIGINT. Calls `ready` once the broker serves
    requests.

    Raises ConfigError or OSError if a fault must be fixed before the process can start.
    """
    try:
        async with open_stop_signal() as is_stopping:
            await serve_combined(config, ready=ready, is_stopping=is_stopping)
    except BaseExceptionGroup as group:
        raise only_error(group) from None


async def serve_combined(
    config: CombinedConfig,
    *,
    ready: Callable[[], None],
    is_stopping: trio.Event,
    seams: NodeSeams | None = None,
    opened: Callable[[Broker], None] = lambda broker: None,
) -> None:
    """Run a broker and a controller until the event `is_stopping` is set.

    The controller starts before the broker, and stops after the broker. During shutdown, the
    broker's leaderships are moved away before the controller resigns. `opened` is called with the
    broker before it serves requests.
    """
    seams, errors = seams or real_seams(), UnexpectedErrors()
    running: list[RunningController] = []

    def on_broker(broker: Broker) -> None:
        _measure(running[0], broker)
        opened(broker)

    async with _prepared_directory(config, seams) as properties:

        @asynccontextmanager
        async def open_member(
            disk: Disk, rpc: Rpc, free_space: FreeSpaceMonitor | None, /
        ) -> AsyncIterator[QuorumMember]:
            of_controller = config.controller
            identity = await quorum_identity(
                disk,
                of_controller.metadata_log_dir,
                properties,
                of_controller.controllers,
                is_controller=True,
                endpoints=endpoints_of(of_controller),
                listener=of_controller.dialled_listener.name,
                are_voters_fixed=True,
                joins_automatically=of_controller.quorum_auto_join_enable,
            )
            async with open_controller(
                of_controller,
                identity,
                seams,
                disk=disk,
                rpc=rpc,
                errors=errors,
                free_space=free_space,
            ) as controller:
                running.append(controller)
                yield controller.member

        await serve_broker(
            config.broker,
            ready=ready,
            is_stopping=is_stopping,
            seams=seams,
            errors=errors,
            own_controller=OwnController(cluster_id=properties.cluster_id, open_member=open_member),
            opened=on_broker,
        )


@asynccontextmanager
async def _prepared_directory(
    config: CombinedConfig, seams: NodeSeams
) -> AsyncIterator[MetaProperties]:
    """Prepare the directory of the metadata log, and yield its identity (cluster id, node id,
    directory id). The directory is locked until the end of the block if the log manager does not
    lock it."""
    directory = config.controller.metadata_log_dir
    async with seams.open_disk([directory]) as disk:
        await disk.makedirs(directory)
        lock: DiskFile | None = lock_directory(disk, directory, setting="metadata.log.dir")
        assert lock is not None
        try:
            properties = await prepare_controller_directory(
                disk, config.controller, seams.rng, wall_ms=seams.clock.wall_ms()
            )
            if config.shares_directory:
                unlock_directory(lock)
                lock = None
            yield properties
        finally:
            if lock is not None:
                unlock_directory(lock)


def _measure(running: RunningController, broker: Broker) -> None:
    """Export the metrics of the controller role together with the broker's metrics. Metric families
    of both roles, such as metrics of the process, are exported only once."""
    running.controller.now_ns = time.perf_counter_ns
    of_broker, of_controller = broker.registry, running.telemetry.registry
    shared = frozenset(of_broker.names())
    of_broker.register(lambda: _families(of_controller, shared))


def _families(registry: Registry, excluded: frozenset[str]) -> Iterator[Family | None]:
    for family in registry.collect():
        if family is not None and family.name not in excluded:
            yield family
