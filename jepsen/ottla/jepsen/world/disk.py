"""The world's disk: in memory, deterministic, and as forgetful as POSIX allows.

It implements the seam of `ottla.storage.disk_seam` beside the real one.  What was written but not
flushed may be lost, kept, torn, kept out of order or turned to zeros by `crash`; a name that was
made, renamed or removed is durable only once its directory was flushed, and any of several changes
that were not may be kept.  Faults are asked for by `fail` and by
`capacity_bytes`.  Handles from before a crash are dead; whoever
crashes a node also cancels its tasks, so nothing of the old process writes on.
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
from ottla.storage.descriptor_cache import CLEAN, OLD_DIRT
from ottla.storage.disk_seam import DirectorySurvey, DiskFile, Space
from ottla.storage.slice import FileSlice

Pause = Callable[[], Awaitable[None]]
"""Runs before each awaitable operation takes effect: where the world lets others go first."""

OPEN_FILES_MAX = 8
"""Files that keep their descriptors though nothing demands it: few, so that many open again."""


class _Directory:
    """Names: as processes see them, as the device holds them, and the changes between."""

    __slots__ = ("durable", "entries", "pending")

    def __init__(self) -> None:
        self.entries: dict[str, _Node] = {}
        self.durable: dict[str, _Node] = {}
        self.pending: list[_NameChange] = []

    def change(self, change: "_NameChange") -> None:
        _change_names(self.entries, change)
        self.pending.append(change)

    def lose_power(self, rng: Rng) -> None:
        """Keep what chance keeps of the changes that were not flushed: the first, or any."""
        is_ordered = rng.below(2) == 0
        kept_count = rng.below(len(self.pending) + 1)
        for index, change in enumerate(self.pending):
            if index < kept_count if is_ordered else rng.below(2):
                _change_names(self.durable, change)
        self.pending.clear()
        self.entries = dict(self.durable)


_Node = Inode | _Directory
_NameChange = dict[str, _Node | None]
"""What becomes of names together: a rename within one directory is atomic."""


class SimulatedDisk:
    """Files and directories in memory; see the module's docstring for what it may do to them."""

    def __init__(self, rng: Rng, *, pause: Pause | None = None) -> None:
        self.life = 0
        """Which process's handles are valid: counts crashes."""
        self.capacity_bytes: int | None = None
        self.has_lost_writes = False
        """Whether a process ended that could not flush what it had written: only memory has it."""
        """Bytes all files may hold together before writing fails with ENOSPC."""
        self.wall_ms: Callable[[], int] | None = None
        """The clock that stamps files as they are written; without one nothing is ever old."""
        self.descriptor_count_max: int | None = None
        """Files that may be open before opening one fails with EMFILE."""
        self.files = OpenFiles(OPEN_FILES_MAX)
        self.refused_count = 0
        """Writes that found no room."""
        self._rng = rng
        self._pause = pause
        self._root = _Directory()
        self.faults = DiskFaults()
        self._replacing: set[str] = set()

    # ---- what a test asks for

    def fail(
        self,
        operation: DiskOperation,
        error_number: int = errno.EIO,
        *,
        path_part: str = "",
        skip_count: int = 0,
        times: int = 1,
    ) -> DiskFault:
        """Have the next `times` operations on paths holding `path_part` fail, after some skipped.

        A write that fails leaves a drawn part of its bytes behind.
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
        """Take from memory what is flushed of the files whose path holds `path_part`."""
        for path in self.files_in("/"):
            node = self._node(path)
            if path_part in path and isinstance(node, Inode) and not node.pending:
                node.evict()

    def heal(self) -> None:
        """Take all faults back."""
        self.faults.clear()
        self.capacity_bytes = None

    def crash(self) -> None:
        """Lose power: what was not flushed survives in part, as chance has it; handles die."""
        self._end_process()
        for directory in list(self._directories(self._root)):
            directory.lose_power(self._rng)
        for inode in self._inodes(self._root):
            inode.lose_power(self._rng)

    def kill(self) -> None:
        """End the process but not the machine: the page cache lives on, handles die.

        Whether an fsync failed is forgotten, too: the next process finds what memory shows.
        """
        self._end_process()
        for inode in self._inodes(self._root):
            self.has_lost_writes |= inode.forget_failure()

    def _end_process(self) -> None:
        self.life += 1
        self._replacing.clear()
        self.files = OpenFiles(OPEN_FILES_MAX)

    def flush_everything(self) -> None:
        """Make all durable: the state a test starts from."""
        for directory in self._directories(self._root):
            directory.durable = dict(directory.entries)
            directory.pending.clear()
        for inode in self._inodes(self._root):
            inode.flush(len(inode.pending))

    @property
    def descriptor_count(self) -> int:
        """Return how many files are open."""
        return len(self.files.descriptors)

    @property
    def used_bytes(self) -> int:
        """Return the bytes written to all files that have a name now."""
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
        """Open a file for reading and writing."""
        self.strike(DiskOperation.OPEN, path)
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
        """Return a handle on a file that is there; its first use opens it."""
        inode = self.inode_at(path)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return SimulatedFile(self, path, inode, is_open=False)

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of that name is there."""
        if self.faults.is_gone(path):
            return False
        try:
            self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def unlink_empty(self, path: str) -> None:
        """Remove a file that holds nothing, at once."""
        self.strike(DiskOperation.NAME, path)
        parent, name = self._parent(path)
        if name in parent.entries:
            self._unname(path)
            parent.change({name: None})

    def is_cached(self, file: DiskFile, position: int, size: int) -> bool:
        """Return whether the file is open, and the first and the last byte are in memory."""
        simulated = _simulated(file)
        inode, last = simulated.inode, position + max(0, size - 1)
        return simulated.is_open and not (inode.is_cold(position, 1) or inode.is_cold(last, 1))

    async def read_ahead(self, file: DiskFile, position: int, size: int) -> None:
        """Open the file and bring a range into memory."""
        await self._wait(file.path)
        simulated = _simulated(file)
        simulated.check_usable()
        simulated.inode.bring_in(position, size)
        file.pread(position, size)

    async def read(self, file: DiskFile, position: int, size: int) -> bytes:
        """Do what `pread` does."""
        await self.read_ahead(file, position, size)
        return file.pread(position, size)

    async def forget_flushed(self, file: DiskFile) -> None:
        """Show what the device has, but for what waits to be flushed."""
        await self._wait(file.path)
        _simulated(file).inode.forget_flushed()

    async def write_back(self, file: DiskFile) -> None:
        """Wait as the disk does; what the device has by then is left to a crash."""
        await self._wait(file.path)

    async def fsync(self, file: DiskFile) -> None:
        """Make durable what was written before the call; after one failure it always fails."""
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
                self.strike(DiskOperation.FSYNC, file.path)
            except OSError:
                inode.has_failed_fsync = True
                raise
            dirt = CLEAN
            inode.flush(max(0, target_count - inode.flushed_count))
        finally:
            simulated.unpin()
            simulated.note_flushed(dirt)

    async def flush_idle(self, directory: str) -> None:
        """Flush files that were not written for a while, so that they can be given back."""
        descriptors = self.files.descriptors
        for file in descriptors.stale(lambda file: file.path.startswith(directory + "/")):
            if file.dirt == OLD_DIRT:
                await self.fsync(file)
                descriptors.release(file)

    async def truncate(self, file: DiskFile, size: int) -> None:
        """Cut the file to `size` bytes."""
        await self._wait(file.path)
        file.renew_size(size)

    async def read_file(self, path: str) -> bytes:
        """Return the whole file."""
        await self._wait(path)
        self.strike(DiskOperation.READ, path)
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node.content.read(0, node.content.size)

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the file durably, in the real disk's steps; a crash may fall between them.

        One after the other, as the real disk's one worker does: they share a temporary file.
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
        """Remove a file."""
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
        """Make the names in a directory durable."""
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
        """Return what each of several directories holds."""
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
        self.strike(DiskOperation.NAME, path)
        entries = self._directory(path).entries
        files = {name: each for name, each in entries.items() if isinstance(each, Inode)}
        contents: dict[str, bytes] = {}
        for name in wanted(sorted(files)):
            self.strike(DiskOperation.READ, f"{path}/{name}")
            contents[name] = files[name].content.read(0, files[name].content.size)
        return DirectorySurvey({name: each.content.size for name, each in files.items()}, contents)

    async def is_directory(self, path: str) -> bool:
        """Return whether the path is a directory."""
        await self._wait(path)
        return self.exists(path) and isinstance(self._node(path), _Directory)

    async def space(self, path: str) -> Space:
        """Return the room of the whole world's one volume."""
        await self._wait(path)
        self._node(path)
        total_bytes = INT64_MAX if self.capacity_bytes is None else self.capacity_bytes
        return Space(total_bytes, max(0, total_bytes - self.used_bytes))

    async def makedirs(self, path: str) -> None:
        """Make a directory and its parents."""
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
        """Make a directory with files in it, in the real disk's steps."""
        await self.makedirs(path)
        for name, data in files.items():
            file = self.open(f"{path}/{name}", create=True)
            if data:
                file.pwrite(0, [data])
            file.close()
            await self._wait(path)

    async def keep_directory(self, path: str, files: Mapping[str, bytes]) -> None:
        """Make a directory durable, in the real disk's steps."""
        for name, data in files.items():
            with closing(self.open(f"{path}/{name}")) as file:
                file.pwrite(0, [data])
                file.renew_size(len(data))
                await self.fsync(file)
        await self.fsync_directory(path)
        await self.fsync_directory(posixpath.dirname(path))

    async def remove_tree(self, path: str) -> None:
        """Remove a directory and all it holds."""
        await self._wait_to_name(path)
        if self.exists(path):
            parent, name = self._parent(path)
            parent.change({name: None})

    # ---- what handles call

    def write(self, file: SimulatedFile, position: int, data: bytes) -> None:
        """Write for a handle; a fault or a full disk leaves a part."""
        try:
            self.strike(DiskOperation.WRITE, file.path)
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

    def strike(self, operation: DiskOperation, path: str) -> None:
        """Raise the OSError of a fault that waits for this operation."""
        self.faults.strike(operation, path)

    def take_descriptor(self, path: str) -> None:
        """Have a descriptor free, that of an idle file if need be.

        Raises OSError(EMFILE) if there is none.
        """
        descriptors = self.files.descriptors
        while self.descriptor_count_max is not None and len(descriptors) >= (
            self.descriptor_count_max
        ):
            if not descriptors.free(1):
                raise OSError(errno.EMFILE, "no descriptor left in the world", path)

    def inode_at(self, path: str) -> Inode | None:
        """Return the file of a name, None if there is none."""
        try:
            node = self._node(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return node if isinstance(node, Inode) else None

    def _unname(self, path: str) -> None:
        """Let the handles of a file that loses its name keep their descriptors."""
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
        """Let others go first; whoever waits across a crash belongs to the dead process."""
        life = self.life
        while (until := self.faults.hanging(path)) is not None:
            await until()
        if self._pause is not None:
            await self._pause()
        if life != self.life:
            raise OSError(errno.EIO, "the node crashed meanwhile")

    async def _wait_to_name(self, path: str) -> None:
        await self._wait(path)
        self.strike(DiskOperation.NAME, path)

    def _write_part(self, inode: Inode, position: int, data: bytes) -> None:
        if data:
            inode.change(Write(position, data))
            inode.bring_in(position, len(data))
            if self.wall_ms is not None:
                inode.modified_ms = self.wall_ms()

    def _directories(self, directory: _Directory) -> Iterator[_Directory]:
        """Yield every directory that some name leads to, seen or durable."""
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
    """Return what the directory's names lead to: seen, durable, or in between."""
    nodes = [*directory.entries.values(), *directory.durable.values()]
    for change in directory.pending:
        nodes += [node for node in change.values() if node is not None]
    return list({id(node): node for node in nodes}.values())


def _names(path: str) -> list[str]:
    assert path.startswith("/"), path
    return [name for name in path.split("/") if name]


def brought_in(piece: FileSlice, _done: object) -> bool:
    """Bring a range into memory at once, for a walk; return that it is here."""
    _simulated(piece.file).bring_in(piece.position, piece.length)
    return True


def _simulated(file: DiskFile) -> SimulatedFile:
    assert isinstance(file, SimulatedFile)
    return file
