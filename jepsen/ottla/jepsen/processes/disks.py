"""A node's disk: a separate file system in a file of limited size, whose power can be cut.

A power cut replaces the mounted image by a copy taken while it was mounted. Data that was not
flushed is in the page cache but not in this copy.  ext4 is mounted with a commit interval of 300 s,
and without early writes for renames, so that unflushed data is really missing.

If this machine does not allow mounts, a plain directory is used. It loses nothing and is never full
(`can_lose_power` is False).
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
"""Size in bytes of the image file of a node's disk. The image is sparse: unwritten blocks cost
nothing. A smaller image would be full within a long run."""

MAKE = ("mkfs.ext4", "-q", "-F", "-m", "0", "-J", "size=8")
"""Command that creates the file system of a node's disk. A journal of 8 MiB is enough, and is
copied at each power cut."""
MAKE_AT_ONCE = ("-E", "lazy_itable_init=0,lazy_journal_init=0")
"""Options of mkfs.ext4 that initialise the whole file system at once. Without them, the kernel
would continue in the background."""
MOUNT_OPTIONS = "loop,noatime,commit=300,noauto_da_alloc"

BALLAST = "ballast"
DATA = "data"
"""Name of the data directory below the mount point of a node's disk. The mount point itself has a
`lost+found`, which is not a log."""
SMALLEST_BALLAST_BYTES = 4_096
LENGTH_AT = 8
"""Position of the length field in a record batch, in bytes from its start."""


class NodeDisk(Protocol):
    """Interface of the disk of one node."""

    can_lose_power: bool
    """True if the disk can simulate power cuts and a lack of space."""

    @property
    def data(self) -> Path:
        """Data directory of the node on this disk."""

    async def open(self) -> None:
        """Create the disk's directory or file system, and mount it if necessary."""

    async def cut_power(self) -> None:
        """Lose all unflushed data on the disk. The node's process must have ended."""

    async def fill(self) -> int:
        """Fill the node's disk. Returns the number of bytes that were free before."""

    async def make_room(self) -> None:
        """Delete the file with which `fill` filled the disk, so that writes succeed again."""


class PlainDisk:
    """A node's disk that is a directory on the machine's own file system."""

    can_lose_power = False

    def __init__(self, directory: Path, name: str) -> None:
        self.data = directory / "disks" / name / DATA

    async def open(self) -> None:
        """Create the directory of the node's disk, or empty it."""
        await trio.to_thread.run_sync(partial(shutil.rmtree, self.data, ignore_errors=True))
        self.data.mkdir(parents=True)

    async def cut_power(self) -> None:
        """Never called, because `can_lose_power` is False for a plain directory."""
        raise AssertionError("a plain directory cannot lose power")

    async def fill(self) -> int:
        """Never called, because `can_lose_power` is False for a plain directory."""
        raise AssertionError("a plain directory is not filled: others live on its file system")

    async def make_room(self) -> None:
        """Do nothing, because `fill` is never called."""


class ImageDisk:
    """A node's disk that is an ext4 file system in a file, mounted with a loop device. This object
    mounts and unmounts it."""

    can_lose_power = True

    def __init__(self, directory: Path, name: str, *, size_bytes: int = IMAGE_BYTES) -> None:
        self._image = directory / "disks" / f"{name}.ext4"
        self._mount = directory / "disks" / name
        self._size_bytes = size_bytes

    @property
    def data(self) -> Path:
        """Data directory of the node on this disk."""
        return self._mount / DATA

    async def open(self) -> None:
        """Make the disk's file system and mount it."""
        self._mount.mkdir(parents=True, exist_ok=True)
        with self._image.open("wb") as file:
            file.truncate(self._size_bytes)
        await run_async([*MAKE, *MAKE_AT_ONCE, str(self._image)])
        await self._mount_image()
        self.data.mkdir()
        # The empty directory survives any power cut, as on a machine that was set up properly.
        await run_async(["sync", "--file-system", str(self._mount)])

    async def cut_power(self) -> None:
        """Replace the mounted disk image by a copy taken while it was mounted, so that unflushed
        data is lost."""
        copy = self._image.with_suffix(".copy")
        with trio.CancelScope(shield=True):
            await run_async(["cp", "--sparse=always", str(self._image), str(copy)])
            await run_async(["umount", str(self._mount)])
            copy.replace(self._image)
            await self._mount_image()

    async def fill(self) -> int:
        """Fill all free blocks of the disk, including blocks that become free meanwhile. Returns
        the number of bytes that were free before."""
        before = shutil.disk_usage(self._mount).free
        await trio.to_thread.run_sync(_take_room, self._mount / BALLAST)
        return before

    async def make_room(self) -> None:
        """Delete the file with which `fill` filled the disk, so that writes succeed again."""
        (self._mount / BALLAST).unlink(missing_ok=True)

    async def _mount_image(self) -> None:
        await run_async(["mount", "-o", MOUNT_OPTIONS, str(self._image), str(self._mount)])


def closed_segments(data: Path) -> list[Path]:
    """Return the closed `.log` segments of every partition below a data directory."""
    found: list[Path] = []
    for partition in sorted(one for one in data.iterdir() if one.is_dir()):
        found += sorted(partition.glob("*.log"))[:-1]
    return found


def protected_bits(segment: Path) -> list[range]:
    """Return the range of bits that the records occupy in each batch of a .log file. The batch's
    CRC covers these bits.

    In Kafka's format the fields before the CRC (base offset, length, epoch, magic) are not covered,
    and a wrong length would mislead a scan of the log.
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
    """Invert one bit of a file. Bit 0 is the lowest bit of its first byte."""
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
