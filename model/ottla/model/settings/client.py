"""Settings of clients: batches and retries of a producer, fetches of a consumer, timeouts of an
admin client."""

from ottla.model.errors import ConfigError
from ottla.model.limits import INT32_MAX, KIB, MIB
from ottla.model.settings.declare import SettingKind, check_fields, setting
from ottla.model.settings.field_names import suggests_fields
from ottla.model.settings.metadata_recovery import RecoveringClient
from ottla.model.settings.offset_reset import offset_reset_text
from ottla.model.values import frozen

IDEMPOTENT_IN_FLIGHT_MAX = 5
"""Maximum number of requests that an idempotent producer may have in flight. A broker stores the
last five batches of each producer. With more in flight, it could mistake a retried batch for a new
batch."""

ON_MISSING = "ottla.on.missing"
"""Key of the setting that selects a client's action if a topic does not exist. Kafka's clients have
no such setting."""


@suggests_fields
@frozen(kw_only=True)
class ProducerConfig(RecoveringClient):
    """Settings of a producer: batching, retries, timeouts."""

    acks: str | int = setting(
        "all",
        key="acks",
        one_of=("all", "-1", "0", "1"),
        doc="Replicas that must have a record before it is acknowledged: all in-sync replicas "
        "(all or -1), only the leader (1), or none (0). The numbers may be ints; they are stored "
        "as texts.",
    )
    enable_idempotence: bool = setting(
        True,
        key="enable.idempotence",
        doc="Whether batches are numbered, so that a batch that is sent twice is written once, and "
        "in order.",
    )
    compression_type: str = setting(
        "none",
        key="compression.type",
        one_of=("none", "gzip", "snappy", "lz4", "zstd"),
        doc="Compression of batches.",
    )
    batch_bytes: int = setting(
        64 * KIB,
        key="batch.size",
        at_least=1,
        doc="Size, before compression, at which a batch is sent at once. Smaller costs more "
        "requests; larger costs memory per partition.",
    )
    linger_ms: int = setting(
        5,
        key="linger.ms",
        at_least=0,
        doc="Time for which a batch that is not full waits for more records.",
    )
    buffer_bytes_max: int = setting(
        32 * MIB,
        key="buffer.memory",
        at_least=1,
        doc="Memory for records that are waiting or in flight. If it is used up, send waits.",
    )
    request_bytes_max: int = setting(
        MIB,
        key="max.request.size",
        at_least=1,
        doc="Size of the largest request, and therefore of the largest record.",
    )
    in_flight_count_max: int = setting(
        5,
        key="max.in.flight.requests.per.connection",
        at_least=1,
        doc="Maximum number of requests without a response on one connection.",
    )
    delivery_timeout_ms: int = setting(
        120_000,
        key="delivery.timeout.ms",
        at_least=1,
        doc="Time after send at which a record that is not acknowledged has failed, including "
        "waits and retries.",
    )
    request_timeout_ms: int = setting(
        30_000,
        key="request.timeout.ms",
        at_least=1,
        doc="Time without a response after which the connection of a request counts as lost.",
    )
    retries: int = setting(
        INT32_MAX,
        key="retries",
        at_least=0,
        doc="Maximum number of retries of a batch; delivery.timeout.ms is usually the effective "
        "bound.",
    )
    retry_backoff_ms: int = setting(
        100, key="retry.backoff.ms", at_least=0, doc="Delay before the first retry."
    )
    retry_backoff_ms_max: int = setting(
        1_000,
        key="retry.backoff.max.ms",
        at_least=0,
        doc="Maximum delay before a retry; the delay doubles with each retry.",
    )
    block_ms_max: int = setting(
        60_000,
        key="max.block.ms",
        at_least=0,
        doc="Maximum time that send waits for memory or for a topic's metadata.",
    )
    metadata_age_ms_max: int = setting(
        300_000,
        key="metadata.max.age.ms",
        at_least=1,
        doc="Age at which topic metadata is refreshed even if there was no error.",
    )
    partitioner: str = setting(
        "murmur2_random",
        key="partitioner",
        one_of=("murmur2_random", "consistent_random"),
        doc="Hash function of keys: that of the Java client, or (CRC32) that of librdkafka.",
    )
    client_id: str = setting(
        "ottla", key="client.id", doc="Name of this client in requests to brokers."
    )
    enable_metrics_push: bool = setting(
        True,
        key="enable.metrics.push",
        doc="Whether the client's own metrics are pushed to the cluster, if it requests them "
        "(KIP-714).",
    )
    transactional_id: str | None = setting(
        None,
        key="transactional.id",
        doc="Name of a transactional producer. A producer that starts with it fences all earlier "
        "ones and aborts their open transactions.",
    )
    transaction_timeout_ms: int = setting(
        60_000,
        key="transaction.timeout.ms",
        at_least=1,
        doc="Time after which the coordinator aborts an open transaction.",
    )
    on_missing: str = setting(
        "warn",
        key=ON_MISSING,
        one_of=("wait", "warn", "raise"),
        doc="Action if a record is sent to a topic that does not exist and is not created "
        "automatically: wait for max.block.ms without a message, log one WARNING per topic and "
        "wait, or raise UNKNOWN_TOPIC_OR_PARTITION after a second.",
    )

    def __post_init__(self) -> None:
        if type(self.acks) is int:
            object.__setattr__(self, "acks", str(self.acks))
        check_fields(self)
        if self.transactional_id is not None and not self.enable_idempotence:
            raise ConfigError("enable.idempotence", "is false; transactional.id needs true")
        if self.transactional_id == "":
            raise ConfigError("transactional.id", "is empty")
        if self.enable_idempotence and self.acks not in ("all", "-1"):
            raise ConfigError(
                "acks", f"is {self.acks}; enable.idempotence needs all, or set it to false"
            )
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


