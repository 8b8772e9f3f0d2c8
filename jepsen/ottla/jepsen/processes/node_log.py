"""What a node says, in a file of bounded size: its latest words, and those before them."""

from pathlib import Path

import trio

PART_BYTES_MAX = 8 << 20
"""A healthy node says a few lines; what a sick one says last matters most."""

RECEIVE_BYTES = 65_536


class NodeLog:
    """The log of one node over all its lives; at most two parts of `part_bytes_max` each."""

    def __init__(self, path: Path, *, part_bytes_max: int = PART_BYTES_MAX) -> None:
        self.path = path
        self.lost_bytes = 0
        """How much was said and not kept."""
        self._part_bytes_max = part_bytes_max

    @property
    def parts(self) -> list[Path]:
        """The files there are, the older first."""
        return [one for one in (self._before, self.path) if one.exists()]

    @property
    def _before(self) -> Path:
        return self.path.with_name(f"{self.path.name}.before")

    async def copy(self, reader: int) -> None:
        """Take what comes on a pipe until it ends; owns the descriptor."""
        async with trio.lowlevel.FdStream(reader) as stream:
            while said := await stream.receive_some(RECEIVE_BYTES):
                self._write(said)

    def last_words(self, count: int) -> str:
        """Return the last so many bytes."""
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
