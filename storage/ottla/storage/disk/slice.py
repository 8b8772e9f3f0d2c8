"""A range of a file that is passed instead of its bytes, so that sendfile can send it.

The code that reads a slice does not know the slice's log. An error of the file is therefore raised
as `SliceError`, and the handler reports the path to the log manager.
"""

from ottla.model.compiled import mypyc_attr
from ottla.model.errors import CorruptDataError
from ottla.storage.disk.disk_seam import DiskFile

CACHED_FOR_MS = 50
"""Time in ms for which a file range that was found in the page cache counts as cached. A longer
time may block the event loop on a disk read, if the kernel has reclaimed the memory. With a shorter
time, the range is checked again for each portion that a socket accepts."""


@mypyc_attr(native_class=False)
class SliceError(OSError):
    """Error of reading a file slice. `filename` is the path of the slice's file."""

    def __init__(self, error: OSError, path: str) -> None:
        super().__init__(error.errno, error.strerror or str(error), path)


class FileSlice:
    """Range of a file: `length` bytes of `file` from `position`. The file's descriptor stays open
    as long as the slice exists."""

    __slots__ = ("_cached_end", "_cached_ms", "file", "length", "position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        assert position >= 0
        assert length >= 0
        self.file = file
        self.position = position
        self.length = length
        self._cached_end = 0
        self._cached_ms = 0
        file.pin()

    def __del__(self) -> None:
        self.file.unpin()

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"FileSlice({self.file.path!r}, {self.position}, {self.length})"

    def read(self) -> bytes:
        """Return the bytes of the slice, read from its file.

        Raises CorruptDataError if the file was truncated below the slice's end, and SliceError if
        the file cannot be read.
        """
        try:
            data = self.file.pread(self.position, self.length)
        except OSError as error:
            raise SliceError(error, self.file.path) from error
        if len(data) < self.length:
            raise CorruptDataError(f"{self.file.path} ends within {self!r}")
        return data

    def read_cached(self) -> bytes | bytearray:
        """Return the same bytes as `read`. Raises NotCachedError if the read would wait for the
        disk."""
        try:
            data = self.file.read_cached(self.position, self.length)
        except OSError as error:
            raise SliceError(error, self.file.path) from error
        if len(data) < self.length:
            raise CorruptDataError(f"{self.file.path} ends within {self!r}")
        return data

    def note_cached(self, end: int, now_ms: int) -> None:
        """Record that a part of the slice was in the page cache at `now_ms`: the bytes from the
        last position sent up to `end`."""
        self._cached_end = end
        self._cached_ms = now_ms

    def cached_bytes(self, position: int, now_ms: int) -> int:
        """Return the number of bytes of the slice, from a position on, that are known to be in the
        page cache. Returns 0 if the last check was more than `CACHED_FOR_MS` ago."""
        if now_ms - self._cached_ms > CACHED_FOR_MS:
            return 0
        return max(0, self._cached_end - position)

    def fileno(self) -> int:
        """Return the descriptor of the slice's file, for sendfile."""
        return self.file.fileno()
