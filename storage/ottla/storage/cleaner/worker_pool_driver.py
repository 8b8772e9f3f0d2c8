"""Runner that compacts logs in worker processes, so that the broker's event loop is never blocked.

A worker process is started with exec when there is a task. It receives tasks one after another over
its pipes. The process is ended when no task is left, which releases its memory. If a worker dies or
breaks the protocol, its compaction fails and the worker is counted.
"""

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

import trio

from ottla.model.errors import CorruptDataError
from ottla.storage.cleaner.cleaning_runner import WorkerDiedError
from ottla.storage.cleaner.cleaning_task import (
    GO,
    LINE_BYTES_MAX,
    BytesUsed,
    CleanedGroup,
    CleaningDone,
    CleaningFailed,
    CleaningTask,
    FailureKind,
    Report,
    Throttle,
    parse_report,
    task_line,
)

COMMAND = (sys.executable, "-m", "ottla.storage.cleaner.worker_driver")

PATIENCE_S = 5.0
"""Time in seconds within which an idle worker process must exit after its input was closed. The
process is killed after this time."""

CHUNK_BYTES = 64 * 1024


def _parsed(line: bytes) -> Report:
    """Return the report that a line from a worker process contains. Raises WorkerDiedError if the
    line is not a report."""
    try:
        return parse_report(line)
    except CorruptDataError as error:
        raise WorkerDiedError(f"a worker process sent no report: {error.where}") from None


def _error_of(failed: CleaningFailed) -> Exception:
    """Return the exception for a failed compaction. A compaction in the broker's own process raises
    the same exception."""
    match failed.kind:
        case FailureKind.CORRUPT:
            return CorruptDataError(failed.where)
        case FailureKind.DISK:
            number = failed.error_number
            return OSError(number, os.strerror(number), failed.where)
    return WorkerDiedError(f"a worker process gave up: {failed.where}")


class _Worker:
    """One worker process that compacts logs, with its pipes."""

    def __init__(self, process: trio.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._received = bytearray()

    async def send(self, line: bytes) -> None:
        """Write a line to the worker process. Raises WorkerDiedError if the process has closed its
        input."""
        try:
            await self._stdin.send_all(line)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise WorkerDiedError(f"the worker process {self.process.pid} is gone") from None

    async def receive(self) -> bytes:
        """Return the next line from the worker process. Raises WorkerDiedError if the process ended
        or sent no complete line."""
        searched = 0
        while (end := self._received.find(b"\n", searched)) < 0:
            searched = len(self._received)
            if searched > LINE_BYTES_MAX:
                raise WorkerDiedError(f"the worker process {self.process.pid} sends no lines")
            chunk = await self._stdout.receive_some(CHUNK_BYTES)
            if not chunk:
                raise WorkerDiedError(f"the worker process {self.process.pid} died")
            self._received += chunk
        line = bytes(self._received[: end + 1])
        del self._received[: end + 1]
        return line

    async def end(self) -> None:
        """Close the input of the worker process and wait for its exit. Kills the process after
        `PATIENCE_S` seconds."""
        with trio.CancelScope(shield=True):
            with trio.move_on_after(PATIENCE_S):
                await self._stdin.aclose()
                await self.process.wait()
            await self.kill()

    async def kill(self) -> None:
        """Kill the worker process and wait for its end."""
        with trio.CancelScope(shield=True):
            with suppress(ProcessLookupError):
                self.process.kill()
            await self.process.wait()
            await self._stdin.aclose()
            await self._stdout.aclose()


class WorkerPool:
    """The worker processes that compact logs for one broker, including idle ones."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.died_count = 0
        """Number of worker processes that ended during a compaction, since the start of the
        broker."""
        self.dead_count = 0
        """Number of worker processes that died and have not been replaced yet. The next compaction
        replaces one of them."""
        self._command = command
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()

    @property
    def pids(self) -> list[int]:
        """Process ids of all worker processes in the pool."""
        return [worker.process.pid for worker in (*self._idle, *self._busy)]

    @asynccontextmanager
    async def run(
        self, task: CleaningTask, throttle: Throttle
    ) -> AsyncIterator[AsyncIterator[CleanedGroup | CleaningDone]]:
        """Compact a log in a worker process. The `async with` block receives an iterator over the
        results. If the block ends before the compaction, the worker is killed."""
        worker = self._idle.pop() if self._idle else await self._start()
        # A cleaning that finds no idle worker starts one, which replaces a dead one.
        self.dead_count = max(0, self.dead_count - 1)
        self._busy.add(worker)
        is_over = False
        try:
            async with aclosing(self._reports(worker, task, throttle)) as reports:
                yield reports
            is_over = True
        except WorkerDiedError:
            self.died_count += 1
            self.dead_count += 1
            raise
        finally:
            self._busy.discard(worker)
            if is_over:
                self._idle.append(worker)
            else:
                await worker.kill()

    async def _start(self) -> _Worker:
        return _Worker(
            await trio.lowlevel.open_process(
                list(self._command), stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        )

    async def _reports(
        self, worker: _Worker, task: CleaningTask, throttle: Throttle
    ) -> AsyncGenerator[CleanedGroup | CleaningDone, None]:
        """Yield the new segments and the result that a worker process reports. The worker continues
        once the caller has processed each report."""
        await worker.send(task_line(task))
        while True:
            report = _parsed(await worker.receive())
            match report:
                case BytesUsed():
                    await throttle(report.byte_count)
                case CleaningFailed():
                    raise _error_of(report)
                case CleaningDone():
                    yield report
                    return
                case CleanedGroup():
                    yield report
            await worker.send(GO)

    async def end_idle(self) -> None:
        """End the worker processes that have no task."""
        idle, self._idle = self._idle, []
        for worker in idle:
            await worker.end()
