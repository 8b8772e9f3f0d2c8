"""Recovery of logs in worker processes, because checking batches occupies the Python interpreter.

Threads of one process contend for the interpreter lock, so two threads are no faster than one. A
worker process recovers one complete log after another and closes each. The broker process then
opens the log like any log that was closed cleanly. A killed worker leaves a log in the same state
as a broker that is killed during its start.

A worker exits at once when its standard input ends: the broker has exited, and the next broker may
already be recovering the same log. PR_SET_PDEATHSIG is no alternative: the kernel sends it when the
*thread* that started a process ends, and trio starts processes from threads that end once they are
idle.
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
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.storage.log.log import open_log
from ottla.storage.segments.log_config import LogConfig

_LENGTH = Struct(">I")

Frame = tuple[str, tuple[object, ...]]
"""A message of a recovery worker process: its kind and its arguments."""
PROGRESS, DONE = "progress", "done"
ERRORS: dict[str, Callable[..., OSError | OttlaError]] = {
    "disk": OSError,
    "refused": lambda code, message: RefusedError(ErrorCode(code), message),
    "corrupt": CorruptDataError,
}


@frozen(kw_only=True)
class RecoveryTask:
    """One log that a worker process recovers. Its topic id is known."""

    path: str
    config: LogConfig
    topic_id: UUID
    recovery_point: Offset
    log_start_offset: Offset
    now_ms: int


MAY_START_PROCESSES: ContextVar[bool] = ContextVar("may_start_processes", default=False)
"""True if recovery may start worker processes for large logs. False in simulations."""


class RecoveryWorker:
    """One worker process, which recovers one log at a time for the broker."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process

    async def recover(self, task: RecoveryTask, on_progress: Callable[[int, int], None]) -> bool:
        """Recover and close a log in the worker process. Returns False if the process died without
        reporting an error. Raises the exceptions that the recovery raised in the worker."""
        assert self._process.stdin is not None
        try:
            data = pickle.dumps(task)
            await self._process.stdin.send_all(_LENGTH.pack(len(data)) + data)
            while True:
                (size,) = _LENGTH.unpack(await self._read(_LENGTH.size))
                word, arguments = pickle.loads(await self._read(size))
                if word == DONE:
                    return True
                if word in ERRORS:
                    raise ERRORS[word](*arguments)
                on_progress(*arguments)
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
    """Start a worker process that recovers logs, and yield the worker. The process is killed when
    the `async with` block ends."""
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", f"from {__name__} import main; main()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # signals sent to this process do not reach the worker
    )
    try:
        yield RecoveryWorker(process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


# ---- in the worker process


def main() -> None:
    """Recover the logs whose tasks the broker writes to standard input, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_input, daemon=True).start()
    tasks, frames = sys.stdin.buffer, sys.stdout.buffer
    while head := tasks.read(_LENGTH.size):
        task = pickle.loads(tasks.read(*_LENGTH.unpack(head)))
        assert isinstance(task, RecoveryTask)
        _say(frames, trio.run(_outcome, task, frames))


def _end_with_input() -> None:
    """Wait until the other end of standard input is closed, then exit this process."""
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


class RecoverySlot(NamedTuple):
    """Permission to check one log. Kafka calls it a recovery thread."""

    number: int
    """Number of the recovery thread that this slot represents, from 0, as in Kafka's gauges."""
    worker: RecoveryWorker | None
    """The worker process that checks the log of this slot, or None if the broker process checks
    it."""


class RecoverySlots:
    """Recovery threads of a log directory, with their worker processes. Each thread checks one log
    at a time."""

    def __init__(self, count: int, *, uses_processes: bool) -> None:
        self._count = count
        self._uses_processes = uses_processes
        self._free, self._taken = trio.open_memory_channel[RecoverySlot](count)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Open the slots for checking logs, and their worker processes, for the duration of the
        context."""
        async with AsyncExitStack() as stack:
            for number in range(self._count):
                worker = None
                if self._uses_processes:
                    worker = await stack.enter_async_context(open_recovery_worker())
                self._free.send_nowait(RecoverySlot(number, worker))
            yield

    @asynccontextmanager
    async def place(self) -> AsyncIterator[RecoverySlot]:
        """Wait for a free slot for checking a log, occupy the slot for the duration of the block,
        and yield it."""
        place = await self._taken.receive()
        try:
            yield place
        finally:
            self._free.send_nowait(place)
