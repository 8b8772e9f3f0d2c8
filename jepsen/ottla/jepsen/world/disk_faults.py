"""Faults injected into the simulated disk, and damage to the files of a stopped node.

Calls fail, on all paths or on some of them. Directories hang or are lost. A damaged file is
removed, emptied, halved, or has one byte changed.
"""

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

Until = Callable[[], Awaitable[object]]
"""Function that returns an awaitable. Disk calls on a hanging directory wait until the awaitable
ends."""


class DiskOperation(Enum):
    """Kinds of disk operations that an injected fault may affect."""

    OPEN = auto()
    WRITE = auto()
    READ = auto()
    FSYNC = auto()
    NAME = auto()
    """Operations on directory entries: creation, renaming and removal of files, and flushes of
    directories."""


@dataclass(slots=True, kw_only=True, eq=False)
class DiskFault:
    """A rule that makes matching calls of the simulated disk fail. `failed_count` is the number of
    calls that have failed because of the rule."""

    operation: DiskOperation
    error_number: int
    path_part: str
    skip_count: int
    times_left: int
    spared_parts: tuple[str, ...] = ()
    """Substrings of paths that exclude a call from the fault: calls on paths with one of them
    succeed."""
    failed_count: int = 0

    def applies_to(self, operation: DiskOperation, path: str) -> bool:
        """Return whether the fault makes this disk call fail. If it does, the call is added to
        `failed_count`."""
        if operation is not self.operation or self.path_part not in path:
            return False
        if any(part in path for part in self.spared_parts):
            return False
        if self.skip_count > 0:
            self.skip_count -= 1
            return False
        if self.times_left <= 0:
            return False
        self.times_left -= 1
        self.failed_count += 1
        return True


class DiskFaults:
    """The active injected faults of one simulated disk."""

    def __init__(self) -> None:
        self._faults: list[DiskFault] = []
        self._hanging: dict[str, Until] = {}
        self._gone: set[str] = set()

    @property
    def may_fail_calls(self) -> bool:
        """True if an injected fault may still make disk calls fail."""
        return bool(self._gone) or any(fault.times_left for fault in self._faults)

    def add(self, fault: DiskFault) -> None:
        """Add an injected fault to the disk's active faults."""
        self._faults.append(fault)

    def take_back(self, fault: DiskFault) -> None:
        """Remove an injected fault from the disk's active faults."""
        if fault in self._faults:
            self._faults.remove(fault)

    def hang(self, directory: str, until: Until) -> None:
        """Delay every awaited disk call on a directory until the awaitable that `until` creates has
        returned."""
        self._hanging[directory] = until

    def lose(self, directory: str) -> None:
        """Make every later disk call on a directory or its content fail, as if the directory were
        lost."""
        self._gone.add(directory)

    def give_back(self, directory: str) -> None:
        """End the hang or the loss of a directory, so that later calls on it succeed."""
        self._gone.discard(directory)
        self._hanging.pop(directory, None)

    def clear(self) -> None:
        """Remove all injected faults of the disk."""
        self._faults.clear()
        self._hanging.clear()
        self._gone.clear()

    def raise_injected(self, operation: DiskOperation, path: str) -> None:
        """Raise the OSError of an injected fault that matches the operation and the path. Does
        nothing if no fault matches."""
        if self.is_gone(path):
            raise OSError(errno.EIO, "the world's directory is gone", path)
        for fault in self._faults:
            if fault.applies_to(operation, path):
                raise OSError(fault.error_number, "the world's disk fails as asked", path)

    def is_gone(self, path: str) -> bool:
        """Return whether the path is in a directory that an injected fault has made
        inaccessible."""
        return any(_lies_in(path, directory) for directory in self._gone)

    def hanging(self, path: str) -> Until | None:
        """Return the function that creates the awaitable for which a call on the path must wait.
        Returns None if the path's directory does not hang."""
        for directory, until in self._hanging.items():
            if _lies_in(path, directory):
                return until
        return None


class FileDamage(IntEnum):
    """Kinds of damage that a simulation does to one file of a stopped node."""

    REMOVED = 0
    EMPTIED = 1
    HALVED = 2
    FLIPPED = 3
    """Damage that changes one byte of the file."""


def damaged(data: bytes, kind: FileDamage, below: Callable[[int], int]) -> bytes | None:
    """Return the content of a file after damage of kind `kind`, or None if the damage removes the
    file. `below(n)` draws a number from [0, n)."""
    match kind:
        case FileDamage.REMOVED:
            return None
        case FileDamage.EMPTIED:
            return b""
        case FileDamage.HALVED:
            return data[: len(data) // 2]
        case FileDamage.FLIPPED:
            if not data:
                return data
            at = below(len(data))
            return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def _lies_in(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory + "/")
