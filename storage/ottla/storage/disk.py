"""The real disk: file descriptors, and one set of worker threads per directory.

The only pure-looking module that touches files.  A directory that was named at the start has its
own workers, so one that hangs holds up nobody else; fsync has workers of its own, so that the
unlink of a huge segment never delays a commit.
"""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

import trio

from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.storage.disk_seam import Chunk, DiskFile, Space

T = TypeVar("T")

FSYNC_WORKERS_PER_DIRECTORY = 4
"""Fsyncs of different files and directories under way at once.  Fewer serialises partitions that
flush every batch, and logs that are made; more only queues in the device."""

DESCRIPTORS_RESERVED = 64
"""Descriptors that no log's file takes: the metadata log rolls, files are written aside and
renamed, and connections to controllers open with them.  At most a fourth of all there are."""

IOV_MAX = 1024
"""Chunks the kernel takes in one pwritev (Linux's UIO_MAXIOV); more fails with EINVAL."""

READ_AHEAD_BLOCK_BYTES = 1 << 20
"""How much one read of `read_ahead` touches, so that a long range does not need its memory."""


class RealFile:
    """One descriptor; closed when its owner has closed it and no slice pins it."""

    __slots__ = ("_fd", "_is_given_up", "_path", "_pin_count", "fsyncs")

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._pin_count = 0
        self._is_given_up = False
        self.fsyncs = _Fsyncs()

    @property
    def path(self) -> str:
        """Return the path the file was opened under."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Return the size of the file now."""
        return os.fstat(self._fd).st_size

    @property
    def modified_ms(self) -> int:
        """When the file was last written or cut, in wall time."""
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    @property
    def is_closed(self) -> bool:
        """Whether the owner has given the file up."""
        return self._is_given_up

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks one after another from `position`."""
        if self._is_given_up:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        size = 0
        for chunk in chunks:
            size += len(chunk)
        written = os.pwritev(
            self._fd, chunks if len(chunks) <= IOV_MAX else chunks[:IOV_MAX], position
        )
        if written != size:
            _write_rest(self._fd, position, chunks, written)

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`."""
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(self._fd, missing, position + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def set_size(self, size: int) -> None:
        """Cut the file, or extend it by a hole."""
        os.ftruncate(self._fd, size)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def pin(self) -> None:
        """Keep the descriptor open until the matching `unpin`."""
        self._pin_count += 1

    def unpin(self) -> None:
        """Take back one `pin`."""
        self._pin_count -= 1
        if self._is_given_up and self._pin_count == 0:
            self._close_now()

    def close(self) -> None:
        """Give the file up."""
        self._is_given_up = True
        if self._pin_count == 0:
            self._close_now()

    def _close_now(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def descriptor_max() -> int:
    """Return the highest descriptor that a log's file may have (RLIMIT_NOFILE)."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit - min(DESCRIPTORS_RESERVED, limit // 4)


class _Fsyncs:
    """The fsyncs of one file: how many have begun and ended, and the error that ended them."""

    __slots__ = ("begun_count", "done_count", "failure", "running")

    def __init__(self) -> None:
        self.begun_count = 0
        self.done_count = 0
        self.running: trio.Event | None = None
        self.failure: OSError | None = None


class _Workers:
    """The threads of one directory."""

    __slots__ = ("fsync", "other")

    def __init__(self) -> None:
        self.fsync = trio.CapacityLimiter(FSYNC_WORKERS_PER_DIRECTORY)
        self.other = trio.CapacityLimiter(1)


class RealDisk:
    """The machine's file system; `directories` get their own workers, the rest shares one set."""

    def __init__(self, directories: Iterable[str] = ()) -> None:
        self._descriptor_max = descriptor_max()
        self._workers = {os.path.abspath(path): _Workers() for path in directories}
        self._shared_workers = _Workers()

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
        if METADATA_DIRECTORY not in path:
            self._check_descriptors(path)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def _check_descriptors(self, path: str) -> None:
        # The kernel gives out the lowest number that is free.
        fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.close(fd)
        if fd > self._descriptor_max:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name is there."""
        return os.path.lexists(path)

    def unlink_empty(self, path: str) -> None:
        """Remove a file that holds nothing, at once."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return whether the first and the last byte can be read without waiting."""
        fd = file.fileno()
        return _is_byte_cached(fd, position) and (
            size <= 1 or _is_byte_cached(fd, position + size - 1)
        )

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Bring a range into the page cache."""
        await self._run(file.path, _touch, file, position, size, pinned=file)

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Do what `pread` does, on the worker."""
        return await self._run(file.path, file.pread, position, size, pinned=file)

    async def fsync(self, file: DiskFile) -> None:
        """Make durable what was written before the call; calls that overlap share one fsync."""
        assert isinstance(file, RealFile)
        if file.is_closed:
            return
        state = file.fsyncs
        wanted = state.begun_count + 1  # one that runs already may miss our last write
        while state.done_count < wanted:
            if state.failure is not None:
                raise OSError(state.failure.errno, state.failure.strerror, file.path)
            if state.running is not None:
                await state.running.wait()
            elif file.is_closed:
                return
            else:
                await self._begin_fsync(file, state)

    async def _begin_fsync(self, file: RealFile, state: _Fsyncs) -> None:
        state.begun_count += 1
        begun = state.begun_count
        state.running = trio.Event()
        file.pin()
        try:
            await trio.to_thread.run_sync(
                os.fdatasync, file.fileno(), limiter=self._workers_of(file.path).fsync
            )
            state.done_count = begun
        except OSError as error:
            state.failure = error
        finally:
            if state.done_count < begun and state.failure is None:
                state.begun_count -= 1  # cancelled before the thread took it
            file.unpin()
            state.running.set()
            state.running = None

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Cut the file to `size` bytes."""
        if not file.is_closed:
            await self._run(file.path, file.set_size, size, pinned=file)

    async def read_file(self, path: str) -> bytes:
        """Return the whole file."""
        return await self._run(path, _read_file, path)

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the file durably, by a temporary neighbour and a rename."""
        await self._run(path, _write_atomically, path, data)
        await self.fsync_directory(os.path.dirname(path))

    async def unlink(self, path: str) -> None:
        """Remove a file."""
        await self._run(path, os.unlink, path)

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory."""
        await self._run(target, os.replace, source, target)

    async def fsync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        await trio.to_thread.run_sync(_fsync_directory, path, limiter=self._workers_of(path).fsync)

    async def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        return sorted(await self._run(path, os.listdir, path))

    async def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        return await self._run(path, os.path.isdir, path)

    async def space(self, path: str) -> Space:
        """Return the room on the volume that holds the path."""
        return await self._run(path, _space, path)

    async def makedirs(self, path: str) -> None:
        """Make a directory and its parents."""
        await self._run(path, _makedirs, path)

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and all it holds."""
        await self._run(path, _remove_tree, path)

    def _workers_of(self, path: str) -> _Workers:
        directory = os.path.abspath(path)
        while directory not in self._workers:
            parent = os.path.dirname(directory)
            if parent == directory:
                return self._shared_workers
            directory = parent
        return self._workers[directory]

    async def _run(
        self, path: str, work: Callable[..., T], *arguments: object, pinned: DiskFile | None = None
    ) -> T:
        """Run blocking work on the path's worker; the pinned file stays open meanwhile."""
        if pinned is not None:
            pinned.pin()
        try:
            return await trio.to_thread.run_sync(
                work, *arguments, limiter=self._workers_of(path).other
            )
        finally:
            if pinned is not None:
                pinned.unpin()


def _write_rest(fd: int, position: int, chunks: Sequence[Chunk], written: int) -> None:
    """Go on after a write that took only part: a signal, the IOV limit, or a disk almost full."""
    rest = [memoryview(chunk).cast("B") for chunk in chunks if len(chunk)]
    at = position + written
    skip = written
    while True:
        while rest and skip >= len(rest[0]):
            skip -= len(rest[0])
            del rest[0]
        if not rest:
            return
        rest[0] = rest[0][skip:]
        skip = os.pwritev(fd, rest[:IOV_MAX], at)
        if skip == 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
        at += skip


def _is_byte_cached(fd: int, position: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], position, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
    return True  # a file system that cannot tell (tmpfs) holds its files in memory


def _touch(file: DiskFile, position: int, size: int) -> None:
    end = position + size
    while position < end:
        block = min(READ_AHEAD_BLOCK_BYTES, end - position)
        file.pread(position, block)
        position += block


def _read_file(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _write_atomically(path: str, data: bytes) -> None:
    temporary = path + ".tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        _write_rest(fd, 0, [data], 0)
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


def _remove_tree(path: str) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(path)
