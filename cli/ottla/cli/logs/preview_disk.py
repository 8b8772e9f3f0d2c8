"""Simulated disk that reads real files and stores every change elsewhere, to preview a recovery.

It implements the interface `Disk` and is used by one command. It flushes nothing, and changes no
file below the previewed directory. Before a file is written, it is copied to a folder outside of
that directory. If a file is only truncated, the new size is stored without a copy. No descriptor
stays open between two calls, so that a directory of any size can be previewed. `changes` lists the
differences, file by file.
"""

import errno
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import trio

from ottla.storage.disk.disk_seam import Chunk, DirectorySurvey, DiskFile, Space

BLOCK_BYTES = 1 << 20


class FileChange(NamedTuple):
    """One file or directory that the previewed recovery would change."""

    action: str
    """Kind of the change to a file or directory: remove, rename, cut (truncate), write or make
    (create)."""
    path: str
    before_bytes: int | None
    after_bytes: int | None
    target: str | None = None


class _Node:
    """State of one file after the previewed recovery. Its bytes are in the real file or in a
    copy."""

    def __init__(self, path: str, kept: Path, size_bytes: int) -> None:
        self.path = path
        """Path of the real file. A rename by the previewed recovery does not change it."""
        self.shown_path = path
        """Path of the file in the preview, or its last one if the file was removed or replaced."""
        self.kept = kept
        """Path of a copy of the file, which receives all writes of the preview. The copy exists if
        `is_kept` is True."""
        self.is_kept = False
        self.size_bytes = size_bytes
        self.base_bytes = size_bytes
        """Number of bytes of the real file that are still visible in the preview. It is 0 if
        `is_kept` is True, because the copy then has all bytes."""

    def keep(self) -> None:
        """Create the copy at `kept` from the visible bytes of the real file, before the first
        write. Does nothing if the copy exists."""
        if self.is_kept:
            return
        with self.kept.open("wb") as copy:
            for position in range(0, self.base_bytes, BLOCK_BYTES):
                size = min(BLOCK_BYTES, self.base_bytes - position)
                copy.write(_read_from(self.path, position, size))
            copy.truncate(self.size_bytes)
        self.is_kept = True
        self.base_bytes = 0

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the previewed file from `position`."""
        size = min(size, self.size_bytes - position)
        if size <= 0:
            return b""
        if self.is_kept:
            return _read_from(str(self.kept), position, size)
        shown = max(0, min(size, self.base_bytes - position))
        data = _read_from(self.path, position, shown) if shown else b""
        return data + bytes(size - len(data))

    def set_size(self, size: int) -> None:
        """Truncate or extend the previewed file to a size in bytes. The real file is unchanged."""
        self.size_bytes = size
        if self.is_kept:
            os.truncate(self.kept, size)
        else:
            self.base_bytes = min(self.base_bytes, size)

    def write(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write chunks one after another into the copy of the file, from `position` on."""
        self.keep()
        with self.kept.open("r+b") as copy:
            copy.seek(position)
            for chunk in chunks:
                copy.write(chunk)
            self.size_bytes = max(self.size_bytes, copy.tell())


