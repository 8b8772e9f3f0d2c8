"""Wall clocks that jump: a small library in each node adds to its wall clock what a file says.

Only the wall clock is wrong.  The monotonic one, which leases and timeouts use, stays right, as
when an administrator or NTP sets a machine's clock.  (libfaketime does the same, but breaks waiting
by the monotonic clock: CPython's `time.sleep` fails under it.)
"""

from collections.abc import Iterable
from pathlib import Path

from ottla.jepsen.processes.commands_async import run_async

SOURCE = Path(__file__).with_name("clock_shim.c")
COMPILER = "cc"


async def compile_shim(directory: Path) -> Path:
    """Compile the library into a directory; CommandError where there is no compiler."""
    library = directory / "clock_shim.so"
    words = [COMPILER, "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    await run_async(words)
    return library


class Clocks:
    """The wall clocks of all nodes; without a library they are the machine's own."""

    def __init__(self, directory: Path, nodes: Iterable[str], *, library: Path | None) -> None:
        self.offsets_ms = dict.fromkeys(nodes, 0)
        """How far each is ahead of the true time."""
        self._library = library
        self._directory = directory / "clocks"
        self._directory.mkdir(exist_ok=True)
        for node in self.offsets_ms:
            self._path(node).write_bytes(_offset_bytes(0))

    def set(self, node: str, offset_ms: int) -> None:
        """Set a node's clock so far ahead of the true one (behind, when negative), at once."""
        assert self._library is not None
        self.offsets_ms[node] = offset_ms
        # In place: the node has mapped this file.
        with self._path(node).open("r+b") as file:
            file.write(_offset_bytes(offset_ms))

    def environment(self, node: str) -> dict[str, str]:
        """Return what the node's process needs to see its clock."""
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), "OTTLA_CLOCK_FILE": str(self._path(node))}

    def _path(self, node: str) -> Path:
        return self._directory / node


def _offset_bytes(offset_ms: int) -> bytes:
    return (offset_ms * 1_000_000).to_bytes(8, "little", signed=True)
