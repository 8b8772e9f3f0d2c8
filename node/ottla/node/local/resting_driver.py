"""Program of a process that only waits for its child processes or a signal, and then executes a
command in its place.

A supervisor of nodes has imported 30 MB of modules from which it has forked them, and does nothing
until a node ends. It executes this program meanwhile, which keeps the process id and the children,
and takes 4 MB because it imports hardly any modules.

    python -I -S resting_driver.py LOG COMMAND...

LOG is the file of this process's output, or empty. While the process waits, a LOG that has grown
above `LOG_BYTES_MAX` is emptied, so that it never fills a disk. The caller blocks `SIGNALS` before
it executes this program. They stay blocked and pending for COMMAND, so that none is lost.
"""

import os
import signal
import sys

SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
LOG_BYTES_MAX = 16 << 20
LOG_LOOK_S = 60.0


def bound_log(path: str) -> None:
    """Empty the log file at `path` if it is too large. Does nothing if it does not exist."""
    try:
        if os.stat(path).st_size > LOG_BYTES_MAX:
            os.truncate(path, 0)
    except OSError:
        pass  # the directory may be removed before the process ends


def is_child_dead() -> bool:
    """Return whether a child process has ended and is not waited for yet. A stopped or continued
    child also causes SIGCHLD."""
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def rest(log: str) -> None:
    """Wait until a child process ends, or a signal arrives that ends this process. That signal is
    pending afterwards."""
    while True:
        found = signal.sigtimedwait(SIGNALS, LOG_LOOK_S)
        if found is None:
            if log:
                bound_log(log)
        elif found.si_signo != signal.SIGCHLD:
            os.kill(os.getpid(), found.si_signo)
            return
        elif is_child_dead():
            return


if __name__ == "__main__":
    rest(sys.argv[1])
    os.execv(sys.argv[2], sys.argv[2:])
