"""A file of the real disk, whose descriptor may be closed while the file is idle.

No descriptor is closed while a call uses it: only the event loop closes descriptors, never in the
middle of a call, and a file that a worker thread uses is pinned.
"""

import errno
import os
import resource
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import trio

from ottla.model.compiled import mypyc_attr
from ottla.storage.disk.descriptor_cache import CLEAN, NEW_DIRT, DescriptorCache
from ottla.storage.disk.disk_seam import Chunk, NotCachedError
from ottla.storage.disk.file_places import FilePlaces, Folder, path_of, place_of

OPEN_FILES_MAX = 512
"""Maximum number of closable files whose descriptors are kept open. With a smaller number, files
are reopened more often, at about 5 microseconds each. With a larger one, fewer descriptors are left
for connections."""

FREED_AT_ONCE = 16
"""Number of file descriptors closed at once when the process has none left. With a smaller number,
the process runs out again sooner."""

DESCRIPTORS_RESERVED = 64
"""Number of file descriptors that logs may not use, at most a quarter of all descriptors. They are
needed when the metadata log rolls, when files are replaced by rename, and for connections to
controllers."""

IOV_MAX = 1024
"""Maximum number of chunks in one pwritev call (Linux's UIO_MAXIOV). A call with more chunks fails
with EINVAL."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RealFile:
    """One file of the real disk. Its descriptor is closed once the owner has closed the file and no
    slice pins it."""

    __slots__ = (
        "_cache",
        "_fd",
        "_fsyncs",
        "_identity",
        "_is_given_up",
        "_is_rewritten",
        "_pin_count",
        "dirt",
        "folder",
        "is_set_apart",
        "last_path",
        "name",
        "was_used",
    )

    def __init__(self, path: str, fd: int, cache: "OpenRealFiles | None" = None) -> None:
        """Wrap a file descriptor. With a `cache`, the descriptor may be closed while the file is
        idle. `fd` may then also be -1 for a file that is not open yet."""
        self.last_path = path if cache is None else ""
        self._fd = fd
        self._pin_count = 0
        self._is_given_up = False
        self._fsyncs: Fsyncs | None = None
        self.dirt = CLEAN
        self.was_used = True
        self.is_set_apart = False
        self.folder: Folder | None = None
        self.name = ""
        self._is_rewritten = False
        self._identity: tuple[int, int] | None = None
        """Device and inode number of the file, or None before it was opened. They show at a
        reopening whether the file's name now belongs to another file."""
        self._cache = cache
        if cache is not None:
            cache.places.add(path, self)
            if fd >= 0:
                cache.descriptors.add(self)

    @property
    def path(self) -> str:
        """Current path of the file, or its last path if the file no longer has a name."""
        return path_of(self)

    @property
    def fsyncs(self) -> "Fsyncs":
        """Counters of the fsyncs of the file. They are created at the first fsync, because most
        files of idle partitions are never flushed again."""
        if self._fsyncs is None:
            self._fsyncs = Fsyncs()
        return self._fsyncs

    @property
    def size_bytes(self) -> int:
        """Current size of the file in bytes."""
        return os.fstat(self._descriptor()).st_size

    @property
    def modified_ms(self) -> int:
        """Time of the last write or truncation of the file, in ms since 1970."""
        return os.fstat(self._descriptor()).st_mtime_ns // 1_000_000

    @property
    def is_closed(self) -> bool:
        """True if the file's owner (a log or an index) has closed the file."""
        return self._is_given_up

    @property
    def is_open(self) -> bool:
        """True if the file has an open descriptor now."""
        return self._fd >= 0

    @property
    def is_kept(self) -> bool:
        """True if the file's descriptor must not be closed."""
        return bool(self._pin_count or (self.dirt and not self._is_rewritten) or not self.folder)

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks in order to the file, starting at `position`."""
        if self._is_given_up:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        fd = self._fd
        if fd < 0:
            fd = self._open_on_loop()
        self.dirt = NEW_DIRT
        if len(chunks) == 1:  # the usual case: one produced batch
            size = len(chunks[0])
            written = os.pwrite(fd, chunks[0], position)
        else:
            size = 0
            for chunk in chunks:
                size += len(chunk)
            some = chunks if len(chunks) <= IOV_MAX else chunks[:IOV_MAX]
            written = os.pwritev(fd, some, position)
        if written != size:
            write_rest(fd, position, chunks, written)

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file from `position`. The call may wait for the disk."""
        fd = self._fd
        if fd < 0:
            fd = self._open_on_loop()
        self.was_used = True
        data = os.pread(fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        missing = size - len(data)
        while missing:
            data = os.pread(fd, missing, position + size - missing)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_cached(self, position: int, size: int) -> bytes | bytearray:
        """Return the same bytes as `pread`, from the page cache. Raises NotCachedError if the read
        would wait for the disk."""
        fd = self._fd
        if fd < 0 and not self._is_unusable:
            raise NotCachedError(self, position, size)
        self.was_used = True
        data = bytearray(size)
        try:
            count = os.preadv(fd, (data,), position, os.RWF_NOWAIT)
            if count == size:
                return data
            while count < size:
                # The end of the file, or of what is cached.
                rest = (memoryview(data)[count:],)
                more = os.preadv(fd, rest, position + count, os.RWF_NOWAIT)
                if not more:
                    break
                count += more
        except BlockingIOError:
            raise NotCachedError(self, position, size) from None
        except OSError as error:
            if error.errno != errno.EOPNOTSUPP:
                raise
            return self.pread(position, size)  # a file system without RWF_NOWAIT
        return data[:count]

    def set_size(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it by a hole."""
        fd = self._descriptor()
        if os.fstat(fd).st_size != size:
            self.dirt = NEW_DIRT
            os.ftruncate(fd, size)

    def renew_size(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it by a hole. The next fsync writes the file
        size even if it is unchanged."""
        fd = self._descriptor()
        before = os.fstat(fd)
        self.dirt = NEW_DIRT
        os.ftruncate(fd, size)
        if before.st_size == size:
            os.utime(fd, ns=(before.st_atime_ns, before.st_mtime_ns))

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the modification time of the file, in ms since 1970."""
        fd = self._descriptor()
        self.dirt = NEW_DIRT
        os.utime(fd, ns=(os.fstat(fd).st_atime_ns, modified_ms * 1_000_000))

    def fileno(self) -> int:
        """Return the file's descriptor, or -1 once the file is closed."""
        return self._fd if self._fd >= 0 or self._is_unusable else self._open_on_loop()

    def pin(self) -> None:
        """Keep the file's descriptor open until the matching `unpin`."""
        self._pin_count += 1

    def unpin(self) -> None:
        """Undo one `pin` of the file. The last `unpin` after `close` closes the descriptor."""
        self._pin_count -= 1
        if not self._pin_count:
            if self._is_given_up:
                self._close_now()
            elif self.is_set_apart and self._cache is not None:
                self._cache.descriptors.settle(self)

    def expect_rewrite(self) -> None:
        """Exclude the writes of this file from the unflushed writes, because the owner rewrites the
        whole file before it relies on its contents."""
        self._is_rewritten = True

    def close(self) -> None:
        """Close the file. The descriptor is closed once nothing pins it."""
        if self._pin_count and self._fd < 0 and not self._is_given_up:
            with suppress(OSError):  # a user with a pin then meets a closed file
                self._open_on_loop()
        self._is_given_up = True
        if self._pin_count == 0:
            self._close_now()

    def give_back(self) -> None:
        """Close the file's descriptor. The next use of the file opens it again."""
        fd, self._fd = self._fd, -1
        if self._identity is None:
            found = os.fstat(fd)
            self._identity = found.st_dev, found.st_ino
        os.close(fd)

    def note_flushed(self) -> None:
        """Record that the file is flushed. Its descriptor may then be closed if nothing else
        requires it."""
        if self.is_set_apart and self._cache is not None:
            self._cache.descriptors.note_flushed(self)

    def open_if_needed(self) -> None:
        """Open the file if its descriptor was closed. The caller then calls `note_open` on the
        event loop."""
        if self._fd >= 0 or self._is_unusable:
            return
        place = place_of(self)
        if place is None:
            raise OSError(errno.ENOENT, "the file has lost its name", self.path)
        assert self._cache is not None
        for path in (place, *self._cache.places_to_come(place)):
            fd = self._opened(path)
            if fd >= 0:
                break
        else:
            code = errno.EBADF if self._is_given_up else errno.ESTALE
            raise OSError(code, "the file is no longer there", place)
        with _OPENING:
            if self._fd < 0:
                self._fd, fd = fd, -1
        if fd >= 0:
            os.close(fd)

    def _opened(self, path: str) -> int:
        """Return a new descriptor of the file, or -1 if its path is missing or names another
        file."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return -1
        found = os.fstat(fd)
        identity = found.st_dev, found.st_ino
        if self._identity is None:
            self._identity = identity
        if identity == self._identity:
            return fd
        os.close(fd)
        return -1

    def note_open(self) -> None:
        """Add the file to the descriptor cache if a worker thread has opened it. Must be called on
        the event loop."""
        if self._cache is not None and self._fd >= 0:
            self._cache.descriptors.add(self)

    @property
    def _is_unusable(self) -> bool:
        return self._cache is None or (self._is_given_up and not self._pin_count)

    def _descriptor(self) -> int:
        return self._fd if self._fd >= 0 else self._open_on_loop()

    def _open_on_loop(self) -> int:
        cache = self._cache
        if cache is None or (self._is_given_up and self._pin_count == 0):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        cache.make_room(self.path)
        self.open_if_needed()
        cache.descriptors.add(self)
        return self._fd

    def _close_now(self) -> None:
        if self._cache is not None:
            self._cache.descriptors.remove(self)
            self._cache.places.remove(self)
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


_OPENING = threading.Lock()
"""Lock held while a new descriptor is assigned to its file, because two worker threads may open the
same file."""


def descriptor_max() -> int:
    """Return the highest number that the descriptor of a log's file may have. It is derived from
    RLIMIT_NOFILE."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return limit - min(DESCRIPTORS_RESERVED, limit // 4)


class OpenRealFiles:
    """The open files of one disk and their paths, with the cache that bounds the number of
    descriptors."""

    def __init__(self) -> None:
        self.descriptor_max = descriptor_max()
        self.places: FilePlaces[RealFile] = FilePlaces()
        self.descriptors: DescriptorCache[RealFile] = DescriptorCache(
            max(1, min(OPEN_FILES_MAX, self.descriptor_max // 4))
        )
        self.renames: list[tuple[str, str]] = []
        """Source and target of each rename that a worker thread is performing. The name may have
        changed already."""

    def places_to_come(self, path: str) -> Iterator[str]:
        """Yield further possible paths of a file, because a worker thread is renaming the file or
        its directory."""
        for source, target in list(self.renames):
            if path == source or path.startswith(source + "/"):
                yield target + path[len(source) :]

    def make_room(self, path: str) -> None:
        """Ensure that a descriptor is free for opening the log file at `path`, if necessary by
        closing other files.

        Raises OSError(EMFILE) if no descriptor can be freed.
        """
        while _lowest_descriptor() > self.descriptor_max:
            if not self.descriptors.free(FREED_AT_ONCE):
                self.descriptors.is_short = True
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)


def _lowest_descriptor() -> int:
    # The kernel returns the lowest free number.
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(fd)
    return fd


class Fsyncs:
    """Counters of the fsyncs of one file: the number of fsyncs that have begun, the number that
    have ended, and the error of a failed fsync."""

    __slots__ = ("begun_count", "done_count", "failure", "running")

    def __init__(self) -> None:
        self.begun_count = 0
        self.done_count = 0
        self.running: trio.Event | None = None
        self.failure: OSError | None = None


def write_rest(fd: int, position: int, chunks: Sequence[Chunk], written: int) -> None:
    """Write the rest of `chunks` after a partial write, which can occur after a signal, at the IOV
    limit, or on an almost full disk. `written` bytes from `position` on are already written."""
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
            raise OSError(errno.EIO, "the file accepts no bytes")
        at += skip
