"""Simulates wall clocks that jump: a small C library in each node's process adds an offset to its
wall clock.

The offset is read from a file. Only the wall clock changes. The monotonic clock, which timeouts
use, is unaffected, as when an administrator or NTP sets a machine's clock. libfaketime is not used
because it breaks waits by the monotonic clock: CPython's `time.sleep` fails under it.
"""

from collections.abc import Iterable
from pathlib import Path

from ottla.jepsen.processes.commands_async import run_async

SOURCE = Path(__file__).with_name("clock_shim.c")
COMPILER = "cc"


async def compile_shim(directory: Path) -> Path:
    """Compile the C library that shifts wall clocks into a directory, and return its path. Raises
    CommandError if there is no compiler."""
    library = directory / "clock_shim.so"
    words = [COMPILER, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    await run_async(words)
    return library


class Clocks:
    """Wall clocks of all nodes of a cluster. If `library` is None, every node uses the machine's
    clock."""

    def __init__(self, directory: Path, nodes: Iterable[str], *, library: Path | None) -> None:
        self.offsets_ms = dict.fromkeys(nodes, 0)
        """Offset of each node's wall clock from the true time in ms, by node name."""
        self._library = library
        self._directory = directory / "clocks"
        self._directory.mkdir(exist_ok=True)
        for node in self.offsets_ms:
            self._path(node).write_bytes(_offset_bytes(0))

    def set(self, node: str, offset_ms: int) -> None:
        """Set a node's wall clock to the true time plus an offset in ms, which may be negative.
        Takes effect at once."""
        assert self._library is not None
        self.offsets_ms[node] = offset_ms
        # Written in place, because the node has mapped this file.
        with self._path(node).open("r+b") as file:
            file.write(_offset_bytes(offset_ms))

    def environment(self, node: str) -> dict[str, str]:
        """Return the environment variables that make a node's process use its simulated wall
        clock."""
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), "OTTLA_CLOCK_FILE": str(self._path(node))}

    def _path(self, node: str) -> Path:
        return self._directory / node


def _offset_bytes(offset_ms: int) -> bytes:
    return (offset_ms * 1_000_000).to_bytes(8, "little", signed=True)
