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
from contextlib import aclosing
from queue import SimpleQueue
from typing import BinaryIO

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

NICENESS = 10
"""How far the process stands back behind the broker's own: cleaning can wait, clients cannot."""
ASK_BYTES = MIB
"""Bytes read and written between two questions.  Fewer ask more often than a rate needs, more let
a stopped task go on for longer."""


class _StoppedError(Exception):
    """The broker wants the task to end."""


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
        os._exit(0)  # there is no broker to answer, and its files may be another's by now

    def next_line(self) -> bytes:
        """Wait for a line."""
        return self._lines.get()

    def tell(self, report: Report) -> None:
        """Write a report."""
        self._sink.write(report_line(report))
        self._sink.flush()

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


def main() -> None:
    """Serve one task after the other until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's goes to the broker, too
    os.nice(NICENESS)
    dialogue = _Dialogue(sys.stdin.buffer, sys.stdout.buffer)
    while True:
        _serve(dialogue.next_line(), dialogue)


if __name__ == "__main__":
    main()
