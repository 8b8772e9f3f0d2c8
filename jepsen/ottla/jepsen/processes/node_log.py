"""Writes the log of a node's output to two files of bounded size: the latest part, and the part
before it."""

from pathlib import Path

import trio

PART_BYTES_MAX = 8 << 20
"""Maximum size in bytes of each of the two files of a node's log. A healthy node prints few lines.
For a failing node, the last lines matter most."""

RECEIVE_BYTES = 65_536


class NodeLog:
    """The output of one node over all its processes, in at most two files of `part_bytes_max` bytes
    each."""

    def __init__(self, path: Path, *, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self.path = path
        self.lost_bytes = 0
        """Number of bytes of the node's output that were discarded."""
        self._part_bytes_max = part_bytes_max

    @property
    def parts(self) -> list[Path]:
        """Existing files of the node's log, the older one first."""
        return [one for one in (self._before, self.path) if one.exists()]

    @property
    def _before(self) -> Path:
        return self.path.with_name(f"{self.path.name}.before")

    async def copy(self, reader: int) -> None:
        """Copy a node's output from a pipe into the log until the pipe ends. Closes the descriptor
        `reader` afterwards."""
        async with trio.lowlevel.FdStream(reader) as stream:
            while said := await stream.receive_some(RECEIVE_BYTES):
                self._write(said)

    def tail(self, count: int) -> str:
        """Return the last `count` bytes of the node's log, as text."""
        data = b"".join(part.read_bytes()[-count:] for part in self.parts)
        return data[-count:].decode(errors="replace")

    def _write(self, said: bytes) -> None:
        with self.path.open("ab") as file:
            file.write(said)
            size = file.tell()
        if size > self._part_bytes_max:
            if self._before.exists():
                self.lost_bytes += self._before.stat().st_size
            self.path.replace(self._before)
