"""A handle on a file of the simulated disk. As on the real disk, the descriptor of the handle may
be closed while the file is idle.

Random walks can thereby find reads of an idle file after its name was removed, files that stay open
permanently, and unexpected EMFILE errors.
"""

import errno
from collections.abc import Callable, Sequence
from typing import Protocol

from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.inode import ColdReadError, Inode, Resize
from ottla.storage.disk.descriptor_cache import CLEAN, NEW_DIRT, DescriptorCache
from ottla.storage.disk.directory_names import METADATA_DIRECTORY
from ottla.storage.disk.disk_seam import Chunk, NotCachedError
from ottla.storage.disk.file_places import FilePlaces, Folder, path_of, place_of


class OpenFiles:
    """The open file handles of one simulated process, and the paths of their files."""

    def __init__(self, count_max: int) -> None:
        self.descriptors: DescriptorCache[SimulatedFile] = DescriptorCache(count_max)
        self.places: FilePlaces[SimulatedFile] = FilePlaces()


class FileDisk(Protocol):
    """Interface of the simulated disk that a file handle uses."""

    life: int
    wall_ms: Callable[[], int] | None

    @property
    def files(self) -> OpenFiles:
        """Open file handles of the process that uses the disk."""
        ...

    def raise_injected(self, operation: DiskOperation, path: str) -> None:
        """Raise the OSError of an injected fault that matches the operation and the path. Does
        nothing if no fault matches."""
        ...

    def take_descriptor(self, path: str) -> None:
        """Make a descriptor available for a file that is about to be opened. Raises OSError(EMFILE)
        if the process has no descriptor left."""
        ...

    def inode_at(self, path: str) -> Inode | None:
        """Return the inode (content and unflushed changes) of the file with this path, or None if
        there is no such file."""
        ...

    def write(self, file: "SimulatedFile", position: int, data: bytes) -> None:
        """Write data to the file of a handle, from byte `position` on."""
        ...


