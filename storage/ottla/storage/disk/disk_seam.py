"""The interface through which storage uses files and directories.

Operations that may run on the event loop are plain calls: writing, reading cached data, opening.
Operations that may block a thread (fsync, unlink, truncate, rename, scans) are awaited, and run in
a worker thread of the file's directory.

Nodes have two implementations: `RealDisk` (real_disk_driver.py) and the disk of the simulator. The
command line has a third implementation, which stores its changes in memory, so that it can show the
effect of a recovery in advance. Every failure is an `OSError` with its errno; no other exception is
raised.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

Chunk = bytes | bytearray | memoryview
"""Bytes to write to a file, passed by reference. The disk stores no reference after the call."""


T = TypeVar("T")


class NotCachedError(Exception):
    """Error of a read whose file range is not in the page cache. The caller loads the range with
    `Disk.read_ahead`, then repeats the look-up.

    This is not a failure; every caller of `read_cached` catches it.
    """

    def __init__(self, file: "DiskFile", position: int, size: int) -> None:
        super().__init__(f"{file.path}: {size} bytes at {position} are not cached")
        self.file = file
        self.position = position
        self.size = size


class Space(NamedTuple):
    """Size of the volume that contains a path, and the free space that this process may use, in
    bytes."""

    total_bytes: int
    usable_bytes: int


class DirectorySurvey(NamedTuple):
    """Contents of one directory: its file names and sizes, and the contents of the small files that
    were requested."""

    sizes: dict[str, int]
    """Size in bytes of each file in the directory, by file name."""
    contents: dict[str, bytes]
    """Contents of those files in the directory that were requested, by file name."""


class DiskFile(Protocol):
    """Interface of an open file. The file has no cursor: every read and write names its position.

    The file's descriptor may be closed, in favour of other files, while the file is not pinned and
    has no unflushed writes. The next use reopens the file, even if `Disk.rename` changed its path.
    """

    @property
    def path(self) -> str:
        """Current path of the file, or its last path if the file no longer has a name."""
        ...

    @property
    def size_bytes(self) -> int:
        """Current size of the file in bytes."""
        ...

    @property
    def modified_ms(self) -> int:
        """Time of the last write or truncation of the file, in ms since 1970."""
        ...

    @property
    def is_closed(self) -> bool:
        """True if the file's owner (a log or an index) has closed the file."""
        ...

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks in order to the file, starting at `position`. After an OSError some of
        the bytes may have been written."""
        ...

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file from `position`. Fewer are returned only at the end
        of the file.

        The call may wait for the disk. It must therefore only be used for data that was just
        loaded, or outside the event loop.
        """
        ...

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        """Return the same bytes as `pread`, from the page cache. Raises NotCachedError if the read
        would wait for the disk."""
        ...

    def set_size(self, size: int) -> None:
        """Truncate the file, or extend it by a hole, without waiting.

        This method is only for cheap changes: undoing a torn append, or extending an index file by
        a hole. Changes that may free many blocks use `Disk.truncate`.
        """
        ...

    def renew_size(self, size: int) -> None:
        """Set the file's size like `set_size`. The next fsync then writes the size even if it is
        unchanged.

        After a failed fsync, memory may show a size that the device does not have. A later fsync
        would then succeed without writing the size. The modification time changes only if the size
        changes.
        """
        ...

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the modification time of the file, in ms since 1970; the next fsync makes it durable.

        The next write or truncation of the file changes the modification time again.
        """
        ...

    def fileno(self) -> int:
        """Return the file's descriptor for sendfile. Simulated files have no descriptor and raise
        OSError.

        The descriptor is valid as long as the file is pinned.
        """
        ...

    def pin(self) -> None:
        """Keep the file's descriptor open until the matching `unpin`, even after `close`.

        A pin does not open a file whose descriptor is closed. `Disk.read_ahead` opens the file,
        because opening may wait for the disk.
        """
        ...

    def unpin(self) -> None:
        """Undo one `pin` of the file. The last `unpin` after `close` closes the descriptor."""
        ...

    def expect_rewrite(self) -> None:
        """Exclude the writes of this file from the unflushed writes, because the owner rewrites the
        whole file before it relies on its contents.

        These writes may be lost without an error, and the file's descriptor may be closed at any
        time.
        """
        ...

    def close(self) -> None:
        """Close the file. The descriptor is closed once nothing pins it. A second call has no
        effect.

        Later writes fail with EBADF. Reads also fail if the file is not pinned.
        """
        ...


class Disk(Protocol):
    """Interface of a disk: operations on files and directories. All paths are absolute."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file for reading and writing, and return it. With `create`, a missing file is
        created."""
        ...

    def at(self, path: str) -> DiskFile:
        """Return a handle on an existing file. The handle opens the file at its first use."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory exists at a path."""
        ...

    def unlink_empty(self, path: str) -> None:
        """Remove a file that contains only a hole (no data), without waiting. A missing file is not
        an error."""
        ...

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return whether a range of a file can be read without waiting. Only some bytes of the
        range are probed.

        Returns False if the file's descriptor is closed, because opening may wait for the disk.
        """
        ...

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Load a range of a file into the page cache, in a worker thread. If the file's descriptor
        was closed, the file is reopened first. A pinned file then stays open."""
        ...

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Return `size` bytes of a file from `position`, read by a worker thread. Used for ranges
        that may be large or not cached."""
        ...

    async def forget_flushed(self, file: DiskFile) -> None:
        """Make later reads of a file return the contents of the device, except for data that is
        written but not flushed.

        After a failed fsync, the kernel counts the pages that it could not write as flushed. While
        such pages are in memory, all processes read them as if they were on the device.
        """
        ...

    async def write_back(self, file: DiskFile) -> None:
        """Ask the kernel to start writing a file's dirty pages to the device. Waits first until the
        write-back of the previous call has ended.

        This call makes no data durable. It shortens the next fsync, and therefore the time that
        other files wait for the file system's journal. A failure counts as a failed fsync.
        """
        ...

    async def fsync(self, file: DiskFile) -> None:
        """Make all writes to a file that were made before the call durable. Overlapping calls share
        one fsync.

        After one failure, every later call fails too, because the kernel forgets which pages it
        could not write. If the owner has closed the file, the call does nothing.
        """
        ...

    async def flush_idle(self, directory: str) -> None:
        """Flush files below a directory that were not written since the last call.

        Only the files in excess of the disk's descriptor bound are flushed, so that they can be
        closed. If an fsync fails, the error is raised, and the file counts as failed, as after
        `fsync`.
        """
        ...

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Set the size of a file in bytes like `renew_size`, in a worker thread. If the owner has
        closed the file, the call does nothing."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Return the whole contents of a file. Raises FileNotFoundError if the file does not
        exist."""
        ...

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the contents of a file durably. A crash leaves either the old contents or the
        new, never a mixture.

        Concurrent calls for the same file take effect in the order of the calls.
        """
        ...

    async def unlink(self, path: str) -> None:
        """Remove a file. Raises FileNotFoundError if the file does not exist."""
        ...

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file at the target. The rename is not durable
        yet."""
        ...

    async def fsync_directory(self, path: str) -> None:
        """Make previous creations, renames and removals of names in a directory durable."""
        ...

    async def listdir(self, path: str) -> list[str]:
        """Return the sorted names of the files and subdirectories in a directory."""
        ...

    async def survey(
        self, paths: Sequence[str], wanted: Callable[[Sequence[str]], Sequence[str]]
    ) -> list[DirectorySurvey | OSError]:
        """Read the contents of several directories. Returns a survey for each directory, or the
        error that prevented reading it.

        `wanted` selects the small files to read, by name. It is called in the worker thread.
        """
        ...

    async def is_directory(self, path: str) -> bool:
        """Return whether `path` is an existing directory."""
        ...

    async def space(self, path: str) -> Space:
        """Return the size and free space, in bytes, of the volume that contains the path. The path
        must exist."""
        ...

    async def makedirs(self, path: str) -> None:
        """Create a directory and its missing parents. An existing directory is not an error."""
        ...

    async def make_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Create a directory with files in it, in the order of the mapping from names to contents.
        The result is not durable yet.

        Existing files are overwritten. Concurrent calls are performed together.
        """
        ...

    async def keep_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Make a directory durable: the files in `files`, the names in the directory, and its own
        name.

        The files already exist with these contents. They are written again, because a failed fsync
        may have left them in memory only.
        """
        ...

    async def remove_tree(self, path: str) -> None:
        """Remove a directory with its contents. A missing directory is not an error."""
        ...


async def when_cached(disk: Disk, look_up: Callable[[], T]) -> T:
    """Return the result of a look-up in files. Whenever `look_up` raises NotCachedError, the
    missing range is loaded and the look-up is repeated.

    The last look-up runs in the same event-loop iteration as the return. The state may change
    between two look-ups. A look-up must therefore read the state that it depends on at its start.
    It must change nothing before it has read everything.
    """
    while True:
        try:
            return look_up()
        except NotCachedError as error:
            missing = error
        await disk.read_ahead(missing.file, missing.position, missing.size)


async def read_some(disk: Disk, file: DiskFile, position: int, size: int) -> bytes | bytearray:
    """Return up to `size` bytes of a file from `position`. A worker thread is used only if the read
    would wait for the disk."""
    try:
        return file.read_cached(position, size)
    except NotCachedError:
        pass
    return await disk.read(file, position, size)
