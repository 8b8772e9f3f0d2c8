"""Builds the objects of a broker that make decisions, and connects them with each other.

Pure. No other module connects these objects: the process (`broker_driver`), the simulations and the
fuzzers all build a `BrokerCore`, and add only sockets, tasks, disks, and the connection to the
controller. Handlers are registered in two steps, because the listener opens before the logs are
recovered. The first step registers the APIs that a broker answers at any time. The second step
registers all others when the broker is ready to serve.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import NamedTuple
from uuid import UUID

from ottla.broker.cluster.auto_create import AutoCreate
from ottla.broker.cluster.cluster_apis import (
    register_cluster_apis,
    register_early_apis,
)
from ottla.broker.cluster.describe_node import DescribeNodeApi
from ottla.broker.cluster.metadata_api import CREATION_WAIT_MS_MAX
from ottla.broker.cluster.own_requests import OwnRequests
from ottla.broker.cluster.quota_usage_api import DescribeQuotaUsageApi
from ottla.broker.coordinators.find_coordinator import (
    FindCoordinatorApi,
    offsets_topic,
    share_state_topic,
    transactions_topic,
)
from ottla.broker.coordinators.share_persister import SharePersister
from ottla.broker.groups.group_apis import register_group_apis, register_share_group_apis
from ottla.broker.groups.group_coordinator import GroupCoordinator
from ottla.broker.groups.group_settings import SettingsOfGroups
from ottla.broker.groups.share.end_offsets import EndOffsets, UnknownEndOffsets
from ottla.broker.logs.cold_reads import BringIn
from ottla.broker.logs.data_apis import DataApis
from ottla.broker.logs.fetch_session import FetchSessionCache
from ottla.broker.logs.list_offsets import LookUps, one_by_one
from ottla.broker.logs.replica_selection import RackAwareSelector
from ottla.broker.logs.transactional_appends import NoCoordinators, TransactionCoordinators
from ottla.broker.logs.write_txn_markers import WriteTxnMarkersApi
from ottla.broker.quotas.replication_quota import ReplicationQuotas
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_port import PartitionPort
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_manager import ReplicaManager
from ottla.broker.replicas.replica_seams import DiskWork, Fetchers, ReplicaLogs
from ottla.broker.replicas.topic_traffic import BrokerTraffic
from ottla.broker.share_state.local_share_persister import LocalSharePersister
from ottla.broker.share_state.share_coordinator import ShareCoordinator
from ottla.broker.share_state.share_state_apis import ShareStateApis
from ottla.broker.shares.led_share import DeliveryPorts, LetterSender
from ottla.broker.shares.share_apis import ShareApis
from ottla.broker.tier.remote_fetches import RemotePorts
from ottla.broker.transactions.markers import MarkerOrder
from ottla.broker.transactions.producer_id_supply import ProducerIdSupply
from ottla.broker.transactions.transaction_coordinator import TransactionCoordinator
from ottla.broker.transactions.transaction_routes import (
    register_transaction_apis,
)
from ottla.metadata.audit_log import AuditLog
from ottla.metadata.features import is_share_enabled
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.ids import TopicIdPartition
from ottla.model.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.quotas.quota_callback import CustomLimits, load_callback
from ottla.model.quotas.rates import WindowShape
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.node.admin.forwarding import ForwardingPort
from ottla.node.admin.metadata_cache import IMAGE_CHANGED, MetadataCache
from ottla.node.authentication.authenticators import Authenticators
from ottla.node.authentication.illegal_state import register_sasl_apis
from ottla.node.authorization.authorization import Authorization
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.purgatory import Purgatory
from ottla.node.quotas.request_quotas import RequestQuotas
from ottla.wire.apis import (
    DESCRIBE_QUOTA_USAGE,
    FIND_COORDINATOR,
    WRITE_TXN_MARKERS,
)


class ReplicaPorts(NamedTuple):
    """Functions and interfaces through which the replicas of a broker use disks, other brokers and
    the controller."""

    logs: ReplicaLogs
    fetchers: Fetchers
    work: DiskWork
    on_flush_due: Callable[[Partition], None]
    """Function that is called with a partition when records in its log must be flushed to disk
    soon."""
    on_isr_due: Callable[[Partition], None]
    """Function called with a partition that this broker leads, when the partition's in-sync
    replicas may have to change."""
    on_placed: Callable[[TopicIdPartition, UUID], None]
    """Function that is called if the actual log directory of a replica differs from the directory
    in the metadata. Its arguments are the replica and the id of the actual directory."""
    bring_in: BringIn
    """Function that loads a range of a log file into the page cache, because a fetch needs it."""
    coordinators: TransactionCoordinators = NoCoordinators()
    """Access to the transaction coordinators of the cluster, which verify that a transaction may
    write to a partition."""
    run_look_ups: Callable[[LookUps], Awaitable[None]] = one_by_one
    """Function that runs the lookups of offsets by timestamp that one ListOffsets request needs."""
    remote: RemotePorts = RemotePorts()
    """Reader of records that only the object store of tiered storage has, and the functions that
    run its reads."""
    letters: LetterSender | None = None
    """Sender of dead letters: copies of records that the consumers of a share group rejected. If it
    is None, rejected records are archived without a dead letter."""


class CoordinatorPorts(NamedTuple):
    """Functions through which the coordinators of this broker send requests to other brokers."""

    producer_ids: ProducerIdSupply
    send_markers: Callable[[MarkerOrder], None]
    """Function that is called with the order to write a transaction's markers, once its Prepare
    record is committed. The callee must call `core.transactions.on_marked` for each partition that
    has received its marker."""
    cancel_markers: Callable[[int], None]
    """Function that stops the writing of transaction markers for one partition of
    `__transaction_state`. Its argument is the partition's index. It is called when this broker no
    longer coordinates the partition."""
    end_offsets: EndOffsets = UnknownEndOffsets()
    """Lookup of the end offsets of any partition in the cluster, from which the lags of share
    groups are computed."""
    share_persister: SharePersister | None = None
    """Access to all share coordinators of the cluster, which store the state of share partitions.
    If it is None, a share partition has a durable state only if this broker is its share
    coordinator."""


class BrokerCore:
    """The decision-making parts of one broker (partitions, waiting requests, sessions and request
    handlers), connected with each other."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock,
        rng: Rng,
        dispatcher: Dispatcher,
        authenticators: Authenticators | None = None,
    ) -> None:
        self.config = config
        self.dispatcher = dispatcher
        self.errors = dispatcher.errors
        self.purgatory = Purgatory(self.errors)
        self.table = PartitionTable(EMPTY)
        self.traffic = BrokerTraffic()
        self.quotas = RequestQuotas(
            WindowShape(config.quotas.window_count, config.quotas.window_s * 1_000),
            clock,
            dispatcher.clock,
            self._custom_limits(),
        )
        dispatcher.quotas = self.quotas
        by_acls = None
        if config.authorizer.is_on:
            by_acls = StandardAuthorizer(config.authorizer, AuditLog(clock.monotonic_ms))
        self.authorization = Authorization(
            self.table.topic_name, dispatcher.times.note_refusal, by_acls
        )
        dispatcher.gates = self.authorization
        self.replication_quotas = ReplicationQuotas(config, clock.monotonic_ms)
        self.authenticators = authenticators or Authenticators(config, rng, clock)
        dispatcher.guards = self.authenticators.guards
        dispatcher.on_closed.append(self.authenticators.sessions.forget)
        self.sessions = FetchSessionCache(config.fetch_session_count_max, rng)
        self._clock = clock
        self._rng = rng
        self.replicas: ReplicaManager
        self.metadata: MetadataCache
        self.data: DataApis
        self.groups: GroupCoordinator
        self.share_states: ShareCoordinator
        self.local_share_persister: SharePersister
        """Access to the states of share partitions that this broker's own share coordinator
        stores."""
        self.share_persister: SharePersister
        """Access to the durable states of share partitions in the whole cluster, for the leaders of
        partitions and for the group coordinator."""
        self.shares: ShareApis
        """Request handlers that deliver records to the members of share groups."""
        self.transactions: TransactionCoordinator
        self._producer_ids: ProducerIdSupply
        self.coordinators: tuple[
            GroupCoordinator | ShareCoordinator | TransactionCoordinator, ...
        ] = ()
        """The coordinators of this broker; empty until `open_coordinators` is called. They apply
        each new metadata image in this order, the transaction coordinator last."""

    def warnings(self) -> Iterator[str]:
        """Yield warnings for the broker's startup log about settings that grant clients too many
        permissions."""
        if (warning := OwnRequests(self.config).warning()) is not None:
            yield warning
        yield from self.authenticators.warnings(
            has_authorizer=self.config.authorizer.is_on,
            shows_certificate=self.config.dial_tls is not None,
        )

    def _custom_limits(self) -> Callable[[str], CustomLimits] | None:
        name = self.config.quotas.callback_class
        if name is None:
            return None
        callback = load_callback(name, self.config.texts)
        return lambda quota_type: CustomLimits(quota_type, callback, self.errors)

    def open_replicas(self, ports: ReplicaPorts) -> None:
        """Build the replica manager, its request handlers and the delivery to share groups. `ports`
        is their only access to disks, other brokers and the controller."""
        self.replicas = ReplicaManager(
            self.config,
            table=self.table,
            logs=ports.logs,
            purgatory=self.purgatory,
            clock=self._clock,
            fetchers=ports.fetchers,
            work=ports.work,
            port=PartitionPort(
                self.purgatory.wake,
                ports.on_flush_due,
                ports.on_isr_due,
                self.purgatory.watched,
            ),
            on_placed=ports.on_placed,
            on_led=self._on_led,
            traffic=self.traffic,
            errors=self.errors,
        )
        self.metadata = MetadataCache(self.replicas.is_opening)
        self._verifications = ports.coordinators
        self.data = DataApis(
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            sessions=self.sessions,
            fetch_bytes_max=self.config.fetch_bytes_max,
            bring_in=ports.bring_in,
            replication_quota=self.replication_quotas.leader,
            traffic=self.traffic,
            times=self.dispatcher.times,
            coordinators=ports.coordinators,
            selector=RackAwareSelector(self.table) if self.config.is_rack_aware else None,
            run_look_ups=ports.run_look_ups,
            until_done=ports.work.until_done,
            remote=ports.remote,
            tier=self.config.tier,
            errors=self.errors,
        )
        settings = SettingsOfGroups(self.config.groups, self.config.node_id)
        self.shares = ShareApis(
            table=self.table,
            ports=DeliveryPorts(
                persister=lambda: self.share_persister,
                purgatory=self.purgatory,
                clock=self._clock,
                settings_of=lambda group_id: settings.of(self.metadata.image, group_id).share,
                letters=ports.letters,
            ),
            session_count_max=self.config.groups.share.session_count_max,
            is_enabled=lambda: is_share_enabled(self.metadata.image.features),
            cold_reads=self.data.fetch.cold_reads,
            remote_fetches=self.data.fetch.remote_fetches,
            fetch_bytes_max=self.config.fetch_bytes_max,
        )

    def _on_led(self, partition: Partition) -> None:
        for coordinator in self.coordinators:
            coordinator.on_led(partition)

    def open_coordinators(self, ports: CoordinatorPorts) -> None:
        """Build the coordinators of groups, share partitions and transactions. `ports` sends their
        requests to other brokers.

        The coordinators append to the partitions of `table`. Requests that must wait are stored in
        the purgatory. If a coordinator has no `CoordinatorDriver`, the caller must call its methods
        `flush_due`, `on_time` and `work`.
        """
        self._producer_ids = ports.producer_ids
        self._end_offsets = ports.end_offsets
        self.share_states = ShareCoordinator(
            self.config.share_state,
            local_id=self.config.node_id,
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            errors=self.errors,
            turn_end=self.dispatcher.turn_end,
        )
        self.local_share_persister = LocalSharePersister(self.share_states)
        self.share_persister = ports.share_persister or self.local_share_persister
        self.groups = GroupCoordinator(
            self.config.groups,
            local_id=self.config.node_id,
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            rng=self._rng,
            errors=self.errors,
            turn_end=self.dispatcher.turn_end,
            share_persister=self.share_persister,
        )
        self.transactions = TransactionCoordinator(
            self.config.transactions,
            local_id=self.config.node_id,
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            ids=ports.producer_ids,
            send_markers=ports.send_markers,
            cancel_markers=ports.cancel_markers,
            errors=self.errors,
            turn_end=self.dispatcher.turn_end,
        )
        self.coordinators = (self.groups, self.share_states, self.transactions)

    def register_early(
        self,
        *,
        cluster_id: str,
        describe_node: DescribeNodeApi,
        coming: frozenset[int],
        offers_telemetry: Callable[[], bool],
    ) -> None:
        """Register ApiVersions and DescribeNode. `coming` contains the keys of the APIs that are
        registered later.

        ApiVersions lists the APIs of client telemetry while `offers_telemetry` returns True.
        """
        register_sasl_apis(self.dispatcher)
        register_early_apis(
            self.dispatcher,
            config=self.config,
            cluster_id=cluster_id,
            metadata=self.metadata,
            describe_node=describe_node,
            coming=coming,
            offers_telemetry=offers_telemetry,
        )

    def register(
        self,
        *,
        cluster_id: str,
        controller: ForwardingPort,
    ) -> None:
        """Register the handlers of all APIs that `register_early` has not registered. The replicas
        and coordinators must be open."""
        auto_create = make_auto_create(self.config, controller, self.purgatory)
        register_metadata_apis(
            self.dispatcher,
            config=self.config,
            cluster_id=cluster_id,
            metadata=self.metadata,
            purgatory=self.purgatory,
            controller=controller,
            auto_create=auto_create,
            followed=lambda: self.transactions.image,
            now_ms=self._clock.monotonic_ms,
        )
        self.data.register(self.dispatcher)
        markers = WriteTxnMarkersApi(
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            offsets=self.groups,
            timeout_ms=self.config.request_timeout_ms,
        )
        self.dispatcher.register(WRITE_TXN_MARKERS, markers.handle)
        usage = DescribeQuotaUsageApi(self.quotas, self._clock.monotonic_ms)
        self.dispatcher.register(DESCRIBE_QUOTA_USAGE, usage.handle)
        register_group_apis(
            self.dispatcher,
            config=self.config.groups,
            coordinator=self.groups,
            metadata=self.metadata,
            transactions=self._verifications,
            timeout_ms=self.config.request_timeout_ms,
        )
        register_share_group_apis(
            self.dispatcher,
            coordinator=self.groups,
            metadata=self.metadata,
            persister=self.share_persister,
            ends=self._end_offsets,
        )
        ShareStateApis(self.share_states).register(self.dispatcher)
        self.shares.register(self.dispatcher)
        register_transaction_apis(
            self.dispatcher,
            coordinator=self.transactions,
            ids=self._producer_ids,
            image=lambda: self.metadata.image,
            wall_ms=self._clock.wall_ms,
            create_topic=auto_create.create,
        )


