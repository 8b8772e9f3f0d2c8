"""What goes wrong with the world's disk because somebody asked for it.

Calls that fail, on all paths or on some; directories that hang; directories that are gone.
"""

import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, IntEnum, auto

Until = Callable[[], Awaitable[object]]
"""Comes back when a directory that hangs goes on."""


class DiskOperation(Enum):
    """What a fault may strike."""

    OPEN = auto()
    WRITE = auto()
    READ = auto()
    FSYNC = auto()
    NAME = auto()
    """Making, renaming, removing and flushing names."""


@dataclass(slots=True, kw_only=True, eq=False)
class DiskFault:
    """Calls that fail; `struck_count` of them have."""

    operation: DiskOperation
    error_number: int
    path_part: str
    skip_count: int
    times_left: int
    spared_parts: tuple[str, ...] = ()
    """Paths that hold one of these never fail."""
    struck_count: int = 0

    def strikes(self, operation: DiskOperation, path: str) -> bool:
        """Return whether this call fails, and count it."""
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
        self.struck_count += 1
        return True


class DiskFaults:
    """All that is wrong with one disk now."""

    def __init__(self) -> None:
        self._faults: list[DiskFault] = []
        self._hanging: dict[str, Until] = {}
        self._gone: set[str] = set()

    @property
    def may_strike(self) -> bool:
        """Whether some call may still fail."""
        return bool(self._gone) or any(fault.times_left for fault in self._faults)

    def add(self, fault: DiskFault) -> None:
        """Let calls fail."""
        self._faults.append(fault)

    def take_back(self, fault: DiskFault) -> None:
        """Let these calls succeed again."""
        if fault in self._faults:
            self._faults.remove(fault)

    def hang(self, directory: str, until: Until) -> None:
        """Let whatever is awaited of a directory wait until `until` comes back."""
        self._hanging[directory] = until

    def lose(self, directory: str) -> None:
        """Let every call on a directory and on what lies in it fail."""
        self._gone.add(directory)

    def give_back(self, directory: str) -> None:
        """Let a directory that hung or was gone be as it was."""
        self._gone.discard(directory)
        self._hanging.pop(directory, None)

    def clear(self) -> None:
        """Take everything back."""
        self._faults.clear()
        self._hanging.clear()
        self._gone.clear()

    def strike(self, operation: DiskOperation, path: str) -> None:
        """Raise the OSError of a fault that waits for this operation."""
        if self.is_gone(path):
            raise OSError(errno.EIO, "the world's directory is gone", path)
        for fault in self._faults:
            if fault.strikes(operation, path):
                raise OSError(fault.error_number, "the world's disk fails as asked", path)

    def is_gone(self, path: str) -> bool:
        """Return whether the path lies in a directory that was lost."""
        return any(_lies_in(path, directory) for directory in self._gone)

    def hanging(self, path: str) -> Until | None:
        """Return what a call on the path waits for."""
        for directory, until in self._hanging.items():
            if _lies_in(path, directory):
                return until
        return None


class FileDamage(IntEnum):
    """Damage of one file of a stopped node."""

    REMOVED = 0
    EMPTIED = 1
    HALVED = 2
    FLIPPED = 3
    """One byte differs."""


def damaged(data: bytes, kind: FileDamage, below: Callable[[int], int]) -> bytes | None:
    """Return a file's bytes after a damage, None if it is gone; `below` draws from [0, n)."""
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
