"""Which files keep their descriptors: the ones used last, and all that must not lose theirs.

Pure.  A broker has more files than a process may have descriptors, and most are idle.  A descriptor
that nothing pins and that has nothing unflushed is given back when others need the room; its file
opens again at its next use.  One with unflushed writes is kept, for with it the kernel would forget
that these could not be written: it is first flushed, once nothing was written for a while.

Invariants: OpenIsBounded (at most `count_max` descriptors that could be given back are open) and
UnflushedIsKept.
"""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

CLEAN = 0
"""Nothing that was written to the file is unflushed."""
OLD_DIRT = 1
"""Something is, but nothing was written since `stale` was called."""
NEW_DIRT = 2


class OpenFile(Protocol):
    """A file that has a descriptor."""

    dirt: int
    """CLEAN, OLD_DIRT or NEW_DIRT."""
    was_used: bool
    """Whether it was used since it was last looked at."""
    is_set_apart: bool
    """Whether it was found to be kept when room was needed."""

    @property
    def is_kept(self) -> bool:
        """Whether the descriptor must not be given back."""
        ...

    def give_back(self) -> None:
        """Close the descriptor; the next use opens the file again."""
        ...


F = TypeVar("F", bound=OpenFile)


class DescriptorCache(Generic[F]):
    """The open files of one disk, in the order of their use (second chance)."""

    def __init__(self, count_max: int) -> None:
        assert count_max >= 1
        self.count_max = count_max
        self._waiting: dict[F, None] = {}
        """Those that may be given back, the next first; some have come to be kept meanwhile."""
        self._kept: dict[F, None] = {}
        self.is_short = False
        """Whether a file could not be opened though fewer than `count_max` are: others have taken
        the process's descriptors.  `stale` then finds all it can."""

    def __len__(self) -> int:
        """Return how many files are open."""
        return len(self._waiting) + len(self._kept)

    def add(self, file: F) -> None:
        """Note a file that was opened; another one may be given back for it."""
        file.was_used = True
        if not file.is_set_apart:
            self._waiting[file] = None
            self.shrink(self.count_max)

    def remove(self, file: F) -> None:
        """Forget a file whose descriptor is closed."""
        self._waiting.pop(file, None)
        self._kept.pop(file, None)
        file.is_set_apart = False

    def note_flushed(self, file: F) -> None:
        """Let a file whose writes were flushed be given back again."""
        self.settle(file)
        self.shrink(self.count_max)

    def settle(self, file: F) -> None:
        """Let a file that was set apart be given back again, if nothing keeps it; not yet now."""
        if file.is_set_apart and not file.is_kept:
            del self._kept[file]
            file.is_set_apart = False
            self._waiting[file] = None

    def shrink(self, count: int) -> None:
        """Give back what was not used for longest until at most `count` of them are open."""
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
        """Give a file back at once, if more are open than shall be and nothing keeps this one."""
        if len(self) > self.count_max and not file.is_kept and file in self._waiting:
            del self._waiting[file]
            file.give_back()

    def free(self, count: int) -> bool:
        """Give back some files for the sake of others; return whether there were any."""
        before = len(self._waiting)
        self.shrink(max(0, before - count))
        return len(self._waiting) < before

    def stale(self, is_meant: Callable[[F], bool]) -> list[F]:
        """Return the files beyond the bound that were not written since the last call.

        Flushing these lets them be given back.  Only those that are meant are looked at.
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
