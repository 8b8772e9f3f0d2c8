"""The simulated disk: in memory, deterministic, with the weakest guarantees that POSIX allows.

It implements the interface in `ottla.storage.disk.disk_seam`, like the real disk. At a `crash`,
data that was written but not flushed may be lost, kept, torn, reordered or replaced by zeros. The
creation, renaming or removal of a file becomes durable only when its directory is flushed. Until
then, a crash keeps an arbitrary subset of the unflushed changes. Faults are injected by `fail` and
`capacity_bytes`. A crash invalidates all handles. The code that crashes a node must also cancel its
tasks, so that nothing of the old process continues to write.
"""

import errno
import posixpath
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing

from ottla.jepsen.world.disk_faults import DiskFault, DiskFaults, DiskOperation
from ottla.jepsen.world.inode import Inode, Write
from ottla.jepsen.world.simulated_file import OpenFiles, SimulatedFile
from ottla.model.limits import INT64_MAX
from ottla.model.seams import Rng
from ottla.storage.disk.descriptor_cache import CLEAN, OLD_DIRT
from ottla.storage.disk.disk_seam import DirectorySurvey, DiskFile, Space
from ottla.storage.disk.slice import FileSlice

Pause = Callable[[], Awaitable[None]]
"""Function that the simulated disk calls before each awaitable operation takes effect, so that
other tasks can run first."""

OPEN_FILES_MAX = 8
"""Number of idle files of the simulated disk that keep their descriptors open. It is small, so that
files are often reopened."""