@suggests_fields
@frozen(kw_only=True)
class ConsumerConfig(RecoveringClient):
    """Settings of a consumer: fetches, start offsets, membership in a group."""

    auto_offset_reset: str = setting(
        "latest",
        key="auto.offset.reset",
        parse=offset_reset_text,
        doc="Offset at which to start if there is no committed offset, or if it is no longer in "
        "the log. With none that is an error; by_duration:PT1H starts at the records of the last "
        "hour (an ISO-8601 duration; KIP-1106).",
    )
    isolation_level: str = setting(
        "read_uncommitted",
        key="isolation.level",
        one_of=("read_uncommitted", "read_committed"),
        doc="Whether records of transactions are returned before the transactions are committed.",
    )
    client_rack: str = setting(
        "",
        key="client.rack",
        doc="Rack of this consumer. Brokers with replica.selector.class then name a replica in the "
        "same rack, from which the consumer fetches (KIP-392), and the client's assignors prefer "
        "partitions with a replica there (KIP-881).",
    )
    check_crcs: bool = setting(
        True, key="check.crcs", doc="Whether the checksum of every batch is verified."
    )
    fetch_bytes_min: int = setting(
        1,
        key="fetch.min.bytes",
        at_least=0,
        doc="Minimum number of bytes for which a broker responds to a fetch before "
        "fetch.max.wait.ms.",
    )
    fetch_wait_ms_max: int = setting(
        500,
        key="fetch.max.wait.ms",
        at_least=0,
        doc="Maximum time that a broker delays the response to a fetch.",
    )
    fetch_bytes_max: int = setting(
        50 * MIB,
        key="fetch.max.bytes",
        at_least=0,
        doc="Size of the largest fetch response of one broker.",
    )
    partition_bytes_max: int = setting(
        MIB,
        key="max.partition.fetch.bytes",
        at_least=0,
        doc="Maximum number of bytes of one partition in a fetch response; records that are not "
        "returned at once are kept.",
    )
    poll_records_max: int = setting(
        500,
        key="max.poll.records",
        at_least=1,
        doc="Maximum number of records that one poll returns.",
    )
    request_timeout_ms: int = setting(
        30_000,
        key="request.timeout.ms",
        at_least=1,
        doc="Time without a response after which the connection of a request counts as lost.",
    )
    default_api_timeout_ms: int = setting(
        60_000,
        key="default.api.timeout.ms",
        at_least=1,
        doc="Time for which a call to the cluster is retried before it fails.",
    )
    retry_backoff_ms: int = setting(
        100, key="retry.backoff.ms", at_least=0, doc="Delay before a failed request is retried."
    )
    metadata_age_ms_max: int = setting(
        300_000,
        key="metadata.max.age.ms",
        at_least=1,
        doc="Age at which topic metadata is refreshed even if there was no error.",
    )
    group_id: str | None = setting(
        None,
        key="group.id",
        kind=SettingKind.STRING,
        doc="Id of the group that shares the topics' partitions.",
    )
    group_instance_id: str | None = setting(
        None,
        key="group.instance.id",
        kind=SettingKind.STRING,
        doc="Name that is kept across restarts: such a member keeps its partitions while it "
        "restarts.",
    )
    group_protocol: str = setting(
        "classic",
        key="group.protocol",
        one_of=("classic", "consumer"),
        doc="Protocol of the group: partitions are assigned by a member (classic), or by the "
        "coordinator (consumer, KIP-848), in which case no consumer stops for a rebalance.",
    )
    group_remote_assignor: str | None = setting(
        None,
        key="group.remote.assignor",
        kind=SettingKind.STRING,
        doc="Assignor of the coordinator under group.protocol=consumer; by default the "
        "coordinator's choice.",
    )
    partition_assignment_strategy: tuple[str, ...] = setting(
        ("range", "cooperative-sticky"),
        key="partition.assignment.strategy",
        kind=SettingKind.LIST,
        one_of=("range", "roundrobin", "sticky", "cooperative-sticky"),
        doc="Assignors of a classic group, in order of preference; the members agree on one. With "
        "cooperative-sticky alone, members continue to read during a rebalance.",
    )
    session_timeout_ms: int = setting(
        45_000,
        key="session.timeout.ms",
        at_least=1,
        doc="Time without a heartbeat after which a member of a classic group is removed; under "
        "group.protocol=consumer the coordinator decides.",
    )
    heartbeat_interval_ms: int = setting(
        3_000,
        key="heartbeat.interval.ms",
        at_least=1,
        doc="Interval between heartbeats of a member of a classic group; at most a third of "
        "session.timeout.ms.",
    )
    poll_interval_ms_max: int = setting(
        300_000,
        key="max.poll.interval.ms",
        at_least=1,
        doc="Maximum time between two polls before the member leaves the group.",
    )
    enable_auto_commit: bool = setting(
        True,
        key="enable.auto.commit",
        doc="Whether each poll commits the offsets of records that earlier polls returned.",
    )
    auto_commit_interval_ms: int = setting(
        5_000,
        key="auto.commit.interval.ms",
        at_least=0,
        doc="Minimum interval between these commits.",
    )
    client_id: str = setting(
        "ottla", key="client.id", doc="Name of this client in requests to brokers."
    )
    enable_metrics_push: bool = setting(
        True,
        key="enable.metrics.push",
        doc="Whether the client's own metrics are pushed to the cluster, if it requests them "
        "(KIP-714).",
    )
    on_missing: str = setting(
        "warn",
        key=ON_MISSING,
        one_of=("wait", "warn", "raise"),
        doc="Action if an assigned or subscribed topic does not exist, or no topic matches a "
        "pattern: wait without a message, log one WARNING per topic and wait, or raise "
        "UNKNOWN_TOPIC_OR_PARTITION from poll.",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                "heartbeat.interval.ms",
                f"is {self.heartbeat_interval_ms}; it must be below session.timeout.ms, "
                f"{self.session_timeout_ms}",
            )


@suggests_fields
@frozen(kw_only=True)
class AdminConfig(RecoveringClient):
    """Settings of an admin client: timeouts and login."""

    default_api_timeout_ms: int = setting(
        30_000,
        key="default.api.timeout.ms",
        at_least=1,
        doc="How long a call is retried before it fails.",
    )
    client_id: str = setting("ottla", key="client.id", doc="The name of this client for brokers.")
    enable_metrics_push: bool = setting(
        False,
        key="enable.metrics.push",
        doc="Report the client's own metrics to the cluster, if that collects them (KIP-714).",
    )

    def __post_init__(self) -> None:
        check_fields(self)
