"""A handle on a file of the world's disk, whose descriptor may be given back as the real one's is.

So a walk finds who reads an idle file after its name is gone, keeps files open without an end, or
meets EMFILE where it expects none.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.inode import ColdReadError, Inode, Resize
from ottla.storage.descriptor_cache import CLEAN, NEW_DIRT, DescriptorCache
from ottla.storage.directory_names import METADATA_DIRECTORY
from ottla.storage.disk_seam import Chunk, NotCachedError
from ottla.storage.file_places import FilePlaces, Folder, place_of


class OpenFiles:
    """The handles of one process that are open, and where their files lie."""

    def __init__(self, count_max: int) -> None:
        self.descriptors: DescriptorCache[SimulatedFile] = DescriptorCache(count_max)
        self.places: FilePlaces[SimulatedFile] = FilePlaces()


class FileDisk(Protocol):
    """What a handle needs of its disk."""

    life: int
    wall_ms: Callable[[], int] | None

    @property
    def files(self) -> OpenFiles:
        """The open files of the process."""
        ...

    def strike(self, operation: DiskOperation, path: str) -> None:
        """Raise the OSError of a fault that waits for this operation."""
        ...

    def take_descriptor(self, path: str) -> None:
        """Raise OSError(EMFILE) if the process has no descriptor left."""
        ...

    def inode_at(self, path: str) -> Inode | None:
        """Return the file of a name."""
        ...

    def write(self, file: "SimulatedFile", position: int, data: bytes) -> None:
        """Write for a handle."""
        ...


class SimulatedFile:
    """A handle on an inode; it keeps working after its name is gone, as on POSIX."""

    __slots__ = (
        "_disk",
        "_files",
        "_is_closed",
        "_is_rewritten",
        "_life",
        "_path",
        "_pin_count",
        "dirt",
        "folder",
        "inode",
        "is_open",
        "is_set_apart",
        "name",
        "was_used",
    )

    def __init__(self, disk: FileDisk, path: str, inode: Inode, *, is_open: bool = True) -> None:
        self._disk = disk
        self._files = disk.files
        self._path = path
        self._life = disk.life
        self._pin_count = 0
        self._is_closed = False
        self._is_rewritten = False
        self.inode = inode
        self.dirt = CLEAN
        self.was_used = True
        self.is_open = is_open
        self.is_set_apart = False
        self.folder: Folder | None = None
        self.name = ""
        self._files.places.add(path, self)
        if is_open:
            self._files.descriptors.add(self)

    @property
    def path(self) -> str:
        """Return the path the file was opened under."""
        return self._path

    @property
    def size_bytes(self) -> int:
        """Return the size of the file now."""
        self.check_usable()
        return self.inode.content.size

    @property
    def modified_ms(self) -> int:
        """When the file was last written or cut, by the disk's clock."""
        self.check_usable()
        return self.inode.modified_ms

    @property
    def is_closed(self) -> bool:
        """Whether the owner gave the file up."""
        return self._is_closed

    @property
    def is_kept(self) -> bool:
        """Whether the descriptor must not be given back."""
        is_unflushed = self.dirt and not self._is_rewritten
        is_nameless = self.folder is None or METADATA_DIRECTORY in self._path
        return bool(self._pin_count or is_unflushed or is_nameless)

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks; a fault or a full disk may leave the first part of them written."""
        if self._is_closed:
            raise OSError(errno.EBADF, "the file is closed", self._path)
        self.check_usable()
        self.dirt = NEW_DIRT
        data = b"".join(chunks)
        self._disk.write(self, position, data)

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes from `position`, which must be in memory."""
        self.check_usable()
        self.was_used = True
        self._disk.strike(DiskOperation.READ, self._path)
        if self.inode.is_cold(position, size):
            raise ColdReadError(f"{self._path}: {size} bytes at {position} are not in memory")
        return self.inode.content.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes:
        """Do what `pread` does.  Raises NotCachedError if that would wait for the disk."""
        self.check_valid()
        if not self.is_open or self.inode.is_cold(position, size):
            raise NotCachedError(self, position, size)
        return self.pread(position, size)

    def bring_in(self, position: int, size: int) -> None:
        """Take a range into memory, for a judge."""
        self.keep_open()
        self.inode.bring_in(position, size)

    def set_size(self, size: int) -> None:
        """Cut the file, or extend it by a hole."""
        self.check_usable()
        self._disk.strike(DiskOperation.WRITE, self._path)
        if self.inode.content.size != size:
            self._change_size(size)

    def renew_size(self, size: int) -> None:
        """Cut the file, or extend it by a hole; the next fsync makes its size durable."""
        self.check_usable()
        self._disk.strike(DiskOperation.WRITE, self._path)
        self._change_size(size)

    def _change_size(self, size: int) -> None:
        is_other = self.inode.content.size != size
        self.dirt = NEW_DIRT
        self.inode.change(Resize(size))
        if is_other and self._disk.wall_ms is not None:
            self.inode.modified_ms = self._disk.wall_ms()

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set when the file was last written."""
        self.check_usable()
        self.inode.modified_ms = modified_ms

    def fileno(self) -> int:
        """Raise OSError: there is no descriptor in the world."""
        raise OSError(errno.ENOTSUP, "the world's files have no descriptor", self._path)

    def pin(self) -> None:
        """Keep the handle usable until the matching `unpin`."""
        self._pin_count += 1

    def unpin(self) -> None:
        """Take back one `pin`."""
        assert self._pin_count > 0
        self._pin_count -= 1
        if not self._pin_count:
            if self._is_closed:
                self._forget()
            elif self.is_set_apart:
                self._files.descriptors.settle(self)

    def expect_rewrite(self) -> None:
        """Count no write of this file as unflushed."""
        self._is_rewritten = True

    def close(self) -> None:
        """Give the file up."""
        if self._pin_count and not self._is_closed and self._life == self._disk.life:
            self.keep_open()
        self._is_closed = True
        if not self._pin_count:
            self._forget()

    def give_back(self) -> None:
        """Close the descriptor; the next use opens the file again."""
        assert not self.is_kept
        self.is_open = False

    def note_flushed(self, dirt: int) -> None:
        """Let the descriptor go, if nothing else keeps it; `dirt` is left."""
        self.dirt = max(dirt, self.dirt)
        self._files.descriptors.note_flushed(self)

    def keep_open(self) -> None:
        """Open the file before its name is gone; nothing fails here."""
        if not self.is_open:
            self.is_open = True
            self._files.descriptors.add(self)

    def check_valid(self) -> None:
        """Raise OSError if the handle is closed or from before a crash."""
        if self._life != self._disk.life:
            raise OSError(errno.EIO, "the node crashed since this file was opened", self._path)
        if self._is_closed and self._pin_count == 0:
            raise OSError(errno.EBADF, "the file is closed", self._path)

    def check_usable(self) -> None:
        """Open the file if its descriptor was given back.

        Raises OSError if the handle is closed or from before a crash, or the file cannot be opened.
        """
        self.check_valid()
        if self.is_open:
            return
        place = place_of(self)
        assert place is not None, f"{self._path} lost its name without being opened"
        self._disk.strike(DiskOperation.OPEN, place)
        if self._disk.inode_at(place) is not self.inode:
            raise OSError(errno.ESTALE, "the file is no longer there", place)
        self._disk.take_descriptor(place)
        self.is_open = True
        self._files.descriptors.add(self)

    def _forget(self) -> None:
        self.is_open = False
        self._files.descriptors.remove(self)
        self._files.places.remove(self)
