"""Main program of a worker process, which compacts logs for the broker that started it.

Tasks arrive as lines on standard input, one after another; `cleaning_task` describes the dialogue.
The worker asks for permission before each further MiB of input and output, so that all compactions
share one rate and a task can be stopped. It runs with a high niceness. It exits at once when its
input ends, because the broker has then exited, and the next broker may already be using the same
files.
"""

import os
import signal
import sys
import threading
import time
import traceback
from contextlib import aclosing, suppress
from queue import SimpleQueue
from typing import BinaryIO, NoReturn

import trio

from ottla.model.errors import CorruptDataError
from ottla.model.limits import MIB
from ottla.storage.cleaner.clean_driver import clean
from ottla.storage.cleaner.cleaning_task import (
    GO,
    LINE_BYTES_MAX,
    BytesUsed,
    CleaningDone,
    CleaningFailed,
    CleaningTask,
    FailureKind,
    Report,
    parse_task,
    report_line,
)
from ottla.storage.disk.real_disk_driver import RealDisk

NICENESS = 10
"""Niceness of a worker process of the log cleaner. The process uses idle CPU time, and about a
tenth of a core if all cores are busy. With a higher niceness, a log on a busy machine grows without
limit. With a lower niceness, clients wait longer."""

AUTOGROUP = "/proc/self/autogroup"
"""Path of the file that sets the niceness of a whole session (sched(7)). Some kernels do not have
this file."""
ASK_BYTES = MIB
"""Number of bytes that a worker process reads and writes between two requests for permission to
continue. With a smaller number, the worker asks more often than the rate limit needs. With a larger
one, a stopped task runs for longer."""


class _StoppedError(Exception):
    """Error that ends a worker's task because the broker has answered `STOP`."""


def _end() -> NoReturn:
    """Exit this worker process at once, because the broker has exited and the next broker may
    already be using the same files."""
    os._exit(0)


class _Dialogue:
    """The worker's line-based connection to the broker, over standard input and output."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self._source = source
        self._sink = sink
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._used_bytes = 0
        threading.Thread(target=self._read_lines, daemon=True).start()

    def _read_lines(self) -> None:
        while (line := self._source.readline(LINE_BYTES_MAX + 1)).endswith(b"\n"):
            self._lines.put(line)
        _end()

    def next_line(self) -> bytes:
        """Wait for the next line from the broker on standard input, and return it."""
        return self._lines.get()

    def report(self, report: Report) -> None:
        """Write a report to the broker as one line, without waiting for an answer."""
        try:
            self._sink.write(report_line(report))
            self._sink.flush()
        except BrokenPipeError:
            _end()

    def ask(self, report: Report) -> None:
        """Write a report to the broker and wait for its answer. Raises _StoppedError if the answer
        is `STOP`."""
        self.report(report)
        if self.next_line() != GO:
            raise _StoppedError

    async def throttle(self, byte_count: int) -> None:
        """Count bytes that were read or written. After each `ASK_BYTES`, request the broker's
        permission to continue. Blocks the whole process while it waits."""
        self._used_bytes += byte_count
        if self._used_bytes >= ASK_BYTES:
            used, self._used_bytes = self._used_bytes, 0
            self.ask(BytesUsed(used))


async def _carry_out(task: CleaningTask, dialogue: _Dialogue) -> None:
    async with (
        RealDisk([task.directory]) as disk,
        aclosing(clean(disk, task, dialogue.throttle, now_s=time.monotonic)) as reports,
    ):
        async for report in reports:
            if isinstance(report, CleaningDone):
                dialogue.report(report)
            else:
                dialogue.ask(report)


def _serve(line: bytes, dialogue: _Dialogue) -> None:
    """Perform the compaction task in a line from the broker, and report its result or its
    failure."""
    try:
        trio.run(_carry_out, parse_task(line), dialogue)
    except _StoppedError:
        dialogue.report(CleaningFailed(FailureKind.STOPPED, "stopped"))
    except CorruptDataError as error:
        dialogue.report(CleaningFailed(FailureKind.CORRUPT, error.where))
    except OSError as error:
        where = f"{error.filename}: {error.strerror}"
        dialogue.report(CleaningFailed(FailureKind.DISK, where, error.errno or 0))
    except Exception as error:
        traceback.print_exc()
        dialogue.report(CleaningFailed(FailureKind.UNEXPECTED, repr(error)))


def _lower_priority() -> None:
    """Lower the scheduling priority of this process.

    Some kernels first divide processor time between sessions (autogroups). Niceness then has effect
    only within a session, so the cleaner would slow down the broker. Therefore the process gets its
    own session, and the session's autogroup gets the same niceness.
    """
    os.nice(NICENESS)
    with suppress(PermissionError):  # The process may be a session leader already.
        os.setsid()
    if os.getsid(0) == os.getpid():
        with suppress(OSError), open(AUTOGROUP, "w") as file:
            file.write(str(NICENESS))


def main() -> None:
    """Perform one compaction task of the broker after another, until the standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # terminals send it to the broker, too
    _lower_priority()
    dialogue = _Dialogue(sys.stdin.buffer, sys.stdout.buffer)
    while True:
        _serve(dialogue.next_line(), dialogue)


if __name__ == "__main__":
    main()
