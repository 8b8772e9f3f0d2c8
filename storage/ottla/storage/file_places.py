"""Where the files of handles lie now: a tree of names that follows renames.

A handle whose descriptor was given back opens its file again by name.  Names change under it: a
deleted partition's directory is renamed, a moved one takes its partition's name, a cleaned file
takes a segment's.  A file that loses its name to another one, or at all, leaves the tree.
"""

from typing import Generic, Protocol, TypeVar


class Folder:
    """One directory in which, or below which, files are open."""

    __slots__ = ("children", "files", "name", "parent")

    def __init__(self, parent: "Folder | None", name: str) -> None:
        self.parent = parent
        self.name = name
        self.children: dict[str, Folder] = {}
        self.files: dict[str, tuple[PlacedFile, ...]] = {}

    @property
    def path(self) -> str:
        """Path of the directory now."""
        names: list[str] = []
        folder: Folder | None = self
        while folder is not None:
            names.append(folder.name)
            folder = folder.parent
        return "/".join(reversed(names))


class PlacedFile(Protocol):
    """A handle in the tree."""

    folder: Folder | None
    """None for a file without a name."""
    name: str


F = TypeVar("F", bound=PlacedFile)


def place_of(file: PlacedFile) -> str | None:
    """Return the path under which a file is found now, None if it has lost its name."""
    return None if file.folder is None else f"{file.folder.path}/{file.name}"


class FilePlaces(Generic[F]):
    """The tree of one disk; paths are absolute and normal."""

    def __init__(self) -> None:
        self._root = Folder(None, "")

    def add(self, path: str, file: F) -> None:
        """Note a handle under its path."""
        folder, name = self._make(path)
        file.folder, file.name = folder, name
        folder.files[name] = (*folder.files.get(name, ()), file)

    def remove(self, file: F) -> None:
        """Forget a handle."""
        folder, file.folder = file.folder, None
        if folder is None:
            return
        left = tuple(each for each in folder.files[file.name] if each is not file)
        if left:
            folder.files[file.name] = left
        else:
            del folder.files[file.name]
            _prune(folder)

    def at(self, path: str) -> list[F]:
        """Return the handles of the file of a name."""
        folder, name = self._find(path)
        return [] if folder is None else list(folder.files.get(name, ()))  # type: ignore[arg-type]

    def unname(self, path: str) -> None:
        """Follow the removal of a file's name."""
        for file in self.at(path):
            self.remove(file)

    def rename(self, source: str, target: str) -> None:
        """Follow the rename of a file or directory, which replaces a file of the target's name."""
        self.unname(target)
        folder, name = self._find(source)
        if folder is None:
            return
        files, child = folder.files.pop(name, ()), folder.children.pop(name, None)
        _prune(folder)
        if not files and child is None:
            return
        to_folder, to_name = self._make(target)
        if files:
            to_folder.files[to_name] = files
            for file in files:
                file.folder, file.name = to_folder, to_name
        if child is not None:
            child.parent, child.name = to_folder, to_name
            to_folder.children[to_name] = child

    def _find(self, path: str) -> tuple[Folder | None, str]:
        """Return the folder of a path, None where no file is open in it, and the last name."""
        *names, last = path.split("/")[1:]
        folder: Folder | None = self._root
        for name in names:
            if folder is None:
                break
            folder = folder.children.get(name)
        return folder, last

    def _make(self, path: str) -> tuple[Folder, str]:
        *names, last = path.split("/")[1:]
        folder = self._root
        for name in names:
            child = folder.children.get(name)
            if child is None:
                child = folder.children[name] = Folder(folder, name)
            folder = child
        return folder, last


def _prune(folder: Folder) -> None:
    """Remove folders that hold nothing any more."""
    while folder.parent is not None and not folder.files and not folder.children:
        parent = folder.parent
        if parent.children.get(folder.name) is folder:
            del parent.children[folder.name]
        folder = parent
