"""A range of a file that is passed on instead of its bytes, so that sendfile can serve it.

Slices are read far from their logs, so an error of the file is raised as `SliceError`: whoever
catches it reports the path to the log manager.
"""

from ottla.model.compiled import mypyc_attr
from ottla.model.errors import CorruptDataError
from ottla.storage.disk_seam import DiskFile

CACHED_FOR_MS = 50
"""How long what was found in memory is taken to be there.  Longer may let the loop wait for a disk
where the kernel has taken memory back, shorter asks again for each part that a socket takes."""


@mypyc_attr(native_class=False)
class SliceError(OSError):
    """A slice's file could not be read; `filename` is its path."""

    def __init__(self, error: OSError, path: str) -> None:
        super().__init__(error.errno, error.strerror or str(error), path)


class FileSlice:
    """`length` bytes of `file` from `position`; holds the descriptor open as long as it lives."""

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
        """Return the bytes.

        Raises CorruptDataError if the file was cut below the slice's end, SliceError if it cannot
        be read.
        """
        try:
            data = self.file.pread(self.position, self.length)
        except OSError as error:
            raise SliceError(error, self.file.path) from error
        if len(data) < self.length:
            raise CorruptDataError(f"{self.file.path} ends within {self!r}")
        return data

    def read_cached(self) -> bytes | bytearray:
        """Do what `read` does.  Raises NotCachedError if that would wait for the disk."""
        try:
            data = self.file.read_cached(self.position, self.length)
        except OSError as error:
            raise SliceError(error, self.file.path) from error
        if len(data) < self.length:
            raise CorruptDataError(f"{self.file.path} ends within {self!r}")
        return data

    def note_cached(self, end: int, now_ms: int) -> None:
        """Remember that the file was found in memory up to `end`, from what was sent last on."""
        self._cached_end = end
        self._cached_ms = now_ms

    def cached_bytes(self, position: int, now_ms: int) -> int:
        """Return how much from a position of the file is known to be in memory; 0 after a while."""
        if now_ms - self._cached_ms > CACHED_FOR_MS:
            return 0
        return max(0, self._cached_end - position)

    def fileno(self) -> int:
        """Return the descriptor, for sendfile."""
        return self.file.fileno()
