"""Limits of the reader of copied segments."""

from typing import Final

from ottla.model.values import frozen
from ottla.storage.tier.manifest import CHUNK_BYTES

MIB: Final = 1 << 20

READ_BYTES_MAX: Final = 8 * MIB
"""Maximum number of bytes that one read returns. Only a first batch that is larger is returned
completely. A client may request 2 GiB. Copying 8 MiB takes 2 ms."""
BATCH_BYTES_MAX: Final = 128 * MIB
"""Maximum size in bytes of a batch that is read. Others may write into the bucket, so that a batch
could claim any size."""
RUN_CHUNKS: Final = 4
"""Number of adjacent chunks that one request reads ahead. With fewer, more requests are billed.
With more, the first chunk arrives later."""
ATTEMPTS_MAX: Final = 3
"""Maximum number of attempts to send a request that fails, or that returns content with a wrong
checksum."""
RETRY_PAUSE_S: Final = 0.1
"""Pause in seconds before the second attempt of a request. Each further pause is four times as
long."""


@frozen(kw_only=True)
class ReaderLimits:
    """Limits of the memory, files and requests of a reader of copied segments.

    The reader's memory consists of its caches, the responses to `gets_at_once` requests for
    `RUN_CHUNKS` chunks each, and the chunks of `reads_at_once` reads.
    """

    chunk_memory_bytes: int = 64 * MIB
    """Maximum size of the chunks in memory, in bytes. At most half of them are chunks that were
    read ahead and have not been used yet."""
    index_memory_bytes: int = 32 * MIB
    """Maximum size of the manifests and indexes in memory, in bytes. Those of a segment of 1 GiB
    take some 2 MiB."""
    chunk_file_bytes: int = 256 * MIB
    """Maximum size of the chunks in the cache's files, in bytes."""
    index_file_bytes: int = 1024 * MIB
    """Maximum size of the manifests and indexes in the cache's files, in bytes
    (remote.log.index.file.cache.total.size.bytes)."""
    files_free_bytes: int = 0
    """Number of bytes that the cache's files leave free on their volume
    (local.retention.free.bytes)."""
    gets_at_once: int = 10
    """Maximum number of requests to the object store in flight at the same time."""
    reads_at_once: int = 32
    """Maximum number of reads that run at the same time. Further reads wait."""
    read_ahead_bytes: int = 16 * MIB
    """Maximum number of bytes that are loaded ahead of one sequential reader. A maximum above the
    product of the store's bandwidth and latency hides the latency."""
    request_timeout_s: float = 30.0
    """Timeout of a request to the object store, in seconds."""

    @property
    def ahead_chunks(self) -> int:
        """Maximum number of chunks that are loaded ahead of one reader."""
        return self.read_ahead_bytes // CHUNK_BYTES

    @property
    def unused_chunks(self) -> int:
        """Maximum number of chunks, for all readers together, that were read ahead and have not
        been used yet."""
        return self.chunk_memory_bytes // CHUNK_BYTES // 2
