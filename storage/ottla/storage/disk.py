"""The real disk: file descriptors, and one set of worker threads per directory.

The only pure-looking module that touches files.  A directory that was named at the start has its
own workers, so one that hangs holds up nobody else; fsync has workers of its own, so that the
unlink of a huge segment never delays a commit.
"""

import errno
import logging
import math
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from mmap import PAGESIZE
from types import TracebackType
from typing import TypeVar

import trio

from ottla.model.log_events import event
from ottla.storage.descriptor_cache import CLEAN, OLD_DIRT
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.storage.disk_seam import DirectorySurvey, DiskFile, Space
from ottla.storage.gathered_calls_driver import GatheredCalls
from ottla.storage.real_file_driver import Fsyncs, OpenRealFiles, RealFile, write_rest
from ottla.storage.shared_calls_driver import SharedCalls
from ottla.storage.write_back_driver import begin_write_back

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

SLOW_FSYNC_S = 1.0
"""A flush that takes longer is logged: less is usual while a device writes much, and an election
begins after little more."""
SLOW_REPEAT_S = 60.0
"""How often one directory's slow flushes are logged; shorter fills the log."""

FSYNC_WORKERS_PER_DIRECTORY = 4
"""Fsyncs of different files and directories under way at once.  Fewer serialises partitions that
flush every batch; more only queues in the device."""

MAKING_WORKERS_PER_DIRECTORY = 2
"""Workers that make directories, and as many that make them durable.  Fewer leaves the disk idle
while one hands over what it did; more take turns at the interpreter, which slows the loop."""

NAMES_TOGETHER = 32
"""Directories made, made durable or renamed by one call of a worker.  Fewer hands over more often,
which costs more than the call itself; with more the first is there hardly before the last."""

READ_WORKERS_PER_DIRECTORY = 4
"""Ranges that are brought in at once.  Fewer lets one reader of old records wait for another, more
makes disks seek between them."""

PROBE_EVERY_BYTES = 1 << 18
"""Distance of the bytes of a range that are asked for whether they are cached.  More overlooks what
the kernel took back within a range, less costs each large answer more calls."""

READ_AHEAD_BLOCK_BYTES = 1 << 16
"""How much one read of `read_ahead` touches: little memory, used again, and so in the processor's
cache.  What the device reads at once does not hang on it."""


class _Workers:
    """The threads of one directory."""

    __slots__ = ("fsync", "keeping", "making", "other", "read", "renaming", "said_slow_at", "space")

    def __init__(self) -> None:
        self.said_slow_at = -math.inf
        self.fsync = trio.CapacityLimiter(FSYNC_WORKERS_PER_DIRECTORY)
        self.read = trio.CapacityLimiter(READ_WORKERS_PER_DIRECTORY)
        self.other = trio.CapacityLimiter(1)
        self.space = trio.CapacityLimiter(1)
        """Of its own: the removal of a huge topic is no disk that hangs."""
        self.making = GatheredCalls(_make_directory, _makers(), most=NAMES_TOGETHER)
        self.keeping = GatheredCalls(_fsync_with_files, _makers(), most=NAMES_TOGETHER)
        """With workers of its own: clients' flushes go on while many logs are made."""
        self.renaming = GatheredCalls(_rename, self.other, most=NAMES_TOGETHER)

    def warn_slow(self, path: str, took_s: float) -> None:
        """Log a slow flush, unless one was logged lately."""
        now = trio.current_time()
        if now < self.said_slow_at + SLOW_REPEAT_S:
            return
        self.said_slow_at = now
        took_ms = round(took_s * 1000)
        _LOGGER.warning(
            "flush of %s took %s ms: its disk is slow",
            path,
            took_ms,
            extra=event("disk.slow", path=path, took_ms=took_ms),
        )


