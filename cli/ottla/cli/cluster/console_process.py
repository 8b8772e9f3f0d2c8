"""Starts and stops the console (web pages) of a local cluster: a process that `ottla up` runs
beside the nodes.

`ottla up` opens the console's socket and creates its key, so that the address is known before the
console has started. A browser that connects earlier waits. The console ends when its standard input
ends, even if `ottla up` is killed.
"""

import os
import secrets
import socket
import sys
from importlib.util import find_spec
from subprocess import TimeoutExpired

from ottla.cli.cluster.cluster_file import ClusterPlan
from ottla.cli.cluster.console import (
    KEY_VARIABLE,
    LISTEN_DEFAULT,
    PORT_DEFAULT,
    SOCKET_VARIABLE,
)
from ottla.model.install_hint import install_hint
from ottla.node.local.forked_process_driver import ForkedProcess
from ottla.node.local.local_nodes_driver import NodeProcess

SWITCH_VARIABLE = "OTTLA_CONSOLE"
"""Name of the environment variable that controls the console of `ottla up`. If its value is `off`,
`ottla up` starts no console."""
NEEDED = ("hypercorn", "jinja2", "starlette")
STOP_TIMEOUT_S = 2.0
KEY_BYTES = 32


class RunningConsole:
    """Running process of a console. The console ends when its standard input ends, even if the
    process that started it is killed."""

    def __init__(self, process: NodeProcess, stdin_writer: int) -> None:
        """Take over a console process, and the pipe that is its standard input."""
        self._process = process
        self._stdin_writer = stdin_writer

    @classmethod
    def taken_over(cls, pid: int, stdin_writer: int) -> "RunningConsole":
        """Return the console that this process started before it executed another program."""
        os.set_inheritable(stdin_writer, False)
        return cls(ForkedProcess(pid), stdin_writer)

    def handed_over(self) -> tuple[int, int]:
        """Return the arguments of `taken_over`. The pipe stays open in the next program of this
        process."""
        os.set_inheritable(self._stdin_writer, True)
        return self._process.pid, self._stdin_writer

    def stop(self) -> None:
        """Stop the console's process, and kill it if it does not end in time."""
        os.close(self._stdin_writer)
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LocalConsole:
    """The console (web pages) of a local cluster. Its socket is open before its process is
    started."""

    def __init__(self, plan: ClusterPlan) -> None:
        self._directory = plan.directory
        self._socket = _open_socket()
        self._key = "" if plan.secure is None else secrets.token_hex(KEY_BYTES)

    @property
    def address(self) -> str:
        """Address of the console, to open in a browser. It contains a key if clients of the cluster
        must log in."""
        port = self._socket.getsockname()[1]
        end = f"login?key={self._key}" if self._key else ""
        return f"http://{LISTEN_DEFAULT}:{port}/{end}"

    def start(self) -> RunningConsole:
        """Start the console's process, and return it. Its output is written to
        logs/console.log."""
        import subprocess  # imported after the cluster is ready

        number = self._socket.fileno()
        command = [
            sys.executable,
            "-P",
            "-m",
            "ottla.cli",
            "console",
            "--dir",
            str(self._directory),
        ]
        known = {**os.environ, SOCKET_VARIABLE: str(number), KEY_VARIABLE: self._key}
        log = self._directory / "logs" / "console.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        reader, writer = os.pipe()
        with log.open("ab") as output:
            process = subprocess.Popen(
                command,
                env=known,
                pass_fds=(number,),
                stdin=reader,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        os.close(reader)
        self._socket.close()
        return RunningConsole(process, writer)


def local_console(plan: ClusterPlan, *, is_wanted: bool) -> LocalConsole | None:
    """Return the console (web pages) of a local cluster, which is not started yet. Returns None if
    the user does not want it, or if its packages are not installed."""
    if not is_wanted or is_off() or missing_extra():
        return None
    return LocalConsole(plan)


def is_off() -> bool:
    """Return whether the environment variable OTTLA_CONSOLE switches the console of `ottla up`
    off."""
    return os.environ.get(SWITCH_VARIABLE, "").lower() == "off"


def missing_extra() -> str:
    """Return the command that installs the console's packages, or an empty text if they are
    installed."""
    return "" if all(map(find_spec, NEEDED)) else install_hint("console")


def _open_socket() -> socket.socket:
    try:
        return socket.create_server((LISTEN_DEFAULT, PORT_DEFAULT))
    except OSError:
        return socket.create_server((LISTEN_DEFAULT, 0))
