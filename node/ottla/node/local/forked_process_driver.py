"""Child processes that are forked together with all modules that this process has imported. Forking
takes some ms.

Only a process with one thread may fork (invariant OneThreadForks): a lock that another thread holds
at the time of the fork would stay locked in the child. The child gets a session of its own,
standard input and output, and Python's default signal handlers. It gets no other descriptors of its
parent.
"""

import gc
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

FAILED = 1
STANDARD_DESCRIPTORS = 3
DESCRIPTORS_END = 1 << 30
"""End of the range of file descriptors that are closed in a forked child. The kernel closes a whole
range at once, so descriptors that are not open cost nothing."""
NAME_BYTES_MAX = 15
"""Maximum length of a process name in bytes, as limited by the kernel."""

_TASKS = Path("/proc/self/task")


def name_process(name: str) -> None:
    """Set the name of this process in `ps` and `top`.  Does nothing on systems without /proc."""
    with suppress(OSError):
        Path("/proc/self/comm").write_bytes(name.encode()[:NAME_BYTES_MAX])


def may_fork() -> bool:
    """Return whether this process has only one thread, so that it may fork. Threads that libraries
    have started also count."""
    return len(list(_TASKS.iterdir())) == 1


class ForkedProcess:
    """Forked child process, with the interface of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """Exit code of the forked process, negative for a signal. None until the exit code is
        known."""

    def poll(self) -> int | None:
        """Return the exit code of the forked process, or None while it is running."""
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the forked process has ended, and return its exit code. Raises TimeoutExpired,
        as Popen does."""
        if self.poll() is None:
            descriptor = os.pidfd_open(self.pid)
            try:
                waiting = select.poll()
                waiting.register(descriptor)
                waiting.poll(None if timeout is None else timeout * 1_000)
            finally:
                os.close(descriptor)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the forked process. Does nothing if the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to the forked process, so that it can shut down cleanly."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the forked process at once (SIGKILL)."""
        self.send_signal(signal.SIGKILL)


def fork_process(
    body: Callable[[], int],
    *,
    name: str,
    environment: Mapping[str, str] | None = None,
    kept: Collection[int] = (),
) -> ForkedProcess:
    """Run the function `body` in a forked process, which exits with the code that `body` returns.

    The variables in `environment` are added to the environment of this process. The descriptors in
    `kept` stay open in the child. `ps` shows the child as `name`.
    """
    assert may_fork()
    sys.stdout.flush()
    sys.stderr.flush()
    # Keeps the garbage collectors of both processes from writing to the memory pages that they
    # share.
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _run(body, name, environment or {}, kept)
    return ForkedProcess(pid)


def _run(
    body: Callable[[], int], name: str, environment: Mapping[str, str], kept: Collection[int]
) -> NoReturn:
    """Run the function `body` in the forked child, and exit. Control never returns to the stack
    frames of the parent."""
    code = FAILED
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        _close_all_but(kept)
        sys.stdout, sys.stderr = _writes_to(sys.stdout, 1), _writes_to(sys.stderr, 2)
        name_process(name)
        os.environ.update(environment)
        code = body()
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # The reader has closed the pipe.
                stream.flush()
        os._exit(code)


def _writes_to(stream: TextIO, descriptor: int) -> TextIO:
    """Return a text stream that writes to a file descriptor: `stream` if it writes to this
    descriptor, or else a new stream.

    A `stream` that writes to another descriptor is useless, because the child closes that
    descriptor.
    """
    with suppress(OSError, ValueError):
        if stream.fileno() == descriptor:
            return stream
    return open(descriptor, "w", buffering=1, closefd=False)


def _close_all_but(kept: Collection[int]) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    start = STANDARD_DESCRIPTORS
    for descriptor in sorted(kept):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, DESCRIPTORS_END)