class RealDisk:
    """The machine's file system; `directories` get their own workers, the rest shares one set."""

    def __init__(self, directories: Iterable[str] = ()) -> None:
        self._files = OpenRealFiles()
        self._workers = {os.path.abspath(path): _Workers() for path in directories}
        self._shared_workers = _Workers()
        self._directory_fsyncs = SharedCalls()

    async def __aenter__(self) -> "RealDisk":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """Open a file for reading and writing.

        Raises OSError(EMFILE) if that takes of the descriptors kept for the metadata log and for
        what is open for a moment only: without these the process could not go on.
        """
        is_kept_open = METADATA_DIRECTORY in path
        if not is_kept_open:
            self._files.make_room(path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o644)
        return RealFile(path, fd, None if is_kept_open else self._files)

    def at(self, path: str) -> RealFile:
        """Return a handle on a file that is there; its first use opens it."""
        return self.open(path) if METADATA_DIRECTORY in path else RealFile(path, -1, self._files)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name is there."""
        return os.path.lexists(path)

    def unlink_empty(self, path: str) -> None:
        """Remove a file that holds nothing, at once."""
        _open_all(self._files.places.at(path))
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._files.places.unname(path)

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return whether the range, by a byte here and there, can be read without waiting."""
        assert isinstance(file, RealFile)
        if not file.is_open:
            return False
        fd = file.fileno()
        last = position + max(0, size - 1)
        try:
            if position // PAGESIZE != last // PAGESIZE:
                for at in range(position, last, PROBE_EVERY_BYTES):
                    os.preadv(fd, _PROBED, at, os.RWF_NOWAIT)
            os.preadv(fd, _PROBED, last, os.RWF_NOWAIT)
        except OSError as error:
            # A file system that cannot tell (tmpfs) holds its files in memory.  A disk that fails
            # is for the read to meet, whose error is judged.
            return error.errno == errno.EOPNOTSUPP
        return True

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Bring a range into the page cache."""
        limiter = self._workers_of(file.path).read
        await _run_pinned(limiter, file, _touch, file, position, size)

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Do what `pread` does, on the worker."""
        limiter = self._workers_of(file.path).read
        return await _run_pinned(limiter, file, file.pread, position, size)

    async def forget_flushed(self, file: DiskFile) -> None:
        """Drop the file's clean pages from the page cache."""
        await _run_pinned(self._workers_of(file.path).other, file, _drop_pages, file)

    async def write_back(self, file: DiskFile) -> None:
        """Have the device write what was written, once it is done with what the last call began."""
        assert isinstance(file, RealFile)
        if file.is_closed:
            return
        try:
            await _run_pinned(self._workers_of(file.path).fsync, file, _write_back, file)
        except OSError as error:
            # The kernel tells a descriptor once what it could not write: no fsync would hear of it.
            file.fsyncs.failure = error
            raise

    async def fsync(self, file: DiskFile) -> None:
        """Make durable what was written before the call; calls that overlap share one fsync."""
        assert isinstance(file, RealFile)
        if file.is_closed:
            return
        state = file.fsyncs
        wanted = state.begun_count + 1  # one that runs already may miss our last write
        file.pin()
        try:
            while state.done_count < wanted:
                if state.failure is not None:
                    raise OSError(state.failure.errno, state.failure.strerror, file.path)
                if state.running is not None:
                    await state.running.wait()
                elif file.is_closed:
                    return
                else:
                    await self._begin_fsync(file, state)
        finally:
            file.unpin()
            file.note_flushed()

    async def _begin_fsync(self, file: RealFile, state: Fsyncs) -> None:
        state.begun_count += 1
        begun = state.begun_count
        state.running = trio.Event()
        dirt, file.dirt = file.dirt, CLEAN
        file.pin()
        try:
            workers = self._workers_of(file.path)
            took_s = await trio.to_thread.run_sync(_fsync, file, limiter=workers.fsync)
            if took_s >= SLOW_FSYNC_S:
                workers.warn_slow(file.path, took_s)
            state.done_count = begun
            dirt = CLEAN
        except OSError as error:
            state.failure = error
        finally:
            if state.done_count < begun and state.failure is None:
                state.begun_count -= 1  # cancelled before the thread took it
            file.note_open()
            file.unpin()
            file.dirt = max(dirt, file.dirt)
            state.running.set()
            state.running = None

    async def flush_idle(self, directory: str) -> None:
        """Flush files that were not written for a while, so that they can be given back."""
        prefix = directory + "/"
        cache = self._files.descriptors
        for file in cache.stale(lambda file: file.path.startswith(prefix)):
            if file.dirt == OLD_DIRT:
                await self.fsync(file)
                cache.release(file)

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Cut the file to `size` bytes."""
        if not file.is_closed:
            limiter = self._workers_of(file.path).other
            await _run_pinned(limiter, file, file.renew_size, size)

    async def read_file(self, path: str) -> bytes:
        """Return the whole file."""
        return await self._run(path, _read_file, path)

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the file durably, by a temporary neighbour and a rename."""
        await self._run_taking_name(path, _write_atomically, path, data)
        await self.fsync_directory(os.path.dirname(path))

    async def unlink(self, path: str) -> None:
        """Remove a file."""
        await self._run_taking_name(path, os.unlink, path)

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory."""
        renames = self._files.renames
        renames.append((source, target))
        try:
            with self._taking_name(target) as handles:
                await self._workers_of(target).renaming.run((handles, source, target))
            self._files.places.rename(source, target)
        finally:
            renames.remove((source, target))

    async def fsync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable.

        Calls that overlap share one fsync: those of partitions that are made or deleted together.
        """
        limiter = self._workers_of(path).fsync
        await self._directory_fsyncs.run(
            path, partial(trio.to_thread.run_sync, _fsync_directory, path, limiter=limiter)
        )

    async def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        return sorted(await self._run(path, os.listdir, path))

    async def survey(
        self, paths: Sequence[str], wanted: Callable[[Sequence[str]], Sequence[str]]
    ) -> list[DirectorySurvey | OSError]:
        """Return what each of several directories holds."""
        if not paths:
            return []
        return await self._run(paths[0], _survey_all, paths, wanted)

    async def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        return await self._run(path, os.path.isdir, path)

    async def space(self, path: str) -> Space:
        """Return the room on the volume that holds the path.

        Cancelled at once, also while the volume does not answer: its thread changes nothing.
        """
        limiter = self._workers_of(path).space
        return await trio.to_thread.run_sync(_space, path, limiter=limiter, abandon_on_cancel=True)

    async def makedirs(self, path: str) -> None:
        """Make a directory and its parents."""
        await self._run(path, _makedirs, path)

    async def make_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Make a directory with files in it."""
        await self._workers_of(path).making.run((path, files))

    async def keep_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Make a directory durable: these of its files, the names in it, and its own name."""
        await self._workers_of(path).keeping.run((path, files))
        await self.fsync_directory(os.path.dirname(path))

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and all it holds."""
        await self._run(path, _remove_tree, path)

    def _workers_of(self, path: str) -> _Workers:
        found = self._workers.get(os.path.dirname(path))
        if found is not None:
            return found
        directory = os.path.abspath(path)
        while directory not in self._workers:
            parent = os.path.dirname(directory)
            if parent == directory:
                return self._shared_workers
            directory = parent
        return self._workers[directory]

    async def _run_taking_name(
        self, path: str, work: Callable[..., object], *arguments: object
    ) -> None:
        """Run what takes a name from its file; who has the file open still reads it afterwards."""
        with self._taking_name(path) as handles:
            await self._run(path, _open_all_and_work, handles, work, *arguments)

    @contextmanager
    def _taking_name(self, path: str) -> Iterator[list[RealFile]]:
        """Yield the handles of a name that is about to be taken, which are to be opened first."""
        places = self._files.places
        handles = places.at(path)
        for file in handles:
            file.pin()
        try:
            yield handles
            for file in handles:
                places.remove(file)
        finally:
            for file in handles:
                file.note_open()
                file.unpin()

    async def _run(self, path: str, work: Callable[..., T], *arguments: object) -> T:
        """Run blocking work on the path's worker."""
        limiter = self._workers_of(path).other
        return await trio.to_thread.run_sync(work, *arguments, limiter=limiter)


