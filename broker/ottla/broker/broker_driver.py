"""A running broker: builds its components, starts them, and registers its request handlers."""

import logging
from functools import partial

import trio

from ottla.broker.broker_core import BrokerCore, CoordinatorPorts, ReplicaPorts
from ottla.broker.broker_metrics import register_metrics
from ottla.broker.cluster.cleaner_api import CleanLogsApi, DescribeCleanerApi
from ottla.broker.cluster.describe_node import DescribeNodeApi, recovery_of, replica_report
from ottla.broker.cluster.membership.assignments_driver import Assignments
from ottla.broker.cluster.membership.drain_api import DrainApi
from ottla.broker.cluster.membership.lifecycle import Lifecycle
from ottla.broker.cluster.membership.lifecycle_driver import LifecycleDriver
from ottla.broker.cluster.metadata_changes_driver import MetadataChangesApi
from ottla.broker.cluster.offload_api import OffloadLogsApi
from ottla.broker.cluster.own_requests import OwnRequests
from ottla.broker.cluster.settings.alter_certificates_driver import AlterCertificates
from ottla.broker.cluster.settings.dynamic_settings import (
    DynamicSettings,
    OwnSettingsPublisher,
)
from ottla.broker.cluster.settings.settings_without_effect import SettingsWithoutEffect
from ottla.broker.cluster.store_refusals import StoreRefusals
from ottla.broker.coordinators.placement import partition_of
from ottla.broker.coordinators.shard_coordinator_driver import CoordinatorDriver
from ottla.broker.groups.offsets.offsets_upload_driver import OffsetsUpload
from ottla.broker.groups.share.end_offsets_driver import EndOffsetsDriver
from ottla.broker.listener_admission import ListenerAdmission
from ottla.broker.log_directories_driver import LogDirectories
from ottla.broker.logs.read_ahead_driver import ReadAheads
from ottla.broker.logs.replica_apis import register_replica_apis
from ottla.broker.logs.verification_requests_driver import VerificationRequests
from ottla.broker.metrics.log_metrics import register_log_metrics
from ottla.broker.metrics.network_metrics import register_network_metrics
from ottla.broker.metrics.own_telemetry_driver import BrokerTelemetry, unready_reason
from ottla.broker.metrics.telemetry_driver import ClientTelemetry
from ottla.broker.quotas.tier_quotas import TierQuotas
from ottla.broker.readiness_driver import Readiness
from ottla.broker.registration_driver import Registration
from ottla.broker.replicas.flush_driver import Flusher
from ottla.broker.replicas.isr_driver import IsrDriver
from ottla.broker.replicas.isr_keeper import IsrKeeper
from ottla.broker.replicas.log_work_driver import LogWork
from ottla.broker.replicas.replica_fetcher_driver import ReplicaFetchers
from ottla.broker.share_state.pruning_driver import ShareStatePruner
from ottla.broker.share_state.share_persister_driver import SharePersisterDriver
from ottla.broker.shares.dead_letters_driver import DeadLetterSender
from ottla.broker.tier.broker_tier_driver import BrokerTier
from ottla.broker.tier.remote_fetches import RemotePorts
from ottla.broker.tier.remote_reads import NoRemoteReads
from ottla.broker.tier.remote_reads_driver import RemoteReadTasks, within
from ottla.broker.tier.tier_opening_driver import ClusterStore
from ottla.broker.transactions.marker_driver import MarkerSender
from ottla.broker.transactions.producer_id_stock_driver import ProducerIdStock, allocate_block
from ottla.model.background_driver import keep_running
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.connections import ConnectionBounds
from ottla.node.admin.connection_bounds import ConnectionBoundsPublisher
from ottla.node.admin.metadata_cache import ImageWatch
from ottla.node.authentication.authenticators import Authenticators
from ottla.node.authentication.jwks_driver import KeyReader
from ottla.node.network.alarm_driver import Alarm
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.latency_window import LatencyWindow
from ottla.node.network.loopback_driver import Loopback
from ottla.node.network.server.server_seam import Server
from ottla.node.network.side_by_side_driver import side_by_side
from ottla.node.part_registry import BrokerPart, PartRegistry
from ottla.node.quorum.quorum_driver import QuorumMember
from ottla.node.quotas.idle_driver import IdleUsages
from ottla.node.quotas.quota_publisher import QuotaPublisher
from ottla.rpc.controller_client import ControllerClient, addresses_of
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.manager.log_manager_driver import LogManager
from ottla.telemetry.metrics.instruments import Registry
from ottla.wire.apis import (
    BROKER_KEYS,
    CLEAN_LOGS,
    DESCRIBE_CLEANER,
    DESCRIBE_METADATA_CHANGES,
    DRAIN_BROKER,
    OFFLOAD_LOGS,
    PRODUCE,
    WRITE_SNAPSHOT,
)

