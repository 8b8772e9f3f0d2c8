"""Nodes that are forked from one process which has imported their modules.

A new process of a node spends half a second of CPU on imports, which is most of what a test of a
small cluster costs. The warm parent is a child of the test session. It forks a node for each
request, and ends with the session; its nodes then end, too. `ottla up` starts its nodes in the same
way.
"""

import atexit
import json
import os
import re
import select
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, NoReturn, cast

from ottla.cli.cluster.forked_nodes import OF_ROLE, preload
from ottla.cli.process_title import show_as
from ottla.node.local import local_nodes_driver
from ottla.node.local.forked_process_driver import ForkedProcess, fork_process
from ottla.node.local.local_nodes_driver import (
    NODE_MODULE,
    PARENT_VARIABLE,
    READY_VARIABLE,
    LocalNode,
)

IS_WARM = sys.platform == "linux" and os.environ.get("OTTLA_FAULTS") != "full"
"""Fork the nodes of clusters. With OTTLA_FAULTS=full, each node imports its own modules."""

FREE_NAME = re.compile("OTTLA_")
"""Names of the variables that a node reads only after its imports."""

REQUEST_BYTES_MAX = 1 << 18
EXIT_CODE = struct.Struct("<i")
UNKNOWN_CODE = -1_000
"""Exit code of a node whose warm parent has ended."""


class WarmNode(ForkedProcess):
    """Node that the warm parent has forked. The parent reports its exit code over a pipe."""

    def __init__(self, pid: int, ending: int) -> None:
        super().__init__(pid)
        self._ending = ending

    def poll(self) -> int | None:
        """Return the exit code of the node, or None while it is running."""
        return self._look(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the node has ended, and return its exit code. Raises TimeoutExpired, as Popen
        does."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"node {self.pid}", timeout or 0.0)
        return code

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            waiting = select.poll()
            waiting.register(self._ending, select.POLLIN)
            if waiting.poll(None if timeout is None else timeout * 1_000):
                found = os.read(self._ending, EXIT_CODE.size)
                os.close(self._ending)
                self.returncode = EXIT_CODE.unpack(found)[0] if found else UNKNOWN_CODE
        return self.returncode


class WarmParent:
    """The process that forks nodes, started with the first node."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def fork_node(
        self,
        role: str,
        properties: Path,
        *,
        options: Sequence[str] = (),
        output: IO[bytes],
        environment: Mapping[str, str] | None = None,
    ) -> LocalNode:
        """Fork a node, and return it without waiting until it is ready."""
        words = [role, str(properties), *options]
        wanted = {**(os.environ if environment is None else environment)}
        request = json.dumps([words, str(Path.cwd()), wanted]).encode()
        assert len(request) <= REQUEST_BYTES_MAX
        reader, writer = os.pipe()
        ending, end = os.pipe()
        try:
            with self._lock:
                requests = self._connected()
                socket.send_fds(requests, [request], [output.fileno(), writer, end])
                pid = int(requests.recv(100))
        finally:
            os.close(writer)
            os.close(end)
        node = cast("subprocess.Popen[bytes]", WarmNode(pid, ending))
        return LocalNode(role, properties, node, reader)

    def _connected(self) -> socket.socket:
        if self._process is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES_MAX)
            with theirs:
                atexit.register(self.end)
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
        return self._requests

    def end(self) -> None:
        """End the process that forks nodes, which is without nodes now."""
        if self._process is not None:
            self._requests.close()
            self._process.wait()
            self._process = None


WARM_PARENT = WarmParent()
"""The warm parent of this session."""


def start_node(
    role: str,
    properties: Path,
    *,
    options: Sequence[str] = (),
    output: IO[bytes],
    environment: Mapping[str, str] | None = None,
    module: str = NODE_MODULE,
) -> LocalNode:
    """Start a node as the function of this name in `local_nodes_driver` does, but fork it if it
    need not be a new process."""
    if module == NODE_MODULE and may_fork_node(environment):
        return WARM_PARENT.fork_node(
            role, properties, options=options, output=output, environment=environment
        )
    return local_nodes_driver.start_node(
        role, properties, options=options, output=output, environment=environment, module=module
    )


def may_fork_node(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether a node with this environment (default: that of the session) may be forked: not
    if Python or the linker would read a variable at its start."""
    wanted = os.environ if environment is None else environment
    changed = {name for name, _text in wanted.items() ^ os.environ.items()}
    return IS_WARM and "LD_PRELOAD" not in wanted and all(map(FREE_NAME.match, changed))


def serve(requests: socket.socket) -> None:
    """Fork a node for each request until the session of the tests ends."""
    for role in OF_ROLE:
        preload(role)
    ends: dict[int, tuple[int, int]] = {}
    """Process id of each node and the pipe for its exit code, by the node's pidfd."""
    waiting = select.poll()
    waiting.register(requests, select.POLLIN)
    while True:
        for descriptor, _event in waiting.poll():
            if descriptor in ends:
                waiting.unregister(descriptor)
                os.close(descriptor)
                _report(*ends.pop(descriptor))
                continue
            request, given, _flags, _address = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
            if not request:
                return
            output, writer, end = given
            (words, directory, environment) = json.loads(request)
            process = fork_process(
                partial(_run_node, words, Path(directory), environment, output, writer),
                name=Path(words[1]).stem,
                kept=(output, writer),
            )
            os.close(output)
            os.close(writer)
            waited = os.pidfd_open(process.pid)
            ends[waited] = (process.pid, end)
            waiting.register(waited, select.POLLIN)
            requests.send(str(process.pid).encode())


def _report(pid: int, end: int) -> None:
    _pid, status = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):  # The test has dropped the node.
        os.write(end, EXIT_CODE.pack(os.waitstatus_to_exitcode(status)))
    os.close(end)


def _run_node(
    words: list[str], directory: Path, environment: Mapping[str, str], output: int, writer: int
) -> NoReturn:
    from ottla.cli.main import main

    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    os.environ[READY_VARIABLE] = str(writer)
    os.environ[PARENT_VARIABLE] = str(os.getppid())
    sys.argv[1:] = words
    show_as(["ottla", *words], ["ottla", words[0], Path(words[1]).name])
    main(words)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
