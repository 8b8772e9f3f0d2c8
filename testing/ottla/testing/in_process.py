"""A real controller and real brokers in the caller's own trio event loop, with real sockets, files
and gRPC.

`ottla.client.testing` opens this cluster. Nothing is simulated. Tests inject faults into the
brokers' socket servers (`in_process_faults`), and advance the time of the whole event loop
(`loop_time`).
"""

import socket
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.opening_driver import open_broker
from ottla.client.testing.faults import LostAnswers
from ottla.controller.main_driver import serve_controller
from ottla.metadata.image import EMPTY
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.install_hint import install_hint
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig, load_broker_config
from ottla.model.settings.controller import ControllerConfig, load_controller_config
from ottla.model.settings.declare import definitions
from ottla.model.settings.dynamic import broker_definitions
from ottla.model.settings.endpoints import parse_address
from ottla.model.settings.misspelt import meant_key
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.node.clock_driver import RealRng
from ottla.node.identity import CONTROLLER_LISTENER, format_directories
from ottla.node.local.local_nodes_driver import free_port
from ottla.node.seams import NodeSeams
from ottla.node.seams_driver import real_seams
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.testing.cluster_reset import delete_leftovers
from ottla.testing.in_process_faults import BrokerFaults, FaultyServerOpener
from ottla.testing.loop_time import ShiftedNodeClock, time_shift
from ottla.wire.apis import API

if TYPE_CHECKING:
    from ottla.node.local.secure_cluster_driver import SecureCluster

HOST = "127.0.0.1"
CONTROLLER_ID = 101
LISTENER = "PLAINTEXT"
START_TIMEOUT_S = 30.0
API_KEYS = {row.name: key for key, row in API.items()}


