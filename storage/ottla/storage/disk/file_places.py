"""Current paths of open files: a tree of names that follows renames.

A file whose descriptor was closed is reopened by name, but names change in the meantime. The
directory of a deleted partition is renamed. The directory of a moved log gets the name of its
partition. A file of the log cleaner gets the name of a segment. A file is removed from the tree if
its name is removed or is assigned to another file.
"""

from sys import intern
from typing import Generic, Protocol, TypeVar


class Folder:
    """A directory that contains open files, directly or in subdirectories, as a node of the tree of
    paths."""

    __slots__ = ("_files", "_single", "children", "name", "parent")

    def __init__(self, parent: "Folder | None", name: str) -> None:
        self.parent = parent
        self.name = name
        self.children: dict[str, Folder] | None = None
        """Subdirectories that contain open files, by name. None in the directory of a partition,
        which has no subdirectories: an empty dict for each would take 64 bytes."""
        self._single: PlacedFile | None = None
        """The open file of a directory that contains just one, as the directory of an idle
        partition: a dict for each would take 230 bytes."""
        self._files: dict[str, tuple[PlacedFile, ...]] | None = None

    def files_of(self, name: str) -> "tuple[PlacedFile, ...]":
        """Return the open handles on the file with the given name in this directory."""
        if self._files is not None:
            return self._files.get(name, ())
        single = self._single
        return () if single is None or single.name != name else (single,)

    def set_files(self, name: str, files: "tuple[PlacedFile, ...]") -> None:
        """Replace the open handles on the file with the given name in this directory."""
        if self._files is None:
            single = self._single
            if single is None or single.name == name:
                if len(files) <= 1:
                    self._single = files[0] if files else None
                    return
                single = None
            self._files = {} if single is None else {single.name: (single,)}
            self._single = None
        if files:
            self._files[name] = files
        else:
            self._files.pop(name, None)

    @property
    def is_empty(self) -> bool:
        """True if the directory has neither open files nor subdirectories with some."""
        return self._single is None and not self._files and not self.children

    @property
    def path(self) -> str:
        """Current path of the directory, after all renames so far."""
        names: list[str] = []
        folder: Folder | None = self
        while folder is not None:
            names.append(folder.name)
            folder = folder.parent
        return "/".join(reversed(names))


class PlacedFile(Protocol):
    """Interface of a file handle whose path is in the tree of paths."""

    folder: Folder | None
    """Directory of the file, or None if the file no longer has a name."""
    name: str
    last_path: str
    """Last path of a file that no longer has a name. Unused before: a string for each file would
    take 130 bytes."""


F = TypeVar("F", bound=PlacedFile)


def place_of(file: PlacedFile) -> str | None:
    """Return the current path of a file, or None if the file no longer has a name."""
    return None if file.folder is None else f"{file.folder.path}/{file.name}"


def path_of(file: PlacedFile) -> str:
    """Return the current path of a file, or the last one if the file no longer has a name."""
    return place_of(file) or file.last_path


class FilePlaces(Generic[F]):
    """Tree of the paths of one disk's open files. Paths are absolute and normalised."""

    def __init__(self) -> None:
        self._root = Folder(None, "")

    def add(self, path: str, file: F) -> None:
        """Add a file handle to the tree at the file's path."""
        folder, name = self._make(path)
        file.folder, file.name = folder, name
        folder.set_files(name, (*folder.files_of(name), file))

    def remove(self, file: F) -> None:
        """Remove a file handle from the tree."""
        folder = file.folder
        if folder is None:
            return
        file.last_path = path_of(file)
        file.folder = None
        left = tuple(each for each in folder.files_of(file.name) if each is not file)
        folder.set_files(file.name, left)
        if not left:
            _prune(folder)

    def at(self, path: str) -> list[F]:
        """Return the open handles on the file at a path."""
        folder, name = self._find(path)
        return [] if folder is None else list(folder.files_of(name))  # type: ignore[arg-type]

    def unname(self, path: str) -> None:
        """Remove a path from the tree after its file was removed from the disk. Open handles on the
        file then have no name."""
        for file in self.at(path):
            self.remove(file)

    def rename(self, source: str, target: str) -> None:
        """Apply the rename of a file or directory to the tree; a file at the target is replaced."""
        self.unname(target)
        folder, name = self._find(source)
        if folder is None:
            return
        files = folder.files_of(name)
        folder.set_files(name, ())
        child = folder.children.pop(name, None) if folder.children else None
        _prune(folder)
        if not files and child is None:
            return
        to_folder, to_name = self._make(target)
        if files:
            for file in files:
                file.folder, file.name = to_folder, to_name
            to_folder.set_files(to_name, files)
        if child is not None:
            child.parent, child.name = to_folder, to_name
            to_folder.children = to_folder.children or {}
            to_folder.children[to_name] = child

    def _find(self, path: str) -> tuple[Folder | None, str]:
        """Return the folder of a path and the last component of the path. The folder is None if it
        contains no open file."""
        *names, last = path.split("/")[1:]
        folder: Folder | None = self._root
        for name in names:
            if folder is None:
                break
            folder = folder.children.get(name) if folder.children else None
        return folder, last

    def _make(self, path: str) -> tuple[Folder, str]:
        *names, last = path.split("/")[1:]
        folder = self._root
        for name in names:
            if folder.children is None:
                folder.children = {}
            child = folder.children.get(name)
            if child is None:
                child = folder.children[name] = Folder(folder, name)
            folder = child
        # Files of all partitions have the same few names.
        return folder, intern(last)


def _prune(folder: Folder) -> None:
    """Remove a folder from the tree if it is empty. Then remove each parent that has become
    empty."""
    while folder.parent is not None and folder.is_empty:
        parent = folder.parent
        assert parent.children is not None
        if parent.children.get(folder.name) is folder:
            del parent.children[folder.name]
        folder = parent
