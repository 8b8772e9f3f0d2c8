"""Settings of the clients: how a producer gathers and repeats, how a consumer reads."""

from ottla.model.errors import ConfigError
from ottla.model.limits import INT32_MAX, KIB, MIB
from ottla.model.settings.client_security import ClientSecurity
from ottla.model.settings.declare import SettingKind, check_fields, setting
from ottla.model.settings.offset_reset import offset_reset_text
from ottla.model.values import frozen

IDEMPOTENT_IN_FLIGHT_MAX = 5
"""A broker remembers the last five batches of a producer: with more in flight a repeated one
could be taken for a new one."""


@frozen(kw_only=True)
class ProducerConfig(ClientSecurity):
    """How a producer gathers records into batches, and how long it tries to deliver them."""

    acks: str = setting(
        "all",
        key="acks",
        one_of=("all", "-1", "0", "1"),
        doc="Who must have a record before it counts: every in-sync replica, the leader alone, "
        "or nobody.",
    )
    enable_idempotence: bool = setting(
        True,
        key="enable.idempotence",
        doc="Number the batches, so that one which is sent twice is written once, in order.",
    )
    compression_type: str = setting(
        "none",
        key="compression.type",
        one_of=("none", "gzip", "snappy", "lz4", "zstd"),
        doc="How whole batches are compressed.",
    )
    batch_bytes: int = setting(
        64 * KIB,
        key="batch.size",
        at_least=1,
        doc="The size, before compression, at which a batch leaves at once. Smaller costs "
        "requests, larger costs memory for each partition.",
    )
    linger_ms: int = setting(
        5,
        key="linger.ms",
        at_least=0,
        doc="How long a batch that is not full waits for more records.",
    )
    buffer_bytes_max: int = setting(
        32 * MIB,
        key="buffer.memory",
        at_least=1,
        doc="Records that wait or are in flight may take so much memory; beyond it send waits.",
    )
    request_bytes_max: int = setting(
        MIB,
        key="max.request.size",
        at_least=1,
        doc="The largest request, and so the largest record.",
    )
    in_flight_count_max: int = setting(
        5,
        key="max.in.flight.requests.per.connection",
        at_least=1,
        doc="Requests that may wait for their answer on one connection.",
    )
    delivery_timeout_ms: int = setting(
        120_000,
        key="delivery.timeout.ms",
        at_least=1,
        doc="How long after send a record may wait, travel and be repeated before it has failed.",
    )
    request_timeout_ms: int = setting(
        30_000,
        key="request.timeout.ms",
        at_least=1,
        doc="How long one request may go unanswered before its connection counts as lost.",
    )
    retries: int = setting(
        INT32_MAX,
        key="retries",
        at_least=0,
        doc="How often a batch is sent again; delivery.timeout.ms is the bound to think in.",
    )
    retry_backoff_ms: int = setting(
        100, key="retry.backoff.ms", at_least=0, doc="The wait before the first repetition."
    )
    retry_backoff_ms_max: int = setting(
        1_000,
        key="retry.backoff.max.ms",
        at_least=0,
        doc="The wait doubles up to this with every repetition.",
    )
    block_ms_max: int = setting(
        60_000,
        key="max.block.ms",
        at_least=0,
        doc="How long send waits for memory or for what is known of a topic.",
    )
    metadata_age_ms_max: int = setting(
        300_000,
        key="metadata.max.age.ms",
        at_least=1,
        doc="After this long what is known of topics is asked again, though nothing went wrong.",
    )
    partitioner: str = setting(
        "murmur2_random",
        key="partitioner",
        one_of=("murmur2_random", "consistent_random"),
        doc="How keys are hashed: as the Java client does, or (CRC32) as librdkafka does.",
    )
    client_id: str = setting("ottla", key="client.id", doc="What brokers call this client.")
    enable_metrics_push: bool = setting(
        True,
        key="enable.metrics.push",
        doc="Report the client's own metrics to the cluster, if that asks for them (KIP-714).",
    )
    transactional_id: str | None = setting(
        None,
        key="transactional.id",
        doc="The name of a producer of transactions. A producer that starts under it fences all "
        "earlier ones and ends what they left open.",
    )
    transaction_timeout_ms: int = setting(
        60_000,
        key="transaction.timeout.ms",
        at_least=1,
        doc="How long a transaction may stay open before its coordinator aborts it.",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ConfigError("enable.idempotence", "is false; transactional.id needs true")
        if self.transactional_id == "":
            raise ConfigError("transactional.id", "is empty")
        if self.enable_idempotence and self.acks not in ("all", "-1"):
            raise ConfigError("acks", f"is {self.acks}; enable.idempotence needs all")
        if self.enable_idempotence and self.in_flight_count_max > IDEMPOTENT_IN_FLIGHT_MAX:
            raise ConfigError(
                "max.in.flight.requests.per.connection",
                f"is {self.in_flight_count_max}; enable.idempotence allows at most "
                f"{IDEMPOTENT_IN_FLIGHT_MAX}",
            )
        if self.enable_idempotence and not self.retries:
            raise ConfigError("retries", "is 0; enable.idempotence needs at least 1")
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise ConfigError(
                "delivery.timeout.ms",
                f"is {self.delivery_timeout_ms}; it must be at least linger.ms + "
                f"request.timeout.ms, {self.linger_ms + self.request_timeout_ms}",
            )


@frozen(kw_only=True)
class ConsumerConfig(ClientSecurity):
    """How a consumer reads, where it begins, and how it belongs to a group."""

    auto_offset_reset: str = setting(
        "latest",
        key="auto.offset.reset",
        parse=offset_reset_text,
        doc="Where to read on when there is no position, or it is not in the log any more; none "
        "makes that an error, by_duration:PT1H starts at the records of the last hour (an ISO-8601 "
        "duration; KIP-1106).",
    )
    isolation_level: str = setting(
        "read_uncommitted",
        key="isolation.level",
        one_of=("read_uncommitted", "read_committed"),
        doc="Whether records of transactions are read before these are committed.",
    )
    check_crcs: bool = setting(
        True, key="check.crcs", doc="Compare every batch with its checksum before it is read."
    )
    fetch_bytes_min: int = setting(
        1,
        key="fetch.min.bytes",
        at_least=0,
        doc="An answer waits until there is so much to say, or until fetch.max.wait.ms.",
    )
    fetch_wait_ms_max: int = setting(
        500, key="fetch.max.wait.ms", at_least=0, doc="How long a broker parks a fetch."
    )
    fetch_bytes_max: int = setting(
        50 * MIB, key="fetch.max.bytes", at_least=0, doc="The largest answer of one broker."
    )
    partition_bytes_max: int = setting(
        MIB,
        key="max.partition.fetch.bytes",
        at_least=0,
        doc="The most one answer holds of one partition; what of it is not read yet is kept.",
    )
    poll_records_max: int = setting(
        500, key="max.poll.records", at_least=1, doc="The most records one poll returns."
    )
    request_timeout_ms: int = setting(
        30_000,
        key="request.timeout.ms",
        at_least=1,
        doc="How long one request may go unanswered before its connection counts as lost.",
    )
    default_api_timeout_ms: int = setting(
        60_000,
        key="default.api.timeout.ms",
        at_least=1,
        doc="How long a call that asks the cluster something repeats itself before it fails.",
    )
    retry_backoff_ms: int = setting(
        100, key="retry.backoff.ms", at_least=0, doc="The wait before a failed request is repeated."
    )
    metadata_age_ms_max: int = setting(
        300_000,
        key="metadata.max.age.ms",
        at_least=1,
        doc="After this long what is known of topics is asked again, though nothing went wrong.",
    )
    group_id: str | None = setting(
        None,
        key="group.id",
        kind=SettingKind.STRING,
        doc="The group that shares the topics' partitions.",
    )
    group_instance_id: str | None = setting(
        None,
        key="group.instance.id",
        kind=SettingKind.STRING,
        doc="A name that survives restarts: such a member keeps its partitions while it restarts.",
    )
    group_protocol: str = setting(
        "classic",
        key="group.protocol",
        one_of=("classic", "consumer"),
        doc="Who shares out the partitions: a member (classic), or the coordinator (consumer, "
        "KIP-848), where a rebalance stops nobody.",
    )
    group_remote_assignor: str | None = setting(
        None,
        key="group.remote.assignor",
        kind=SettingKind.STRING,
        doc="How the coordinator shares partitions under group.protocol=consumer; its own choice "
        "where none is given.",
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        ("range", "cooperative-sticky"),
        key="partition.assignment.strategy",
        kind=SettingKind.LIST,
        one_of=("range", "roundrobin", "sticky", "cooperative-sticky"),
        doc="How a classic group may share partitions, best first; the members agree on one. With "
        "cooperative-sticky alone they read on while the group rebalances.",
    )
    session_timeout_ms: int = setting(
        45_000,
        key="session.timeout.ms",
        at_least=1,
        doc="A member of a classic group that is silent for so long is out of it; under "
        "group.protocol=consumer the coordinator decides.",
    )
    heartbeat_interval_ms: int = setting(
        3_000,
        key="heartbeat.interval.ms",
        at_least=1,
        doc="How often a member of a classic group says that it is there; a third of "
        "session.timeout.ms or less.",
    )
    poll_interval_ms_max: int = setting(
        300_000,
        key="max.poll.interval.ms",
        at_least=1,
        doc="A member that does not poll for so long leaves the group.",
    )
    enable_auto_commit: bool = setting(
        True,
        key="enable.auto.commit",
        doc="Commit, from poll to poll, what earlier polls returned.",
    )
    auto_commit_interval_ms: int = setting(
        5_000, key="auto.commit.interval.ms", at_least=0, doc="How often that is done."
    )
    client_id: str = setting("ottla", key="client.id", doc="What brokers call this client.")
    enable_metrics_push: bool = setting(
        True,
        key="enable.metrics.push",
        doc="Report the client's own metrics to the cluster, if that asks for them (KIP-714).",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                "heartbeat.interval.ms",
                f"is {self.heartbeat_interval_ms}; it must be below session.timeout.ms, "
                f"{self.session_timeout_ms}",
            )
