"""Cache of files: changes of the cache while one of its tasks waits for the disk."""

from unittest.mock import patch

from ottla.jepsen.world.disk import SimulatedDisk
from ottla.storage.disk.disk_seam import Space
from ottla.storage.tier.reads.cached_files_driver import CachedFiles
from tests.storage.tier.reads.reader_bench import simulated_disk


async def test_a_cache_may_become_empty_while_a_value_is_stored() -> None:
    disk = simulated_disk()
    files = CachedFiles(disk, "/data/cache", 1_000)
    await files.open()

    async def empty_the_cache(self: SimulatedDisk, path: str) -> Space:
        await files.shrink(1_000)
        return Space(1_000, 0)

    with patch.object(SimulatedDisk, "space", empty_the_cache):
        await files.put("a", b"value")

    assert files.size_bytes == 0
    assert await files.get("a") is None
