"""All settings of one controller process, and the function that loads them from a settings file."""

from collections.abc import Mapping
from dataclasses import field

from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.limits import MIB
from ottla.model.quotas.rates import WindowShape
from ottla.model.settings.connections import ConnectionConfig, listener_texts
from ottla.model.settings.declare import SettingKind, setting, values_of
from ottla.model.settings.endpoints import (
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
from ottla.model.settings.quotas import MutationQuotaConfig
from ottla.model.settings.roles import PROCESS_ROLES, controller_texts, has_both_roles
from ottla.model.settings.security.authorizer import AuthorizerConfig, authorizer_values
from ottla.model.settings.security.delegation_tokens import DelegationTokenConfig, check_tokens
from ottla.model.settings.security.node_tls import (
    client_tls_of,
    dialled_listener,
    node_tls_of,
)
from ottla.model.settings.security.sasl import (
    INTER_BROKER_MECHANISM,
    NO_SASL,
    SaslConfig,
    is_sasl_key,
    sasl_of,
)
from ottla.model.settings.security.security_keys import (
    SECURITY_KEYS,
    check_security,
    with_protocols,
)
from ottla.model.settings.security.tls import TlsConfig, is_tls_key
from ottla.model.settings.storage.disks import DiskConfig
from ottla.model.settings.storage.tier import SYSTEM_ENABLE
from ottla.model.settings.storage.topic import BROKER_TO_TOPIC, topic_defaults_of
from ottla.model.settings.telemetry.exporters import PLUGIN_PREFIX, ExporterConfig
from ottla.model.settings.telemetry.metrics import MetricsConfig
from ottla.model.values import frozen

METADATA_LOG_DIR = "metadata.log.dir"


@frozen(kw_only=True)
class ControllerConfig:
    """All settings of one controller process."""

    node_id: NodeId = setting(
        NodeId(-1),
        key="node.id",
        kind=SettingKind.INT,
        at_least=0,
        text="",
        doc="Id of this controller, unique among brokers and controllers.",
    )
    metadata_log_dir: str = setting(
        "/tmp/ottla-metadata",
        key=METADATA_LOG_DIR,
        doc="Directory of the metadata log; by default the first of log.dirs if that is set.",
    )
    listeners: tuple[ListenAddress, ...] = setting(
        (ListenAddress("CONTROLLER", "", 9093),),
        key="listeners",
        parse=parse_listeners,
        text="CONTROLLER://:9093",
        doc="Address on which this controller listens (gRPC).",
    )
    controller_quorum_voters: tuple[ConfiguredVoter, ...] = setting(
        (),
        key="controller.quorum.voters",
        parse=parse_voters,
        text="",
        doc="The controllers, as id@host:port each, including this one.",
    )
    controller_quorum_bootstrap_servers: tuple[tuple[str, int], ...] = setting(
        (),
        key="controller.quorum.bootstrap.servers",
        parse=parse_bootstrap,
        text="",
        doc="Controllers from which to discover the quorum, as host:port each, in addition to the "
        "voters or in place of them.",
    )
    advertised_listeners: tuple[ListenAddress, ...] = setting(
        (),
        key="advertised.listeners",
        parse=parse_listeners,
        is_null_by_default=True,
        doc="Address of this controller for the other nodes, if controller.quorum.voters does not "
        "name it; by default the address in listeners.",
    )
    socket_send_buffer_bytes: int = setting(
        -1,
        key="socket.send.buffer.bytes",
        doc="Size of the send buffer of each connection; -1 has the kernel adapt it. Kafka's "
        "default is 102400.",
    )
    socket_receive_buffer_bytes: int = setting(
        -1,
        key="socket.receive.buffer.bytes",
        doc="Size of the receive buffer of each connection; -1 has the kernel adapt it. Kafka's "
        "default is 102400.",
    )
    socket_request_bytes_max: int = setting(
        100 * MIB,
        key="socket.request.max.bytes",
        at_least=1,
        doc="Size of the largest request of a client. A larger one closes its connection before "
        "memory is allocated. Controllers accept no request above 4 MiB, whatever is set.",
    )
    quota_window_count: int = setting(
        11,
        key="quota.window.num",
        at_least=1,
        doc="Number of windows over which client quotas are measured, including the one being "
        "filled.",
    )
    quota_window_s: int = setting(
        1,
        key="quota.window.size.seconds",
        at_least=1,
        doc="Length of a window of client quotas. A client that exceeds the request quota is "
        "throttled for at most one window.",
    )
    quorum_auto_join_enable: bool = setting(
        False,
        key="controller.quorum.auto.join.enable",
        doc="Whether this controller adds itself to the voters. If a voter has its id and another "
        "directory, it removes that voter first. A controller that was a voter once does not join "
        "by itself again.",
    )
    session_timeout_ms: int = setting(
        9_000,
        key="broker.session.timeout.ms",
        at_least=1,
        doc="Time without a heartbeat after which a broker is fenced.",
    )
    early_failover: bool = setting(
        True,
        key="ottla.early.failover",
        doc="Ottla's own: whether a process counts as dead as soon as its connection is closed and "
        "its address, which accepted connections before, refuses a new one. A broker is then "
        "fenced before `broker.session.timeout.ms`, and the other controllers start an election "
        "before `controller.quorum.fetch.timeout.ms`. Silence, resets, timeouts and unreachable "
        "hosts never shorten a timeout. Set it on all controllers.",
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
    delete_topic_enable: bool = setting(
        True, key="delete.topic.enable", doc="Whether topics can be deleted."
    )
    auto_leader_rebalance_enable: bool = setting(
        True,
        key="auto.leader.rebalance.enable",
        doc="Whether leadership is periodically moved back to preferred replicas.",
    )
    leader_imbalance_check_interval_seconds: int = setting(
        300,
        key="leader.imbalance.check.interval.seconds",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval between moves of leadership to preferred replicas.",
    )
    unclean_leader_election_interval_ms: int = setting(
        300_000,
        key="unclean.leader.election.interval.ms",
        kind=SettingKind.LONG,
        at_least=1,
        doc="Interval between checks for leaderless partitions that may now elect an unclean "
        "leader.",
    )
    is_tiering_enabled: bool = setting(
        False,
        key=SYSTEM_ENABLE,
        doc="Whether topics may be tiered. Set it on all brokers and controllers.",
    )
    quorum: QuorumConfig = field(default_factory=QuorumConfig)
    groups: GroupConfig = field(default_factory=GroupConfig)
    """Bounds on the settings that a single group may have."""
    authorizer: AuthorizerConfig = field(default_factory=AuthorizerConfig)
    """Settings of the authorizer, which checks requests that brokers forward for clients."""
    connections: ConnectionConfig = field(default_factory=ConnectionConfig)
    """Limits on connections of clients. Connections of other nodes do not count."""
    mutation_quotas: MutationQuotaConfig = field(default_factory=MutationQuotaConfig)
    tokens: DelegationTokenConfig = field(default_factory=DelegationTokenConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    exporters: ExporterConfig = field(default_factory=ExporterConfig)
    log_output: LogOutputConfig = field(default_factory=LogOutputConfig)
    tls: Mapping[str, TlsConfig] = field(default_factory=dict)
    """TLS settings by listener name, for connections of other nodes. Only listeners that use TLS
    are included."""
    listener_tls: Mapping[str, TlsConfig] = field(default_factory=dict)
    """TLS settings by listener name, for connections of clients. Only listeners that use TLS are
    included."""
    sasl: SaslConfig = NO_SASL
    """Settings of the listeners on which clients log in by SASL."""
    dial_tls: TlsConfig | None = None
    """TLS settings of connections to other controllers, or None if these are not encrypted."""
    disks: DiskConfig = field(default_factory=DiskConfig)
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Default topic settings that this controller's own file contains, by topic key."""
    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Values in the settings file as text, by key."""

    @property
    def controllers(self) -> tuple[ConfiguredVoter, ...]:
        """Controllers that this controller asks for the leader of the quorum: the voters and
        bootstrap servers in its settings."""
        return controllers_of(
            self.controller_quorum_voters, self.controller_quorum_bootstrap_servers
        )

    @property
    def quota_windows(self) -> WindowShape:
        """Measurement windows for the quotas of clients and connections."""
        return WindowShape(self.quota_window_count, self.quota_window_s * 1_000)

    @property
    def inter_broker_listener(self) -> str:
        """Always empty. Controllers connect to each other only by gRPC, not on a listener for
        Kafka's protocol."""
        return ""

    @property
    def dialled_listener(self) -> ListenAddress:
        """Name of the listener to which other controllers connect: the first in
        `controller.listener.names` or, if that is not set, in `listeners`."""
        found = dialled_listener(self.texts, self.listeners)
        assert found is not None
        return found

    @property
    def advertised_addresses(self) -> tuple[ListenAddress, ...]:
        """Addresses at which other nodes reach this controller, one per listener. The first is the
        listener to which other controllers connect.

        The address of that listener is the one in `controller.quorum.voters`, even if another
        address is advertised for it. Listeners whose host is unknown are left out.
        """
        advertised = {one.name: one for one in self.advertised_listeners}
        entries = [one for one in self.controller_quorum_voters if one.id == self.node_id]
        dialled = self.dialled_listener
        found = []
        for listener in (dialled, *(one for one in self.listeners if one is not dialled)):
            known = advertised.get(listener.name, listener)
            if entries and listener is dialled:
                known = known._replace(host=entries[0].host, port=entries[0].port)
            if known.host and known.port:
                found.append(listener._replace(host=known.host, port=known.port))
        return tuple(found)


def load_controller_config(texts: Mapping[str, str]) -> tuple[ControllerConfig, set[str]]:
    """Return the controller's settings from the texts of its file by key, and the unknown keys in
    the file.

    Raises ConfigError for the first setting that is invalid or missing.
    """
    if has_both_roles(texts):
        texts = controller_texts(texts)
    check_security(texts)
    check_promises(texts)
    check_idle(texts)
    check_tokens(texts)
    values, unknown = values_of(ControllerConfig, {**_first_log_dir(texts), **texts})
    if "listeners" in values:
        values["listeners"] = with_protocols(texts, values["listeners"])
    listeners = values.get("listeners", ControllerConfig().listeners)
    tls = node_tls_of(texts, listeners)
    dialled = dialled_listener(texts, listeners)
    if texts.get(INTER_BROKER_MECHANISM, "").strip():
        raise ConfigError(
            INTER_BROKER_MECHANISM, "is set, and a controller logs in at no broker; remove it"
        )
    quorum, unknown_to_quorum = values_of(QuorumConfig, texts)
    groups, unknown_to_groups = group_config_of(texts)
    authorizer, unknown_to_authorizer = authorizer_values(texts)
    connections, unknown_to_connections = values_of(ConnectionConfig, texts)
    of_listeners = listener_texts(texts)
    mutations, unknown_to_mutations = values_of(MutationQuotaConfig, texts)
    tokens, unknown_to_tokens = values_of(DelegationTokenConfig, texts)
    metrics, unknown_to_metrics = values_of(MetricsConfig, texts)
    exporters, unknown_to_exporters = values_of(ExporterConfig, texts)
    log_output, unknown_to_logs = values_of(LogOutputConfig, texts)
    disks, unknown_to_disks = values_of(DiskConfig, texts)
    if "node_id" not in values:
        raise ConfigError("node.id", "is not set; give this controller a number of its own")
    voters = values.get("controller_quorum_voters", ())
    is_named = values["node_id"] in {voter.id for voter in voters}
    if not is_named and (voters or not values.get("controller_quorum_bootstrap_servers")):
        raise ConfigError(
            "controller.quorum.voters",
            f"does not name this controller; add {values['node_id']}@host:port",
        )
    config = ControllerConfig(
        **values,
        quorum=QuorumConfig(**quorum),
        groups=groups,
        authorizer=AuthorizerConfig(**authorizer),
        connections=ConnectionConfig(**connections, texts_by_listener=of_listeners),
        mutation_quotas=MutationQuotaConfig(**mutations),
        tokens=DelegationTokenConfig(**tokens),
        metrics=MetricsConfig(**metrics),
        exporters=ExporterConfig(**exporters),
        log_output=LogOutputConfig(**log_output),
        tls=tls,
        listener_tls=client_tls_of(texts, listeners, tls),
        sasl=sasl_of(texts, listeners, inter_broker=""),
        dial_tls=None if dialled is None else tls.get(dialled.name),
        disks=DiskConfig(**disks),
        topic_defaults=topic_defaults_of(texts),
        texts=dict(texts),
    )
    known = {*BROKER_TO_TOPIC, PROCESS_ROLES, *SECURITY_KEYS, *filter(is_tls_key, texts)}
    known |= {*filter(is_sasl_key, texts), *of_listeners}
    unknown &= unknown_to_connections
    known |= {key for key in texts if key.startswith(PLUGIN_PREFIX)}
    unknown &= unknown_to_quorum & unknown_to_groups & unknown_to_metrics & unknown_to_exporters
    unknown &= unknown_to_mutations & unknown_to_logs & unknown_to_authorizer & unknown_to_disks
    unknown &= unknown_to_tokens
    return config, unknown - known


def _first_log_dir(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the setting `metadata.log.dir` with the first directory in log.dirs, as in Kafka.
    Returns an empty dict if the file sets no log directory."""
    directories = texts.get("log.dirs", "").strip() or texts.get("log.dir", "").strip()
    first = directories.partition(",")[0].strip()
    return {METADATA_LOG_DIR: first} if first else {}
