"""A real controller and real brokers in the caller's own trio loop: real sockets, files and gRPC.

What `ottla.client.testing` opens.  Nothing is simulated but, where the caller hands one in, the
brokers' clock.
"""

import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import open_broker
from ottla.controller.main_driver import serve_controller
from ottla.model.ids import NodeId
from ottla.model.seams import Clock
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.local_nodes_driver import free_port
from ottla.node.seams_driver import real_seams

HOST = "127.0.0.1"
CONTROLLER_ID = 101
LISTENER = "PLAINTEXT"
START_TIMEOUT_S = 30.0


class InProcessCluster:
    """A cluster at work; made by `open_in_process_cluster`."""

    def __init__(self, brokers: Mapping[NodeId, Broker]) -> None:
        self.brokers = brokers

    @property
    def bootstrap(self) -> str:
        """Where clients ask first: `host:port,…` of every broker."""
        addresses = (broker.addresses[LISTENER] for broker in self.brokers.values())
        return ",".join(f"{host}:{port}" for host, port in addresses)


@asynccontextmanager
async def open_in_process_cluster(
    *,
    broker_count: int = 1,
    log_dir_count: int = 1,
    directory: Path | None = None,
    settings: Mapping[str, str] | None = None,
    broker_settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[InProcessCluster]:
    """Start one controller and so many brokers; stop them cleanly at the end of the block.

    Each broker has `log_dir_count` log directories; with one it is the broker's own directory.
    `broker_settings` are for the brokers alone.  `directory` keeps their files over several
    clusters; without one they are gone at the end.
    """
    copies = str(min(3, broker_count))
    texts = {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    async with AsyncExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-")))
        voters = f"{CONTROLLER_ID}@{HOST}:{free_port(HOST)}"
        is_stopping = trio.Event()
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(is_stopping.set)
        # A broker whose first call finds nobody waits before it calls again.
        with trio.fail_after(START_TIMEOUT_S):
            await nursery.start(_run_controller, directory, voters, texts, is_stopping)
        brokers: dict[NodeId, Broker] = {}
        seams = real_seams()
        if clock is not None:
            seams = replace(seams, clock=clock)
        for number in range(1, broker_count + 1):
            config, _ = load_broker_config(
                {
                    "node.id": str(number),
                    "controller.quorum.voters": voters,
                    "listeners": f"{LISTENER}://{HOST}:0",
                    "log.dirs": _log_dirs(directory / f"broker-{number}", log_dir_count),
                    **texts,
                    **(broker_settings or {}),
                }
            )
            broker = await stack.enter_async_context(open_broker(config, seams=seams))
            brokers[NodeId(number)] = broker
        with trio.fail_after(START_TIMEOUT_S):
            for broker in brokers.values():
                await broker.is_ready.wait()
        yield InProcessCluster(brokers)
        async with trio.open_nursery() as leaving:
            for broker in brokers.values():
                leaving.start_soon(broker.leave)


async def _run_controller(
    directory: Path,
    voters: str,
    texts: Mapping[str, str],
    is_stopping: trio.Event,
    task_status: trio.TaskStatus[None],
) -> None:
    config, _ = load_controller_config(
        {
            "node.id": str(CONTROLLER_ID),
            "controller.quorum.voters": voters,
            "listeners": f"CONTROLLER://{voters.partition('@')[2]}",
            "metadata.log.dir": str(directory / f"controller-{CONTROLLER_ID}"),
            **texts,
        }
    )
    await serve_controller(config, ready=task_status.started, is_stopping=is_stopping)


def _log_dirs(directory: Path, count: int) -> str:
    if count == 1:
        return str(directory)
    return ",".join(str(directory / f"disk-{number}") for number in range(1, count + 1))
