"""Settings of one partition's log, derived from the settings of its topic. The metadata log has its
own settings. Pure."""

from dataclasses import field

from ottla.model.limits import DECOMPRESSED_RECORD_BYTES_MAX, GIB, INT32_MAX, INT64_MAX, MIB
from ottla.model.settings.storage.topic import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SAME_AS_RETENTION,
    TopicConfig,
)
from ottla.model.values import frozen
from ottla.wire.compression import Codec

CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def effective_local_retention(local: int, total: int, *, is_copied: bool) -> int:
    """Return the effective local retention in ms or bytes: `local`, or the topic's retention
    `total` if `local` is -2 or the log is not copied (remote.log.copy.disable)."""
    return total if local == SAME_AS_RETENTION or not is_copied else local


@frozen(kw_only=True)
class LogConfig:
    """Settings of one log: rolls, checks of batches, retention and flushes. The defaults are
    Kafka's."""

    segment_bytes: int = GIB
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    preallocate: bool = False
    max_message_bytes: int = MIB + 12
    max_decompressed_record_bytes: int | None = None
    """Size in bytes of the largest record that is accepted in a compressed batch, measured after
    decompression. None means any size."""
    is_log_append_time: bool = False
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = HOUR_MS
    codec: Codec | None = None
    """Compression codec in which batches are stored, or None for the codec of the producer."""
    compression_level: int | None = None
    """Compression level for `codec`, or None for the default level of the codec's library."""
    is_compacted: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = DAY_MS
    is_every_record_checked: bool = False
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    is_deleted_by_retention: bool = True
    producer_id_expiration_ms: int = DAY_MS
    file_delete_delay_ms: int = MINUTE_MS
    is_tiered: bool = False
    """True if the object store may have records of the log that are not on the disk."""
    is_copied: bool = True
    """False if no further segments of a tiered log are copied to the object store."""
    local_retention_ms: int = SAME_AS_RETENTION
    """Retention in ms of the local segments of a tiered log that are copied; -2 stands for the
    topic's retention."""
    local_retention_bytes: int = SAME_AS_RETENTION
    """Retention in bytes of the local segments of a tiered log that are copied; -2 stands for the
    topic's retention."""
    copy_lag_ms: int = 0
    """Minimum age in ms of a closed segment of a tiered log before it is copied. -1 stands for the
    local retention."""
    copy_lag_bytes: int = -1
    """Minimum number of bytes in the log after a closed segment before a tiered log's segment is
    copied to the object store. -1 stands for the local retention size."""

    inspects_batches: bool = field(init=False)
    """True if the records of some batches are read before an append, although the header of the
    batch is right: of compressed batches, of all batches, or of those in another codec."""

    def __post_init__(self) -> None:
        """Assert the relations between log settings on which the file formats depend, and derive
        `inspects_batches` once, since every append reads it."""
        assert 0 < self.segment_bytes <= INT32_MAX, "an index entry's position is an int32"
        inspects_batches = (
            self.codec is not None
            or self.is_every_record_checked
            or self.is_compacted
            or self.max_decompressed_record_bytes is not None
        )
        object.__setattr__(self, "inspects_batches", inspects_batches)

    @property
    def effective_local_retention_ms(self) -> int:
        """Retention in ms of the local segments of a tiered log; -1 is unlimited."""
        return self._local_retention(self.local_retention_ms, self.retention_ms)

    @property
    def effective_local_retention_bytes(self) -> int:
        """Retention in bytes of the local segments of a tiered log; -1 is unlimited."""
        return self._local_retention(self.local_retention_bytes, self.retention_bytes)

    def _local_retention(self, local: int, total: int) -> int:
        if not self.is_deleted_by_retention:
            total = -1
        return effective_local_retention(local, total, is_copied=self.is_copied)

    @classmethod
    def of_topic(
        cls, topic: TopicConfig, *, producer_id_expiration_ms: int = DAY_MS
    ) -> "LogConfig":
        """Return the log settings that follow from the settings of a topic."""
        return cls(
            segment_bytes=topic.segment_bytes,
            segment_ms=_segment_ms_of(topic),
            segment_jitter_ms=topic.segment_jitter_ms,
            segment_index_bytes=topic.segment_index_bytes,
            index_interval_bytes=topic.index_interval_bytes,
            preallocate=topic.preallocate,
            max_message_bytes=topic.max_message_bytes,
            max_decompressed_record_bytes=_record_bound_of(topic),
            is_log_append_time=topic.message_timestamp_type == "LogAppendTime",
            message_timestamp_before_max_ms=topic.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms=topic.message_timestamp_after_max_ms,
            codec=CODECS.get(topic.compression_type),
            compression_level=_compression_level_of(topic),
            is_compacted=topic.is_compacted,
            min_cleanable_dirty_ratio=topic.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=topic.min_compaction_lag_ms,
            max_compaction_lag_ms=topic.max_compaction_lag_ms,
            delete_retention_ms=topic.delete_retention_ms,
            is_every_record_checked=topic.record_validation == "full",
            flush_messages=topic.flush_messages,
            flush_ms=topic.flush_ms,
            retention_ms=topic.retention_ms,
            retention_bytes=topic.retention_bytes,
            is_deleted_by_retention="delete" in topic.cleanup_policy,
            producer_id_expiration_ms=producer_id_expiration_ms,
            file_delete_delay_ms=topic.file_delete_delay_ms,
            is_tiered=topic.remote_storage_enable,
            is_copied=not topic.remote_log_copy_disable,
            local_retention_ms=topic.local_retention_ms,
            local_retention_bytes=topic.local_retention_bytes,
            copy_lag_ms=topic.remote_copy_lag_ms,
            copy_lag_bytes=topic.remote_copy_lag_bytes,
        )


def _record_bound_of(topic: TopicConfig) -> int | None:
    """Return the topic's bound, in bytes, on the size of decompressed records. Returns None if the
    setting has its default: batches are then not checked against a bound."""
    bound = topic.max_decompressed_message_bytes
    return None if bound == DECOMPRESSED_RECORD_BYTES_MAX else bound


def _segment_ms_of(topic: TopicConfig) -> int:
    """Return the age in ms at which a topic's segments roll. It is at most max.compaction.lag.ms,
    because only closed segments are compacted."""
    if not topic.is_compacted:
        return topic.segment_ms
    return min(topic.segment_ms, topic.max_compaction_lag_ms)


def _compression_level_of(topic: TopicConfig) -> int | None:
    """Return the level for the compression codec in a topic's settings, or None if the codec has no
    levels."""
    return {
        "gzip": topic.compression_gzip_level,
        "lz4": topic.compression_lz4_level,
        "zstd": topic.compression_zstd_level,
    }.get(topic.compression_type)
