"""Clusters of real processes on loopback, started and stopped by the tests that need them.

A node is named by its role and id, as `ottla up` names it: "controller 101", "broker 2". The role
alone names the first node of it, which is the only one in the clusters of most tests.
"""

import gc
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import pytest
import trio
from kafka import KafkaAdminClient

from ottla.bench.faults.ledger import RunLedger, read_ledger
from ottla.bench.faults.timeline import Mark, as_svg, as_text, longest_gap
from ottla.cli.cluster.cluster_file import ClusterPlan, ListedNode, make_plan, properties_of
from ottla.cli.cluster.cluster_format import format_plan
from ottla.cli.cluster.status import status_of
from ottla.cli.main import run
from ottla.client.admin import Admin, open_admin
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.model.errors import RefusedError
from ottla.model.settings.security.client_security import ClientSecurity
from ottla.node.local.local_nodes_driver import (
    NODE_MODULE,
    LocalNode,
    NotReadyError,
    end_nodes,
    wait_until_ready,
)
from tests.cluster.secure_form import IS_SECURE, SHARED, skip_what_cannot_apply
from tests.warm_parent import start_node

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 60.0
FOLLOWED_S = 0.3
"""Seconds for brokers to follow the controller that has answered a command: about the time that a
process takes to start, which replaces this wait when commands have processes of their own."""
ASK_AGAIN_S = 0.1
LAST_WORDS = 3_000
IS_FULL = os.environ.get("OTTLA_FAULTS") == "full"
LOAD_RATE = 20_000 if IS_FULL else 5_000
"""Records a second, each of which is looked for at the end: more costs more CPU, and the faults
meet as many requests."""
ATTENTIVE = ("topic.metadata.refresh.interval.ms=250",)
"""librdkafka looks for a new leader once a second, and for a second more when the old one's broker
is forgotten in the same moment; with this setting the cluster is measured, not the client."""
LOAD_END_S = 300.0
"""Timeout of the last responses and of reading all records."""

T = TypeVar("T")


