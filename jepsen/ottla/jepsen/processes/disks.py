"""A node's disk: a file system of its own in a file of bounded size, from which power can be cut.

A power cut is the image as it is while it is mounted, copied and mounted instead: what was not
flushed is in the page cache and not in the copy.  ext4 commits its journal every 300 s only, and
writes no data early for the sake of renames, so that what is not flushed is really not there.
Where the machine does not let us mount, a plain directory stands in: it loses nothing and is never
full, and says so (`can_lose_power`).
"""

import os
import shutil
import struct
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from ottla.jepsen.processes.commands_async import run_async
from ottla.model.limits import BATCH_HEADER_BYTES

IMAGE_BYTES = 512 << 20
"""Sparse: what is not written costs nothing.  Smaller is full sooner than a long run wants."""

MAKE = ("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=8")
"""8 MiB of journal are plenty, and are written and copied each time."""
MAKE_AT_ONCE = ("-E", "lazy_itable_init=0,lazy_journal_init=0")
"""Else the kernel goes on writing in the background."""
MOUNT_OPTIONS = "loop,noatime,commit=300,noauto_da_alloc"

BALLAST = "ballast"
DATA = "data"
"""A directory below the mount point, which has a `lost+found` that is no log."""
SMALLEST_BALLAST_BYTES = 4_096
LENGTH_AT = 8
"""Where a batch says how much follows."""


class NodeDisk(Protocol):
    """Where one node keeps its data."""

    can_lose_power: bool
    """Else it cannot be filled up either."""

    @property
    def data(self) -> Path:
        """The node's directory."""

    async def open(self) -> None:
        """Make it ready for use."""

    async def cut_power(self) -> None:
        """Lose what was not flushed; the node's process must be gone."""

    async def fill(self) -> int:
        """Leave no room; return the bytes that were free."""

    async def make_room(self) -> None:
        """Take away what `fill` put there."""


class PlainDisk:
    """A directory of the machine's own file system."""

    can_lose_power = False

    def __init__(self, directory: Path, name: str) -> None:
        self.data = directory / "disks" / name / DATA

    async def open(self) -> None:
        """Make the directory, again."""
        await trio.to_thread.run_sync(partial(shutil.rmtree, self.data, ignore_errors=True))
        self.data.mkdir(parents=True)

    async def cut_power(self) -> None:
        """Nobody asks: it cannot."""
        raise AssertionError("a plain directory cannot lose power")

    async def fill(self) -> int:
        """Nobody asks: it cannot."""
        raise AssertionError("a plain directory is not filled: others live on its file system")

    async def make_room(self) -> None:
        """There is nothing to take away."""


class ImageDisk:
    """An ext4 file system in a file, mounted over a loop device; owns the mount."""

    can_lose_power = True

    def __init__(self, directory: Path, name: str, *, size_bytes: int = IMAGE_BYTES) -> None:
        self._image = directory / "disks" / f"{name}.ext4"
        self._mount = directory / "disks" / name
        self._size_bytes = size_bytes

    @property
    def data(self) -> Path:
        """The node's directory."""
        return self._mount / DATA

    async def open(self) -> None:
        """Make the file system and mount it."""
        self._mount.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(self._size_bytes)
        await run_async([*MAKE, *MAKE_AT_ONCE, str(self._image)])
        await self._mount_image()
        self.data.mkdir()
        # The empty directory is there before any power cut, as it is on a machine put to work.
        await run_async(["sync", "--file-system", str(self._mount)])

    async def cut_power(self) -> None:
        """Go on with what the image held while it was mounted."""
        copy = self._image.with_suffix(".copy")
        with trio.CancelScope(shield=True):
            await run_async(["cp", "--sparse=always", str(self._image), str(copy)])
            await run_async(["umount", str(self._mount)])
            copy.replace(self._image)
            await self._mount_image()

    async def fill(self) -> int:
        """Take all the room there is, and what becomes free until then."""
        before = shutil.disk_usage(self._mount).free
        await trio.to_thread.run_sync(_take_room, self._mount / BALLAST)
        return before

    async def make_room(self) -> None:
        """Take the ballast away."""
        (self._mount / BALLAST).unlink(missing_ok=True)

    async def _mount_image(self) -> None:
        await run_async(["mount", "-o", MOUNT_OPTIONS, str(self._image), str(self._mount)])


def closed_segments(data: Path) -> list[Path]:
    """Return the .log files of every partition that are not written any more."""
    found: list[Path] = []
    for partition in sorted(one for one in data.iterdir() if one.is_dir()):
        found += sorted(partition.glob("*.log"))[:-1]
    return found


def protected_bits(segment: Path) -> list[range]:
    """Return, for each batch of a .log file, the bits of it that its CRC vouches for.

    Those of records: what stands before the CRC (base offset, length, epoch, magic) nothing vouches
    for, in Kafka's format, and a header that lies leads a walk over the log astray.
    """
    data = segment.read_bytes()
    found, position = [], 0
    while position + BATCH_HEADER_BYTES <= len(data):
        (length,) = struct.unpack_from(">i", data, position + LENGTH_AT)
        end = position + LENGTH_AT + 4 + length
        if length <= 0 or end > len(data):
            break
        found.append(range(8 * (position + BATCH_HEADER_BYTES), 8 * end))
        position = end
    return found


def flip_bit(path: Path, bit: int) -> None:
    """Turn one bit of a file around, bit 0 being the lowest of its first byte."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def _take_room(path: Path) -> None:
    with path.open("wb") as file:
        size = shutil.disk_usage(path.parent).free
        end = 0
        while size >= SMALLEST_BALLAST_BYTES:
            try:
                os.posix_fallocate(file.fileno(), end, size)
                end += size
            except OSError:
                size //= 2
