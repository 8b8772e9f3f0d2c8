"""What a task must know to read its ranges: the same for every task of a query.

Pure, frozen and picklable: it travels from the driver to the executors with the reader.
"""

from dataclasses import dataclass

from ottla.model.settings.client import ConsumerConfig
from ottla.model.settings.declare import load

POLL_TIMEOUT_MS = 120_000
"""Spark's network timeout: shorter, and a broker that restarts fails the task."""
REPLAY_LOOKBACK_COUNT = 10_000


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How ranges are read.  Field names are ours; the user's names stand in `source_options`."""

    bootstrap: str
    """Addresses as `kafka.bootstrap.servers` gives them: host:port, separated by commas."""
    include_headers: bool = False
    """Whether the column `headers` is there at all (`includeHeaders`)."""
    isolation_level: str = "read_uncommitted"
    """`kafka.isolation.level`: with read_committed no record of an aborted transaction is read."""
    poll_timeout_ms: int = POLL_TIMEOUT_MS
    """How long troubles that pass (a leader moves, a broker restarts) are sat out
    (`kafkaConsumer.pollTimeoutMs`)."""
    fetch_retries: int = 3
    """How often the driver asks for offsets again (`fetchOffset.numRetries`)."""
    fetch_retry_interval_ms: int = 10
    """How long it waits between two such questions (`fetchOffset.retryIntervalMs`)."""
    fail_on_data_loss: bool = True
    """Whether records that are gone fail the query; if not, it goes on behind them."""
    columns: tuple[str, ...] | None = None
    """The columns to ship, in the order of the schema; None for all of them."""
    drop_replays: bool = False
    """Whether records that a repeated Spark task wrote again are left out (`dropReplays`)."""
    replay_lookback_count: int = REPLAY_LOOKBACK_COUNT
    """How many records before a range are read to learn what was written before it."""
    client: tuple[tuple[str, str], ...] = ()
    """What `kafka.*` options say, without the prefix, sorted by key."""

    def consumer_config(self) -> ConsumerConfig:
        """Return the settings of our client; ConfigError where a value is not allowed."""
        config, _unknown = load(ConsumerConfig, dict(self.client))
        return config