class Processes:
    """The controllers and brokers of one plan as processes of their own; owns them."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.plan = plan
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.client = _client_of(plan)
        """Settings for clients, by librdkafka's keys."""
        self.are_commands_in_children = IS_FULL
        """Run each command as a process of its own, which takes three times as long."""
        self.environment: Mapping[str, str] | None = None
        """Environment of the nodes that are started next (default: that of this process)."""
        self.module = NODE_MODULE
        """Python module of the nodes that are started next."""
        self._seen: object = None
        self._nodes = {
            f"{role} {node.id}": node
            for role, nodes in (("controller", plan.controllers), ("broker", plan.brokers))
            for node in nodes
        }

    @property
    def bootstrap(self) -> str:
        """Bootstrap addresses of the cluster."""
        return self.client["bootstrap.servers"]

    @property
    def names(self) -> list[str]:
        """Names of all nodes, controllers first: the order in which they are started."""
        return list(self._nodes)

    def named(self, role: str) -> list[str]:
        """Return the names of all controllers, or of all brokers."""
        return [name for name in self._nodes if name.startswith(role)]

    def full_name(self, name: str) -> str:
        """Return the full name of a node: "broker" alone is the first broker."""
        return name if name in self._nodes else self.named(name)[0]

    def node(self, name: str) -> ListedNode:
        """Return the address and directories of a node."""
        return self._nodes[self.full_name(name)]

    def pid(self, name: str) -> int:
        """Return the process id of a node that runs."""
        return self.running[self.full_name(name)].pid

    def log_of(self, name: str) -> Path:
        """Return the log file of a node."""
        return self.plan.directory / f"{self.full_name(name).replace(' ', '-')}.log"

    def start(self, *names: str, **settings: str) -> float:
        """Start nodes (all if none is named) and wait until each serves; return the seconds that it
        took."""
        began_at = time.monotonic()
        nodes = [self.spawn(self.full_name(name), settings) for name in names or self.names]
        try:
            wait_until_ready(nodes, READY_TIMEOUT_S)
        except NotReadyError as error:
            pytest.fail(f"{error}\n{self._last_words(*map(self.full_name, names or self.names))}")
        return time.monotonic() - began_at

    def spawn(self, name: str, settings: Mapping[str, str] = MappingProxyType({})) -> LocalNode:
        """Start one node without waiting for it."""
        assert name not in self.running
        role = name.split()[0]
        options = [f"--set={key.replace('_', '.')}={value}" for key, value in settings.items()]
        with self.log_of(name).open("ab") as log:
            node = start_node(
                role,
                properties_of(role, self.node(name)),
                options=options,
                output=log,
                environment=self.environment,
                module=self.module,
            )
        self.running[name] = node.process
        return node

    def _last_words(self, *names: str) -> str:
        return "\n".join(f"{name}: {self.log_of(name).read_text()[-LAST_WORDS:]}" for name in names)

    def send(self, name: str, which: signal.Signals) -> None:
        """Send a signal to a node without waiting."""
        self.running[self.full_name(name)].send_signal(which)

    def pause(self, name: str) -> None:
        """Pause a node by SIGSTOP; the kernel still accepts the bytes that are sent to it."""
        self.send(name, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Resume a paused node."""
        self.send(name, signal.SIGCONT)

    def kill(self, *names: str) -> None:
        """End nodes by SIGKILL, all at once."""
        for name in names:
            self.send(name, signal.SIGKILL)
        for name in names:
            self.running.pop(self.full_name(name)).wait(STOP_TIMEOUT_S)

    def end(self, name: str, how: signal.Signals = signal.SIGTERM) -> int:
        """End a node and wait for it; return its exit code."""
        self.send(name, how)
        return self.running.pop(self.full_name(name)).wait(STOP_TIMEOUT_S)

    def wipe(self, name: str) -> None:
        """Delete the data of a node."""
        assert self.full_name(name) not in self.running
        shutil.rmtree(self.node(name).dir)

    def stop_all(self) -> None:
        """Stop all running nodes, brokers first: their controlled shutdown needs a controller."""
        for role in ("broker", "controller"):
            names = [name for name in self.running if name.startswith(role)]
            end_nodes([self.running.pop(name) for name in names], STOP_TIMEOUT_S)

    def status(self) -> dict[str, Any]:
        """Return the output of `ottla status --format json`."""
        self._seen = found = self._asked(status_of)
        return found

    def ottla(
        self, *words: str, code: int | None = 0, password: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run an `ottla` command against the cluster, and assert its exit code unless that is
        None."""
        where = ["--bootstrap", self.bootstrap]
        if self.client.keys() - {"bootstrap.servers"}:
            config = self.plan.directory / "command.properties"
            config.touch(mode=0o600)
            config.write_text("".join(f"{key}={text}\n" for key, text in self.client.items()))
            where += ["--command-config", str(config)]
        given = {"OTTLA_PASSWORD": password} if password else {}
        start = run_in_child if self.are_commands_in_children else run_here
        done = start([*words, *where], given)
        time.sleep(0.0 if self.are_commands_in_children else FOLLOWED_S)
        assert code is None or done.returncode == code, f"{words}: {done}"
        return done

    def active_controller(self) -> str:
        """Return the name of the controller that leads the quorum."""

        def leader() -> str | None:
            found = self.status()["quorum"]["leader_id"]
            return None if found < 0 else f"controller {found}"

        return self.wait_for(leader, "an active controller")

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the broker that leads each partition of a topic; -1 without a leader."""

        async def ask(admin: Admin) -> dict[int, int]:
            (found,) = (await admin.cluster.metadata([topic])).topics
            return {row.partition_index: row.leader_id for row in found.partitions}

        return self._asked(ask)

    def replicas(self, topic: str) -> dict[int, list[int]]:
        """Return the replicas of each partition of a topic."""

        async def ask(admin: Admin) -> dict[int, list[int]]:
            (found,) = (await admin.cluster.metadata([topic])).topics
            return {row.partition_index: list(row.replica_nodes) for row in found.partitions}

        return self._asked(ask)

    def leader_of_most(self, topic: str) -> str:
        """Return the name of the broker that leads most partitions of a topic."""
        counts = Counter(id_ for id_ in self.leaders(topic).values() if id_ >= 0)
        return f"broker {counts.most_common(1)[0][0]}"

    def wait_healthy(self, timeout_s: float = 60.0) -> float:
        """Wait until `ottla status` reports all brokers and no problem."""
        ids = {node.id for node in self.plan.brokers}
        started = time.monotonic()

        def healthy() -> bool:
            found = self.status()
            return bool(found["healthy"]) and {row["id"] for row in found["brokers"]} == ids

        self.wait_for(healthy, "a healthy cluster", timeout_s)
        return time.monotonic() - started

    def wait_for(self, ask: Callable[[], T | None], what: str, timeout_s: float = 60.0) -> T:
        """Poll until a function returns a result; an unreachable cluster gives none."""
        self._seen = None
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                found = ask()
            except (ConnectionLostError, RefusedError, trio.TooSlowError) as error:
                found, self._seen = None, error
            if found:
                return found
            assert time.monotonic() < deadline, f"no {what} in {timeout_s:g} s: {self._seen}"
            time.sleep(ASK_AGAIN_S)

    def _asked(self, ask: Callable[[Admin], Awaitable[T]]) -> T:
        async def body() -> T:
            security = security_of(self.client)
            if security is not None:
                # Also for what connects to brokers beside the admin.
                LOGIN.set(security.login())
                tls = security.tls()
                TLS.set(None if tls is None else TlsDialer(tls))
            with trio.fail_after(ANSWER_TIMEOUT_S):
                async with open_admin(self.bootstrap) as admin:
                    return await ask(admin)

        return trio.run(body)


def run_in_child(
    words: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "ottla.cli", *words],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )


def run_here(
    words: Sequence[str], environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command in this process, which has imported it; the login ends with the command."""
    output, errors = io.BytesIO(), io.BytesIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        io.TextIOWrapper(output, "utf-8", write_through=True) as out,
        io.TextIOWrapper(errors, "utf-8", write_through=True) as err,
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        for name, text in environment.items():
            patch.setenv(name, text)
        code = copy_context().run(run, [*words])
        said, complained = output.getvalue().decode(), errors.getvalue().decode()
    return subprocess.CompletedProcess([*words], code, said, complained)


def _client_of(plan: ClusterPlan) -> dict[str, str]:
    """Return the settings of a client with all permissions, by librdkafka's keys."""
    if plan.secure is None:
        return {"bootstrap.servers": plan.bootstrap}
    lines = plan.secure.client_file.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def security_of(client: Mapping[str, str]) -> ClientSecurity | None:
    """Return a client's TLS and login settings in the form of our own client."""
    if "security.protocol" not in client:
        return None
    return ClientSecurity(
        security_protocol=client["security.protocol"],
        sasl_mechanism=client["sasl.mechanisms"],
        sasl_username=client["sasl.username"],
        sasl_password=client["sasl.password"],
        ssl_truststore_location=client["ssl.ca.location"],
    )


def make_processes(
    directory: Path,
    *,
    controllers: int = 1,
    brokers: int = 1,
    is_secure: bool = IS_SECURE,
    are_brokers_super: bool = not IS_SECURE,
    format_with: Callable[[ClusterPlan], None] = format_plan,
    **settings: str,
) -> Processes:
    """Plan controllers and brokers on free ports and format them, without starting them.

    In a secure cluster, `are_brokers_super` gives brokers more than the ClusterAction ACL.
    """
    if is_secure and SHARED is not None:
        SHARED.give_to(directory)
    plan = make_plan(
        directory,
        host="127.0.0.1",
        port=0,
        controllers=controllers,
        brokers=brokers,
        is_secure=is_secure,
    )
    if plan.secure is not None:
        plan.secure = replace(plan.secure, are_brokers_super=are_brokers_super)
    plan.settings = {key.replace("_", "."): value for key, value in settings.items()}
    plan.write_properties()
    format_with(plan)
    return Processes(plan)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests that cannot apply when all clusters are secure."""
    skip_what_cannot_apply(items)


@pytest.fixture(autouse=True)
def litter_of_clients() -> Iterator[None]:
    """Collect garbage of third-party clients, so that its warnings do not appear in a later
    test."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A running cluster that the tests of one module share."""
    processes = make_processes(tmp_path_factory.mktemp("cluster"))
    processes.start("controller", "broker")
    yield processes
    processes.stop_all()


@pytest.fixture(scope="module")
def plan_module_cluster(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[..., Processes]]:
    """A function that plans a cluster which the tests of one module share."""
    made: list[Processes] = []

    def plan(**wanted: Any) -> Processes:
        made.append(make_processes(tmp_path_factory.mktemp("cluster"), **wanted))
        return made[-1]

    yield plan
    for processes in made:
        processes.stop_all()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Processes]:
    """A planned cluster of one test's own, not started."""
    processes = make_processes(tmp_path)
    yield processes
    processes.stop_all()