class RestartableBroker:
    """Settings, port and faults of one broker in a test cluster. They are kept while the broker is
    stopped."""

    def __init__(self, texts: Mapping[str, str], faults: BrokerFaults, listener: str) -> None:
        self.texts = texts
        self.faults = faults
        self.listener = listener
        self.address = (HOST, 0)
        self._reserved: socket.socket | None = None
        self.reserve_port()
        self.broker: Broker | None = None
        """The running broker, or None while it is stopped."""
        self.stopping = trio.Event()
        self.stopped = trio.Event()

    async def run(
        self, seams: NodeSeams, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Run the broker until the event `stopping` is set. Calls `task_status.started` when the
        listener is open."""
        self.stopping, self.stopped = trio.Event(), trio.Event()
        listeners = "{}://{}:{}".format(self.listener, *self.address)
        config, _ = load_broker_config({"listeners": listeners, **self.texts})
        opener = FaultyServerOpener(self.faults)
        try:
            async with open_broker(config, seams=seams, open_server=opener) as broker:
                self.address = broker.addresses[self.listener]
                self.release_port()
                self.broker = broker
                task_status.started()
                await self.stopping.wait()
                await broker.leave()
        finally:
            self.broker = None
            self.stopped.set()

    def reserve_port(self) -> None:
        """Reserve the broker's port while it is stopped, so that connections to it are refused."""
        self._reserved = socket.socket()
        self._reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reserved.bind(self.address)
        self.address = self._reserved.getsockname()

    def release_port(self) -> None:
        """Release the port that is reserved for the stopped broker."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None


class InProcessCluster:
    """A running cluster in the caller's trio loop. Created by `open_in_process_cluster`."""

    def __init__(
        self,
        entries: Mapping[NodeId, RestartableBroker],
        seams: NodeSeams,
        nursery: trio.Nursery,
        secure: "SecureCluster | None",
    ) -> None:
        self._entries = entries
        self._secure = secure
        self._first = EMPTY
        self._seams = seams
        self._nursery = nursery
        self._losses: dict[int, list[LostAnswers]] = {}
        self._has_own_clock = isinstance(seams.clock, ShiftedNodeClock)
        for entry in entries.values():
            entry.faults.losses = self._losses

    @property
    def brokers(self) -> Mapping[NodeId, Broker]:
        """The running brokers, by node id."""
        return {
            node: entry.broker for node, entry in self._entries.items() if entry.broker is not None
        }

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses `host:port,…` of all brokers, including stopped brokers."""
        return ",".join("{}:{}".format(*entry.address) for entry in self._entries.values())

    @property
    def client_settings(self) -> Mapping[str, str]:
        """Client settings under librdkafka's keys: `bootstrap.servers` and, if the cluster is
        secure, the login."""
        login = {} if self._secure is None else self._secure.client(self._secure.admin)
        return {"bootstrap.servers": self.bootstrap, **login}

    @property
    def security(self) -> ClientSecurity | None:
        """Login of the user `admin`, as settings for Ottla's clients. None if the cluster is not
        secure."""
        if self._secure is None:
            return None
        login = self._secure.client(self._secure.admin)
        return ClientSecurity(
            security_protocol=login["security.protocol"],
            sasl_mechanism=login["sasl.mechanisms"],
            sasl_username=login["sasl.username"],
            sasl_password=login["sasl.password"],
            ssl_truststore_location=login["ssl.ca.location"],
        )

    async def start_all(self) -> None:
        """Start all brokers, and record the metadata image to which `reset` returns the cluster."""
        async with trio.open_nursery() as starting:
            for node in self._entries:
                starting.start_soon(self.start, node)
        self._first = next(iter(self.brokers.values())).metadata.image

    async def reset(self) -> None:
        """End all faults, close all connections, and delete the resources that clients created
        since the cluster started.

        The resources are topics, groups, transactions, dynamic settings, quotas, users, ACLs and
        tokens. Resources that existed at the start and were deleted by a test are not restored. The
        clock is not set back. Raises RuntimeError if a client that the test did not close continues
        to create topics.
        """
        self._losses.clear()
        for node, entry in self._entries.items():
            entry.faults.clear()
            if entry.broker is None:
                await self.start(node)
            self.cut_connections(node)
        await delete_leftovers(
            self.bootstrap, list(self.brokers.values()), self._first, self.security
        )

    async def start(self, node: int) -> None:
        """Start a stopped broker on its former port, with its former files."""
        entry = self._entry_of(node)
        if entry.broker is not None:
            raise ValueError(f"broker {node} is already running")
        with trio.fail_after(START_TIMEOUT_S):
            await self._nursery.start(entry.run, self._seams)
            assert entry.broker is not None
            await entry.broker.is_ready.wait()

    async def stop(self, node: int) -> None:
        """Stop a broker cleanly. Its partition leaderships move to other brokers first, then its
        connections are closed."""
        entry = self._running(node)
        entry.stopping.set()
        await entry.stopped.wait()
        entry.reserve_port()

    async def stop_all(self) -> None:
        """Stop all running brokers."""
        running = [entry for entry in self._entries.values() if entry.broker is not None]
        for entry in running:
            entry.stopping.set()
        for entry in running:
            await entry.stopped.wait()

    def release_ports(self) -> None:
        """Release the ports that are reserved for stopped brokers."""
        for entry in self._entries.values():
            entry.release_port()

    @contextmanager
    def paused(self, node: int) -> Iterator[None]:
        """Suspend a broker during the block.  It reads no requests and sends no responses, but its
        connections stay open."""
        faults = self._entry_of(node).faults
        faults.pause()
        try:
            yield
        finally:
            faults.resume()

    @contextmanager
    def refusing(self, node: int) -> Iterator[None]:
        """Refuse new connections to a broker during the block. Existing connections stay open."""
        faults = self._entry_of(node).faults
        faults.refuse()
        try:
            yield
        finally:
            faults.accept()

    def cut_connections(self, node: int) -> None:
        """Close every open connection to a broker. Clients can reconnect at once."""
        self._running(node)
        server = self._entry_of(node).faults.server
        assert server is not None
        server.cut_connections()

    def slow(self, node: int, seconds: float) -> None:
        """Delay each later response of a broker by the given number of seconds. The value 0 ends
        the delay."""
        if not 0 <= seconds < 24 * 3600:
            raise ValueError(f"seconds is {seconds!r}; it must be from 0 to a day")
        self._entry_of(node).faults.delay_ms = round(seconds * 1_000)

    def lose_answers(self, api: str, *, count: int = 1) -> LostAnswers:
        """Lose the responses to the next requests of one API: the broker processes each request,
        but closes the connection instead of sending the response.

        `count` is the number of requests, and `api` the name in Kafka's protocol, such as Produce.
        Returns an object that counts the responses lost so far.
        """
        if api not in API_KEYS:
            raise ValueError(
                f"there is no API {api!r}; Produce, Fetch, OffsetCommit … are examples"
            )
        if count < 0:
            raise ValueError(f"count is {count}; it must be at least 0")
        loss = LostAnswers(api, count)
        self._losses.setdefault(API_KEYS[api], []).append(loss)
        return loss

    async def advance(self, seconds: float, *, step_s: float | None = None) -> None:
        """Advance the clock of the trio event loop, which brokers and clients share, by the given
        number of seconds."""
        if not self._has_own_clock:
            raise ValueError("the cluster was opened with a clock: advance that one")
        await time_shift().advance(seconds, step_s)

    def _entry_of(self, node: int) -> RestartableBroker:
        entry = self._entries.get(NodeId(node))
        if entry is None:
            known = ", ".join(map(str, self._entries))
            raise ValueError(f"there is no broker {node}; there are {known}")
        return entry

    def _running(self, node: int) -> RestartableBroker:
        entry = self._entry_of(node)
        if entry.broker is None:
            raise ValueError(f"broker {node} is stopped")
        return entry


REPLICATION_FACTORS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "share.coordinator.state.topic.replication.factor",
)
"""Broker settings whose values must not exceed the number of brokers."""


@asynccontextmanager
async def open_in_process_cluster(
    *,
    broker_count: int = 1,
    log_dir_count: int = 1,
    directory: Path | None = None,
    settings: Mapping[str, str] | None = None,
    broker_settings: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    is_secure: bool = False,
) -> AsyncIterator[InProcessCluster]:
    """Yield a new cluster of one controller and `broker_count` brokers. At the end of the block, it
    is stopped cleanly.

    Each broker has `log_dir_count` log directories. `settings` apply to the controller and the
    brokers, `broker_settings` only to brokers. If `directory` is given, the cluster keeps its files
    there, and a later cluster can continue with them. Otherwise the files are deleted at the end. A
    secure cluster encrypts every connection with TLS, authenticates users by SCRAM and has an
    authorizer. It requires the extra `secure`. Raises TypeError for a setting that is not a text,
    and ConfigError for a misspelt key.
    """
    _check_settings({**(settings or {}), **(broker_settings or {})})
    texts = {
        **dict.fromkeys(REPLICATION_FACTORS, str(min(3, broker_count))),
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    async with AsyncExitStack() as stack:
        if directory is None:
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-")))
        controller_address = f"{HOST}:{free_port(HOST)}"
        voters = f"{CONTROLLER_ID}@{controller_address}"
        broker_ids = [NodeId(number) for number in range(1, broker_count + 1)]
        secure = _open_secure(directory) if is_secure else None
        controller_texts = {"listeners": f"CONTROLLER://{controller_address}"}
        if secure is not None:
            nodes = [("controller", CONTROLLER_ID), *(("broker", node) for node in broker_ids)]
            secure.issue([HOST], nodes)
            controller_texts = secure.controller_settings(CONTROLLER_ID, controller_address)
            await _format_controller(directory, controller_address, secure)
        is_stopping = trio.Event()
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(is_stopping.set)
        # The controller starts first, because a broker that cannot reach a controller pauses before
        # it tries again.
        with trio.fail_after(START_TIMEOUT_S):
            await nursery.start(
                _run_controller, directory, voters, {**controller_texts, **texts}, is_stopping
            )
        entries = {
            node: RestartableBroker(
                {
                    "node.id": str(node),
                    "controller.quorum.voters": voters,
                    "log.dirs": _log_dirs(directory / f"broker-{node}", log_dir_count),
                    **_login_settings(secure, node),
                    **texts,
                    **(broker_settings or {}),
                },
                BrokerFaults(),
                LISTENER if secure is None else secure.listener,
            )
            for node in broker_ids
        }
        seams = replace(real_seams(), clock=clock or ShiftedNodeClock(time_shift()))
        async with trio.open_nursery() as running:
            cluster = InProcessCluster(entries, seams, running, secure)
            stack.callback(cluster.release_ports)
            await cluster.start_all()
            yield cluster
            await cluster.stop_all()


def _check_settings(settings: Mapping[str, str]) -> None:
    """Raise TypeError for a setting that is not a text, and ConfigError for a key that is one
    typing error away from a known key."""
    if not settings:
        return
    kinds = (BrokerConfig, ControllerConfig)
    known = {key for kind in kinds for key in definitions(kind)} | broker_definitions().keys()
    for key, value in settings.items():
        if not isinstance(value, str):
            raise TypeError(
                f"settings[{key!r}] is {value!r}; settings are texts, as in Kafka's files: "
                f"{str(value).lower()!r}"
            )
        meant = None if key in known else meant_key(key, known)
        if meant is not None:
            raise ConfigError(key, f"is no setting; did you mean {meant}?")


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
            "metadata.log.dir": str(_controller_directory(directory)),
            **texts,
        }
    )
    await serve_controller(config, ready=task_status.started, is_stopping=is_stopping)


def _open_secure(directory: Path) -> "SecureCluster":
    """Return the certificates and users of a directory.  Raises ConfigError if the package that
    makes certificates is not installed."""
    # Only secure clusters need the extra `secure`, and the time of its imports.
    try:
        from ottla.node.local.secure_cluster_driver import open_secure_cluster
    except ImportError:
        hint = install_hint("secure")
        raise ConfigError(
            "is_secure", f"needs cryptography, which is not installed; install it with: {hint}"
        ) from None
    return open_secure_cluster(directory)


def _log_dirs(directory: Path, count: int) -> str:
    if count == 1:
        return str(directory)
    return ",".join(str(directory / f"disk-{number}") for number in range(1, count + 1))


async def _format_controller(directory: Path, address: str, secure: "SecureCluster") -> None:
    """Format the controller's directory with the first users.  Does nothing if it is already
    formatted."""
    path = _controller_directory(directory)
    if path.exists():
        return
    rng = RealRng()
    directory_id = rng.uuid()
    endpoint = VoterEndpoint(CONTROLLER_LISTENER, *parse_address(address))
    voter = Voter(id=NodeId(CONTROLLER_ID), directory_id=directory_id, endpoints=(endpoint,))
    async with RealDisk() as disk:
        await format_directories(
            disk,
            {str(path): directory_id},
            cluster_id=uuid_to_text(rng.uuid()),
            node_id=voter.id,
            metadata_log_dir=str(path),
            initial_voters=VoterSet((voter,)),
            first_records=secure.first_records(),
        )


def _login_settings(secure: "SecureCluster | None", node: NodeId) -> dict[str, str]:
    if secure is None:
        return {}
    settings = secure.broker_settings(node, f"{HOST}:0")
    del settings["listeners"]  # `RestartableBroker` determines the address.
    return settings


def _controller_directory(directory: Path) -> Path:
    return directory / f"controller-{CONTROLLER_ID}"