class _Directory:
    """Names in one directory of the simulated disk, in three forms: visible to processes, stored on
    the device, and changed but not flushed."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[_NameChange] = []

    def change(self, change: "_NameChange") -> None:
        _change_names(self.entries, change)
        self.pending.append(change)

    def lose_power(self, rng: Rng) -> None:
        """Apply a random part of the directory's unflushed changes and lose the rest, as a power
        cut does. The part is a prefix or an arbitrary subset of the changes."""
        is_ordered = rng.below(2) == 0
        kept_count = rng.below(len(self.pending) + 1)
        for index, change in enumerate(self.pending):
            if index < kept_count if is_ordered else rng.below(2):
                _change_names(self.durable, change)
        self.pending.clear()
        self.entries = dict(self.durable)


_Node = Inode | _Directory
_NameChange = dict[str, _Node | None]
"""Changes of directory entries that become durable together: the new file or directory of each
name, or None for a removed name. A rename within one directory changes two names atomically."""


class SimulatedDisk:
    """A simulated disk with files and directories in memory. The module's docstring lists the
    faults it can have."""

    def __init__(self, rng: Rng, *, pause: Pause | None = None) -> None:
        self.life = 0
        """Number of crashes and kills so far of the node that uses the disk. File handles opened
        before the last crash or kill are invalid."""
        self.capacity_bytes: int | None = None
        self.has_lost_writes = False
        """True if a process that uses the disk ended after a failed flush. The data that the flush
        should have written is then only in the page cache."""
        """Maximum total bytes of all files. Writes that would exceed it fail with ENOSPC."""
        self.wall_ms: Callable[[], int] | None = None
        """Function that returns the wall-clock time in ms, for the modification times of files. If
        it is None, no file ever becomes old."""
        self.descriptor_count_max: int | None = None
        """Maximum number of open files. Above it, an open fails with EMFILE. None means no limit.
        """
        self.files = OpenFiles(OPEN_FILES_MAX)
        self.refused_count = 0
        """Number of writes that failed with ENOSPC because the simulated disk was full."""
        self._rng = rng
        self._pause = pause
        self._root = _Directory()
        self.faults = DiskFaults()
        self._replacing: set[str] = set()

    # ---- faults that a test injects

    def fail(
        self,
        operation: DiskOperation,
        error_number: int = errno.EIO,
        *,
        path_part: str = "",
        skip_count: int = 0,
        times: int = 1,
    ) -> DiskFault:
        """Inject a fault. After `skip_count` successful disk operations of this kind on paths that
        contain `path_part`, the next `times` of them fail. Returns the injected fault.

        A failed write leaves a random part of its bytes in the file.
        """
        fault = DiskFault(
            operation=operation,
            error_number=error_number,
            path_part=path_part,
            skip_count=skip_count,
            times_left=times,
        )
        self.faults.add(fault)
        return fault

    def evict(self, path_part: str = "") -> None:
        """Drop the flushed pages from the page cache, for the files whose path contains
        `path_part`."""
        for path in self.files_in("/"):
            node = self._node(path)
            if path_part in path and isinstance(node, Inode) and not node.pending:
                node.evict()

    def heal(self) -> None:
        """Remove all injected faults, so that the disk's calls succeed again."""
        self.faults.clear()
        self.capacity_bytes = None

    def crash(self) -> None:
        """Cut the power: a random part of the unflushed data survives, and all open file handles
        become invalid."""
        self._end_process()
        for directory in list(self._directories(self._root)):
            directory.lose_power(self._rng)
        for inode in self._inodes(self._root):
            inode.lose_power(self._rng)

    def kill(self) -> None:
        """End the process but not the machine: the page cache survives, and all open file handles
        become invalid.

        A failed fsync is forgotten as well: the next process reads the contents of the page cache.
        """
        self._end_process()
        for inode in self._inodes(self._root):
            self.has_lost_writes |= inode.forget_failure()

    def _end_process(self) -> None:
        self.life += 1
        self._replacing.clear()
        self.files = OpenFiles(OPEN_FILES_MAX)

    def flush_everything(self) -> None:
        """Make all data and names on the disk durable, as the initial state of a test."""
        for directory in self._directories(self._root):
            directory.durable = dict(directory.entries)
            directory.pending.clear()
        for inode in self._inodes(self._root):
            inode.flush(len(inode.pending))

    @property
    def descriptor_count(self) -> int:
        """Number of file descriptors that the process has open."""
        return len(self.files.descriptors)

    @property
    def used_bytes(self) -> int:
        """Total size in bytes of all files that have a name."""
        waiting, found = [self._root], dict[int, Inode]()
        while waiting:
            for node in waiting.pop().entries.values():
                if isinstance(node, _Directory):
                    waiting.append(node)
                else:
                    found[id(node)] = node
        return sum(inode.allocated_bytes for inode in found.values())

    # ---- the seam

    def open(self, path: str, *, create: bool = False) -> SimulatedFile:
        """Open a file for reading and writing, and return a handle on it. If `create` is True, a
        missing file is created."""
        self.raise_injected(DiskOperation.OPEN, path)
        parent, name = self._parent(path)
        node = parent.entries.get(name)
        if isinstance(node, _Directory) or not name:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if node is None and not create:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.take_descriptor(path)
        if node is None:
            node = Inode()
            parent.change({name: node})
        return SimulatedFile(self, path, node)

    def at(self, path: str) -> SimulatedFile:
        """Return a handle on an existing file, which is opened when the handle is first used."""
        inode = self.inode_at(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return SimulatedFile(self, path, inode, is_open=False)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory with this path exists."""
        if self.faults.is_gone(path):
            return False
        try:
            self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def unlink_empty(self, path: str) -> None:
        """Remove an empty file immediately, without yielding to other tasks."""
        self.raise_injected(DiskOperation.NAME, path)
        parent, name = self._parent(path)
        if name in parent.entries:
            self._unname(path)
            parent.change({name: None})

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return whether a file is open and the first and last byte of a range are in the page
        cache."""
        simulated = _simulated(file)
        inode, last = simulated.inode, position + max(0, size - 1)
        return simulated.is_open and not (inode.is_cold(position, 1) or inode.is_cold(last, 1))

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Open a file and load a byte range of it into the page cache."""
        await self._wait(file.path)
        simulated = _simulated(file)
        simulated.check_usable()
        simulated.inode.bring_in(position, size)
        file.pread(position, size)

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Return up to `size` bytes of the file from byte `position` on, like `pread`."""
        await self.read_ahead(file, position, size)
        return file.pread(position, size)

    async def forget_flushed(self, file: DiskFile) -> None:
        """Drop the file's flushed data from the page cache, so that later reads return the data on
        the device."""
        await self._wait(file.path)
        _simulated(file).inode.forget_flushed()

    async def write_back(self, file: DiskFile) -> None:
        """Yield to other tasks, as the real disk does while it writes data back, but make no data
        durable. A crash decides at random how much of the file's data has reached the device."""
        await self._wait(file.path)

    async def fsync(self, file: DiskFile) -> None:
        """Make durable all data that was written to the file before the call. After one failure,
        every later fsync of the file fails."""
        simulated = _simulated(file)
        inode = simulated.inode
        simulated.check_usable()
        target_count = inode.flushed_count + len(inode.pending)
        dirt, simulated.dirt = simulated.dirt, CLEAN
        simulated.pin()
        try:
            await self._wait(file.path)
            if inode.has_failed_fsync:
                raise OSError(errno.EIO, "an earlier fsync failed", file.path)
            try:
                self.raise_injected(DiskOperation.FSYNC, file.path)
            except OSError:
                inode.has_failed_fsync = True
                raise
            dirt = CLEAN
            inode.flush(max(0, target_count - inode.flushed_count))
        finally:
            simulated.unpin()
            simulated.note_flushed(dirt)

    async def flush_idle(self, directory: str) -> None:
        """Flush files without recent writes, so that their descriptors can be closed."""
        descriptors = self.files.descriptors
        for file in descriptors.stale(lambda file: file.path.startswith(directory + "/")):
            if file.dirt == OLD_DIRT:
                await self.fsync(file)
                descriptors.release(file)

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Truncate a file to `size` bytes."""
        await self._wait(file.path)
        file.renew_size(size)

    async def read_file(self, path: str) -> bytes:
        """Return the whole content of a file."""
        await self._wait(path)
        self.raise_injected(DiskOperation.READ, path)
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node.content.read(0, node.content.size)

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content of a file durably, in the same steps as the real disk. A crash may
        happen between the steps.

        Replacements run one after the other, as in the real disk's single worker thread, because
        they share a temporary file.
        """
        while path in self._replacing:
            await self._wait(path)
        self._replacing.add(path)
        try:
            await self._replace(path, data)
        finally:
            self._replacing.discard(path)

    async def _replace(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.set_size(0)
        file.pwrite(0, [data])
        await self.fsync(file)
        file.close()
        await self.rename(temporary, path)
        await self.fsync_directory(posixpath.dirname(path))

    async def unlink(self, path: str) -> None:
        """Remove the name of a file. Handles on the file stay usable."""
        await self._wait_to_name(path)
        if isinstance(self._node(path), _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        parent, name = self._parent(path)
        self._unname(path)
        parent.change({name: None})

    async def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file of the target's name."""
        await self._wait_to_name(source)
        node = self._node(source)
        old_parent, old_name = self._parent(source)
        new_parent, new_name = self._parent(target)
        replaced = new_parent.entries.get(new_name)
        if isinstance(replaced, _Directory):
            raise OSError(errno.ENOTEMPTY, "the target is a directory", target)
        self._unname(target)
        self.files.places.rename(source, target)
        if new_parent is old_parent:
            new_parent.change({old_name: None, new_name: node})
        else:
            new_parent.change({new_name: node})
            old_parent.change({old_name: None})

    async def fsync_directory(self, path: str) -> None:
        """Make the creations, renames and removals of names in a directory durable."""
        await self._wait_to_name(path)
        directory = self._directory(path)
        directory.durable = dict(directory.entries)
        directory.pending.clear()

    async def listdir(self, path: str) -> list[str]:
        """Return the sorted names in a directory."""
        await self._wait_to_name(path)
        return sorted(self._directory(path).entries)

    async def survey(
        self, paths: Sequence[str], wanted: Callable[[Sequence[str]], Sequence[str]]
    ) -> list[DirectorySurvey | OSError]:
        """Return, for each directory, its names and the contents of the files that `wanted`
        selects. If a directory cannot be read, its result is the OSError."""
        found: list[DirectorySurvey | OSError] = []
        for path in paths:
            await self._wait(path)
            try:
                found.append(self._survey(path, wanted))
            except OSError as error:
                found.append(error)
        return found

    def _survey(
        self, path: str, wanted: Callable[[Sequence[str]], Sequence[str]]
    ) -> DirectorySurvey:
        self.raise_injected(DiskOperation.NAME, path)
        entries = self._directory(path).entries
        files = {name: each for name, each in entries.items() if isinstance(each, Inode)}
        contents: dict[str, bytes] = {}
        for name in wanted(sorted(files)):
            self.raise_injected(DiskOperation.READ, f"{path}/{name}")
            contents[name] = files[name].content.read(0, files[name].content.size)
        return DirectorySurvey({name: each.content.size for name, each in files.items()}, contents)

    async def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        await self._wait(path)
        return self.exists(path) and isinstance(self._node(path), _Directory)

    async def space(self, path: str) -> Space:
        """Return the free and total bytes of the simulator's single volume."""
        await self._wait(path)
        self._node(path)
        total_bytes = INT64_MAX if self.capacity_bytes is None else self.capacity_bytes
        return Space(total_bytes, max(0, total_bytes - self.used_bytes))

    async def makedirs(self, path: str) -> None:
        """Create a directory and its parents, if they are missing."""
        await self._wait_to_name(path)
        directory = self._root
        for name in _names(path):
            node = directory.entries.get(name)
            if isinstance(node, Inode):
                raise FileExistsError(errno.EEXIST, "is a file", path)
            if node is None:
                node = _Directory()
                directory.change({name: node})
            directory = node

    async def make_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Create a directory with the files `files` (content by name), in the same steps as the
        real disk."""
        await self.makedirs(path)
        for name, data in files.items():
            file = self.open(f"{path}/{name}", create=True)
            if data:
                file.pwrite(0, [data])
            file.close()
            await self._wait(path)

    async def keep_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Write `files` (content by name) into a directory and make both durable, in the same steps
        as the real disk."""
        for name, data in files.items():
            with closing(self.open(f"{path}/{name}")) as file:
                file.pwrite(0, [data])
                file.renew_size(len(data))
                await self.fsync(file)
        await self.fsync_directory(path)
        await self.fsync_directory(posixpath.dirname(path))

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and its content."""
        await self._wait_to_name(path)
        if self.exists(path):
            parent, name = self._parent(path)
            parent.change({name: None})

    # ---- called by handles

    def write(self, file: SimulatedFile, position: int, data: bytes) -> None:
        """Write data to the file of a handle. A fault or a full disk may leave the write
        incomplete."""
        try:
            self.raise_injected(DiskOperation.WRITE, file.opened_path)
        except OSError:
            self._write_part(file.inode, position, data[: self._rng.below(len(data) + 1)])
            raise
        if self.capacity_bytes is not None:
            grown_bytes = max(0, position + len(data) - file.inode.allocated_bytes)
            missing_bytes = self.used_bytes + grown_bytes - self.capacity_bytes
            if missing_bytes > 0:
                self._write_part(file.inode, position, data[: max(0, len(data) - missing_bytes)])
                self.refused_count += 1
                raise OSError(errno.ENOSPC, "no space left on the world's disk", file.path)
        self._write_part(file.inode, position, data)

    def raise_injected(self, operation: DiskOperation, path: str) -> None:
        """Raise the OSError of an injected fault that matches the operation and the path. Does
        nothing if no fault matches."""
        self.faults.raise_injected(operation, path)

    def take_descriptor(self, path: str) -> None:
        """Make a descriptor available for a file that is about to be opened, by closing the
        descriptor of an idle file if necessary.

        Raises OSError(EMFILE) if no descriptor can be freed.
        """
        descriptors = self.files.descriptors
        while self.descriptor_count_max is not None and len(descriptors) >= (
            self.descriptor_count_max
        ):
            if not descriptors.free(1):
                raise OSError(errno.EMFILE, "no descriptor left in the world", path)

    def inode_at(self, path: str) -> Inode | None:
        """Return the inode (content and unflushed changes) of the file with this path, or None if
        there is no such file."""
        try:
            node = self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return node if isinstance(node, Inode) else None

    def _unname(self, path: str) -> None:
        """Prepare the removal of a file's name, by keeping the descriptors of the file's open
        handles open."""
        for file in self.files.places.at(path):
            file.keep_open()
        self.files.places.unname(path)

    def files_in(self, directory: str) -> list[str]:
        """Return the paths of all files below a directory, sorted."""
        found: list[str] = []
        waiting = [(directory, self._directory(directory))]
        while waiting:
            path, node = waiting.pop()
            for name, entry in node.entries.items():
                if isinstance(entry, _Directory):
                    waiting.append((f"{path}/{name}", entry))
                else:
                    found.append(f"{path}/{name}")
        return sorted(found)

    # ---- inside

    async def _wait(self, path: str) -> None:
        """Yield to other tasks before an operation on the path. Raises OSError if the disk crashes
        in the meantime, because the calling task then belongs to a dead process."""
        life = self.life
        while (until := self.faults.hanging(path)) is not None:
            await until()
        if self._pause is not None:
            await self._pause()
        if life != self.life:
            raise OSError(errno.EIO, "the node crashed meanwhile")

    async def _wait_to_name(self, path: str) -> None:
        await self._wait(path)
        self.raise_injected(DiskOperation.NAME, path)

    def _write_part(self, inode: Inode, position: int, data: bytes) -> None:
        if data:
            inode.change(Write(position, data))
            inode.bring_in(position, len(data))
            if self.wall_ms is not None:
                inode.modified_ms = self.wall_ms()

    def _directories(self, directory: _Directory) -> Iterator[_Directory]:
        """Yield `directory` and every directory in the tree below it. The tree contains the
        directories that processes see, and the directories on the device."""
        yield directory
        for node in _nodes_of(directory):
            if isinstance(node, _Directory):
                yield from self._directories(node)

    def _inodes(self, root: _Directory) -> list[Inode]:
        inodes: dict[int, Inode] = {}
        for directory in self._directories(root):
            for node in _nodes_of(directory):
                if isinstance(node, Inode):
                    inodes[id(node)] = node
        return list(inodes.values())

    def _node(self, path: str) -> _Node:
        node: _Node = self._root
        for name in _names(path):
            if isinstance(node, Inode):
                raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
            if name not in node.entries:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", path)
            node = node.entries[name]
        return node

    def _directory(self, path: str) -> _Directory:
        node = self._node(path)
        if isinstance(node, Inode):
            raise NotADirectoryError(errno.ENOTDIR, "is a file", path)
        return node

    def _parent(self, path: str) -> tuple[_Directory, str]:
        return self._directory(posixpath.dirname(path)), posixpath.basename(path)


def _change_names(entries: dict[str, _Node], change: _NameChange) -> None:
    for name, node in change.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def _nodes_of(directory: _Directory) -> list[_Node]:
    """Return the files and directories in `directory` in three forms: visible to processes, stored
    on the device, and in unflushed changes."""
    nodes = [*directory.entries.values(), *directory.durable.values()]
    for change in directory.pending:
        nodes += [node for node in change.values() if node is not None]
    return list({id(node): node for node in nodes}.values())


def _names(path: str) -> list[str]:
    assert path.startswith("/"), path
    return [name for name in path.split("/") if name]


def brought_in(piece: FileSlice, _done: object) -> bool:
    """Load a range of a file into the page cache immediately, and return True. Random walks, which
    never wait for the disk, use this function."""
    _simulated(piece.file).bring_in(piece.position, piece.length)
    return True


def _simulated(file: DiskFile) -> SimulatedFile:
    assert isinstance(file, SimulatedFile)
    return file