async def _run_pinned(
    limiter: trio.CapacityLimiter, file: DiskFile, work: Callable[..., T], *arguments: object
) -> T:
    """Run blocking work on a file, which is open meanwhile."""
    assert isinstance(file, RealFile)
    file.pin()
    try:
        return await trio.to_thread.run_sync(
            _open_and_work, file, work, *arguments, limiter=limiter
        )
    finally:
        file.note_open()
        file.unpin()


def _open_and_work(file: RealFile, work: Callable[..., T], *arguments: object) -> T:
    file.open_if_needed()
    return work(*arguments)


def _fsync(file: RealFile) -> float:
    """Flush a file; return the seconds that the device took."""
    file.open_if_needed()
    began = time.perf_counter()
    os.fdatasync(file.fileno())
    return time.perf_counter() - began


def _write_back(file: RealFile) -> None:
    begin_write_back(file.fileno(), file.path)


def _open_all_and_work(handles: list[RealFile], work: Callable[..., T], *arguments: object) -> T:
    _open_all(handles)
    return work(*arguments)


def _open_all(handles: list[RealFile]) -> None:
    """Open files that are about to lose their name, for who has them still reads them."""
    for file in handles:
        file.open_if_needed()


_PROBED = (bytearray(1),)
"""Where the bytes go that are asked for only whether they are cached."""