logger = logging.getLogger("ottla.broker")


class Broker:
    """A running broker, which `open_broker` creates and stops."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        cluster_id: str,
        clock: Clock,
        rng: Rng,
        rpc: Rpc,
        server: Server,
        dispatcher: Dispatcher,
        member: QuorumMember,
        disk: Disk,
        logs: LogManager,
        lifecycle: Lifecycle,
        admission: ListenerAdmission,
        authenticators: Authenticators,
        cluster_store: ClusterStore | None = None,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.server = server
        self.connections, self._certificates = admission
        self.member = member
        self.logs = logs
        self.dispatcher = dispatcher
        self.errors = dispatcher.errors
        """Counter of unexpected exceptions. Each component catches and counts its own."""
        self.is_ready = trio.Event()
        self._clock = clock
        self._rng = rng
        self.parts = PartRegistry(clock)
        self.controller = _controller_client(rpc, config, member)
        self.lifecycle = LifecycleDriver(
            lifecycle,
            config,
            self.controller,
            metadata_offset=self._metadata_offset,
            produce_p99_us=LatencyWindow(dispatcher.times, PRODUCE).p99_us,
            errors=self.errors,
        )
        self.core = BrokerCore(
            config, clock=clock, rng=rng, dispatcher=dispatcher, authenticators=authenticators
        )
        self.purgatory, self.table = self.core.purgatory, self.core.table
        self._loopback = Loopback(dispatcher, clock)
        self._verifications = self._new_verifications()
        self._markers = self._new_markers()
        self._open_coordinators()
        self.tier = self._open_tier(cluster_store)
        """Tiered storage of this broker, or None if it is off."""
        self._open_replicas(disk)
        self.telemetry = ClientTelemetry(config, clock=clock, rng=rng, errors=self.errors)
        self._register_parts()
        self._register_metrics()
        self.own_telemetry = BrokerTelemetry(
            config,
            self.parts,
            cluster_id=cluster_id,
            clients=self.telemetry,
            dispatcher=dispatcher,
            unready=self._unready,
            clock=clock,
            rng=rng,
        )
        self._register_early()

    def _new_verifications(self) -> VerificationRequests:
        return VerificationRequests(
            self.config,
            table=self.table,
            clock=self._clock,
            partition_of=partition_of,
            errors=self.errors,
            own_coordinator=lambda: self.core.transactions,
            own=self._loopback,
            now_ns=lambda: self.dispatcher.clock.now_ns(),
        )

    def _new_markers(self) -> MarkerSender:
        return MarkerSender(
            self.config,
            on_marked=lambda order, partitions: self.core.transactions.on_marked(order, partitions),
            one_flush=lambda: self.core.transactions.one_flush(),
            errors=self.errors,
            own=self._loopback,
        )

    def _open_tier(self, cluster_store: ClusterStore | None) -> BrokerTier | None:
        quotas = TierQuotas(self.config.quotas, self._clock.monotonic_ms)
        quotas.register_with(self.parts)
        if cluster_store is None:
            return None
        tier = BrokerTier(
            self.config,
            cluster_store,
            cluster_id=self.cluster_id,
            table=self.table,
            controller=self.controller,
            quotas=quotas,
            clock=self._clock,
            rng=self._rng,
            errors=self.errors,
        )
        tier.register_with(self.parts)
        OffsetsUpload(
            tier.objects,
            interval_ms=self.config.tier.group_offsets_interval_ms,
            image=lambda: self.table.image,
            led_offsets=self.core.groups.led_offsets,
        ).register_with(self.parts)
        for relief in self.logs.reliefs:
            relief.on_short = tier.manager.copy_soon
            if relief.path == self.config.log_dirs[0]:
                relief.shrink_cache = tier.shrink_cache
        return tier

    def _open_coordinators(self) -> None:
        config, lifecycle = self.config, self.lifecycle.lifecycle
        producer_ids = ProducerIdStock(
            partial(allocate_block, config, self.controller, lambda: lifecycle.broker_epoch)
        )
        producer_ids.register_with(self.parts)
        self._share_persister = SharePersisterDriver(
            config,
            local=lambda: self.core.local_share_persister,
            table=self.table,
            clock=self._clock,
            errors=self.errors,
            own=self._loopback,
        )
        self._share_persister.register_with(self.parts)
        ends = EndOffsetsDriver(config, table=self.table, errors=self.errors)
        ends.register_with(self.parts)
        self.core.open_coordinators(
            CoordinatorPorts(
                producer_ids=producer_ids,
                send_markers=self._markers.send,
                cancel_markers=self._markers.cancel,
                end_offsets=ends,
                share_persister=self._share_persister,
            )
        )

    def _open_replicas(self, disk: Disk) -> None:
        """Open the replicas of this broker, with the drivers that flush logs, fetch from leaders,
        read ahead and report to the controller."""
        config, clock, errors = self.config, self._clock, self.errors
        lifecycle = self.lifecycle.lifecycle
        assignments = Assignments(config.node_id, self.controller, lambda: lifecycle.broker_epoch)
        flusher = Flusher(clock, errors)
        keeper = IsrKeeper(self.table, config, lambda: lifecycle.broker_epoch)
        fetchers = ReplicaFetchers(
            config,
            table=self.table,
            clock=clock,
            broker_epoch=lambda: lifecycle.broker_epoch,
            quota=self.core.replication_quotas.follower,
            errors=errors,
        )
        if self.tier is not None:
            fetchers.tier_starts = self.tier.starts
        work = LogWork(errors)
        read_aheads = ReadAheads(disk, errors)
        remote_reads = RemoteReadTasks(errors)
        letters = DeadLetterSender(
            config,
            table=self.table,
            clock=clock,
            controller=self.controller,
            errors=errors,
            own=self._loopback,
        )
        self.core.open_replicas(
            ReplicaPorts(
                logs=self.logs,
                fetchers=fetchers,
                work=work,
                on_flush_due=flusher.request,
                on_isr_due=keeper.note,
                on_placed=assignments.report,
                bring_in=read_aheads.bring_in,
                coordinators=self._verifications,
                run_look_ups=side_by_side,
                remote=RemotePorts(
                    reads=NoRemoteReads() if self.tier is None else self.tier.reads,
                    run=remote_reads.begin,
                    within=within,
                ),
                letters=letters,
            )
        )
        self._replicas = self.core.replicas
        self.metadata = self.core.metadata
        self._directories = LogDirectories(
            config,
            logs=self.logs,
            table=self.table,
            replicas=self._replicas,
            lifecycle=self.lifecycle,
            member=self.member,
            move_quota=self.core.replication_quotas.log_dirs,
        )
        isr = IsrDriver(keeper, self.controller, clock, errors)
        for part in (
            flusher, assignments, fetchers, work, read_aheads, remote_reads, isr, letters,
        ):  # fmt: skip
            part.register_with(self.parts)

    def _register_parts(self) -> None:
        core = self.core
        alarm = Alarm(self._clock, lambda: self.purgatory.next_deadline_ms, self.purgatory.expire)
        self.purgatory.on_earlier_deadline = alarm.rearm
        all_parts: tuple[BrokerPart, ...] = (
            alarm,
            self.lifecycle,
            self._directories,
            core.data,
            core.replication_quotas,
            self._verifications,
            *map(CoordinatorDriver, core.coordinators),
            self._markers,
            ShareStatePruner(core.share_states),
            self.telemetry,
            IdleUsages(self._clock, core.quotas, self.connections),
            KeyReader(core.authenticators.key_plans, self.errors),
        )
        for part in all_parts:
            part.register_with(self.parts)

    def _register_metrics(self) -> None:
        core = self.core
        register_network_metrics(
            self.parts, lambda: self.server.metrics, self.connections, core.authenticators
        )
        register_log_metrics(
            self.parts, self.logs, self._directories.free_spaces, lambda: self.member.reserved_bytes
        )
        register_metrics(
            self.parts,
            core,
            self.member,
            transaction_figures=lambda: (
                core.transactions.metrics()
                | self._markers.metrics()
                | self._verifications.metrics()
            ),
            verifications=self._verifications.durations,
        )

    @property
    def registry(self) -> Registry:
        """Registry of the metrics of this broker and of its process."""
        return self.parts.metrics

    @property
    def metrics_port(self) -> int | None:
        """Port of the HTTP endpoint /metrics, or None if the broker does not serve it."""
        return self.own_telemetry.metrics_port

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of each listener of this broker, by the listener's name."""
        return self.server.addresses

    def _unready(self) -> str | None:
        lifecycle = self.lifecycle.lifecycle
        return unready_reason(
            lifecycle.state.name,
            is_fenced=lifecycle.is_fenced,
            is_serving=self.is_ready.is_set(),
            is_caught_up=self.member.is_caught_up,
        )

    def _metadata_offset(self) -> Offset:
        return Offset(self.member.applied_end_offset - 1)

    async def run(self) -> None:
        """Start all components of this broker, then run their background tasks until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.own_telemetry.run)
            for name, work in self.parts.tasks:
                nursery.start_soon(keep_running, name, work, self.errors)
            await self._start(nursery)

    async def _start(self, nursery: trio.Nursery) -> None:
        for early in (
            self.core.authorization,  # First, so that new ACLs apply before clients see the image.
            OwnSettingsPublisher(self.config, self._certificates.take_over),
            self.metadata,
            DynamicSettings(self.config, self.parts.settings),
            SettingsWithoutEffect(),
            ConnectionBoundsPublisher(
                self.config.node_id, self.config.connections, self._bound_connections
            ),
            QuotaPublisher(self.core.quotas, self.connections),
        ):
            self.member.add_publisher(early)
        with trio.move_on_after(self.config.initial_registration_timeout_ms / 1000) as patience:
            await self.member.wait_caught_up()
        if patience.cancelled_caught:
            raise RefusedError(
                ErrorCode.NETWORK_EXCEPTION,
                "the controllers of controller.quorum.voters did not bring this broker up to date "
                "within initial.broker.registration.timeout.ms; are they running?",
            )
        self.core.authenticators.follow(self.member)
        await self._register(nursery)
        readiness = Readiness(self.config.node_id)
        for publisher in (
            self._replicas,
            self.core.groups,
            self.core.share_states,
            self._share_persister,
            self._markers,
            self.core.transactions,
            self.telemetry,
            *(() if self.tier is None else (self.tier.manager,)),
            ImageWatch(self.purgatory, self.metadata),
            readiness,
        ):
            self.member.add_publisher(publisher)
        await readiness.is_introduced.wait()
        await self.lifecycle.wait_unfenced()
        await readiness.is_active.wait()
        # Not earlier: a fenced broker's image lacks the broker itself, or has no brokers at all.
        self._register_all()
        self.is_ready.set()

    async def _register(self, nursery: trio.Nursery) -> None:
        registration = Registration(
            self.config,
            cluster_id=self.cluster_id,
            rng=self._rng,
            server=self.server,
            member=self.member,
            logs=self.logs,
            replicas=self._replicas,
            lifecycle=self.lifecycle,
        )
        registered = await registration.register()
        nursery.start_soon(self.lifecycle.run)
        nursery.start_soon(keep_running, "attendance", self.lifecycle.attendance.run, self.errors)
        await registration.settle(registered)

    async def leave(self) -> None:
        """Prepare this broker for its stop: export the metrics that clients pushed, and wait until
        the controller has moved the broker's leaderships to other brokers."""
        await self.telemetry.flush()
        await self.lifecycle.leave()

    def _register_early(self) -> None:
        """Register the APIs that report this broker's state while it starts."""
        lifecycle = self.lifecycle.lifecycle
        self.dispatcher.on_file_error = self.logs.on_file_error
        self.core.register_early(
            cluster_id=self.cluster_id,
            describe_node=DescribeNodeApi(
                node_id=self.config.node_id,
                state=lambda: lifecycle.state.name,
                recovery=lambda: recovery_of(self.logs.directories),
                problems=self.parts.all_problems,
                directories=self._directories.free_spaces,
                replica_of=partial(replica_report, self.logs),
                metric_sources=(self.parts.all_figures,),
                image=lambda: self.metadata.image,
                traffic=lambda: self.core.traffic.by_topic().items(),
                quotas=self.core.quotas,
            ),
            coming=BROKER_KEYS,
            offers_telemetry=self.telemetry.is_offered,
        )

    def _register_all(self) -> None:
        """Register the handlers of all APIs that need a running broker."""
        self.core.register(cluster_id=self.cluster_id, controller=self.controller)
        AlterCertificates(self.config, self._certificates, self.metadata).wrap_handlers(
            self.dispatcher
        )
        if self.tier is not None:
            refusals = StoreRefusals(self.tier.refusal, lambda: self.metadata.image)
            refusals.wrap_handlers(self.dispatcher)
        self._register_own_requests()
        register_replica_apis(self.dispatcher, table=self.table, logs=self.logs)
        self.telemetry.register_apis(self.dispatcher)

    def _register_own_requests(self) -> None:
        own = OwnRequests(self.config)
        for warning in self.core.warnings():
            logger.warning("%s", warning)
        now_ms = self._clock.wall_ms
        own.register(self.dispatcher, DRAIN_BROKER, DrainApi(self.lifecycle).handle)
        cleaner = DescribeCleanerApi(self.logs, now_ms)
        own.register(self.dispatcher, DESCRIBE_CLEANER, cleaner.handle)
        changes = MetadataChangesApi(self.member)
        own.register(self.dispatcher, DESCRIBE_METADATA_CHANGES, changes.handle)
        own.register(self.dispatcher, CLEAN_LOGS, CleanLogsApi(self.logs, now_ms).handle)
        own.register(self.dispatcher, OFFLOAD_LOGS, OffloadLogsApi(self.logs, now_ms).handle)
        self.dispatcher.wrap(WRITE_SNAPSHOT, own.guarded)

    def _bound_connections(self, bounds: ConnectionBounds) -> None:
        self.connections.bounds = bounds
        self.server.resume_accepting()


def _controller_client(rpc: Rpc, config: BrokerConfig, member: QuorumMember) -> ControllerClient:
    """Return the client that sends requests to the active controller. The client finds this
    controller through the quorum voters in the metadata log."""
    return ControllerClient(
        rpc,
        config.controllers,
        lambda: member.leader_id,
        lambda: addresses_of(member.identity),
    )
