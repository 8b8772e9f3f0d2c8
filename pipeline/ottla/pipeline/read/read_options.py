"""Options for reading topics, the same for every Spark task of a query.

Pure, frozen and picklable: the options are sent from the driver to the executors with the reader.
"""

from dataclasses import dataclass

from ottla.model.limits import MIB
from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.declare import load
from ottla.storage.tier.store_settings import StoreSettings

POLL_TIMEOUT_MS = 120_000
"""Default of `poll_timeout_ms` in ms, equal to Spark's network timeout. With a shorter timeout, a
restart of a broker can fail the task."""
REPLAY_LOOKBACK_COUNT = 10_000
FETCH_BYTES_KEY = "max.partition.fetch.bytes"
FETCH_BYTES = 4 * MIB
"""Default maximum size in bytes of one fetch response, which is also the size of one Arrow batch.
Decoding a response has a fixed cost of about 0.4 ms. With the client's default of 1 MiB, this was a
fifth of the CPU time of reading 1 kB records. With 8 MiB, the rows no longer fit into the
processor's cache."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options for reading topics. The field names are Ottla's; the names that users write are in
    `source_options`."""

    bootstrap: str
    """Bootstrap addresses in the form of `kafka.bootstrap.servers`: host:port, separated by
    commas."""
    include_headers: bool = False
    """True if the column `headers` is present (`includeHeaders`)."""
    isolation_level: str = "read_uncommitted"
    """Option `kafka.isolation.level`. With read_committed, records of aborted transactions are
    skipped."""
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    """Time in ms for which temporary failures are retried, such as a change of leader or a restart
    of a broker (`kafkaConsumer.pollTimeoutMs`)."""
    fetch_retries: int = 3
    """Number of times that the driver retries a request for offsets (`fetchOffset.numRetries`)."""
    fetch_retry_interval_ms: int = 10
    """Delay in ms between two retries of a request for offsets (`fetchOffset.retryIntervalMs`)."""
    fail_on_data_loss: bool = True
    """True if lost records fail the query.  Otherwise the query continues after them
    (`failOnDataLoss`)."""
    columns: tuple[str, ...] | None = None
    """Columns to read, in the order of the schema. None means all columns."""
    drop_replays: bool = False
    """True if copies of records that a repeated Spark task has written again are skipped
    (`dropReplays`)."""
    replay_lookback_count: int = REPLAY_LOOKBACK_COUNT
    """Number of records before an offset range that are read to detect records that were written
    repeatedly."""
    tier: StoreSettings | None = None
    """Object store from which copied segments are read (`tier` is `direct`), or None if all records
    are read from brokers."""
    client: tuple[tuple[str, str], ...] = ()
    """The `kafka.*` options as (key, value), without the prefix, sorted by key."""

    def consumer_config(self) -> ConsumerConfig:
        """Return the settings of Ottla's consumer for these options. Raises ConfigError for an
        invalid value."""
        settings = {FETCH_BYTES_KEY: str(FETCH_BYTES), **dict(self.client)}
        config, _unknown = load(ConsumerConfig, settings)
        return config