def _drop_pages(file: DiskFile) -> None:
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _touch(file: DiskFile, position: int, size: int) -> None:
    fd = file.fileno()
    os.posix_fadvise(fd, position, size, os.POSIX_FADV_WILLNEED)
    buffer = memoryview(bytearray(min(size, READ_AHEAD_BLOCK_BYTES)))
    end = position + size
    while position < end:
        count = os.preadv(fd, [buffer[: end - position]], position)
        if not count:
            return
        position += count


def _survey_all(
    paths: Sequence[str], wanted: Callable[[Sequence[str]], Sequence[str]]
) -> list[DirectorySurvey | OSError]:
    found: list[DirectorySurvey | OSError] = []
    for path in paths:
        try:
            with os.scandir(path) as entries:
                sizes = {each.name: each.stat().st_size for each in entries if each.is_file()}
            contents = {name: _read_file(f"{path}/{name}") for name in wanted(sorted(sizes))}
            found.append(DirectorySurvey(sizes, contents))
        except OSError as error:
            found.append(error)
    return found


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write_atomically(path: str, data: bytes) -> None:
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        write_rest(fd, 0, [data], 0)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(temporary, path)


def _fsync_directory(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _space(path: str) -> Space:
    volume = os.statvfs(path)
    return Space(volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail)


def _makedirs(path: str) -> None:
    os.makedirs(path, exist_ok=True)


def _makers() -> trio.CapacityLimiter:
    return trio.CapacityLimiter(MAKING_WORKERS_PER_DIRECTORY)


def _make_directory(wanted: tuple[str, Mapping[str, bytes]]) -> None:
    path, files = wanted
    try:
        os.mkdir(path)
    except (FileNotFoundError, FileExistsError):
        _makedirs(path)
    for name, data in files.items():
        if not data:
            # In one call, where opening and closing are two; not every system lets it make files.
            with suppress(OSError):
                os.mknod(f"{path}/{name}", stat.S_IFREG | 0o644)
                continue
        fd = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            write_rest(fd, 0, [data], 0)
        finally:
            os.close(fd)


def _fsync_with_files(wanted: tuple[str, Mapping[str, bytes]]) -> None:
    path, files = wanted
    for name, data in files.items():
        fd = os.open(f"{path}/{name}", os.O_WRONLY | os.O_CLOEXEC)
        try:
            write_rest(fd, 0, [data], 0)
            os.ftruncate(fd, len(data))
            os.fsync(fd)
        finally:
            os.close(fd)
    _fsync_directory(path)


def _rename(wanted: tuple[list[RealFile], str, str]) -> None:
    handles, source, target = wanted
    _open_all(handles)
    os.replace(source, target)


def _remove_tree(path: str) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