def _read_from(path: str, position: int, size: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while size:
            data = os.pread(fd, size, position)
            if not data:
                break
            parts.append(data)
            position += len(data)
            size -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(fd)


class _File:
    """One open file of the preview of a recovery."""

    def __init__(self, node: _Node) -> None:
        self._node = node
        self._pin_count = 0
        self.is_closed = False

    @property
    def path(self) -> str:
        """Path of the file in the preview, or its last one if the file was removed or replaced."""
        return self._node.shown_path

    @property
    def size_bytes(self) -> int:
        """Present size of the file in the preview, in bytes."""
        return self._node.size_bytes

    @property
    def modified_ms(self) -> int:
        """Time of the last write of the real file in ms since 1970, or the present time for a new
        file."""
        with suppress(FileNotFoundError):
            return os.stat(self._node.path).st_mtime_ns // 1_000_000
        return time.time_ns() // 1_000_000

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks to the copy of the file, from `position` on."""
        if self.is_closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        self._node.write(position, chunks)

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the previewed file from `position`."""
        if self.is_closed and not self._pin_count:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        return self._node.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes:
        """Return the same bytes as `pread`. The page cache is not checked, because callers that
        read from this disk may block."""
        return self.pread(position, size)

    def set_size(self, size: int) -> None:
        """Truncate or extend the previewed file. An extension reads as zeros. The real file is
        unchanged."""
        self._node.set_size(size)

    def renew_size(self, size: int) -> None:
        """Set the size of the previewed file, as `set_size` does."""
        self._node.set_size(size)

    def set_modified_ms(self, modified_ms: int) -> None:
        """Ignore the time of the last write: the preview's files are temporary."""

    def fileno(self) -> int:
        """Raise OSError, because a file of the preview has no descriptor."""
        raise OSError(errno.EBADF, "a preview has no descriptors", self.path)

    def pin(self) -> None:
        """Keep the previewed file readable until `unpin` is called, even if its owner closes it."""
        self._pin_count += 1

    def unpin(self) -> None:
        """Undo one call of `pin`, which kept the previewed file readable."""
        self._pin_count -= 1

    def expect_rewrite(self) -> None:
        """Do nothing, because the preview has no unflushed writes to count."""

    def close(self) -> None:
        """Close the previewed file."""
        self.is_closed = True


class PreviewDisk:
    """A `Disk` that shows the files below one directory as they would be after a recovery. Real
    files are never changed."""

    def __init__(self, on_read: Callable[[int], None] = lambda size: None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ottla-preview-")
        self._on_read = on_read
        self._nodes: dict[str, _Node | None] = {}
        """Every previewed file that was opened or created, by path. None for a removed file."""
        self._renamed: dict[str, str] = {}
        """New name of each directory that the previewed recovery has renamed, by its old name."""
        self._kept_count = 0

    def __enter__(self) -> "PreviewDisk":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def changes(self) -> Iterator[FileChange]:
        """Yield the files and directories that differ between the preview and the real disk,
        ordered by path."""
        for source, target in sorted(self._renamed.items()):
            yield FileChange("rename", source, None, None, target)
        for path, node in sorted(self._nodes.items()):
            before = os.path.getsize(path) if os.path.lexists(path) else None
            if node is None:
                if before is not None:
                    yield FileChange("remove", path, before, None)
            elif before is None:
                yield FileChange("make", path, None, node.size_bytes)
            elif node.size_bytes > before or not _is_start(node, path):
                yield FileChange("write", path, before, node.size_bytes)
            elif node.size_bytes < before:
                yield FileChange("cut", path, before, node.size_bytes)

    # ---- called on the event loop

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file of the preview. Reads return the real bytes, or the bytes of a private copy
        if the file was written."""
        return _File(self._node(path, create=create))

    def at(self, path: str) -> DiskFile:
        """Return a handle on an existing file of the preview."""
        return self.open(path)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name would exist after the previewed
        recovery."""
        if path in self._nodes:
            return self._nodes[path] is not None
        return path not in self._renamed and os.path.lexists(path)

    def unlink_empty(self, path: str) -> None:
        """Remove an empty file from the preview, if it exists."""
        if self.exists(path):
            self._nodes[path] = None

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return True. The page cache is not checked, because callers that read from the preview
        may block."""
        return True

    def _node(self, path: str, *, create: bool) -> _Node:
        node = self._nodes.get(path)
        if node is not None:
            return node
        is_there = self.exists(path)
        if not is_there and not (create and os.path.isdir(os.path.dirname(path))):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        size = os.stat(path).st_size if is_there else 0
        self._kept_count += 1
        node = _Node(path, Path(self._folder.name) / str(self._kept_count), size)
        self._nodes[path] = node
        return node

    # ---- awaited

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Do nothing. Bytes are not read ahead, because callers that read from the preview may
        block."""

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the previewed file from `position`, as `pread` does."""
        data = file.pread(position, size)
        self._on_read(len(data))
        await trio.lowlevel.checkpoint()
        return data

    async def forget_flushed(self, file: DiskFile) -> None:
        """Do nothing: the preview's copies of files are never flushed to a device."""

    async def write_back(self, file: DiskFile) -> None:
        """Do nothing: the preview's copies of files are discarded."""

    async def fsync(self, file: DiskFile) -> None:
        """Do nothing: the preview's copies of files are discarded, so they need no flush."""

    async def flush_idle(self, directory: str) -> None:
        """Do nothing: the preview keeps no file descriptor open."""

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Truncate a file to `size` bytes, in the preview only."""
        if not file.is_closed:
            file.set_size(size)

    async def read_file(self, path: str) -> bytes:
        """Return the whole content of a file, as the preview shows it."""
        node = self._node(path, create=False)
        return node.read(0, node.size_bytes)

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content of a file by `data`, in the preview only."""
        node = self._node(path, create=True)
        node.set_size(0)
        node.write(0, [data])

    async def unlink(self, path: str) -> None:
        """Remove a file, in the preview only."""
        if not self.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._nodes[path] = None

    async def rename(self, source: str, target: str) -> None:
        """Rename a file, or a directory whose contents are not read after the rename, in the
        preview only."""
        if os.path.isdir(source):
            self._renamed[source] = target
            return
        node = self._nodes[target] = self._node(source, create=False)
        node.shown_path = target
        self._nodes[source] = None

    async def fsync_directory(self, path: str) -> None:
        """Do nothing: the preview's changes of directories are discarded, so they need no flush."""

    async def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory, as the preview shows it."""
        names = set(os.listdir(path)) if path not in self._renamed else set()
        for changed, node in self._nodes.items():
            if os.path.dirname(changed) == path:
                names.discard(os.path.basename(changed))
                if node is not None:
                    names.add(os.path.basename(changed))
        return sorted(name for name in names if os.path.join(path, name) not in self._renamed)

    async def survey(
        self, paths: Sequence[str], wanted: Callable[[Sequence[str]], Sequence[str]]
    ) -> list[DirectorySurvey | OSError]:
        """Return the contents that each of several directories would have after the previewed
        recovery."""
        found: list[DirectorySurvey | OSError] = []
        for path in paths:
            try:
                names = [each for each in await self.listdir(path) if self._is_file(path, each)]
                sizes = {name: self._size_of(f"{path}/{name}") for name in names}
                contents = {name: await self.read_file(f"{path}/{name}") for name in wanted(names)}
                found.append(DirectorySurvey(sizes, contents))
            except OSError as error:
                found.append(error)
        return found

    def _is_file(self, directory: str, name: str) -> bool:
        return not os.path.isdir(os.path.join(directory, name))

    def _size_of(self, path: str) -> int:
        node = self._nodes.get(path)
        return os.path.getsize(path) if node is None else node.size_bytes

    async def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory in the preview."""
        return os.path.isdir(path) and path not in self._renamed

    async def space(self, path: str) -> Space:
        """Return the total and free space, in bytes, on the volume that contains the path."""
        volume = os.statvfs(path)
        return Space(volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail)

    async def makedirs(self, path: str) -> None:
        """Raise OSError if the directory does not exist, because a recovery creates no
        directories."""
        if not os.path.isdir(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    async def make_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Raise OSError, because a recovery creates no directories."""
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

    async def keep_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Do nothing: the preview makes no change durable."""

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and its contents, in the preview only."""
        with suppress(FileNotFoundError):
            for name in await self.listdir(path):
                self.unlink_empty(os.path.join(path, name))


def _is_start(node: _Node, path: str) -> bool:
    """Return whether the preview's version of a file is a prefix of the real file at `path`. The
    version must not be larger than the real file."""
    size = node.size_bytes
    if not node.is_kept and node.path == path:
        return node.base_bytes == size
    return all(
        node.read(at, BLOCK_BYTES) == _read_from(path, at, min(BLOCK_BYTES, size - at))
        for at in range(0, size, BLOCK_BYTES)
    )
