"""`ottla up`: a local cluster of real processes, which live as long as this command does."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from ottla.cli.cluster_file import (
    PORT_DEFAULT,
    PORT_END,
    Node,
    Plan,
    make_plan,
    properties_of,
)
from ottla.cli.cluster_format import format_plan
from ottla.cli.common import DIRECTORY_DEFAULT, is_watched, note, table
from ottla.model.errors import ConfigError

READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
REFUSED = 1
UNHEALTHY = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of 'ottla up'."""
    parser.add_argument(
        "--controllers", type=int, choices=(1,), default=1, metavar="1", help="how many: one"
    )
    parser.add_argument(
        "--brokers", type=int, choices=(1,), default=1, metavar="1", help="how many: one"
    )
    parser.add_argument("--host", default="localhost", help="address to listen on")
    parser.add_argument(
        "--port",
        type=_port,
        help="the first broker's port (default: the one it had, else "
        f"{PORT_DEFAULT}); 0 takes a free one",
    )
    parser.add_argument(
        "--dir",
        default=DIRECTORY_DEFAULT,
        help=f"where the data lives (default: {DIRECTORY_DEFAULT})",
    )
    parser.add_argument(
        "--ephemeral", action="store_true", help="use a temporary directory, removed at the end"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a Kafka setting for every node",
    )


def run(arguments: argparse.Namespace) -> int:
    """Start the cluster, say what to do next, and wait for the end."""
    directory = Path(tempfile.mkdtemp(prefix="ottla-") if arguments.ephemeral else arguments.dir)
    try:
        plan = make_plan(
            directory,
            host=arguments.host,
            port=arguments.port,
            controllers=arguments.controllers,
            brokers=arguments.brokers,
        )
        plan.settings = dict(_assignment(text) for text in arguments.set)
        plan.write_properties()
        format_plan(plan)
        return LocalCluster(plan).run()
    finally:
        if arguments.ephemeral:
            shutil.rmtree(directory, ignore_errors=True)


class LocalCluster:
    """The processes of one plan; owns them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> int:
        """Start all nodes, wait until they end or we are told to stop; return the exit code."""
        signal.signal(signal.SIGTERM, _raise_interrupt)
        started = time.monotonic()
        try:
            self._start_all()
            code = self._wait_ready(started)
            if code != 0:
                return code
            self._tell(time.monotonic() - started)
            return self._watch()
        except KeyboardInterrupt:
            note("stopping …")
            return 0
        finally:
            self._stop_all()

    def _start_all(self) -> None:
        self._readable = DefaultSelector()
        for role, nodes in (
            ("controller", self._plan.controllers),
            ("broker", self._plan.brokers),
        ):
            for node in nodes:
                reader, writer = os.pipe()
                child = self._start(role, node, writer)
                os.close(writer)
                node.pid = child.pid
                self._children[f"{role} {node.id}"] = child
                self._readable.register(reader, EVENT_READ, f"{role} {node.id}")
        self._plan.write()

    def _start(self, role: str, node: Node, writer: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "ottla.cli", role, str(properties_of(role, node))]
        environment = {
            **os.environ,
            "OTTLA_READY_FD": str(writer),
            "OTTLA_PARENT_PID": str(os.getpid()),
        }
        # A session of their own: an interrupt from the terminal reaches us alone, and we stop
        # brokers before controllers.
        return subprocess.Popen(
            command, pass_fds=(writer,), env=environment, start_new_session=True
        )

    def _wait_ready(self, started: float) -> int:
        """Wait until all serve; return 0, or why they do not: 1 refused, 2 unhealthy."""
        waiting = set(self._children)
        while waiting:
            if is_watched():
                waited = time.monotonic() - started
                print(
                    f"\r\033[Kstarting {', '.join(sorted(waiting))} … {waited:.1f} s",
                    end="",
                    file=sys.stderr,
                    flush=True,
                )
            for key, _ in self._readable.select(timeout=0.1):
                is_ready = os.read(key.fd, 1) == b"+"
                self._readable.unregister(key.fd)
                os.close(key.fd)
                if not is_ready:
                    self._clear_line()
                    note(f"ottla up: {key.data} ended before it was ready; its reason is above")
                    return REFUSED if self._children[key.data].wait() == REFUSED else UNHEALTHY
                waiting.discard(key.data)
            if time.monotonic() - started > READY_TIMEOUT_S:
                self._clear_line()
                note(f"ottla up: {', '.join(sorted(waiting))} not ready in {READY_TIMEOUT_S:g} s")
                return UNHEALTHY
        self._clear_line()
        return 0

    def _clear_line(self) -> None:
        if is_watched():
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def _tell(self, seconds: float) -> None:
        plan = self._plan
        rows = [("controller", n.id, n.address, n.pid, n.dir) for n in plan.controllers]
        rows += [("broker", n.id, n.address, n.pid, n.dir) for n in plan.brokers]
        where = f"--bootstrap {plan.bootstrap}"
        print(f"Ottla is ready ({seconds:.1f} s).\n")
        print(table(("NODE", "ID", "ADDRESS", "PID", "DIRECTORY"), rows))
        print(
            "\nNext:\n"
            f"  ottla topic create greetings --partitions 3 {where}\n"
            f"  echo hello | ottla produce greetings {where}\n"
            f"  ottla consume greetings -e {where}\n"
            f"  ottla status {where}\n\n"
            f"Any Kafka client works: bootstrap.servers={plan.bootstrap}.  Ctrl-C stops it all.",
            flush=True,
        )

    def _watch(self) -> int:
        """Wait until every node has ended; name each that ended on its own."""
        while self._children:
            try:
                pid, status = os.waitpid(-1, 0)
            except ChildProcessError:
                return UNHEALTHY
            for name, child in list(self._children.items()):
                if child.pid == pid:
                    child.returncode = os.waitstatus_to_exitcode(status)
                    del self._children[name]
                    self._report(name, child.returncode)
        return 0

    def _report(self, name: str, code: int) -> None:
        if code == 0:
            note(f"{name} was told to stop, and did")
            return
        role, _, identity = name.partition(" ")
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        path = Path(self._plan.directory).resolve() / f"{role}-{identity}.properties"
        note(f"{name} {how}; start it again with: ottla {role} {path}")

    def _stop_all(self) -> None:
        # Brokers first: their controlled shutdown needs a controller.
        for role in ("broker", "controller"):
            children = [c for name, c in self._children.items() if name.startswith(role)]
            for child in children:
                child.terminate()
            for child in children:
                try:
                    child.wait(STOP_TIMEOUT_S)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def _port(text: str) -> int:
    port = int(text)
    if port not in range(PORT_END):
        raise argparse.ArgumentTypeError(f"{port} is no port; it must be below {PORT_END}")
    return port


def _raise_interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


def _assignment(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError("--set", f"is {text!r}; it must be KEY=VALUE")
    return key.strip(), value.strip()
