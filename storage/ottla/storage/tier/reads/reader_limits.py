"""Bounds of the reads from an object store."""

from typing import Final

from ottla.model.values import frozen
from ottla.storage.tier.manifest import CHUNK_BYTES

MIB: Final = 1 << 20

READ_BYTES_MAX: Final = 8 * MIB
"""Largest number of bytes that one read returns, unless its first batch is larger. A client may ask
for 2 GiB. Copying 8 MiB costs 2 ms."""
BATCH_BYTES_MAX: Final = 128 * MIB
"""Size of the largest batch that is read. A bucket that others may write could claim any size."""
RUN_CHUNKS: Final = 4
"""Number of adjacent chunks that one request reads ahead. With fewer, more requests are billed.
With more, the first chunk arrives later."""
ATTEMPTS_MAX: Final = 3
"""Number of attempts of a request that fails, or whose content has a wrong checksum."""
RETRY_PAUSE_S: Final = 0.1
"""Pause in seconds before the second attempt; each further one is four times as long."""


@frozen(kw_only=True)
class ReaderLimits:
    """Bounds of memory, files and requests of a reader of copied segments.

    Beside the caches, the memory has at most `gets_at_once` responses of `RUN_CHUNKS` chunks, and
    the chunks of `reads_at_once` reads.
    """

    chunk_memory_bytes: int = 64 * MIB
    """Bytes of chunks in memory. Half of it may be chunks that were read ahead."""
    index_memory_bytes: int = 32 * MIB
    """Bytes of manifests and indexes in memory. A segment of 1 GiB has some 2 MiB."""
    chunk_file_bytes: int = 256 * MIB
    """Bytes of chunks in the cache's directory."""
    index_file_bytes: int = 1024 * MIB
    """Bytes of manifests and indexes in the cache's directory
    (remote.log.index.file.cache.total.size.bytes)."""
    gets_at_once: int = 10
    """Requests to the store at the same time."""
    reads_at_once: int = 32
    """Reads at the same time. Others wait for their turn."""
    read_ahead_bytes: int = 16 * MIB
    """Largest distance to which a sequential reader is read ahead. It hides the latency of the
    store if it is larger than the product of bandwidth and latency."""
    request_timeout_s: float = 30.0
    """Time after which a request counts as failed."""

    @property
    def ahead_chunks(self) -> int:
        """Largest number of chunks that are read ahead of one reader."""
        return self.read_ahead_bytes // CHUNK_BYTES

    @property
    def unused_chunks(self) -> int:
        """Largest number of chunks that were read ahead and not used yet, for all readers."""
        return self.chunk_memory_bytes // CHUNK_BYTES // 2
