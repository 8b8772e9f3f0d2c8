"""Cache of bounded size that stores each value as a file in one directory.

A file is never changed, and ends with the CRC of its content. Files that a crash or the disk has
damaged are therefore detected. Damaged and unreadable files are treated as missing. The files are
written without fsync, and can be used after a restart.
"""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Final

from ottla.storage.disk.disk_seam import Disk
from ottla.storage.tier.stepped_crc_driver import crc_of_large

CRC_BYTES: Final = 4
ROOM_RATIO: Final = 0.05
"""Fraction of the volume's size that the cache leaves free at least, because the logs of partitions
need this space."""
PENDING_BYTES_MAX: Final = 32 << 20
"""Maximum number of bytes that wait to be written to the disk. If the disk is slower than the
object store, further values are not cached."""


class CachedFiles:
    """A cache of values in files. When the cache is full, the files that have not been used for the
    longest time are removed."""

    def __init__(
        self, disk: Disk, directory: str, bytes_max: int, *, free_bytes_min: int = 0
    ) -> None:
        """Create the cache. It leaves at least `free_bytes_min` bytes of its volume free."""
        self._disk = disk
        self._directory = directory
        self._free_bytes_min = free_bytes_min
        self.bytes_max = bytes_max
        """Maximum total size of the files, in bytes."""
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Size in bytes of each file, by its name, including files that are being written. The file
        that has not been used for the longest time is first."""
        self._pending_bytes = 0
        self.size_bytes = 0
        """Total size of the files, in bytes."""

    def __contains__(self, name: str) -> bool:
        return name in self._sizes

    async def open(self) -> None:
        """Create the cache's directory. If the directory exists, use the files in it, up to the
        maximum size."""
        try:
            await self._disk.makedirs(self._directory)
            (found,) = await self._disk.survey([self._directory], lambda _: ())
        except OSError:
            return
        if isinstance(found, OSError):
            return
        for name, size in found.sizes.items():
            self._sizes[name] = size
            self.size_bytes += size
        await self._evict()

    async def get(self, name: str) -> bytes | None:
        """Return the value in a file, or None if the file does not exist or is damaged."""
        if name not in self._sizes:
            return None
        self._sizes.move_to_end(name)
        try:
            data = await self._disk.read_file(f"{self._directory}/{name}")
        except OSError:
            data = b""
        content = data[:-CRC_BYTES]
        crc = int.from_bytes(data[-CRC_BYTES:], "big")
        if len(data) >= CRC_BYTES and await crc_of_large(content) == crc:
            return content
        await self.drop([name])
        return None

    async def put(self, name: str, content: bytes) -> None:
        """Store a value in a file.

        Does nothing if the file exists already, or if too many bytes wait for the disk. If the
        volume has little free space, the file that has not been used for the longest time is
        removed instead."""
        size = len(content) + CRC_BYTES
        is_too_much = size > self.bytes_max or self._pending_bytes + size > PENDING_BYTES_MAX
        if name in self._sizes or is_too_much:
            return
        self._sizes[name] = size
        self.size_bytes += size
        self._pending_bytes += size
        is_stored = False
        try:
            await self._evict()
            space = await self._disk.space(self._directory)
            room = max(ROOM_RATIO * space.total_bytes, self._free_bytes_min)
            if space.usable_bytes < room + size:
                await self._drop_oldest()  # the cache shrinks
                return
            crc = await crc_of_large(content)
            data = content + crc.to_bytes(CRC_BYTES, "big")
            await self._disk.make_directory(self._directory, {name: data})
            is_stored = True
        except OSError:
            pass
        finally:
            self._pending_bytes -= size
            if not is_stored:
                self._forget(name)  # a part of the file may exist: the next start adopts it
        if name not in self._sizes:
            await self._unlink(name)  # it was dropped while it was written, or is incomplete

    async def drop(self, names: list[str]) -> None:
        """Remove the files with these names, if they exist."""
        for name in names:
            if self._forget(name):
                await self._unlink(name)

    async def drop_if(self, is_dropped: Callable[[str], bool]) -> None:
        """Remove the files for whose names `is_dropped` returns True."""
        await self.drop([name for name in self._sizes if is_dropped(name)])

    async def resize(self, bytes_max: int) -> None:
        """Change the maximum total size of the files, and remove files in excess of the maximum."""
        self.bytes_max = bytes_max
        await self._evict()

    async def shrink(self, size_bytes: int) -> int:
        """Remove files until `size_bytes` are freed, or no file is left. Returns the number of
        freed bytes."""
        before = self.size_bytes
        while self._sizes and before - self.size_bytes < size_bytes:
            await self._drop_oldest()
        return before - self.size_bytes

    async def _evict(self) -> None:
        while self.size_bytes > self.bytes_max and self._sizes:
            await self._drop_oldest()

    async def _drop_oldest(self) -> None:
        """Remove the file that has not been used for the longest time. Does nothing if the cache is
        empty, which another task may have caused."""
        await self.drop(list(islice(self._sizes, 1)))

    def _forget(self, name: str) -> bool:
        size = self._sizes.pop(name, None)
        self.size_bytes -= size or 0
        return size is not None

    async def _unlink(self, name: str) -> None:
        with suppress(OSError):
            await self._disk.unlink(f"{self._directory}/{name}")
