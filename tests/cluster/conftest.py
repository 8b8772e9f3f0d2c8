"""Real processes on loopback, started and ended by the test that needs them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import pytest

from ottla.cli.cluster_file import Node, Plan, make_plan, properties_of

READY_TIMEOUT_S = 30.0


class Processes:
    """One controller and one broker as processes of their own; owns them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.log = plan.directory / "nodes.log"

    @property
    def bootstrap(self) -> str:
        """What a client is given."""
        return self.plan.bootstrap

    def node(self, role: str) -> Node:
        """Return the only node of a role."""
        return (self.plan.controllers if role == "controller" else self.plan.brokers)[0]

    def start(self, *roles: str) -> float:
        """Start nodes and wait until each serves; return the seconds it took."""
        started = time.monotonic()
        selector = DefaultSelector()
        for role in roles:
            reader, writer = os.pipe()
            path = properties_of(role, self.node(role))
            with self.log.open("ab") as log:
                self.running[role] = subprocess.Popen(
                    [sys.executable, "-m", "ottla.cli", role, str(path)],
                    pass_fds=(writer,),
                    env={
                        **os.environ,
                        "OTTLA_READY_FD": str(writer),
                        "OTTLA_PARENT_PID": str(os.getpid()),
                    },
                    stdout=log,
                    stderr=log,
                )
            os.close(writer)
            selector.register(reader, EVENT_READ, role)
        for _ in roles:
            ready = selector.select(READY_TIMEOUT_S)
            assert ready, f"not ready: {self.log.read_text()[-3000:]}"
            for key, _events in ready:
                assert os.read(key.fd, 1) == b"+", f"{key.data}: {self.log.read_text()[-3000:]}"
                selector.unregister(key.fd)
                os.close(key.fd)
            if not selector.get_map():
                break
        selector.close()
        return time.monotonic() - started

    def kill(self, role: str) -> None:
        """End a node by SIGKILL."""
        self.end(role, signal.SIGKILL)

    def end(self, role: str, how: signal.Signals = signal.SIGTERM) -> int:
        """End a node and wait for it; return its exit code."""
        child = self.running.pop(role)
        child.send_signal(how)
        return child.wait(30)

    def stop_all(self) -> None:
        """End what still runs, brokers first."""
        for role in ("broker", "controller"):
            if role in self.running:
                self.end(role)


def make_processes(directory: Path, **settings: str) -> Processes:
    """Plan one controller and one broker on free ports; nothing is started yet."""
    plan = make_plan(directory, host="127.0.0.1", port=0, controllers=1, brokers=1)
    plan.settings = {key.replace("_", "."): value for key, value in settings.items()}
    plan.write_properties()
    return Processes(plan)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A running cluster that the tests of one module share."""
    processes = make_processes(tmp_path_factory.mktemp("cluster"))
    processes.start("controller", "broker")
    yield processes
    processes.stop_all()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Processes]:
    """A planned cluster of one test's own, not started."""
    processes = make_processes(tmp_path)
    yield processes
    processes.stop_all()
