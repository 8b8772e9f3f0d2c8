"""Recovers logs in processes of their own: checking batches is work for the interpreter.

Threads of one process take turns at it, so that two of them check as much as one.  A worker
process recovers one whole log after another and closes each; this process then opens it as it opens
any log that was closed cleanly.  What a worker does is what a start does that is killed and begins
again.  A worker ends at once when its standard input does: the broker is gone, and the next one may
already recover the same log.  PR_SET_PDEATHSIG would not do: the kernel sends it when the *thread*
that started a process ends, and trio starts processes from threads that end once they are idle.
"""

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from struct import Struct
from typing import BinaryIO, NamedTuple
from uuid import UUID

import trio

from ottla.model.errors import CorruptDataError, ErrorCode, OttlaError, RefusedError
from ottla.model.ids import Offset
from ottla.model.values import frozen
from ottla.storage.disk import RealDisk
from ottla.storage.log import open_log
from ottla.storage.log_config import LogConfig

_LENGTH = Struct(">I")

Frame = tuple[str, tuple[object, ...]]
"""What a worker says: a word, and what the word speaks of."""
PROGRESS, DONE = "progress", "done"
ERRORS: dict[str, Callable[..., OSError | OttlaError]] = {
    "disk": OSError,
    "refused": lambda code, message: RefusedError(ErrorCode(code), message),
    "corrupt": CorruptDataError,
}


@frozen(kw_only=True)
class RecoveryTask:
    """One log to be recovered, in a directory of a known topic id."""

    path: str
    config: LogConfig
    topic_id: UUID
    recovery_point: Offset
    log_start_offset: Offset
    now_ms: int


MAY_START_PROCESSES: ContextVar[bool] = ContextVar("may_start_processes", default=False)
"""Whether recoveries that are large may use processes: not in the deterministic world."""


class RecoveryWorker:
    """One worker process, for one task at a time."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    async def recover(self, task: RecoveryTask, on_progress: Callable[[int, int], None]) -> bool:
        """Recover and close a log; return False if the process ended without a word.

        Raises what the recovery does.
        """
        assert self._process.stdin is not None
        try:
            data = pickle.dumps(task)
            await self._process.stdin.send_all(_LENGTH.pack(len(data)) + data)
            while True:
                (size,) = _LENGTH.unpack(await self._read(_LENGTH.size))
                word, told = pickle.loads(await self._read(size))
                if word == DONE:
                    return True
                if word in ERRORS:
                    raise ERRORS[word](*told)
                on_progress(*told)
        except (trio.BrokenResourceError, EOFError):
            return False

    async def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = b""
        while len(data) < size:
            part = await self._process.stdout.receive_some(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data


@asynccontextmanager
async def open_recovery_worker() -> AsyncIterator[RecoveryWorker]:
    """Start a worker process; it is ended afterwards, whatever it does then."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # a signal for this process is none for the worker
    )
    try:
        yield RecoveryWorker(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


# ---- in the worker


def main() -> None:
    """Recover what is asked for on standard input until that ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_input, daemon=True).start()
    tasks, frames = sys.stdin.buffer, sys.stdout.buffer
    while head := tasks.read(_LENGTH.size):
        task = pickle.loads(tasks.read(*_LENGTH.unpack(head)))
        assert isinstance(task, RecoveryTask)
        _say(frames, trio.run(_outcome, task, frames))


def _end_with_input() -> None:
    """Wait until nothing holds the other end of standard input, and end this process."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)
    poll.poll()
    os._exit(0)


async def _outcome(task: RecoveryTask, frames: BinaryIO) -> Frame:
    try:
        await _recover(task, frames)
    except OSError as error:
        return "disk", (error.errno, error.strerror or str(error), error.filename)
    except RefusedError as error:
        return "refused", (int(error.code), error.message)
    except CorruptDataError as error:
        return "corrupt", (error.where,)
    return DONE, ()


async def _recover(task: RecoveryTask, frames: BinaryIO) -> None:
    async with RealDisk([task.path]) as disk:
        log = await open_log(
            disk,
            task.path,
            config=task.config,
            topic_id=task.topic_id,
            is_clean=False,
            recovery_point=task.recovery_point,
            log_start_offset=task.log_start_offset,
            now_ms=task.now_ms,
            progress=lambda segments, size: _say(frames, (PROGRESS, (segments, size))),
        )
        await log.close()


def _say(frames: BinaryIO, frame: Frame) -> None:
    data = pickle.dumps(frame)
    frames.write(_LENGTH.pack(len(data)) + data)
    frames.flush()


class CheckingPlace(NamedTuple):
    """One of the recovery threads of a directory."""

    number: int
    """From 0, as Kafka's gauges number them."""
    worker: RecoveryWorker | None
    """The process that does the work; None where this process is to do it."""


class CheckingPlaces:
    """How many logs are checked at the same time, and the worker processes that check them."""

    def __init__(self, count: int, *, uses_processes: bool) -> None:
        self._count = count
        self._uses_processes = uses_processes
        self._free, self._taken = trio.open_memory_channel[CheckingPlace](count)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Have the places, and their processes, as long as the context lasts."""
        async with AsyncExitStack() as stack:
            for number in range(self._count):
                worker = None
                if self._uses_processes:
                    worker = await stack.enter_async_context(open_recovery_worker())
                self._free.send_nowait(CheckingPlace(number, worker))
            yield

    @asynccontextmanager
    async def place(self) -> AsyncIterator[CheckingPlace]:
        """Wait for a place, and keep it as long as the context lasts."""
        place = await self._taken.receive()
        try:
            yield place
        finally:
            self._free.send_nowait(place)
