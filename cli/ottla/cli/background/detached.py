"""Runs a command in a background process, as `ottla up --detach` does.

The process has its own session, reads no input, and prints to a log file. The command waits until
the process reports that it is ready, prints the report, and returns. If the process ends first, or
the command is interrupted, no process is left running.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from select import select
from typing import IO, NoReturn

from ottla.cli.terminal import draw, is_watched, note, say_block, wipe
from ottla.node.local.interrupts_driver import interrupt

FAILED = 1
SHOWN_BYTES_MAX = 1 << 16
"""Maximum bytes of new lines in the background process's log file that the command prints. More
lines would flood the terminal."""
LOOK_S = 0.1
"""Seconds between two updates of the elapsed time, which the command shows while it waits for its
background process."""

Report = Callable[[str], None]
"""Function that a background process calls when it is ready. Its argument is the text that the
command prints."""


def run_detached(body: Callable[[Report], int], log: Path, *, name: str) -> int:
    """Run the function `body` in a background process. Returns 0 once `body` has reported that it
    is ready, or 1 if the process ends first."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+b") as printed:  # opened first: the body may remove its directory
        return _run_and_wait(body, log, printed, name)


def _run_and_wait(body: Callable[[Report], int], log: Path, printed: IO[bytes], name: str) -> int:
    start_offset = printed.seek(0, os.SEEK_END)
    reader, writer = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _run_in_background(body, log, writer)
    os.close(writer)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        text = _wait_for_report(reader, name)
    except KeyboardInterrupt:
        note(f"stopping {name} …")
        os.kill(child, signal.SIGTERM)
        text = ""
    finally:
        os.close(reader)
    if not text:
        os.waitpid(child, 0)
    printed.seek(start_offset)
    lines = printed.read(SHOWN_BYTES_MAX).decode(errors="replace").rstrip("\n")
    if lines:
        note(lines)
    if not text:
        return FAILED
    say_block(text)
    return 0


def _run_in_background(body: Callable[[Report], int], log: Path, writer: int) -> NoReturn:
    """Run the function `body` in this forked process, and exit with the exit code that it
    returns."""
    code = FAILED
    try:
        os.setsid()
        _redirect(log)
        os.set_inheritable(writer, False)
        code = body(partial(_report, writer))
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    """Redirect standard input of a background process to /dev/null, and its standard output and
    error to the log file. No terminal or pipe of the caller stays open."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    # Opened for appending, so that the log can be emptied while nodes print to it.
    to_log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(to_log, 1)
    os.dup2(to_log, 2)
    os.close(nothing)
    os.close(to_log)


def _report(writer: int, text: str) -> None:
    """Send the report of a background process to the command that waits for it. Raises
    KeyboardInterrupt if that command has ended."""
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(text.encode())
    except BrokenPipeError:
        raise KeyboardInterrupt from None


def _wait_for_report(reader: int, name: str) -> str:
    """Wait for the report of a background process, and return it. Returns an empty string if the
    process ended without a complete report."""
    began_at = time.monotonic()
    parts = []
    while True:
        ready, _, _ = select([reader], [], [], LOOK_S)
        if ready:
            part = os.read(reader, 1 << 16)
            if not part:
                break
            parts.append(part)
        elif is_watched():
            draw(f"starting {name} … {time.monotonic() - began_at:.1f} s")
    if is_watched():
        wipe()
    return b"".join(parts).decode()
