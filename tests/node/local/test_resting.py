"""The program that waits in place of a supervisor: it misses no signal, and keeps its log small."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.node.local import resting_driver
from ottla.node.local.resting_driver import LOG_BYTES_MAX, bound_log

PATIENCE_S = 30.0
BEFORE = f"""
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT))
child = os.fork()
if child == 0:
    signal.pause() if sys.argv[1] == "waits" else os._exit(3)
print(child, flush=True)
os.execv(sys.executable, [
    sys.executable, "-I", "-S", {resting_driver.__file__!r}, "", sys.executable, "-c", sys.argv[2]
])
"""
AFTER = """
import os, signal
print(sorted(map(int, signal.sigpending())), os.waitpid(-1, os.WNOHANG)[1] >> 8, flush=True)
"""


def resting(child: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", BEFORE, child, AFTER]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_the_end_of_a_child_ends_the_rest() -> None:
    with resting("ends") as process:
        said, _ = process.communicate(timeout=PATIENCE_S)

    assert said.splitlines()[1] == "[] 3"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_ends_the_rest_is_left_to_the_next_program(number: signal.Signals) -> None:
    with resting("waits") as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        os.kill(child, signal.SIGSTOP)  # SIGCHLD without the end of a child
        process.send_signal(number)
        try:
            said = process.stdout.readline()
        finally:
            os.kill(child, signal.SIGKILL)

    assert said in (f"[{int(number)}] 0\n", f"[{int(number)}, {int(signal.SIGCHLD)}] 0\n")


def test_a_log_that_has_grown_too_large_is_emptied(tmp_path: Path) -> None:
    log = tmp_path / "up.log"
    for size, left in ((LOG_BYTES_MAX, LOG_BYTES_MAX), (LOG_BYTES_MAX + 1, 0)):
        with log.open("wb") as file:
            file.truncate(size)

        bound_log(str(log))

        assert log.stat().st_size == left
    bound_log(str(tmp_path / "missing"))
