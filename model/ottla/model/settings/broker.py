"""All settings of one broker process, and the function that loads them from a settings file."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from posixpath import normpath
from typing import Any

from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.limits import INT64_MAX, MIB
from ottla.model.settings.balance import check_not_in_file
from ottla.model.settings.connections import ConnectionConfig, listener_texts
from ottla.model.settings.declare import SettingKind, definitions, setting, values_of
from ottla.model.settings.endpoints import (
    CONTROLLER_LISTENER,
    ConfiguredVoter,
    ListenAddress,
    controllers_of,
    parse_bootstrap,
    parse_listeners,
    parse_voters,
)
from ottla.model.settings.groups import GroupConfig, group_config_of
from ottla.model.settings.kafka_keys import check_idle, check_promises
from ottla.model.settings.logs import LogOutputConfig
from ottla.model.settings.quorum import QuorumConfig
from ottla.model.settings.quotas import QuotaConfig
from ottla.model.settings.roles import PROCESS_ROLES, broker_texts, has_both_roles
from ottla.model.settings.security.authorizer import AuthorizerConfig, authorizer_values
from ottla.model.settings.security.delegation_tokens import DelegationTokenConfig, check_tokens
from ottla.model.settings.security.node_tls import dialled_listener, node_tls_of
from ottla.model.settings.security.sasl import (
    FAILURE_DELAY_MS,
    NO_SASL,
    SaslConfig,
    is_sasl_key,
    sasl_of,
)
from ottla.model.settings.security.security_keys import (
    INTER_BROKER_PROTOCOL,
    SECURITY_KEYS,
    check_security,
    node_listeners,
    with_protocols,
)
from ottla.model.settings.security.tls import TlsConfig, check_server, is_tls_key, tls_of
from ottla.model.settings.share_state import ShareStateConfig
from ottla.model.settings.storage.cleaner import CleanerConfig
from ottla.model.settings.storage.cordoned import CORDONED_LOG_DIRS, check_cordoned, parse_cordoned
from ottla.model.settings.storage.disks import DiskConfig
from ottla.model.settings.storage.tier import TierConfig
from ottla.model.settings.storage.topic import BROKER_TO_TOPIC, topic_defaults_of
from ottla.model.settings.telemetry.client_telemetry import TelemetryConfig
from ottla.model.settings.telemetry.exporters import PLUGIN_PREFIX, ExporterConfig
from ottla.model.settings.telemetry.metrics import MetricsConfig
from ottla.model.settings.transactions import TransactionConfig
from ottla.model.values import frozen

EVERY_INTERFACE = ("0.0.0.0", "::")
"""Wildcard addresses. A broker can listen on them, but no client can connect to them."""


FAILURE_DOMAIN_HOST = "ottla.failure.domain.host"
BROKERS_PER_HOST = "ottla.brokers.per.host"
RACK_AWARE_SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
REPLICA_SELECTORS = ("", RACK_AWARE_SELECTOR, "org.apache.kafka.common.replica.LeaderSelector")
QUEUED_MAX_REQUEST_BYTES = "queued.max.request.bytes"
ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("socket.request.max.bytes", QUEUED_MAX_REQUEST_BYTES),
)
"""Pairs of field names. In each pair, the value of the second field must not be below that of the
first."""


@frozen(kw_only=True)
class BrokerConfig:
    """All settings of one broker process, grouped by the broker's components."""

    node_id: NodeId = setting(
        NodeId(-1),
        key="node.id",
        kind=SettingKind.INT,
        at_least=0,
        is_null_by_default=True,
        doc="Id of this broker, unique among brokers and controllers.",
    )
    log_dirs: tuple[str, ...] = setting(
        ("/tmp/ottla-logs",),
        key="log.dirs",
        is_blank_allowed=False,
        doc="Directories that contain the partitions, one per disk.",
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        (),
        key=CORDONED_LOG_DIRS,
        parse=parse_cordoned,
        is_dynamic=True,
        doc="Directories of log.dirs that get no new replica, or * for all of them. Replicas that "
        "are there already remain online.",
    )
    metadata_log_dir: str | None = setting(
        None,
        key="metadata.log.dir",
        kind=SettingKind.STRING,
        doc="Directory of the metadata log; by default the first of log.dirs.",
    )
    listeners: tuple[ListenAddress, ...] = setting(
        (ListenAddress("PLAINTEXT", "", 9092),),
        key="listeners",
        parse=parse_listeners,
        text="PLAINTEXT://:9092",
        doc="Addresses on which this broker listens for Kafka clients.",
    )
    advertised_listeners: tuple[ListenAddress, ...] = setting(
        (),
        key="advertised.listeners",
        parse=parse_listeners,
        is_null_by_default=True,
        doc="Addresses that are returned to clients; by default the address that each client used.",
    )
    controller_quorum_voters: tuple[ConfiguredVoter, ...] = setting(
        (),
        key="controller.quorum.voters",
        parse=parse_voters,
        text="",
        doc="The controllers, as id@host:port each.",
    )
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...] = setting(
        (),
        key="controller.quorum.bootstrap.servers",
        parse=parse_bootstrap,
        text="",
        doc="Controllers from which to discover the quorum, as host:port each, in addition to the "
        "voters or in place of them.",
    )
    rack: str | None = setting(
        None,
        key="broker.rack",
        kind=SettingKind.STRING,
        doc="Rack or availability zone of this broker, for replica placement.",
    )
    replica_selector_class: str = setting(
        "",
        key="replica.selector.class",
        one_of=REPLICA_SELECTORS,
        is_null_by_default=True,
        doc="Which replica a consumer with a rack (client.rack) reads from: Kafka's "
        "RackAwareReplicaSelector names a replica in its rack, LeaderSelector or empty the leader "
        "(KIP-392).",
    )
    failure_domain_host: str | None = setting(
        None,
        key=FAILURE_DOMAIN_HOST,
        kind=SettingKind.STRING,
        doc="Ottla's own: machine that this broker shares with other brokers, for replica "
        "placement; by default the machine's own id.",
    )
    brokers_per_host: str | None = setting(
        None,
        key=BROKERS_PER_HOST,
        kind=SettingKind.STRING,
        doc="Ottla's own: number of brokers that `ottla server` runs on this machine, or auto for "
        "one per processor core. node.id is then the number of the host, and broker C has the id "
        "100 × host + C, ports 10 × C above those of the file, and directories of its own.",
    )
    num_partitions: int = setting(
        1,
        key="num.partitions",
        at_least=1,
        doc="Number of partitions of a topic that is created without a given number.",
    )
    default_replication_factor: int = setting(
        1,
        key="default.replication.factor",
        at_least=1,
        doc="Replication factor of a topic that is created without a given one.",
    )
    auto_create_topics_enable: bool = setting(
        True,
        key="auto.create.topics.enable",
        doc="Whether a topic is created when a client first requests its metadata.",
    )
    auto_create_dead_letter_topics_enable: bool = setting(
        False,
        key="errors.deadletterqueue.auto.create.topics.enable",
        is_dynamic=True,
        doc="Whether a missing dead letter topic of a share group is created (KIP-1191).",
    )
    dead_letter_topic_prefix: str = setting(
        "dlq.",
        key="errors.deadletterqueue.topic.name.prefix",
        is_dynamic=True,
        doc="Start of the names of topics that may get dead letters of share groups.",
    )
    socket_request_bytes_max: int = setting(
        100 * MIB,
        key="socket.request.max.bytes",
        at_least=1,
        doc="Size of the largest request. A larger one closes its connection before memory is "
        "allocated.",
    )
    socket_listen_backlog_size: int = setting(
        50,
        key="socket.listen.backlog.size",
        at_least=1,
        doc="Number of connections that the kernel queues before they are accepted.",
    )
    socket_send_buffer_bytes: int = setting(
        -1,
        key="socket.send.buffer.bytes",
        doc="Size of the send buffer of each client's connection; -1 has the kernel adapt it. "
        "Kafka's default is 102400.",
    )
    socket_receive_buffer_bytes: int = setting(
        -1,
        key="socket.receive.buffer.bytes",
        doc="Size of the receive buffer of each client's connection; -1 has the kernel adapt it. "
        "Kafka's default is 102400.",
    )
    queued_max_request_bytes: int = setting(
        -1,
        key=QUEUED_MAX_REQUEST_BYTES,
        kind=SettingKind.LONG,
        doc="Bytes of requests that the process has in memory at once before reading pauses; -1 is "
        "a quarter of a GiB.",
    )
    connections_max_idle_ms: int = setting(
        600_000,
        key="connections.max.idle.ms",
        kind=SettingKind.LONG,
        doc="Time after which an idle connection is closed.",
    )
    fetch_bytes_max: int = setting(
        55 * MIB,
        key="fetch.max.bytes",
        at_least=1_024,
        doc="Maximum number of record bytes in one fetch response, whatever the client requests.",
    )
    fetch_session_count_max: int = setting(
        1_000,
        key="max.incremental.fetch.session.cache.slots",
        at_least=0,
        doc="Maximum number of fetch sessions.",
    )
    heartbeat_interval_ms: int = setting(
        2_000,
        key="broker.heartbeat.interval.ms",
        at_least=1,
        doc="Interval between heartbeats of the broker to the controller.",
    )
    session_timeout_ms: int = setting(
        9_000,
        key="broker.session.timeout.ms",
        at_least=1,
        doc="Time without a heartbeat after which the controller fences the broker.",
    )
    initial_registration_timeout_ms: int = setting(
        60_000,
        key="initial.broker.registration.timeout.ms",
        at_least=1,
        doc="Time for which a starting broker tries to register before it exits.",
    )
    request_timeout_ms: int = setting(
        30_000,
        key="request.timeout.ms",
        at_least=1,
        doc="Timeout of a forwarded request.",
    )
    recovery_threads_per_dir: int = setting(
        2,
        key="num.recovery.threads.per.data.dir",
        at_least=1,
        is_dynamic=True,
        doc="Number of logs recovered at the same time per directory.",
    )
    move_threads: int | None = setting(
        None,
        key="num.replica.alter.log.dirs.threads",
        kind=SettingKind.INT,
        at_least=1,
        doc="Number of logs moved between directories at the same time; by default one per "
        "directory.",
    )
    replica_lag_time_ms_max: int = setting(
        30_000,
        key="replica.lag.time.max.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Time for which a follower may lag before it is removed from the in-sync replicas.",
    )
    replica_fetch_wait_ms_max: int = setting(
        500,
        key="replica.fetch.wait.max.ms",
        at_least=1,
        doc="Maximum time that a leader delays the response to a follower's fetch if there are no "
        "new records.",
    )
    replica_fetch_bytes_min: int = setting(
        1,
        key="replica.fetch.min.bytes",
        at_least=1,
        doc="Minimum number of bytes for which a leader responds to a follower's fetch without "
        "delay.",
    )
    replica_fetch_bytes_max: int = setting(
        1 << 20,
        key="replica.fetch.max.bytes",
        at_least=0,
        doc="Maximum number of bytes that a follower fetches of one partition at a time; a larger "
        "batch is sent whole.",
    )
    replica_fetch_response_bytes_max: int = setting(
        10 << 20,
        key="replica.fetch.response.max.bytes",
        at_least=0,
        doc="Maximum number of bytes that a follower fetches at a time, over all partitions.",
    )
    replica_fetch_backoff_ms: int = setting(
        1_000,
        key="replica.fetch.backoff.ms",
        at_least=0,
        doc="Maximum pause of a follower after an error of a leader or a partition.",
    )
    replica_socket_timeout_ms: int = setting(
        30_000,
        key="replica.socket.timeout.ms",
        at_least=1,
        doc="Timeout of a follower's fetch, in addition to the delay that the fetch requests.",
    )
    inter_broker_listener_name: str | None = setting(
        None,
        key="inter.broker.listener.name",
        kind=SettingKind.STRING,
        doc="Name of the listener that brokers use to connect to each other; by default the first "
        "of listeners.",
    )
    high_watermark_checkpoint_interval_ms: int = setting(
        5_000,
        key="replica.high.watermark.checkpoint.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval between writes of the high watermark checkpoint.",
    )
    retention_check_interval_ms: int = setting(
        300_000,
        key="log.retention.check.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval between checks for segments to be deleted by retention.",
    )
    initial_task_delay_ms: int = setting(
        30_000,
        key="log.initial.task.delay.ms",
        kind=SettingKind.LONG,
        at_least=0,
        doc="Delay after the start of the first retention check, and of the first writes of the "
        "recovery point and log start offset checkpoints; 0 waits for one interval.",
    )
    flush_scheduler_interval_ms: int = setting(
        INT64_MAX,
        key="log.flush.scheduler.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval between checks of logs for flush.ms, and the default of flush.ms if "
        "log.flush.interval.ms is not set. If neither is set, logs are checked every second.",
    )
    recovery_point_checkpoint_interval_ms: int = setting(
        60_000,
        key="log.flush.offset.checkpoint.interval.ms",
        at_least=0,
        doc="Interval between writes of the recovery point checkpoint.",
    )
    log_start_checkpoint_interval_ms: int = setting(
        60_000,
        key="log.flush.start.offset.checkpoint.interval.ms",
        at_least=0,
        doc="Interval between writes of the log start offset checkpoint.",
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        key="producer.id.expiration.ms",
        at_least=1,
        is_dynamic=True,
        doc="Time after which the state of an idle producer is removed.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000,
        key="producer.id.expiration.check.interval.ms",
        at_least=1,
        doc="Interval between checks for idle producers.",
    )
    transaction_partition_verification_enable: bool = setting(
        True,
        key="transaction.partition.verification.enable",
        is_dynamic=True,
        doc="Whether the transaction coordinator verifies a transaction before its first batch is "
        "written to a partition.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        20,
        key="add.partitions.to.txn.retry.backoff.ms",
        at_least=1,
        doc="Delay before a broker retries to add a partition to a transaction while the previous "
        "transaction is being completed.",
    )
    add_partitions_to_txn_retry_backoff_ms_max: int = setting(
        100,
        key="add.partitions.to.txn.retry.backoff.max.ms",
        at_least=0,
        doc="Time for which a broker retries to add a partition to a transaction before it leaves "
        "that to the client.",
    )
    leader_replication_throttled_rate: int = setting(
        INT64_MAX,
        key="leader.replication.throttled.rate",
        kind=SettingKind.LONG,
        at_least=0,
        is_dynamic=True,
        doc="Maximum rate, in bytes per second, at which this broker as a leader sends to replicas "
        "that are in the topics' leader.replication.throttled.replicas and not in sync.",
    )
    follower_replication_throttled_rate: int = setting(
        INT64_MAX,
        key="follower.replication.throttled.rate",
        kind=SettingKind.LONG,
        at_least=0,
        is_dynamic=True,
        doc="Maximum rate, in bytes per second, at which this broker as a follower fetches for "
        "replicas that are in the topics' follower.replication.throttled.replicas and not in sync.",
    )
    log_dirs_move_rate_max: int = setting(
        INT64_MAX,
        key="replica.alter.log.dirs.io.max.bytes.per.second",
        kind=SettingKind.LONG,
        at_least=0,
        is_dynamic=True,
        doc="Maximum rate, in bytes per second, at which logs are copied between directories of "
        "this broker.",
    )
    admin_requests: str = setting(
        "loopback",
        key="ottla.admin.requests",
        one_of=("loopback", "any", "none"),
        doc="Ottla's own: clients that may send Ottla's own state-changing requests, such as "
        "draining this broker, if there is no authorizer: those on its own machine, any, or none.",
    )
    delete_topic_enable: bool = setting(
        True, key="delete.topic.enable", doc="Whether topics can be deleted."
    )
    quorum: QuorumConfig = field(default_factory=QuorumConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    share_state: ShareStateConfig = field(default_factory=ShareStateConfig)
    authorizer: AuthorizerConfig = field(default_factory=AuthorizerConfig)
    """Settings of the authorizer that checks the requests of clients."""
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    connections: ConnectionConfig = field(default_factory=ConnectionConfig)
    sasl: SaslConfig = NO_SASL
    tokens: DelegationTokenConfig = field(default_factory=DelegationTokenConfig)
    """Settings of delegation tokens, with which clients may log in."""
    listener_tls: Mapping[str, TlsConfig] = field(default_factory=dict)
    """TLS settings by listener name, for the listeners that use TLS."""
    dial_tls: TlsConfig | None = None
    """TLS settings of connections to controllers, or None if these are not encrypted."""
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    exporters: ExporterConfig = field(default_factory=ExporterConfig)
    log_output: LogOutputConfig = field(default_factory=LogOutputConfig)
    disks: DiskConfig = field(default_factory=DiskConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    tier: TierConfig = field(default_factory=TierConfig)
    """Settings of tiered storage: the object store, and the copies and reads of segments."""
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Default topic settings that this broker's own file contains, by topic key."""
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values in the settings file as text, by key, for DescribeConfigs."""

    @property
    def is_rack_aware(self) -> bool:
        """True if consumers may fetch from a replica in their own rack (KIP-392)."""
        return self.replica_selector_class == RACK_AWARE_SELECTOR

    @property
    def controllers(self) -> tuple[ConfiguredVoter, ...]:
        """Controllers that this broker asks for the leader of the quorum: the voters and bootstrap
        servers in its settings."""
        return controllers_of(
            self.controller_quorum_voters, self.controller_quorum_bootstrap_servers
        )

    @property
    def controller_listener(self) -> str:
        """Name of the controller listener that this broker connects to."""
        dialled = dialled_listener(self.texts, node_listeners(self.texts, is_broker=True))
        return CONTROLLER_LISTENER if dialled is None else dialled.name

    def __post_init__(self) -> None:
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            raise ConfigError(
                "broker.session.timeout.ms",
                f"is {self.session_timeout_ms}; it must be above "
                f"broker.heartbeat.interval.ms, which is {self.heartbeat_interval_ms}",
            )
        is_named = any(voter.id == self.node_id for voter in self.controller_quorum_voters)
        if is_named and not self.is_controller:
            raise ConfigError(
                "node.id",
                f"is {self.node_id}, which is a controller's in controller.quorum.voters; "
                "give this broker a number of its own, or this process both roles "
                f"({PROCESS_ROLES}=broker,controller)",
            )
        _check_distinct(self.log_dirs)
        check_cordoned(self.cordoned_log_dirs, self.log_dirs)
        for lower, upper in ORDERED:
            known = definitions(BrokerConfig)
            low = getattr(self, known[lower].field_name)
            high = getattr(self, known[upper].field_name)
            if high < low and not (upper == QUEUED_MAX_REQUEST_BYTES and high < 0):
                raise ConfigError(upper, f"is {high}; it must be at least {lower}, which is {low}")
        names = [endpoint.name for endpoint in self.listeners]
        if self.inter_broker_listener not in names:
            raise ConfigError(
                "inter.broker.listener.name",
                f"is {self.inter_broker_listener}; it must be one of listeners: {', '.join(names)}",
            )

    @property
    def is_controller(self) -> bool:
        """True if the process of this broker is also a controller."""
        return has_both_roles(self.texts)

    @property
    def inter_broker_listener(self) -> str:
        """Name of the listener that other brokers connect to."""
        return self.inter_broker_listener_name or self.listeners[0].name

    @property
    def traces_requests(self) -> bool:
        """True if requests are traced: both a sampling rate and a collector are set."""
        return self.metrics.traces_sample_ratio > 0 and bool(self.exporters.otlp_endpoints)

    @property
    def metadata_directory(self) -> str:
        """The directory that contains the metadata log."""
        return self.metadata_log_dir or self.log_dirs[0]


def _check_distinct(log_dirs: Sequence[str]) -> None:
    """Raise ConfigError if two entries of `log.dirs` are spellings of one path, as in Kafka."""
    known: dict[str, str] = {}
    for path in log_dirs:
        other = known.get(normpath(path))
        if other is not None:
            twice = "twice" if other == path else f"and {other}, which is the same directory"
            raise ConfigError("log.dirs", f"names {path} {twice}; name each directory once")
        known[normpath(path)] = path


def load_broker_config(texts: Mapping[str, str]) -> tuple[BrokerConfig, set[str]]:
    """Return the broker's settings from its file's texts by key, and the unknown keys in the file.

    Raises ConfigError for the first invalid or missing setting.
    """
    if has_both_roles(texts):
        texts = broker_texts(texts)
    _check_texts(texts)
    values, unknown = values_of(
        BrokerConfig,
        {"log.dirs": texts.get("log.dir", ""), **texts} if "log.dir" in texts else texts,
    )
    _set_protocols(values, texts)
    quorum, unknown_to_quorum = values_of(QuorumConfig, texts)
    groups, unknown_to_groups = group_config_of(texts)
    transactions, unknown_to_transactions = values_of(TransactionConfig, texts)
    share_state, unknown_to_share_state = values_of(ShareStateConfig, texts)
    authorizer, unknown_to_authorizer = authorizer_values(texts)
    quotas, unknown_to_quotas = values_of(QuotaConfig, texts)
    connections, unknown_to_connections = values_of(ConnectionConfig, texts)
    of_listeners = listener_texts(texts)
    tokens, unknown_to_tokens = values_of(DelegationTokenConfig, texts)
    metrics, unknown_to_metrics = values_of(MetricsConfig, texts)
    exporters, unknown_to_exporters = values_of(ExporterConfig, texts)
    log_output, unknown_to_logs = values_of(LogOutputConfig, texts)
    disks, unknown_to_disks = values_of(DiskConfig, texts)
    telemetry, unknown_to_telemetry = values_of(TelemetryConfig, texts)
    cleaner, unknown_to_cleaner = values_of(CleanerConfig, texts)
    tier, unknown_to_tier = values_of(TierConfig, texts)
    _check_identity(values)
    sasl = _sasl(values, texts)
    config = BrokerConfig(
        **values,
        quorum=QuorumConfig(**quorum),
        groups=groups,
        transactions=TransactionConfig(**transactions),
        share_state=ShareStateConfig(**share_state),
        authorizer=AuthorizerConfig(**authorizer),
        quotas=QuotaConfig(**quotas),
        connections=ConnectionConfig(**connections, texts_by_listener=of_listeners),
        sasl=sasl,
        tokens=DelegationTokenConfig(**tokens),
        listener_tls=_listener_tls(values, texts),
        dial_tls=_dial_tls(texts),
        metrics=MetricsConfig(**metrics),
        exporters=ExporterConfig(**exporters),
        log_output=LogOutputConfig(**log_output),
        disks=DiskConfig(**disks),
        telemetry=TelemetryConfig(**telemetry),
        cleaner=CleanerConfig(**cleaner),
        tier=TierConfig(**tier),
        topic_defaults=topic_defaults_of(texts),
        texts=dict(texts),
    )
    known = {*BROKER_TO_TOPIC, "log.dir", PROCESS_ROLES, *SECURITY_KEYS}
    known |= {key for key in texts if key.startswith(PLUGIN_PREFIX)} | of_listeners.keys()
    known |= {key for key in texts if is_sasl_key(key) or is_tls_key(key)}
    unknown &= unknown_to_quorum & unknown_to_groups & unknown_to_transactions
    unknown &= unknown_to_metrics & unknown_to_quotas & unknown_to_connections
    unknown &= unknown_to_exporters & unknown_to_telemetry & unknown_to_cleaner
    unknown &= unknown_to_logs & unknown_to_authorizer & unknown_to_disks
    unknown &= unknown_to_tokens & unknown_to_share_state & unknown_to_tier
    return config, unknown - known


def _check_identity(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if the id of the broker or its controllers are not set."""
    if "node_id" not in values:
        raise ConfigError("node.id", "is not set; give this broker a number of its own")
    if not values.get("controller_quorum_voters") and not values.get(
        "controller_quorum_bootstrap_servers"
    ):
        raise ConfigError(
            "controller.quorum.voters",
            "is not set; name the controllers as id@host:port, or some of them as host:port in"
            " controller.quorum.bootstrap.servers",
        )


def _check_texts(texts: Mapping[str, str]) -> None:
    """Check the keys that no single field declares. Raises ConfigError for the first invalid
    one."""
    check_security(texts, is_broker=True)
    check_promises(texts)
    check_idle(texts)
    check_not_in_file(texts)
    check_tokens(texts)


def _set_protocols(values: dict[str, Any], texts: Mapping[str, str]) -> None:
    """Set the security protocols of the listeners, and determine the inter-broker listener."""
    for name in ("listeners", "advertised_listeners"):
        if name in values:
            values[name] = with_protocols(texts, values[name])
    names = [one.name for one in values.get("listeners", BrokerConfig().listeners)]
    for endpoint in values.get("advertised_listeners", ()):
        if endpoint.name not in names:
            raise ConfigError(
                "advertised.listeners",
                f"has {endpoint}, and listeners has no {endpoint.name}; name one of "
                f"{', '.join(names)}, or add it there",
            )
        if endpoint.host in EVERY_INTERFACE or not endpoint.host or endpoint.port == 0:
            raise ConfigError(
                "advertised.listeners",
                f"has {endpoint}, which no client can connect to; "
                "name the host and the port by which clients reach this broker",
            )
    protocol = texts.get(INTER_BROKER_PROTOCOL, "").strip().upper()
    if protocol:
        values["inter_broker_listener_name"] = protocol


def _listener_tls(values: Mapping[str, Any], texts: Mapping[str, str]) -> Mapping[str, TlsConfig]:
    """Return the TLS settings of the listeners that use TLS. Raises ConfigError if a setting of one
    of them cannot be applied."""
    listeners = values.get("listeners", BrokerConfig().listeners)
    found = tls_of(texts, (*node_listeners(texts, is_broker=True), *listeners))
    own = {one.name: found[one.name] for one in listeners if one.name in found}
    for name, config in own.items():
        check_server(config, name)
    return own


def _dial_tls(texts: Mapping[str, str]) -> TlsConfig | None:
    """Return the TLS settings of this broker's calls to controllers, or None if they are not
    encrypted."""
    controllers = node_listeners(texts, is_broker=True)
    dialled = dialled_listener(texts, controllers)
    return None if dialled is None else node_tls_of(texts, controllers).get(dialled.name)


def _sasl(values: Mapping[str, Any], texts: Mapping[str, str]) -> SaslConfig:
    """Return the SASL settings of the listeners."""
    listeners = values.get("listeners", BrokerConfig().listeners)
    inter_broker = values.get("inter_broker_listener_name") or listeners[0].name
    sasl = sasl_of(texts, listeners, inter_broker)
    idle_ms = values.get("connections_max_idle_ms", BrokerConfig().connections_max_idle_ms)
    if 0 <= idle_ms <= sasl.failure_delay_ms:
        raise ConfigError(
            FAILURE_DELAY_MS,
            f"is {sasl.failure_delay_ms}; it must be below connections.max.idle.ms, {idle_ms}",
        )
    return sasl
