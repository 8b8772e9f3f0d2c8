"""A command's body in a background process: `ottla up --detach`.

The process has a session of its own, reads nothing, and prints to a log file.  The command waits
until the body reports that it is ready, prints the report, and returns.  If the body ends first,
or the command is interrupted, nothing is left running.
"""

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import IO, NoReturn

from ottla.cli.terminal import draw, is_watched, note, say_block, wipe

FAILED = 1
LOG_BYTES_MAX = 16 << 20
"""What the log file may hold; past it, it starts again, so that it never fills a disk."""
LOG_LOOK_S = 60.0
SHOWN_BYTES_MAX = 1 << 16
"""What the command shows of the log of a start; more would flood the terminal."""
LOOK_S = 0.1
"""How often a person sees the elapsed time change."""

Report = Callable[[str], None]
"""Tells the waiting command that the body is ready, with the text to print."""


def run_detached(body: Callable[[Report], int], log: Path, *, name: str) -> int:
    """Run `body` in a background process; return 0 when it is ready, 1 if it ended before."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a+b") as printed:  # open before the body, which may remove the directory
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
    signal.signal(signal.SIGTERM, _raise_interrupt)
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
    """Run the body in this forked process, and end with its code."""
    code = FAILED
    try:
        os.setsid()
        _redirect(log)
        os.set_inheritable(writer, False)
        code = body(lambda text: _report_and_go_on(writer, text, log))
    except SystemExit as ending:
        code = int(ending.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path) -> None:
    """Have nothing to read, and the log to print to: no terminal or pipe of the caller stays."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    # Appending, so that the log may be emptied while nodes print to it.
    to_log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(nothing, 0)
    os.dup2(to_log, 1)
    os.dup2(to_log, 2)
    os.close(nothing)
    os.close(to_log)


def _report_and_go_on(writer: int, text: str, log: Path) -> None:
    _report(writer, text)
    # Not before: what is ready by now may have been forked, which a thread forbids.
    threading.Thread(target=_bound_log, args=(log,), daemon=True).start()


def _report(writer: int, text: str) -> None:
    """Hand the text over.  Raises KeyboardInterrupt if the waiting command is gone."""
    try:
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(text.encode())
    except BrokenPipeError:
        raise KeyboardInterrupt from None


def _wait_for_report(reader: int, name: str) -> str:
    """Return the whole text, or nothing if the process ended."""
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


def _bound_log(log: Path) -> None:
    while True:
        time.sleep(LOG_LOOK_S)
        try:
            if log.stat().st_size > LOG_BYTES_MAX:
                os.truncate(log, 0)
        except OSError:
            pass  # the directory may be gone before the process


def _raise_interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt
