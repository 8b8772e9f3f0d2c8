"""A range of a file that is passed on instead of its bytes, so that sendfile can serve it.

Slices are read far from their logs, so an error of the file is raised as `SliceError`: whoever
catches it reports the path to the log manager.
"""

from ottla.model.compiled import mypyc_attr
from ottla.model.errors import CorruptDataError
from ottla.storage.disk_seam import DiskFile


@mypyc_attr(native_class=False)
class SliceError(OSError):
    """A slice's file could not be read; `filename` is its path."""

    def __init__(self, error: OSError, path: str) -> None:
        super().__init__(error.errno, error.strerror or str(error), path)


class FileSlice:
    """`length` bytes of `file` from `position`; holds the descriptor open as long as it lives."""

    __slots__ = ("file", "length", "position")

    def __init__(self, file: DiskFile, position: int, length: int) -> None:
        assert position >= 0
        assert length >= 0
        self.file = file
        self.position = position
        self.length = length
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

    def fileno(self) -> int:
        """Return the descriptor, for sendfile."""
        return self.file.fileno()
