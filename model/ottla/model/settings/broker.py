"""The settings of one broker process."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from posixpath import normpath
from typing import Any

from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.limits import INT64_MAX, MIB
from ottla.model.settings.authorizer import AuthorizerConfig, authorizer_values
from ottla.model.settings.cleaner import CleanerConfig
from ottla.model.settings.connections import ConnectionConfig, listener_texts
from ottla.model.settings.cordoned import CORDONED_LOG_DIRS, check_cordoned, parse_cordoned
from ottla.model.settings.declare import SettingKind, definitions, setting, values_of
from ottla.model.settings.delegation_tokens import DelegationTokenConfig, check_tokens
from ottla.model.settings.disks import DiskConfig
from ottla.model.settings.endpoints import (
    ConfiguredVoter,
    ListenAddress,
    parse_bootstrap,
    parse_listeners,
    parse_voters,
)
from ottla.model.settings.exporters import PLUGIN_PREFIX, ExporterConfig
from ottla.model.settings.groups import GroupConfig
from ottla.model.settings.kafka_keys import check_idle, check_promises
from ottla.model.settings.logs import LogOutputConfig
from ottla.model.settings.metrics import MetricsConfig
from ottla.model.settings.node_tls import dialled_listener, node_tls_of
from ottla.model.settings.quorum import QuorumConfig
from ottla.model.settings.quotas import QuotaConfig
from ottla.model.settings.sasl import (
    FAILURE_DELAY_MS,
    NO_SASL,
    SaslConfig,
    is_sasl_key,
    sasl_of,
)
from ottla.model.settings.security import (
    INTER_BROKER_PROTOCOL,
    SECURITY_KEYS,
    check_security,
    node_listeners,
    with_protocols,
)
from ottla.model.settings.telemetry import TelemetryConfig
from ottla.model.settings.tls import TlsConfig, check_server, is_tls_key, tls_of
from ottla.model.settings.topic import BROKER_TO_TOPIC, topic_defaults_of
from ottla.model.settings.transactions import TransactionConfig
from ottla.model.values import frozen

EVERY_INTERFACE = ("0.0.0.0", "::")
"""Hosts to listen on, and none to connect to."""


QUEUED_MAX_REQUEST_BYTES = "queued.max.request.bytes"
ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("socket.request.max.bytes", QUEUED_MAX_REQUEST_BYTES),
)
"""Pairs of settings of which the second may not be below the first."""


@frozen(kw_only=True)
class BrokerConfig:
    """What one broker is told at its start; the settings of its parts are passed on."""

    node_id: NodeId = setting(
        NodeId(-1),
        key="node.id",
        kind=SettingKind.INT,
        at_least=0,
        is_null_by_default=True,
        doc="This broker's id, unique among brokers and controllers.",
    )
    log_dirs: tuple[str, ...] = setting(
        ("/tmp/ottla-logs",),
        key="log.dirs",
        is_blank_allowed=False,
        doc="The directories that hold the partitions, one per disk.",
    )
    cordoned_log_dirs: tuple[str, ...] = setting(
        (),
        key=CORDONED_LOG_DIRS,
        parse=parse_cordoned,
        is_dynamic=True,
        doc="The directories of log.dirs that take no new replica, * for all of them; what lies "
        "there is served on.",
    )
    metadata_log_dir: str | None = setting(
        None,
        key="metadata.log.dir",
        kind=SettingKind.STRING,
        doc="The directory of the metadata log; the first of log.dirs when not set.",
    )
    listeners: tuple[ListenAddress, ...] = setting(
        (ListenAddress("PLAINTEXT", "", 9092),),
        key="listeners",
        parse=parse_listeners,
        text="PLAINTEXT://:9092",
        doc="The addresses this broker listens on for Kafka clients.",
    )
    advertised_listeners: tuple[ListenAddress, ...] = setting(
        (),
        key="advertised.listeners",
        parse=parse_listeners,
        is_null_by_default=True,
        doc="The addresses clients are told; when not set, the one each client reached.",
    )
    controller_quorum_voters: tuple[ConfiguredVoter, ...] = setting(
        (),
        key="controller.quorum.voters",
        parse=parse_voters,
        text="",
        doc="The controllers, id@host:port each.",
    )
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...] = setting(
        (),
        key="controller.quorum.bootstrap.servers",
        has_no_effect_yet="the quorum is found by controller.quorum.voters",
        parse=parse_bootstrap,
        text="",
        doc="Controllers to find the quorum by, host:port each; the voters when not set.",
    )
    rack: str | None = setting(
        None, key="broker.rack", kind=SettingKind.STRING, doc="The rack or zone, for placement."
    )
    failure_domain_host: str | None = setting(
        None,
        key="ottla.failure.domain.host",
        kind=SettingKind.STRING,
        doc="Ottla's own: the machine this broker shares with others, for placement; the "
        "machine's own id when not set.",
    )
    num_partitions: int = setting(
        1,
        key="num.partitions",
        at_least=1,
        doc="Partitions of a topic that is created without saying how many.",
    )
    default_replication_factor: int = setting(
        1,
        key="default.replication.factor",
        at_least=1,
        doc="Replicas of a topic that is created without saying how many.",
    )
    auto_create_topics_enable: bool = setting(
        True,
        key="auto.create.topics.enable",
        doc="Whether a topic is created when a client first asks for it.",
    )
    socket_request_bytes_max: int = setting(
        100 * MIB,
        key="socket.request.max.bytes",
        at_least=1,
        doc="The largest request; a longer one ends its connection before memory is taken.",
    )
    socket_listen_backlog_size: int = setting(
        50,
        key="socket.listen.backlog.size",
        at_least=1,
        doc="Connections the kernel holds before they are accepted.",
    )
    queued_max_request_bytes: int = setting(
        -1,
        key=QUEUED_MAX_REQUEST_BYTES,
        kind=SettingKind.LONG,
        doc="Request bytes held at once by the whole process before reading pauses; -1 is a "
        "quarter of a GiB.",
    )
    connections_max_idle_ms: int = setting(
        600_000,
        key="connections.max.idle.ms",
        kind=SettingKind.LONG,
        doc="How long a silent connection is kept.",
    )
    fetch_bytes_max: int = setting(
        55 * MIB,
        key="fetch.max.bytes",
        at_least=1_024,
        doc="The most record bytes of one fetch answer, whatever the client asks.",
    )
    fetch_session_count_max: int = setting(
        1_000,
        key="max.incremental.fetch.session.cache.slots",
        at_least=0,
        doc="Fetch sessions held at once.",
    )
    heartbeat_interval_ms: int = setting(
        2_000,
        key="broker.heartbeat.interval.ms",
        at_least=1,
        doc="How often the broker tells the controller that it lives.",
    )
    session_timeout_ms: int = setting(
        9_000,
        key="broker.session.timeout.ms",
        at_least=1,
        doc="How long the controller waits for a heartbeat before it fences the broker.",
    )
    initial_registration_timeout_ms: int = setting(
        60_000,
        key="initial.broker.registration.timeout.ms",
        at_least=1,
        doc="How long a starting broker tries to register before it gives up.",
    )
    request_timeout_ms: int = setting(
        30_000,
        key="request.timeout.ms",
        at_least=1,
        doc="How long a forwarded request may take.",
    )
    recovery_threads_per_dir: int = setting(
        2,
        key="num.recovery.threads.per.data.dir",
        at_least=1,
        is_dynamic=True,
        doc="Logs recovered at the same time per directory.",
    )
    move_threads: int | None = setting(
        None,
        key="num.replica.alter.log.dirs.threads",
        kind=SettingKind.INT,
        at_least=1,
        doc="Logs moved between directories at the same time; by default one a directory.",
    )
    replica_lag_time_ms_max: int = setting(
        30_000,
        key="replica.lag.time.max.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="How long a follower may lag before it leaves the in-sync replicas.",
    )
    replica_fetch_wait_ms_max: int = setting(
        500,
        key="replica.fetch.wait.max.ms",
        at_least=1,
        doc="How long a leader may hold a follower's fetch that has nothing to bring.",
    )
    replica_fetch_bytes_min: int = setting(
        1,
        key="replica.fetch.min.bytes",
        at_least=1,
        doc="How much a leader should have for a follower before it answers.",
    )
    replica_fetch_bytes_max: int = setting(
        1 << 20,
        key="replica.fetch.max.bytes",
        at_least=0,
        doc="How much a follower takes of one partition at a time; a larger batch comes whole.",
    )
    replica_fetch_response_bytes_max: int = setting(
        10 << 20,
        key="replica.fetch.response.max.bytes",
        at_least=0,
        doc="How much a follower takes at a time of all partitions together.",
    )
    replica_fetch_backoff_ms: int = setting(
        1_000,
        key="replica.fetch.backoff.ms",
        at_least=0,
        doc="How long a follower leaves a leader or a partition alone that refused, at the most.",
    )
    replica_socket_timeout_ms: int = setting(
        30_000,
        key="replica.socket.timeout.ms",
        at_least=1,
        doc="How long a leader may take to answer a follower, besides the wait it was asked for.",
    )
    inter_broker_listener_name: str | None = setting(
        None,
        key="inter.broker.listener.name",
        kind=SettingKind.STRING,
        doc="The listener brokers reach each other by; the first of listeners when not set.",
    )
    high_watermark_checkpoint_interval_ms: int = setting(
        5_000,
        key="replica.high.watermark.checkpoint.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="How often high watermarks are written to their checkpoint.",
    )
    retention_check_interval_ms: int = setting(
        300_000,
        key="log.retention.check.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="How often segments are checked against retention.",
    )
    initial_task_delay_ms: int = setting(
        30_000,
        key="log.initial.task.delay.ms",
        kind=SettingKind.LONG,
        at_least=0,
        doc="How long after the start retention is first checked, and recovery points and log "
        "start offsets are first written to their checkpoints; 0 waits one interval.",
    )
    flush_scheduler_interval_ms: int = setting(
        INT64_MAX,
        key="log.flush.scheduler.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="How often logs are looked at for flush.ms, and the default of flush.ms where "
        "log.flush.interval.ms is not set; with neither, flush.ms is looked at every second.",
    )
    recovery_point_checkpoint_interval_ms: int = setting(
        60_000,
        key="log.flush.offset.checkpoint.interval.ms",
        at_least=0,
        doc="How often recovery points are written to their checkpoint.",
    )
    log_start_checkpoint_interval_ms: int = setting(
        60_000,
        key="log.flush.start.offset.checkpoint.interval.ms",
        at_least=0,
        doc="How often log start offsets are written to their checkpoint.",
    )
    producer_id_expiration_ms: int = setting(
        86_400_000,
        key="producer.id.expiration.ms",
        at_least=1,
        is_dynamic=True,
        doc="How long a silent producer's state is kept.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        600_000,
        key="producer.id.expiration.check.interval.ms",
        at_least=1,
        doc="How often silent producers are looked for.",
    )
    transaction_partition_verification_enable: bool = setting(
        True,
        key="transaction.partition.verification.enable",
        is_dynamic=True,
        doc="Whether the coordinator of a transaction is asked before its first batch is written "
        "to a partition.",
    )
    add_partitions_to_txn_retry_backoff_ms: int = setting(
        20,
        key="add.partitions.to.txn.retry.backoff.ms",
        at_least=1,
        doc="How long a broker waits before it adds a partition to a transaction again, while the "
        "transaction before it is being ended.",
    )
    add_partitions_to_txn_retry_backoff_ms_max: int = setting(
        100,
        key="add.partitions.to.txn.retry.backoff.max.ms",
        at_least=0,
        doc="How long a broker tries to add a partition to a transaction before it leaves that to "
        "the client.",
    )
    leader_replication_throttled_rate: int = setting(
        INT64_MAX,
        key="leader.replication.throttled.rate",
        kind=SettingKind.LONG,
        at_least=0,
        is_dynamic=True,
        doc="Bytes a second that this broker, as a leader, sends to replicas that the topics' "
        "leader.replication.throttled.replicas name and that are not in sync.",
    )
    follower_replication_throttled_rate: int = setting(
        INT64_MAX,
        key="follower.replication.throttled.rate",
        kind=SettingKind.LONG,
        at_least=0,
        is_dynamic=True,
        doc="Bytes a second that this broker, as a follower, fetches for replicas that the topics' "
        "follower.replication.throttled.replicas name and that are not in sync.",
    )
    log_dirs_move_rate_max: int = setting(
        INT64_MAX,
        key="replica.alter.log.dirs.io.max.bytes.per.second",
        kind=SettingKind.LONG,
        at_least=0,
        is_dynamic=True,
        doc="Bytes a second that logs are copied at which move between directories of this broker.",
    )
    admin_requests: str = setting(
        "loopback",
        key="ottla.admin.requests",
        one_of=("loopback", "any", "none"),
        doc="Ottla's own: without an authorizer, who may send Ottla's own requests that change "
        "state, such as draining this broker: clients on its own machine, any, or none.",
    )
    delete_topic_enable: bool = setting(
        True, key="delete.topic.enable", doc="Whether topics can be deleted."
    )
    quorum: QuorumConfig = field(default_factory=QuorumConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    transactions: TransactionConfig = field(default_factory=TransactionConfig)
    authorizer: AuthorizerConfig = field(default_factory=AuthorizerConfig)
    """What its clients may do."""
    quotas: QuotaConfig = field(default_factory=QuotaConfig)
    connections: ConnectionConfig = field(default_factory=ConnectionConfig)
    sasl: SaslConfig = NO_SASL
    tokens: DelegationTokenConfig = field(default_factory=DelegationTokenConfig)
    """Who the clients of which listener must be."""
    listener_tls: Mapping[str, TlsConfig] = field(default_factory=dict)
    """The TLS of listeners that encrypt, by name."""
    dial_tls: TlsConfig | None = None
    """The TLS of calls to controllers; None where these are not encrypted."""
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    exporters: ExporterConfig = field(default_factory=ExporterConfig)
    log_output: LogOutputConfig = field(default_factory=LogOutputConfig)
    disks: DiskConfig = field(default_factory=DiskConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)
    cleaner: CleanerConfig = field(default_factory=CleanerConfig)
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """The topic settings this broker's own file sets, by topic key."""
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Every key as the file gave it, for DescribeConfigs."""

    def __post_init__(self) -> None:
        if self.session_timeout_ms <= self.heartbeat_interval_ms:
            raise ConfigError(
                "broker.session.timeout.ms",
                f"is {self.session_timeout_ms}; it must be above "
                f"broker.heartbeat.interval.ms, which is {self.heartbeat_interval_ms}",
            )
        if any(voter.id == self.node_id for voter in self.controller_quorum_voters):
            raise ConfigError(
                "node.id",
                f"is {self.node_id}, which is a controller's in controller.quorum.voters; "
                "give this broker a number of its own",
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
    def inter_broker_listener(self) -> str:
        """The name of the listener by which brokers reach each other."""
        return self.inter_broker_listener_name or self.listeners[0].name

    @property
    def traces_requests(self) -> bool:
        """Whether some requests are traced: there is a share of them, and a collector."""
        return self.metrics.traces_sample_ratio > 0 and bool(self.exporters.otlp_endpoints)

    @property
    def metadata_directory(self) -> str:
        """The directory that holds the metadata log."""
        return self.metadata_log_dir or self.log_dirs[0]


def _check_distinct(log_dirs: Sequence[str]) -> None:
    """Raise ConfigError if two paths of `log.dirs` are spellings of one path, as Kafka does."""
    known: dict[str, str] = {}
    for path in log_dirs:
        other = known.get(normpath(path))
        if other is not None:
            twice = "twice" if other == path else f"and {other}, which is the same directory"
            raise ConfigError("log.dirs", f"names {path} {twice}; name each directory once")
        known[normpath(path)] = path


def load_broker_config(texts: Mapping[str, str]) -> tuple[BrokerConfig, set[str]]:
    """Build a broker's settings from its file; return them with the keys nobody knows.

    Raises ConfigError with the first bad or missing setting.
    """
    check_security(texts, is_broker=True)
    check_promises(texts)
    check_idle(texts)
    check_tokens(texts)
    values, unknown = values_of(
        BrokerConfig,
        {"log.dirs": texts.get("log.dir", ""), **texts} if "log.dir" in texts else texts,
    )
    _set_protocols(values, texts)
    quorum, unknown_to_quorum = values_of(QuorumConfig, texts)
    groups, unknown_to_groups = values_of(GroupConfig, texts)
    transactions, unknown_to_transactions = values_of(TransactionConfig, texts)
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
    if "node_id" not in values:
        raise ConfigError("node.id", "is not set; give this broker a number of its own")
    if not values.get("controller_quorum_voters"):
        raise ConfigError(
            "controller.quorum.voters", "is not set; name the controllers as id@host:port"
        )
    sasl = _sasl(values, texts)
    config = BrokerConfig(
        **values,
        quorum=QuorumConfig(**quorum),
        groups=GroupConfig(**groups),
        transactions=TransactionConfig(**transactions),
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
        topic_defaults=topic_defaults_of(texts),
        texts=dict(texts),
    )
    known = {*BROKER_TO_TOPIC, "log.dir", "process.roles", *SECURITY_KEYS}
    known |= {key for key in texts if key.startswith(PLUGIN_PREFIX)} | of_listeners.keys()
    known |= {key for key in texts if is_sasl_key(key) or is_tls_key(key)}
    unknown &= unknown_to_quorum & unknown_to_groups & unknown_to_transactions
    unknown &= unknown_to_metrics & unknown_to_quotas & unknown_to_connections
    unknown &= unknown_to_exporters & unknown_to_telemetry & unknown_to_cleaner
    unknown &= unknown_to_logs & unknown_to_authorizer & unknown_to_disks
    unknown &= unknown_to_tokens
    return config, unknown - known


def _set_protocols(values: dict[str, Any], texts: Mapping[str, str]) -> None:
    """Give listeners their security protocols, and find the one that is for brokers."""
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
    """Return the TLS of the listeners that encrypt; ConfigError where one cannot be served."""
    listeners = values.get("listeners", BrokerConfig().listeners)
    found = tls_of(texts, (*node_listeners(texts, is_broker=True), *listeners))
    own = {one.name: found[one.name] for one in listeners if one.name in found}
    for name, config in own.items():
        check_server(config, name)
    return own


def _dial_tls(texts: Mapping[str, str]) -> TlsConfig | None:
    """Return the TLS by which this broker calls controllers, if it does."""
    controllers = node_listeners(texts, is_broker=True)
    dialled = dialled_listener(texts, controllers)
    return None if dialled is None else node_tls_of(texts, controllers).get(dialled.name)


def _sasl(values: Mapping[str, Any], texts: Mapping[str, str]) -> SaslConfig:
    """Return what listeners ask of their clients."""
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