@pytest.fixture
def plan_cluster(tmp_path: Path) -> Iterator[Callable[..., Processes]]:
    """A function that plans a cluster of any size: (controllers=, brokers=, **settings)."""
    made: list[Processes] = []

    def plan(**wanted: Any) -> Processes:
        made.append(make_processes(tmp_path / f"cluster-{len(made)}", **wanted))
        return made[-1]

    yield plan
    for processes in made:
        processes.stop_all()
    for processes in made:
        for log in processes.plan.directory.glob("*.log"):
            assert "Traceback" not in log.read_text(), f"{log}: {log.read_text()[-LAST_WORDS:]}"


@pytest.fixture
def make_small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A function that mounts a real file system of a given size, unmounted after the test."""
    made: list[Path] = []

    def make(size_bytes: int) -> Path:
        path = tmp_path / f"small-{len(made)}"
        path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "ottla-test", str(path)]
        if os.geteuid() != 0 or subprocess.run(command, check=False).returncode != 0:
            pytest.skip("LOUD: a small file system needs root; the full disk was NOT tested here")
        made.append(path)
        return path

    yield make
    for path in made:
        subprocess.run(["umount", "-l", str(path)], check=True)


class LoadRun(NamedTuple):
    """Result of a load: every response, the faults injected meanwhile, and the violations found."""

    ledger: RunLedger
    marks: list[Mark]
    report: dict[str, Any]

    @property
    def is_clean(self) -> bool:
        """Return whether every acknowledged record exists exactly once, in order."""
        report = self.report
        wrong = ("lost", "doubled", "out_of_order", "unasked")
        assert report["acknowledged"] == self.ledger.acknowledged > 0
        return not any(report[kind] for kind in wrong)

    def gaps(self, began_s: float, ended_s: float) -> dict[tuple[str, int], float]:
        """Return each partition's longest gap, in seconds, among those that overlap a period."""
        return {
            (row.place.topic, row.place.partition): longest_gap(row, began_s, ended_s).seconds
            for row in self.ledger.answers
        }


