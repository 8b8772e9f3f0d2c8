"""A real controller and real brokers in the caller's own trio loop: real sockets, files and gRPC.

What `ottla.client.testing` opens.  Nothing is simulated; faults are injected into the brokers'
socket servers (`in_process_faults`), and time is advanced for the whole loop (`loop_time`).
"""

import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import open_broker
from ottla.client.testing.faults import LostAnswers
from ottla.controller.main_driver import serve_controller
from ottla.jepsen.in_process_faults import BrokerFaults, FaultyServerOpener
from ottla.jepsen.loop_time import ShiftedNodeClock, time_shift
from ottla.model.ids import NodeId
from ottla.model.seams import Clock
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.local_nodes_driver import free_port
from ottla.node.seams import NodeSeams
from ottla.node.seams_driver import real_seams
from ottla.wire.apis import API

HOST = "127.0.0.1"
CONTROLLER_ID = 101
LISTENER = "PLAINTEXT"
START_TIMEOUT_S = 30.0
API_KEYS = {row.name: key for key, row in API.items()}


class BrokerSeat:
    """A broker's place in the cluster: its settings and its port outlast a stop."""

    def __init__(self, texts: Mapping[str, str], faults: BrokerFaults) -> None:
        self.texts = texts
        self.faults = faults
        self.address = (HOST, 0)
        self._reserved: socket.socket | None = None
        self.reserve_port()
        self.broker: Broker | None = None
        """The broker, while it runs."""
        self.stopping = trio.Event()
        self.stopped = trio.Event()

    async def run(
        self, seams: NodeSeams, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the broker until `stopping` is set; report started once its listener is open."""
        self.stopping, self.stopped = trio.Event(), trio.Event()
        listeners = "{}://{}:{}".format(LISTENER, *self.address)
        config, _ = load_broker_config({"listeners": listeners, **self.texts})
        opener = FaultyServerOpener(self.faults)
        try:
            async with open_broker(config, seams=seams, open_server=opener) as broker:
                self.address = broker.addresses[LISTENER]
                self.release_port()
                self.broker = broker
                task_status.started()
                await self.stopping.wait()
                await broker.leave()
        finally:
            self.broker = None
            self.stopped.set()

    def reserve_port(self) -> None:
        """Keep a port for the broker's next life: a client that connects is refused."""
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(self.address)
        self.address = self._reserved.getsockname()

    def release_port(self) -> None:
        """Stop keeping the port."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None


class InProcessCluster:
    """A cluster at work; made by `open_in_process_cluster`."""

    def __init__(
        self, seats: Mapping[NodeId, BrokerSeat], seams: NodeSeams, nursery: trio.Nursery
    ) -> None:
        self._seats = seats
        self._seams = seams
        self._nursery = nursery
        self._losses: dict[int, list[LostAnswers]] = {}
        self._has_own_clock = isinstance(seams.clock, ShiftedNodeClock)
        for seat in seats.values():
            seat.faults.losses = self._losses

    @property
    def brokers(self) -> Mapping[NodeId, Broker]:
        """The brokers that run, by node id."""
        return {node: seat.broker for node, seat in self._seats.items() if seat.broker is not None}

    @property
    def bootstrap(self) -> str:
        """Where clients ask first: `host:port,…` of every broker."""
        return ",".join("{}:{}".format(*seat.address) for seat in self._seats.values())

    async def start(self, node: int) -> None:
        """Start a broker that was stopped, on its port and with its files."""
        seat = self._seat_of(node)
        if seat.broker is not None:
            raise ValueError(f"broker {node} runs already")
        with trio.fail_after(START_TIMEOUT_S):
            await self._nursery.start(seat.run, self._seams)
            assert seat.broker is not None
            await seat.broker.is_ready.wait()

    async def stop(self, node: int) -> None:
        """Stop a broker cleanly: its leaderships move first, its connections end."""
        seat = self._running(node)
        seat.stopping.set()
        await seat.stopped.wait()
        seat.reserve_port()

    async def stop_all(self) -> None:
        """Stop every broker that runs."""
        running = [seat for seat in self._seats.values() if seat.broker is not None]
        for seat in running:
            seat.stopping.set()
        for seat in running:
            await seat.stopped.wait()

    def release_ports(self) -> None:
        """Keep no port of a stopped broker any more."""
        for seat in self._seats.values():
            seat.release_port()

    @contextmanager
    def paused(self, node: int) -> Iterator[None]:
        """Let a broker read nothing and answer nothing during the block; connections stay."""
        faults = self._seat_of(node).faults
        faults.pause()
        try:
            yield
        finally:
            faults.resume()

    @contextmanager
    def refusing(self, node: int) -> Iterator[None]:
        """Let a broker accept no connection during the block; those that are open stay."""
        faults = self._seat_of(node).faults
        faults.refuse()
        try:
            yield
        finally:
            faults.accept()

    def cut_connections(self, node: int) -> None:
        """Close every connection to a broker, once."""
        self._running(node)
        server = self._seat_of(node).faults.server
        assert server is not None
        server.cut_connections()

    def slow(self, node: int, seconds: float) -> None:
        """Let each answer of a broker leave so much later, from now on; 0 ends it."""
        if not 0 <= seconds < 24 * 3600:
            raise ValueError(f"seconds is {seconds!r}; it must be from 0 to a day")
        self._seat_of(node).faults.delay_ms = round(seconds * 1_000)

    def lose_answers(self, api: str, *, count: int = 1) -> LostAnswers:
        """Execute the next requests of an API, but close their connections instead of answering."""
        if api not in API_KEYS:
            raise ValueError(f"there is no API {api!r}; Produce, Fetch, OffsetCommit … are some")
        if count < 0:
            raise ValueError(f"count is {count}; it must be at least 0")
        loss = LostAnswers(api, count)
        self._losses.setdefault(API_KEYS[api], []).append(loss)
        return loss

    async def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Let time pass for everything in the loop, brokers and clients."""
        if not self._has_own_clock:
            raise ValueError("the cluster was opened with a clock: advance that one")
        await time_shift().advance(seconds, step_s)

    def _seat_of(self, node: int) -> BrokerSeat:
        seat = self._seats.get(NodeId(node))
        if seat is None:
            known = ", ".join(map(str, self._seats))
            raise ValueError(f"there is no broker {node}; there are {known}")
        return seat

    def _running(self, node: int) -> BrokerSeat:
        seat = self._seat_of(node)
        if seat.broker is None:
            raise ValueError(f"broker {node} is stopped")
        return seat


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
        seats = {
            NodeId(number): BrokerSeat(
                {
                    "node.id": str(number),
                    "controller.quorum.voters": voters,
                    "log.dirs": _log_dirs(directory / f"broker-{number}", log_dir_count),
                    **texts,
                    **(broker_settings or {}),
                },
                BrokerFaults(),
            )
            for number in range(1, broker_count + 1)
        }
        seams = replace(real_seams(), clock=clock or ShiftedNodeClock(time_shift()))
        async with trio.open_nursery() as running:
            cluster = InProcessCluster(seats, seams, running)
            stack.callback(cluster.release_ports)
            async with trio.open_nursery() as starting:
                for node in seats:
                    starting.start_soon(cluster.start, node)
            yield cluster
            await cluster.stop_all()


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
