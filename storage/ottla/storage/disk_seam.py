"""The seam through which files and directories come in.

What may run on the loop is a plain call: writing, reading what is cached, opening.  What may hold
a thread (fsync, unlink, truncate, rename, scans) is awaited and runs on a worker of its directory.
Nodes have two implementations: `RealDisk` (disk.py) and the deterministic world's.  A third, of the
command line, keeps its changes aside to show a recovery before it is done.  Every failure is an
`OSError` with its errno; nothing else is raised.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

Chunk = bytes | bytearray | memoryview
"""Bytes to be written: taken by reference, never kept after the call."""


T = TypeVar("T")


class NotCachedError(Exception):
    """What a look-up lacks: bring this range in by `Disk.read_ahead`, then look again.

    No failure, and no part of an answer: every caller of `read_cached` catches it.
    """

    def __init__(self, file: "DiskFile", position: int, size: int) -> None:
        super().__init__(f"{file.path}: {size} bytes at {position} are not cached")
        self.file = file
        self.position = position
        self.size = size


class Space(NamedTuple):
    """How large the volume of a path is, and what of it this process may still take."""

    total_bytes: int
    usable_bytes: int


class DirectorySurvey(NamedTuple):
    """What one directory holds."""

    sizes: dict[str, int]
    """Size of each file by its name."""
    contents: dict[str, bytes]
    """The bytes of those that were wanted."""


class DiskFile(Protocol):
    """A handle on one file, written at positions its owner keeps; there is no cursor.

    Its descriptor may be given back for others while nothing pins it and nothing unflushed is in
    it; the next use opens the file again, wherever `Disk.rename` took it meanwhile.
    """

    @property
    def path(self) -> str:
        """Return the path the file was opened under (a rename does not change it)."""
        ...

    @property
    def size_bytes(self) -> int:
        """Return the size of the file now."""
        ...

    @property
    def modified_ms(self) -> int:
        """When the file was last written or cut, in wall time."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the owner has given the file up."""
        ...

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks from `position` on, in order; after an OSError part may be there."""
        ...

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`; fewer only at the end of the file.

        Waits for the disk: only for what was just brought in, and beside the loop.
        """
        ...

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        """Do what `pread` does.  Raises NotCachedError if that would wait for the disk."""
        ...

    def set_size(self, size: int) -> None:
        """Cut the file, or extend it by a hole, at once.

        Only for what costs nothing: taking back a torn append, a hole for an index file.  What
        may free many blocks is `Disk.truncate`.
        """
        ...

    def renew_size(self, size: int) -> None:
        """Do what `set_size` does, and have the next fsync write the size even if it stays.

        After a failed fsync memory may show a size that the device has not, and a later fsync
        succeeds without writing it.  When it was last written stays, if the size does.
        """
        ...

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set when the file was last written, in wall time; the next fsync makes that durable.

        The next write or cut sets it again.
        """
        ...

    def fileno(self) -> int:
        """Return the descriptor for sendfile; the world's files raise OSError (they have none).

        It stays the file's as long as the file is pinned.
        """
        ...

    def pin(self) -> None:
        """Keep the descriptor, once it is open, until the matching `unpin`, also after `close`.

        A pin opens nothing: where that may wait for the disk, `Disk.read_ahead` does it.
        """
        ...

    def unpin(self) -> None:
        """Take back one `pin`; the last one after `close` closes the descriptor."""
        ...

    def expect_rewrite(self) -> None:
        """Count no write of this file as unflushed: the owner writes all of it again to rely on it.

        What was written may then be lost without an error, and the descriptor be given back.
        """
        ...

    def close(self) -> None:
        """Give the file up; the descriptor closes when nothing pins it.  Twice is once.

        From then on writing fails with EBADF, and so does reading what nothing pins.
        """
        ...


class Disk(Protocol):
    """Files and directories by absolute path."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        """Open a file for reading and writing; with `create`, make it when it is not there."""
        ...

    def at(self, path: str) -> DiskFile:
        """Return a handle on a file that is there; its first use opens it."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name is there."""
        ...

    def unlink_empty(self, path: str) -> None:
        """Remove, at once, a file that holds no more than a hole; none of that name is fine."""
        ...

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return whether the range (a byte here and there) can be read without waiting.

        False where the file's descriptor is not open, for opening may wait for the disk.
        """
        ...

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Open the file where its descriptor was given back, and bring a range into the page cache.

        A file that is pinned stays open then.
        """
        ...

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Do what `pread` does, on the worker: for what may be cold or large."""
        ...

    async def forget_flushed(self, file: DiskFile) -> None:
        """Have later reads come from the device, but for what was written and not flushed.

        After a failed fsync the kernel counts what it could not write as flushed, and shows it as
        long as memory holds it, to later processes, too.
        """
        ...

    async def write_back(self, file: DiskFile) -> None:
        """Have the device write what was written, once it is done with what the last call began.

        Nothing becomes durable by it.  It keeps the next fsync short, and so the wait of other
        files for the file system's journal.  A failure is that of an fsync.
        """
        ...

    async def fsync(self, file: DiskFile) -> None:
        """Make durable what was written before the call.  Calls that overlap share one fsync.

        After one failure every later call fails too: the kernel forgets what it could not write.
        A file whose owner has closed it is passed over.
        """
        ...

    async def flush_idle(self, directory: str) -> None:
        """Flush files below a directory that were not written since the last call.

        Only as many as are open beyond the disk's bound of descriptors, so that these can be given
        back.  A file whose fsync fails is failed, as by `fsync`, and the error raised.
        """
        ...

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Do what `renew_size` does; a file whose owner has closed it is passed over."""
        ...

    async def read_file(self, path: str) -> bytes:
        """Return the whole file; FileNotFoundError when there is none."""
        ...

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the file durably: a crash leaves the old bytes or the new, never a mix.

        Of two that replace the same file the first called comes first.
        """
        ...

    async def unlink(self, path: str) -> None:
        """Remove a file; FileNotFoundError when there is none."""
        ...

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file of the target's name; not yet durable."""
        ...

    async def fsync_directory(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    async def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        ...

    async def survey(
        self, paths: Sequence[str], wanted: Callable[[Sequence[str]], Sequence[str]]
    ) -> list[DirectorySurvey | OSError]:
        """Return what each of several directories holds, or why that cannot be said.

        `wanted` returns the names of the small files to be read, of all names; it is called in the
        worker.
        """
        ...

    async def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        ...

    async def space(self, path: str) -> Space:
        """Return the room on the volume that holds the path, which must be there."""
        ...

    async def makedirs(self, path: str) -> None:
        """Make a directory and its parents; one that is there is fine."""
        ...

    async def make_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Make a directory with files in it, in the order they are named; not yet durable.

        A file that is there already is written again.  Several are made at once.
        """
        ...

    async def keep_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Make a directory durable: these of its files, the names in it, and its own name.

        The files are there and hold these bytes; they are written again, for an fsync that failed
        may have left them in memory alone.
        """
        ...

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and all it holds; one that is not there is fine."""
        ...


async def when_cached(disk: Disk, look_up: Callable[[], T]) -> T:
    """Return what a look-up comes to, bringing in what it lacks and looking again until it is here.

    The last look is made in the turn that returns.  Between two of them the world may have changed,
    so a look-up begins with what it holds on to, and changes nothing before it has read all.
    """
    while True:
        try:
            return look_up()
        except NotCachedError as error:
            missing = error
        await disk.read_ahead(missing.file, missing.position, missing.size)


async def read_some(disk: Disk, file: DiskFile, position: int, size: int) -> bytes | bytearray:
    """Do what `pread` does, on the worker only where that would wait."""
    try:
        return file.read_cached(position, size)
    except NotCachedError:
        pass
    return await disk.read(file, position, size)