class Load:
    """`ottla bench steady` in a process of its own, and the faults injected meanwhile."""

    def __init__(
        self,
        processes: Processes,
        *topics: str,
        rate: int = LOAD_RATE,
        client: Mapping[str, str] | None = None,
        name: str = "load",
    ) -> None:
        self.marks: list[Mark] = []
        self._directory = processes.plan.directory
        self._path = self._directory / f"{name}.ledger"
        self._path.unlink(missing_ok=True)
        self._output = self._directory / f"{name}.json"
        client = {**(processes.client if client is None else client)}
        bootstrap = client.pop("bootstrap.servers")
        command = [sys.executable, "-m", "ottla.cli", "bench", "steady", "--format=json"]
        command += ["--bootstrap", bootstrap, "--topic", ",".join(topics)]
        # librdkafka's idempotent producer polls without a pause while batches that are due wait for
        # one of its five requests in flight. With 20 ms that took more than the brokers did.
        command += [f"--rate={rate}", "--record-bytes=100", "--linger-ms=100"]
        command += [f"--set={setting}" for setting in (*ATTENTIVE, "debug=eos")]
        command += [f"--set={key}={text}" for key, text in client.items()]
        command += ["--ledger", str(self._path)]
        self._said = self._directory / f"{name}.stderr"
        with self._output.open("wb") as output, self._said.open("wb") as said:
            self._child = subprocess.Popen(command, stdout=output, stderr=said)
        while not (self._path.exists() and self._path.stat().st_size > rate):
            assert self._child.poll() is None
            time.sleep(ASK_AGAIN_S)

    def mark(self, text: str) -> Mark:
        """Record that a fault is injected now."""
        self.marks.append(Mark(time.time(), text))
        return self.marks[-1]

    def stop(self) -> LoadRun:
        """Stop the load, read everything back, and draw the clients' view."""
        self.mark("the load ends")
        self._child.send_signal(signal.SIGINT)
        code = self._child.wait(LOAD_END_S)
        assert code in (0, 2), f"the load ended with {code}"
        run = LoadRun(read_ledger(self._path), self.marks, json.loads(self._output.read_text()))
        print(as_text(run.ledger, run.marks))
        print(run.report)
        # A producer that begins a new epoch may itself store again what it has no answer for.
        print(self._said.read_text(errors="replace"))
        title = f"{run.ledger.acknowledged:,} records acknowledged"
        (self._directory / "load.svg").write_text(as_svg(run.ledger, run.marks, title))
        return run

    def give_up(self) -> None:
        """End a load whose test has ended; show the results so far."""
        if self._child.poll() is None:
            self._child.kill()
            self._child.wait()
            print(as_text(read_ledger(self._path), self.marks))


@pytest.fixture
def start_load() -> Iterator[Callable[..., Load]]:
    """A function that starts a steady load: (processes, *topics, rate=, client=, name=)."""
    loads: list[Load] = []

    def start(processes: Processes, *topics: str, **wanted: Any) -> Load:
        loads.append(Load(processes, *topics, **wanted))
        return loads[-1]

    yield start
    for load in loads:
        load.give_up()


@pytest.fixture
def kafka(cluster: Processes) -> Iterator[KafkaAdminClient]:
    """kafka-python's admin client of the module's cluster."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield admin
    admin.close()
