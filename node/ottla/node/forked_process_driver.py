"""Processes forked from this one: they begin with all that it has imported, in some ms.

Only for a process with one thread (Invariant OneThreadForks): a lock that another thread holds at
the fork stays locked in the child.  The child has a session, standard input and output of its
own, no other descriptor of its parent's, and Python's own signal handlers.
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
"""Closing what is not open costs nothing: the kernel closes ranges."""
NAME_BYTES_MAX = 15
"""What the kernel keeps of a process's name."""

_TASKS = Path("/proc/self/task")


def may_fork() -> bool:
    """Return whether this process has but one thread, those of libraries included."""
    return len(list(_TASKS.iterdir())) == 1


class ForkedProcess:
    """A child process, with what `subprocess.Popen` has for one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """How it ended, negative for a signal; None while that is not known."""

    def poll(self) -> int | None:
        """Return how it ended; None while it runs."""
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it ended, and return how.  Raises TimeoutExpired as Popen does."""
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
        """Send a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def fork_process(
    body: Callable[[], int],
    *,
    name: str,
    environment: Mapping[str, str] | None = None,
    kept: Collection[int] = (),
) -> ForkedProcess:
    """Run `body` in a process forked from this one; it ends with the code that `body` returns.

    `environment` is added to ours, `kept` descriptors stay open in it, `ps` shows it as `name`.
    """
    assert may_fork()
    sys.stdout.flush()
    sys.stderr.flush()
    # Its collections, and ours, shall not write to pages that both have.
    gc.freeze()
    pid = os.fork()
    if pid == 0:
        _run(body, name, environment or {}, kept)
    return ForkedProcess(pid)


def _run(
    body: Callable[[], int], name: str, environment: Mapping[str, str], kept: Collection[int]
) -> NoReturn:
    """Run the body in this child.  The parent's frames below are never left: nothing of it ends."""
    code = FAILED
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.setsid()
        _close_all_but(kept)
        sys.stdout, sys.stderr = _writes_to(sys.stdout, 1), _writes_to(sys.stderr, 2)
        Path("/proc/self/comm").write_bytes(name.encode()[:NAME_BYTES_MAX])
        os.environ.update(environment)
        code = body()
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # the reader has gone
                stream.flush()
        os._exit(code)


def _writes_to(stream: TextIO, descriptor: int) -> TextIO:
    """Return the stream if it writes to that descriptor, else one that does: others are closed."""
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