def make_auto_create(
    config: BrokerConfig, controller: ForwardingPort, purgatory: Purgatory
) -> AutoCreate:
    """Return the object that creates missing topics: topics that clients request, and the internal
    topics of the coordinators."""
    return AutoCreate(
        controller,
        timeout_ms=min(config.request_timeout_ms, CREATION_WAIT_MS_MAX),
        on_refused=lambda: purgatory.wake(IMAGE_CHANGED),
        internal={
            OFFSETS_TOPIC: offsets_topic(config.groups),
            SHARE_STATE_TOPIC: share_state_topic(config.share_state),
            TRANSACTIONS_TOPIC: transactions_topic(config.transactions),
        },
    )


def register_metadata_apis(
    dispatcher: Dispatcher,
    *,
    config: BrokerConfig,
    cluster_id: str,
    metadata: MetadataCache,
    purgatory: Purgatory,
    controller: ForwardingPort,
    auto_create: AutoCreate,
    followed: Callable[[], MetadataImage],
    now_ms: Callable[[], int],
) -> None:
    """Register FindCoordinator, and the APIs that are answered from the metadata or by the
    controller. These APIs need no partition on this broker."""
    register_cluster_apis(
        dispatcher,
        config=config,
        cluster_id=cluster_id,
        metadata=metadata,
        purgatory=purgatory,
        controller=controller,
        auto_create=auto_create,
        now_ms=now_ms,
    )
    coordinators = FindCoordinatorApi(
        config=config,
        followed=followed,
        purgatory=purgatory,
        auto_create=auto_create,
        is_opening=lambda topic: metadata.is_opening(topic),
    )
    dispatcher.register(FIND_COORDINATOR, coordinators.handle)
