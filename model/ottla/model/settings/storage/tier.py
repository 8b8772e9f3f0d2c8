"""Settings of tiered storage on a broker: the object store, copies of segments, and their reads."""

from ottla.model.errors import ConfigError
from ottla.model.limits import GIB
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen

SYSTEM_ENABLE = "remote.log.storage.system.enable"
STORE_URI = "remote.log.storage.uri"
FETCH_WAIT_MS = "remote.fetch.max.wait.ms"
LIST_OFFSETS_TIMEOUT_MS = "remote.list.offsets.request.timeout.ms"
INDEX_CACHE_BYTES = "remote.log.index.file.cache.total.size.bytes"
READERS = "remote.log.reader.threads"
FETCHES_LAST_TIERED = "follower.fetch.last.tiered.offset.enable"
COPIERS = "remote.log.manager.copier.thread.pool.size"
LOCAL_FREE_BYTES = "local.retention.free.bytes"
PROBLEM_PREFIX = "tiered storage: "
"""Prefix of a broker's problems with tiered storage, in `ottla status` and `ottla tier status`."""
METADATA_PREFIX = "rlmm.config."
"""Prefix of the keys of Kafka's settings for the topic `__remote_log_metadata`."""


@frozen(kw_only=True)
class TierConfig:
    """Settings of tiered storage on one broker. A text setting without a value is the empty
    text."""

    is_enabled: bool = setting(
        False,
        key=SYSTEM_ENABLE,
        doc="Whether topics may be tiered. Set it on all brokers and controllers, and "
        "remote.log.storage.uri on all brokers.",
    )
    store_uri: str = setting(
        "",
        key=STORE_URI,
        doc="Ottla's own: the object store and the prefix of this cluster's objects there, such as "
        "s3://bucket/prefix, gs://…, az://… or file:///directory. The cluster's id is part of each "
        "key.",
    )
    access_key_id: str = setting(
        "",
        key="remote.log.storage.access.key.id",
        kind=SettingKind.PASSWORD,
        doc="Ottla's own: access key of the object store (S3), or account name (Azure). By default "
        "the environment or the machine's role has the credentials.",
    )
    secret_access_key: str = setting(
        "",
        key="remote.log.storage.secret.access.key",
        kind=SettingKind.PASSWORD,
        doc="Ottla's own: secret key of the object store (S3), account key (Azure), or JSON of a "
        "service account's key (Google Cloud Storage).",
    )
    endpoint: str = setting(
        "",
        key="remote.log.storage.endpoint",
        doc="Ottla's own: URL of the object store's server, such as https://minio.example:9000; by "
        "default the provider's own.",
    )
    region: str = setting(
        "",
        key="remote.log.storage.region",
        doc="Ottla's own: region of the bucket (S3).",
    )
    ca_file: str = setting(
        "",
        key="remote.log.storage.ca.file",
        doc="Ottla's own: PEM file with certificates to trust beside those of the system.",
    )
    local_free_bytes_min: int = setting(
        0,
        key=LOCAL_FREE_BYTES,
        kind=SettingKind.LONG,
        at_least=0,
        doc="Ottla's own: free bytes of a log directory's volume below which the local copies of "
        "segments that the object store has are deleted, whatever local.retention.ms and "
        "local.retention.bytes of their topics; 0 disables it.",
    )
    fetch_wait_ms_max: int = setting(
        500,
        key=FETCH_WAIT_MS,
        at_least=1,
        is_dynamic=True,
        doc="Time that a Fetch waits for records from the object store. It is then answered with "
        "what is there, and the read continues for the next Fetch.",
    )
    list_offsets_timeout_ms: int = setting(
        30_000,
        key=LIST_OFFSETS_TIMEOUT_MS,
        kind=SettingKind.LONG,
        at_least=1,
        is_dynamic=True,
        doc="Time that a look-up of an offset by timestamp in the object store may take, if the "
        "request has no timeout.",
    )
    index_cache_bytes_max: int = setting(
        GIB,
        key=INDEX_CACHE_BYTES,
        kind=SettingKind.LONG,
        at_least=1,
        is_dynamic=True,
        doc="Size of the cache of copied segments' indexes on disk.",
    )
    reader_count: int = setting(
        10,
        key=READERS,
        at_least=1,
        is_dynamic=True,
        doc="Number of copied segments from which this broker reads at the same time.",
    )
    task_interval_ms: int = setting(
        30_000,
        key="remote.log.manager.task.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval at which segments are copied, and copies deleted by retention.",
    )
    task_retry_backoff_ms_max: int = setting(
        30_000,
        key="remote.log.manager.task.retry.backoff.max.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Longest pause between attempts after the object store has failed.",
    )
    copy_timeout_ms: int = setting(
        30 * 60 * 1000,
        key="remote.log.manager.copy.timeout.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Ottla's own: time that the upload of one segment may take before it is cancelled and "
        "repeated. With less, a large segment is never copied over a slow line; with more, an "
        "upload that hangs stops the copies of its partition for longer.",
    )
    copier_count: int = setting(
        10,
        key=COPIERS,
        at_least=1,
        is_dynamic=True,
        doc="Number of segments that this broker copies at the same time.",
    )
    fetches_last_tiered: bool = setting(
        False,
        key=FETCHES_LAST_TIERED,
        is_dynamic=True,
        doc="Whether a new replica of a tiered partition begins after the last copied offset in "
        "place of the leader's local log start (KIP-1023).",
    )
    group_offsets_interval_ms: int = setting(
        300_000,
        key="remote.log.group.offsets.interval.ms",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Ottla's own: interval at which the offsets that groups have committed in tiered "
        "topics are written to the object store if they have changed, for 'ottla tier restore'; 0 "
        "disables it.",
    )
    metadata_partition_count: int = setting(
        50,
        key=f"{METADATA_PREFIX}remote.log.metadata.topic.num.partitions",
        at_least=1,
        doc="Number of partitions of __remote_log_metadata when it is created. Never change it.",
    )
    metadata_replication_factor: int = setting(
        3,
        key=f"{METADATA_PREFIX}remote.log.metadata.topic.replication.factor",
        kind=SettingKind.SHORT,
        at_least=1,
        doc="Replication factor of __remote_log_metadata when it is created.",
    )
    metadata_min_isr: int = setting(
        2,
        key=f"{METADATA_PREFIX}remote.log.metadata.topic.min.isr",
        kind=SettingKind.SHORT,
        at_least=1,
        doc="min.insync.replicas of __remote_log_metadata when it is created (KIP-1235).",
    )

    def __post_init__(self) -> None:
        if self.local_free_bytes_min and not self.is_enabled:
            raise ConfigError(
                LOCAL_FREE_BYTES, f"needs tiered storage; set {SYSTEM_ENABLE} and {STORE_URI}"
            )
        if self.is_enabled and not self.store_uri:
            raise ConfigError(
                STORE_URI, f"is not set, and {SYSTEM_ENABLE} is true; name the object store"
            )
