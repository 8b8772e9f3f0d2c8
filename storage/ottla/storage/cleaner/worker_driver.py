"""A process that carries out cleanings for a broker, which starts this module.

Tasks arrive as lines on standard input, one after the other; `cleaning_task` has the dialogue.  The
process asks before each further MiB of input and output, so that all cleanings share one rate and
a task can be stopped.  It is niced.  It ends at once when its input does: the broker is gone, and
the next one may already be working on the same files.
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
from ottla.storage.disk import RealDisk

NICENESS = 19
"""How far the process stands back behind all others: cleaning can wait, clients cannot.  It takes
what is left of the machine, and a sixtieth of a core where nothing is."""

AUTOGROUP = "/proc/self/autogroup"
"""Where Linux keeps the niceness of a session (sched(7)); not all kernels do."""
ASK_BYTES = MIB
"""Bytes read and written between two questions.  Fewer ask more often than a rate needs, more let
a stopped task go on for longer."""


class _StoppedError(Exception):
    """The broker wants the task to end."""


def _end() -> NoReturn:
    """End at once: there is no broker to answer, and its files may be another's by now."""
    os._exit(0)


class _Dialogue:
    """The lines to and from the broker."""

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
        """Wait for a line."""
        return self._lines.get()

    def tell(self, report: Report) -> None:
        """Write a report."""
        try:
            self._sink.write(report_line(report))
            self._sink.flush()
        except BrokenPipeError:
            _end()

    def ask(self, report: Report) -> None:
        """Write a report and wait for its answer.  Raises _StoppedError if it is not to go on."""
        self.tell(report)
        if self.next_line() != GO:
            raise _StoppedError

    async def throttle(self, byte_count: int) -> None:
        """Count bytes, and ask when there are many.  Nothing else runs while it waits."""
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
                dialogue.tell(report)
            else:
                dialogue.ask(report)


def _serve(line: bytes, dialogue: _Dialogue) -> None:
    """Carry out one task; whatever comes of it is reported."""
    try:
        trio.run(_carry_out, parse_task(line), dialogue)
    except _StoppedError:
        dialogue.tell(CleaningFailed(FailureKind.STOPPED, "stopped"))
    except CorruptDataError as error:
        dialogue.tell(CleaningFailed(FailureKind.CORRUPT, error.where))
    except OSError as error:
        where = f"{error.filename}: {error.strerror}"
        dialogue.tell(CleaningFailed(FailureKind.DISK, where, error.errno or 0))
    except Exception as error:
        traceback.print_exc()
        dialogue.tell(CleaningFailed(FailureKind.UNEXPECTED, repr(error)))


def _stand_back() -> None:
    """Be nice.

    Where the kernel shares processors out between sessions first, niceness counts within one only:
    the broker would pay for what its cleaner takes.  So the process has a session of its own, which
    is as nice.
    """
    os.nice(NICENESS)
    with suppress(PermissionError):  # it may lead one already
        os.setsid()
    if os.getsid(0) == os.getpid():
        with suppress(OSError), open(AUTOGROUP, "w") as file:
            file.write(str(NICENESS))


def main() -> None:
    """Serve one task after the other until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the broker, too
    _stand_back()
    dialogue = _Dialogue(sys.stdin.buffer, sys.stdout.buffer)
    while True:
        _serve(dialogue.next_line(), dialogue)


if __name__ == "__main__":
    main()