class SimulatedFile:
    """A handle on a file of the simulated disk. It remains usable after the file's name is removed,
    as on POSIX."""

    __slots__ = (
        "_disk",
        "_files",
        "_is_closed",
        "_is_rewritten",
        "_life",
        "_pin_count",
        "dirt",
        "folder",
        "inode",
        "is_open",
        "is_set_apart",
        "last_path",
        "name",
        "opened_path",
        "was_used",
    )

    def __init__(self, disk: FileDisk, path: str, inode: Inode, *, is_open: bool = True) -> None:
        self._disk = disk
        self._files = disk.files
        self.opened_path = path
        """Path under which the file was opened. Injected faults of writes and reads apply to
        it."""
        self.last_path = ""
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
        """Current path of the file, or its last path if the file no longer has a name."""
        return path_of(self)

    @property
    def size_bytes(self) -> int:
        """Current size of the file in bytes."""
        self.check_usable()
        return self.inode.content.size

    @property
    def modified_ms(self) -> int:
        """Time of the file's last write or truncation in ms, by the simulated disk's clock."""
        self.check_usable()
        return self.inode.modified_ms

    @property
    def is_closed(self) -> bool:
        """True if the owner of the handle has closed it."""
        return self._is_closed

    @property
    def is_kept(self) -> bool:
        """True if the file's descriptor must stay open: the handle is pinned, or the file has
        unflushed data, has lost its name, or is in the metadata directory."""
        is_unflushed = self.dirt and not self._is_rewritten
        is_nameless = self.folder is None or METADATA_DIRECTORY in self.opened_path
        return bool(self._pin_count or is_unflushed or is_nameless)

    def pwrite(self, position: int, chunks: Sequence[Chunk]) -> None:
        """Write all chunks to the file, from byte `position` on. A fault or a full disk may leave
        only the first part of them written."""
        if self._is_closed:
            raise OSError(errno.EBADF, "the file is closed", self.opened_path)
        self.check_usable()
        self.dirt = NEW_DIRT
        data = b"".join(chunks)
        self._disk.write(self, position, data)

    def pread(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file from byte `position` on. The bytes must be in the
        page cache."""
        self.check_usable()
        self.was_used = True
        self._disk.raise_injected(DiskOperation.READ, self.opened_path)
        if self.inode.is_cold(position, size):
            raise ColdReadError(f"{self.opened_path}: {size} bytes at {position} are not in memory")
        return self.inode.content.read(position, size)

    def read_cached(self, position: int, size: int) -> bytes:
        """Return the bytes that `pread` returns. Raises NotCachedError if the read would have to
        wait for the disk."""
        self.check_valid()
        if not self.is_open or self.inode.is_cold(position, size):
            raise NotCachedError(self, position, size)
        return self.pread(position, size)

    def bring_in(self, position: int, size: int) -> None:
        """Load a byte range of the file into the page cache, for an invariant check."""
        self.keep_open()
        self.inode.bring_in(position, size)

    def set_size(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it by a hole. Does nothing if the file
        already has this size."""
        self.check_usable()
        self._disk.raise_injected(DiskOperation.WRITE, self.opened_path)
        if self.inode.content.size != size:
            self._change_size(size)

    def renew_size(self, size: int) -> None:
        """Truncate the file to `size` bytes, or extend it by a hole. The next fsync makes the new
        size durable."""
        self.check_usable()
        self._disk.raise_injected(DiskOperation.WRITE, self.opened_path)
        self._change_size(size)

    def _change_size(self, size: int) -> None:
        is_other = self.inode.content.size != size
        self.dirt = NEW_DIRT
        self.inode.change(Resize(size))
        if is_other and self._disk.wall_ms is not None:
            self.inode.modified_ms = self._disk.wall_ms()

    def set_modified_ms(self, modified_ms: int) -> None:
        """Set the modification time of the file, in ms."""
        self.check_usable()
        self.inode.modified_ms = modified_ms

    def fileno(self) -> int:
        """Raise OSError, because simulated files have no descriptor number."""
        raise OSError(errno.ENOTSUP, "the world's files have no descriptor", self.opened_path)

    def pin(self) -> None:
        """Keep the file's descriptor open until the matching `unpin`."""
        self._pin_count += 1

    def unpin(self) -> None:
        """Undo one `pin`, so that the file's descriptor may be closed again while the file is
        idle."""
        assert self._pin_count > 0
        self._pin_count -= 1
        if not self._pin_count:
            if self._is_closed:
                self._forget()
            elif self.is_set_apart:
                self._files.descriptors.settle(self)

    def expect_rewrite(self) -> None:
        """Stop counting writes of this file as unflushed, because the owner of the file rewrites
        all of it before relying on the content."""
        self._is_rewritten = True

    def close(self) -> None:
        """Close the file. The owner of the handle calls this."""
        if self._pin_count and not self._is_closed and self._life == self._disk.life:
            self.keep_open()
        self._is_closed = True
        if not self._pin_count:
            self._forget()

    def give_back(self) -> None:
        """Close the descriptor of an idle file. The next use of the handle opens the file again."""
        assert not self.is_kept
        self.is_open = False

    def note_flushed(self, dirt: int) -> None:
        """Record that `dirt` changes of the file are still unflushed after a flush. The descriptor
        may then be closed if no other reason keeps it open."""
        self.dirt = max(dirt, self.dirt)
        self._files.descriptors.note_flushed(self)

    def keep_open(self) -> None:
        """Open the file if its descriptor is closed, because its name is about to be removed.
        Injected faults do not affect this call."""
        if not self.is_open:
            self.is_open = True
            self._files.descriptors.add(self)

    def check_valid(self) -> None:
        """Raise OSError if the handle is closed or was opened before the last crash of the node."""
        if self._life != self._disk.life:
            raise OSError(
                errno.EIO, "the node crashed since this file was opened", self.opened_path
            )
        if self._is_closed and self._pin_count == 0:
            raise OSError(errno.EBADF, "the file is closed", self.opened_path)

    def check_usable(self) -> None:
        """Open the file if its descriptor was closed while idle.

        Raises OSError if the handle is closed, was opened before the last crash, or the file cannot
        be opened.
        """
        self.check_valid()
        if self.is_open:
            return
        place = place_of(self)
        assert place is not None, f"{self.opened_path} lost its name without being opened"
        self._disk.raise_injected(DiskOperation.OPEN, place)
        if self._disk.inode_at(place) is not self.inode:
            raise OSError(errno.ESTALE, "the file is no longer there", place)
        self._disk.take_descriptor(place)
        self.is_open = True
        self._files.descriptors.add(self)

    def _forget(self) -> None:
        self.is_open = False
        self._files.descriptors.remove(self)
        self._files.places.remove(self)
