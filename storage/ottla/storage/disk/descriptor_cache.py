"""The cache of open file descriptors: decides which files keep their descriptors, and which
descriptors are closed for other files.

Pure. A broker has more files than a process may have descriptors, and most are idle. A descriptor
may be closed when another file needs one, if no user has pinned it and it has no unflushed writes.
The file is reopened at its next use.

A descriptor with unflushed writes stays open, because closing it would lose the kernel's record of
a failed write. When such a file has not been written for a while, it is flushed, and may then be
closed.

Invariants: OpenIsBounded (at most `count_max` closable descriptors are open) and UnflushedIsKept.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

CLEAN = 0
"""State of an open file that has no unflushed writes."""
OLD_DIRT = 1
"""State of an open file with unflushed writes, all of which are older than the latest call of
`DescriptorCache.stale`."""
NEW_DIRT = 2


class OpenFile(Protocol):
    """Interface of a file with an open descriptor, which the descriptor cache may close."""

    dirt: int
    """State of the file's unflushed writes: CLEAN (no unflushed writes), NEW_DIRT, or OLD_DIRT (no
    writes since the latest call of `DescriptorCache.stale`)."""
    was_used: bool
    """True if the file was used since the descriptor cache last examined it."""
    is_set_apart: bool
    """True if the descriptor cache ignores the file when it searches for a descriptor to close,
    because the file could not be closed before."""

    @property
    def is_kept(self) -> bool:
        """True if the file's descriptor must not be closed, for example because the file is pinned
        or has unflushed writes."""
        ...

    def give_back(self) -> None:
        """Close the file's descriptor. The next use of the file opens it again."""
        ...


F = TypeVar("F", bound=OpenFile)


class DescriptorCache(Generic[F]):
    """The open files of one disk, in the order of their use (second-chance algorithm)."""

    def __init__(self, count_max: int) -> None:
        assert count_max >= 1
        self.count_max = count_max
        self._waiting: dict[F, None] = {}
        """Files that are candidates for closing, the next one first. Some may have become
        unclosable since they were added."""
        self._kept: dict[F, None] = {}
        self.is_short = False
        """True if a file could not be opened although fewer than `count_max` files are open,
        because other components of the process use the descriptors. `stale` then returns as many
        files as it can."""

    def __len__(self) -> int:
        """Return the number of files that have an open descriptor."""
        return len(self._waiting) + len(self._kept)

    def add(self, file: F) -> None:
        """Add a file that was opened. The cache may close another file's descriptor to stay within
        its bound."""
        file.was_used = True
        if not file.is_set_apart:
            self._waiting[file] = None
            self.shrink(self.count_max)

    def remove(self, file: F) -> None:
        """Remove a file whose descriptor was closed by its owner."""
        self._waiting.pop(file, None)
        self._kept.pop(file, None)
        file.is_set_apart = False

    def note_flushed(self, file: F) -> None:
        """Make a file closable again after its writes were flushed. The cache may then close this
        or other files."""
        self.settle(file)
        self.shrink(self.count_max)

    def settle(self, file: F) -> None:
        """Make a file a candidate for closing again if it no longer needs its descriptor. This call
        does not close the file.

        If an attempt to close a file shows that it must stay open, the file is no longer a
        candidate.
        """
        if file.is_set_apart and not file.is_kept:
            del self._kept[file]
            file.is_set_apart = False
            self._waiting[file] = None

    def shrink(self, count: int) -> None:
        """Close the descriptors of the least recently used files until at most `count` closable
        files are open."""
        waiting = self._waiting
        while len(waiting) > count:
            file = next(iter(waiting))
            del waiting[file]
            if file.is_kept:
                file.is_set_apart = True
                self._kept[file] = None
            elif file.was_used:
                file.was_used = False
                waiting[file] = None
            else:
                file.give_back()

    def release(self, file: F) -> None:
        """Close a file's descriptor at once if more than `count_max` files are open and the file
        does not need its descriptor."""
        if len(self) > self.count_max and not file.is_kept and file in self._waiting:
            del self._waiting[file]
            file.give_back()

    def free(self, count: int) -> bool:
        """Close the descriptors of up to `count` files. Returns False if no descriptor could be
        closed."""
        before = len(self._waiting)
        self.shrink(max(0, before - count))
        return len(self._waiting) < before

    def stale(self, is_meant: Callable[[F], bool]) -> list[F]:
        """Return the open files in excess of `count_max` that were not written since the last call
        of this method.

        Once flushed, these files can be closed. Only files for which `is_meant` returns True are
        examined.
        """
        excess = len(self) - (0 if self.is_short else self.count_max)
        found: list[F] = []
        for file in filter(is_meant, list(self._kept)):
            if file.dirt == NEW_DIRT:
                file.dirt = OLD_DIRT
            elif file.dirt == OLD_DIRT and len(found) < excess:
                found.append(file)
        self.is_short = self.is_short and not found
        return found
