"""The real disk: file descriptors, and one set of worker threads per directory.

Each directory that is passed to `RealDisk` has its own worker threads, so a hanging directory
delays no other. fsync has separate threads, so that the unlink of a huge segment never delays a
commit.
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
from ottla.storage.disk.descriptor_cache import CLEAN, OLD_DIRT
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.disk_seam import DirectorySurvey, DiskFile, Space
from ottla.storage.disk.gathered_calls_driver import GatheredCalls
from ottla.storage.disk.real_file_driver import Fsyncs, OpenRealFiles, RealFile, write_rest
from ottla.storage.disk.shared_calls_driver import SharedCalls
from ottla.storage.disk.write_back_driver import begin_write_back

T = TypeVar("T")

_LOGGER = logging.getLogger(__name__)

SLOW_FSYNC_S = 1.0
"""Duration in seconds above which the flush of a file is logged as slow. Shorter flushes are usual
while a device is busy. A slightly longer flush can cause an election."""
SLOW_REPEAT_S = 60.0
"""Minimum interval in seconds between log messages about slow flushes in one log directory. A
shorter interval fills the log."""

FSYNC_WORKERS_PER_DIRECTORY = 4
"""Number of worker threads per log directory that flush (fsync) files and directories. With fewer,
partitions that flush every batch wait for each other. With more, fsyncs only wait in the device's
queue."""

MAKING_WORKERS_PER_DIRECTORY = 2
"""Number of worker threads per log directory that create partition directories. Equally many other
threads make the directories durable. With fewer threads, the disk is idle while a thread returns
its results. With more, threads contend for the interpreter lock, which slows the event loop."""

NAMES_TOGETHER = 32
"""Maximum number of directories that one call to a worker thread creates, makes durable or renames.
With fewer, passing calls to threads costs more than the calls themselves. With more, the first
result is delayed until nearly all directories are done."""

READ_WORKERS_PER_DIRECTORY = 4
"""Number of worker threads per log directory that load file ranges. With fewer, readers of old
records wait for each other. With more, disks seek between the ranges."""

PROBE_EVERY_BYTES = 1 << 18
"""Distance in bytes between two probed bytes, when a file range is checked for being in the page
cache. With a larger distance, pages that the kernel has reclaimed within a range are overlooked. A
smaller one costs more calls per large response."""

READ_AHEAD_BLOCK_BYTES = 1 << 16
"""Number of bytes that one call of `read_ahead` reads per step. The buffer is small and reused, so
it stays in the processor's cache. The size of the device's reads does not depend on it."""


class _Workers:
    """The worker threads of one log directory, by kind of work."""

    __slots__ = ("fsync", "keeping", "making", "other", "read", "renaming", "said_slow_at", "space")

    def __init__(self) -> None:
        self.said_slow_at = -math.inf
        self.fsync = trio.CapacityLimiter(FSYNC_WORKERS_PER_DIRECTORY)
        self.read = trio.CapacityLimiter(READ_WORKERS_PER_DIRECTORY)
        self.other = trio.CapacityLimiter(1)
        self.space = trio.CapacityLimiter(1)
        """Limiter of the worker thread that measures free space. It is separate, so that the disk
        does not seem to hang while the removal of a huge topic occupies the other threads."""
        self.making = GatheredCalls(_make_directory, _makers(), most=NAMES_TOGETHER)
        self.keeping = GatheredCalls(_fsync_with_files, _makers(), most=NAMES_TOGETHER)
        """Batched calls that make new directories durable. These calls have their own worker
        threads, so that flushes of clients' records continue while many logs are created."""
        self.renaming = GatheredCalls(_rename, self.other, most=NAMES_TOGETHER)

    def warn_slow(self, path: str, took_s: float) -> None:
        """Log a slow flush of a file, at most once per log directory within `SLOW_REPEAT_S`."""
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
    """The machine's file system. Each directory in `directories` gets its own worker threads; all
    other paths share one set of threads."""

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
        """Open a file for reading and writing, and return it.

        Raises OSError(EMFILE) if the process has only its reserved descriptors left. The reserve is
        for the metadata log and for short-lived files that the process needs to continue.
        """
        is_kept_open = METADATA_DIRECTORY in path
        if not is_kept_open:
            self._files.make_room(path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o644)
        return RealFile(path, fd, None if is_kept_open else self._files)

    def at(self, path: str) -> RealFile:
        """Return a handle on an existing file. The handle opens the file at its first use."""
        return self.open(path) if METADATA_DIRECTORY in path else RealFile(path, -1, self._files)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at a path."""
        return os.path.lexists(path)

    def unlink_empty(self, path: str) -> None:
        """Remove a file that contains no data, without waiting."""
        _open_all(self._files.places.at(path))
        with suppress(FileNotFoundError):
            os.unlink(path)
        self._files.places.unname(path)

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return whether a range of a file can be read without waiting. Only some bytes of the
        range are probed."""
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
            # A file system that does not support the probe (tmpfs) keeps its files in memory. A
            # disk failure is left to the read, whose error is classified.
            return error.errno == errno.EOPNOTSUPP
        return True

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Load a range of a file into the page cache, in a worker thread."""
        limiter = self._workers_of(file.path).read
        await _run_pinned(limiter, file, _touch, file, position, size)

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Return `size` bytes of a file from `position`, read by a worker thread."""
        limiter = self._workers_of(file.path).read
        return await _run_pinned(limiter, file, file.pread, position, size)

    async def forget_flushed(self, file: DiskFile) -> None:
        """Drop the clean pages of a file from the page cache, so that later reads come from the
        device."""
        await _run_pinned(self._workers_of(file.path).other, file, _drop_pages, file)

    async def write_back(self, file: DiskFile) -> None:
        """Ask the kernel to start writing a file's dirty pages to the device. Waits first until the
        write-back of the previous call has ended."""
        assert isinstance(file, RealFile)
        if file.is_closed:
            return
        try:
            await _run_pinned(self._workers_of(file.path).fsync, file, _write_back, file)
        except OSError as error:
            # The kernel reports a failed write once per descriptor; a later fsync would not see it.
            file.fsyncs.failure = error
            raise

    async def fsync(self, file: DiskFile) -> None:
        """Make all writes to a file that were made before the call durable. Overlapping calls share
        one fsync."""
        assert isinstance(file, RealFile)
        if file.is_closed:
            return
        state = file.fsyncs
        wanted = state.begun_count + 1  # one that is running may miss our last write
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
                state.begun_count -= 1  # cancelled before a worker started it
            file.note_open()
            file.unpin()
            file.dirt = max(dirt, file.dirt)
            state.running.set()
            state.running = None

    async def flush_idle(self, directory: str) -> None:
        """Flush files below a directory that were not written for a while, so that their
        descriptors can be closed."""
        prefix = directory + "/"
        cache = self._files.descriptors
        for file in cache.stale(lambda file: file.path.startswith(prefix)):
            if file.dirt == OLD_DIRT:
                await self.fsync(file)
                cache.release(file)

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Truncate a file to `size` bytes, in a worker thread."""
        if not file.is_closed:
            limiter = self._workers_of(file.path).other
            await _run_pinned(limiter, file, file.renew_size, size)

    async def read_file(self, path: str) -> bytes:
        """Return the whole contents of a file, read by a worker thread."""
        return await self._run(path, _read_file, path)

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the contents of a file durably: write a temporary file in the same directory and
        rename it."""
        await self._run_removing_name(path, _write_atomically, path, data)
        await self.fsync_directory(os.path.dirname(path))

    async def unlink(self, path: str) -> None:
        """Remove a file, in a worker thread."""
        await self._run_removing_name(path, os.unlink, path)

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, in a worker thread."""
        renames = self._files.renames
        renames.append((source, target))
        try:
            with self._removing_name(target) as handles:
                await self._workers_of(target).renaming.run((handles, source, target))
            self._files.places.rename(source, target)
        finally:
            renames.remove((source, target))

    async def fsync_directory(self, path: str) -> None:
        """Make previous creations, renames and removals of names in a directory durable.

        Overlapping calls share one fsync, for example when several partitions are created or
        deleted.
        """
        limiter = self._workers_of(path).fsync
        await self._directory_fsyncs.run(
            path, partial(trio.to_thread.run_sync, _fsync_directory, path, limiter=limiter)
        )

    async def listdir(self, path: str) -> list[str]:
        """Return the sorted names of the files and subdirectories in a directory."""
        return sorted(await self._run(path, os.listdir, path))

    async def survey(
        self, paths: Sequence[str], wanted: Callable[[Sequence[str]], Sequence[str]]
    ) -> list[DirectorySurvey | OSError]:
        """Return the survey of each directory: file names, sizes and small files. If a directory
        could not be read, its entry is the error."""
        if not paths:
            return []
        return await self._run(paths[0], _survey_all, paths, wanted)

    async def is_directory(self, path: str) -> bool:
        """Return whether `path` is an existing directory."""
        return await self._run(path, os.path.isdir, path)

    async def space(self, path: str) -> Space:
        """Return the size and free space, in bytes, of the volume that contains the path.

        A cancellation takes effect even while the volume hangs, because the abandoned thread
        changes nothing.
        """
        limiter = self._workers_of(path).space
        return await trio.to_thread.run_sync(_space, path, limiter=limiter, abandon_on_cancel=True)

    async def makedirs(self, path: str) -> None:
        """Create a directory and its missing parents."""
        await self._run(path, _makedirs, path)

    async def make_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Create a directory with files in it. `files` maps the files' names to their contents."""
        await self._workers_of(path).making.run((path, files))

    async def keep_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Make a directory durable: the files in `files`, the names in the directory, and its own
        name."""
        await self._workers_of(path).keeping.run((path, files))
        await self.fsync_directory(os.path.dirname(path))

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents."""
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

    async def _run_removing_name(
        self, path: str, work: Callable[..., object], *arguments: object
    ) -> None:
        """Run `work`, which removes the name of a file, in a worker thread. Existing handles on the
        file remain readable."""
        with self._removing_name(path) as handles:
            await self._run(path, _open_all_and_work, handles, work, *arguments)

    @contextmanager
    def _removing_name(self, path: str) -> Iterator[list[RealFile]]:
        """Yield the open handles on a file whose name is about to be removed from the disk. The
        caller must open their descriptors first."""
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
        """Run blocking work on a worker thread of the log directory that contains `path`, and
        return the result of the work."""
        limiter = self._workers_of(path).other
        return await trio.to_thread.run_sync(work, *arguments, limiter=limiter)


async def _run_pinned(
    limiter: trio.CapacityLimiter, file: DiskFile, work: Callable[..., T], *arguments: object
) -> T:
    """Run blocking work on a file in a worker thread, and return the result of the work. The file's
    descriptor stays open until the work has ended, even if the file is closed."""
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
    """Flush a file by fsync. Returns the duration in seconds."""
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
    """Open files whose names are about to be removed, so that they can still be read."""
    for file in handles:
        file.open_if_needed()


_PROBED = (bytearray(1),)
"""One-byte buffer for the reads that test whether a byte of a file is in the page cache."""


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
            # mknod is one call; open and close would be two. Not every system permits mknod for
            # files.
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
