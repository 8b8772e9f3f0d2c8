"""A broker at work: its parts, who tells whom, and how it starts to serve once it is opened."""

import logging
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from ottla.broker.authentication.authenticators import Authenticators
from ottla.broker.authentication.jwks_driver import KeyReader
from ottla.broker.broker_core import BROKER_API_KEYS, BrokerCore, ReplicaPorts
from ottla.broker.cluster.alter_certificates_driver import AlterCertificates
from ottla.broker.cluster.assignments_driver import Assignments
from ottla.broker.cluster.cleaner_api import CleanLogsApi, DescribeCleanerApi, refused_cleaning
from ottla.broker.cluster.describe_node import (
    DescribeNodeApi,
    offline_problems,
    recovery_of,
    replica_report,
)
from ottla.broker.cluster.drain_api import DrainApi, refused_drain
from ottla.broker.cluster.dynamic_settings import (
    CLEANER_SETTINGS,
    FOLLOWER_REPLICATION_RATE,
    LEADER_REPLICATION_RATE,
    LOG_DIRS_MOVE_RATE,
    PARTITION_VERIFICATION,
    ConnectionBoundsPublisher,
    DynamicSettings,
    OwnSettingsPublisher,
    throttles_of,
)
from ottla.broker.cluster.lifecycle import Lifecycle
from ottla.broker.cluster.lifecycle_driver import LifecycleDriver
from ottla.broker.cluster.metadata_cache import ImageWatch
from ottla.broker.cluster.own_requests import OwnRequests
from ottla.broker.cluster.registration import (
    advertised_endpoints,
    name_lost_replicas,
    registration_request,
)
from ottla.broker.cluster.settings_without_effect import SettingsWithoutEffect
from ottla.broker.doors import Doors
from ottla.broker.groups.coordinator_driver import GroupCoordinator
from ottla.broker.groups.placement import partition_of
from ottla.broker.logs.producer_ids import Block
from ottla.broker.logs.read_ahead_driver import ReadAheads
from ottla.broker.logs.replica_apis import register_replica_apis
from ottla.broker.logs.transaction_questions_driver import CoordinatorQuestions
from ottla.broker.metrics.broker_metrics import BrokerParts
from ottla.broker.metrics.own_telemetry_driver import BrokerTelemetry
from ottla.broker.metrics.telemetry_driver import ClientTelemetry
from ottla.broker.network.alarm_driver import Alarm
from ottla.broker.network.dispatch import Dispatcher
from ottla.broker.network.loopback_driver import Loopback
from ottla.broker.network.server_seam import Server
from ottla.broker.network.side_by_side_driver import side_by_side
from ottla.broker.quotas.idle_driver import IdleUsages
from ottla.broker.quotas.move_throttle_driver import MoveThrottle
from ottla.broker.quotas.quota_publisher import QuotaPublisher
from ottla.broker.readiness_driver import Readiness
from ottla.broker.replicas.flush_driver import Flusher
from ottla.broker.replicas.isr_driver import IsrDriver
from ottla.broker.replicas.isr_keeper import IsrKeeper
from ottla.broker.replicas.log_work_driver import LogWork
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replica_fetcher_driver import ReplicaFetchers
from ottla.broker.replicas.replica_manager import OPEN_RETRY_MS
from ottla.broker.transactions.marker_driver import MarkerSender
from ottla.broker.transactions.producer_id_stock_driver import ProducerIdStock
from ottla.broker.transactions.transaction_driver import TransactionCoordinator
from ottla.model.background_driver import keep_running
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import Offset, ProducerId, TopicPartition
from ottla.model.seams import Clock, Rng
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.connections import ConnectionBounds
from ottla.model.settings.cordoned import CORDONED_LOG_DIRS, check_cordoned, is_cordoned
from ottla.node.quorum_driver import QuorumMember
from ottla.proto import controller_pb2 as pb
from ottla.rpc.controller_client import ControllerClient
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk_room import RoomReport
from ottla.storage.disk_seam import Disk
from ottla.storage.log_directory_driver import LogDirectory
from ottla.storage.log_manager_driver import LogManager
from ottla.telemetry.instruments import Registry
from ottla.wire.apis import CLEAN_LOGS, DESCRIBE_CLEANER, DRAIN_BROKER

PLACED_POLL_S = 0.1
"""How often it is looked whether the metadata knows where a replica lies that moves."""
MACHINE_ID_FILE = Path("/etc/machine-id")

logger = logging.getLogger("ottla.broker")


class Broker:
    """A broker at work; made by `open_broker`."""

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
        doors: Doors,
        authenticators: Authenticators,
    ) -> None:
        self.config = config
        self.cluster_id = cluster_id
        self.server = server
        self.connections, self._certificates = doors
        self.member = member
        self.logs = logs
        self.dispatcher = dispatcher
        self.is_ready = trio.Event()
        self._clock = clock
        self._rng = rng
        self.controller = ControllerClient(
            rpc, config.controller_quorum_voters, lambda: member.leader_id
        )
        self.lifecycle = self._new_lifecycle(lifecycle)
        self._assignments = Assignments(
            config.node_id, self.controller, lambda: lifecycle.broker_epoch
        )
        self.errors = dispatcher.errors
        """What was caught at the edges of all its parts."""
        self.core = BrokerCore(
            config, clock=clock, rng=rng, dispatcher=dispatcher, authenticators=authenticators
        )
        self.purgatory = self.core.purgatory
        self.table = self.core.table
        self._flusher = Flusher(clock, self.errors)
        self._isr = IsrKeeper(self.table, config, lambda: lifecycle.broker_epoch)
        self._isr_driver = IsrDriver(self._isr, self.controller, clock, self.errors)
        self._fetchers = self._new_fetchers()
        self._log_work = LogWork(self.errors)
        self._read_aheads = ReadAheads(disk, self.errors)
        self._loopback = Loopback(dispatcher, clock)
        self._questions = self._new_questions()
        self._groups = self._new_group_coordinator()
        self._producer_ids = ProducerIdStock(self._allocate_producer_ids)
        self._transactions = self._new_transaction_coordinator()
        self._markers = self._new_marker_sender()
        self._open_replicas()
        self.telemetry = ClientTelemetry(config, clock=clock, rng=rng, errors=self.errors)
        self._alarm = Alarm(clock, lambda: self.purgatory.next_deadline_ms, self.purgatory.expire)
        self.purgatory.on_earlier_deadline = self._alarm.rearm
        self._attend_to(logs)
        self.own_telemetry = self._new_own_telemetry()
        self._cordon(config.cordoned_log_dirs)
        self._idle_usages = IdleUsages(clock, self.core.quotas, self.connections)
        self._open_first_doors()

    def _new_lifecycle(self, lifecycle: Lifecycle) -> LifecycleDriver:
        return LifecycleDriver(
            lifecycle,
            self.config,
            self.controller,
            metadata_offset=self._metadata_offset,
            errors=self.dispatcher.errors,
        )

    def _new_fetchers(self) -> ReplicaFetchers:
        return ReplicaFetchers(
            self.config,
            table=self.table,
            clock=self._clock,
            broker_epoch=lambda: self.lifecycle.lifecycle.broker_epoch,
            quota=self.core.replication_quotas.follower,
            errors=self.errors,
        )

    def _open_replicas(self) -> None:
        ports = ReplicaPorts(
            logs=self.logs,
            fetchers=self._fetchers,
            work=self._log_work,
            on_flush_due=self._flusher.request,
            on_isr_due=self._isr.note,
            on_placed=self._assignments.report,
            on_led=self._on_led,
            bring_in=self._read_aheads.bring_in,
            coordinators=self._questions,
            run_look_ups=side_by_side,
        )
        self.core.open_replicas(ports)
        self._replicas = self.core.replicas
        self.metadata = self.core.metadata

    def _attend_to(self, logs: LogManager) -> None:
        logs.on_directory_failed = self._on_directory_failed
        logs.on_moved = self._replicas.on_moved
        logs.moves.take = MoveThrottle(self.core.replication_quotas.log_dirs).take
        logs.moves.tell = self._until_placed
        logs.moves.take_back = self._replicas.report_place

    def _new_group_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(
            self.config.groups,
            local_id=self.config.node_id,
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            rng=self._rng,
            errors=self.errors,
            turn_end=self.dispatcher.turn_end,
        )

    def _new_questions(self) -> CoordinatorQuestions:
        return CoordinatorQuestions(
            self.config,
            table=self.table,
            clock=self._clock,
            partition_of=partition_of,
            errors=self.errors,
            own=self._loopback,
            now_ns=lambda: self.dispatcher.clock.now_ns(),
        )

    def _new_transaction_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            self.config.transactions,
            local_id=self.config.node_id,
            table=self.table,
            purgatory=self.purgatory,
            clock=self._clock,
            ids=self._producer_ids,
            errors=self.errors,
            turn_end=self.dispatcher.turn_end,
        )

    def _new_marker_sender(self) -> MarkerSender:
        coordinator = self._transactions
        sender = MarkerSender(
            self.config, on_marked=coordinator.on_marked, errors=self.errors, own=self._loopback
        )
        coordinator.send_markers = sender.send
        coordinator.cancel_markers = sender.cancel
        return sender

    def _on_led(self, partition: Partition) -> None:
        self._groups.on_led(partition)
        self._transactions.on_led(partition)

    def _new_own_telemetry(self) -> BrokerTelemetry:
        parts = BrokerParts(
            lifecycle=self.lifecycle.lifecycle,
            table=self.table,
            logs=self.logs,
            rooms=self._rooms,
            traffic=self.core.traffic,
            times=self.dispatcher.times,
            now_ms=self._clock.monotonic_ms,
            wall_ms=self._clock.wall_ms,
            transaction_timeout_ms_max=self.config.transactions.timeout_ms_max,
            isr=self._isr,
            fetchers=self._fetchers,
            replication_quotas=self.core.replication_quotas,
            flusher=self._flusher,
            sessions=self.core.sessions,
            purgatory=self.purgatory,
            member=self.member,
            shards=self._groups.shards,
            transaction_shards=self._transactions.shards,
            transactions=lambda: (
                self._transactions.metrics() | self._markers.metrics() | self._questions.metrics()
            ),
            verifications=self._questions.durations,
            network=lambda: self.server.metrics,
            connections=self.connections,
            authenticators=self.core.authenticators,
            authorizer=self.core.authorization.by_acls,
            quotas=self.core.quotas,
            heartbeats=self.lifecycle.metrics,
            errors=self.errors,
        )
        return BrokerTelemetry(
            self.config,
            parts,
            cluster_id=self.cluster_id,
            clients=self.telemetry,
            dispatcher=self.dispatcher,
            clock=self._clock,
            rng=self._rng,
        )

    @property
    def registry(self) -> Registry:
        """All that it tells of itself."""
        return self.own_telemetry.registry

    @property
    def metrics_port(self) -> int | None:
        """Where /metrics is served, if it is."""
        return self.own_telemetry.metrics_port

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where it listens, by the listeners' names."""
        return self.server.addresses

    def _metadata_offset(self) -> Offset:
        return Offset(self.member.applied_end_offset - 1)

    async def run(self) -> None:
        """Start, then do what must be done in time until cancelled."""
        keys = KeyReader(self.core.authenticators.key_plans, self.errors)
        async with trio.open_nursery() as nursery:
            await nursery.start(self.own_telemetry.run)
            for name, work in (
                ("alarm of waiting requests", self._alarm.run),
                ("flusher", self._flusher.run),
                ("directory assignments", self._assignments.run),
                ("follower", self._fetchers.run),
                ("opening and deletion of logs", self._log_work.run),
                ("read-ahead", self._read_aheads.run),
                ("retries of logs", self._retry_logs),
                ("in-sync replicas", self._isr_driver.run),
                ("questions to transaction coordinators", self._questions.run),
                ("group coordinator", self._groups.run),
                ("transaction coordinator", self._transactions.run),
                ("transaction markers", self._markers.run),
                ("client telemetry", self.telemetry.run),
                ("idle quotas", self._idle_usages.run),
                ("keys of tokens", keys.run),
            ):
                nursery.start_soon(keep_running, name, work, self.errors)
            await self._start(nursery)

    async def _retry_logs(self) -> None:
        while True:
            await trio.sleep(OPEN_RETRY_MS / 1_000)
            self._replicas.retry()

    async def _start(self, nursery: trio.Nursery) -> None:
        quotas = self.core.replication_quotas
        # First: a client that sees what an image says is judged by its ACLs.
        self.member.add_publisher(self.core.authorization)
        self.member.add_publisher(OwnSettingsPublisher(self.config, self._certificates.take_over))
        self.member.add_publisher(self.metadata)
        self.member.add_publisher(
            DynamicSettings(
                self.config,
                {
                    CORDONED_LOG_DIRS: self._cordon,
                    PARTITION_VERIFICATION: self._questions.enable,
                    LEADER_REPLICATION_RATE: quotas.leader.set_limit,
                    FOLLOWER_REPLICATION_RATE: quotas.follower.set_limit,
                    LOG_DIRS_MOVE_RATE: quotas.log_dirs.set_limit,
                    **{key: partial(self._set_up_cleaner, key) for key in CLEANER_SETTINGS},
                },
            )
        )
        self.member.add_publisher(SettingsWithoutEffect())
        self.member.add_publisher(ConnectionBoundsPublisher(self.config, self._bound_connections))
        self.member.add_publisher(QuotaPublisher(self.core.quotas, self.connections))
        with trio.move_on_after(self.config.initial_registration_timeout_ms / 1000) as patience:
            await self.member.wait_caught_up()
        if patience.cancelled_caught:
            raise RefusedError(
                ErrorCode.NETWORK_EXCEPTION,
                "the controllers of controller.quorum.voters did not bring this broker up to date "
                "within initial.broker.registration.timeout.ms; are they running?",
            )
        self.core.authenticators.follow(self.member)
        await self._recover_and_register(nursery)
        readiness = Readiness(self.config.node_id)
        for publisher in (
            self._replicas,
            self._groups,
            self._markers,
            self._transactions,
            self.telemetry,
            ImageWatch(self.purgatory, self.metadata),
            readiness,
        ):
            self.member.add_publisher(publisher)
        await readiness.is_introduced.wait()
        await self.lifecycle.wait_unfenced()
        await readiness.is_active.wait()
        # Not before: to a fenced broker the cluster is one without itself, or without any broker.
        self._open_doors()
        self.is_ready.set()

    async def _recover_and_register(self, nursery: trio.Nursery) -> None:
        self.lifecycle.lifecycle.on_caught_up()
        image = self.member.image
        # Before the registration: a replica that lost records may not be elected from there on.
        await self.logs.open_logs(
            lambda partition: self._replicas.log_config_of(image, partition),
            await self._replicas.placements_of(image),
        )
        registration, lost = self._registration(), set(self.logs.losses)
        broker_epoch = await self.lifecycle.register(name_lost_replicas(registration, lost))
        nursery.start_soon(self.lifecycle.run)
        nursery.start_soon(keep_running, "attendance", self.lifecycle.attendance.run, self.errors)
        # Publishers follow from our registration on: what the image says of us holds from there.
        await self.member.wait_applied(Offset(broker_epoch + 1))
        registered_image = self.member.image
        await self.logs.settle(
            lambda at, topic_id: self._replicas.is_stray(registered_image, at, topic_id),
            lambda at: self._replicas.directory_id_of(registered_image, at),
            await self._replicas.placements_of(registered_image),
        )
        if missed := self.logs.losses.keys() - lost:  # which the older image did not know
            await self.lifecycle.amend(name_lost_replicas(registration, missed))

    async def leave(self) -> None:
        """Let what clients reported leave, and the controller move our leaderships away."""
        await self.telemetry.flush()
        await self.lifecycle.leave()

    def _registration(self) -> pb.RegisterRequest:
        hostname = socket.gethostname()
        ports = {name: address[1] for name, address in self.server.addresses.items()}
        return registration_request(
            self.config,
            cluster_id=self.cluster_id,
            incarnation_id=self._rng.uuid(),
            endpoints=advertised_endpoints(self.config, ports, hostname),
            host=_machine_id() or hostname,
            directory_ids=[
                directory.directory_id
                for directory in self.logs.directories
                if directory.is_live and directory.directory_id is not None
            ],
            cordoned_ids=self.lifecycle.lifecycle.cordoned_directories,
            previous_broker_epoch=self.logs.previous_broker_epoch,
        )

    def _open_first_doors(self) -> None:
        """Tell who we are and how far the start is, from the first moment on."""
        lifecycle = self.lifecycle.lifecycle
        self.dispatcher.on_file_error = self.logs.on_file_error
        self.core.register_early(
            cluster_id=self.cluster_id,
            describe_node=DescribeNodeApi(
                node_id=self.config.node_id,
                state=lambda: lifecycle.state.name,
                recovery=lambda: recovery_of(self.logs.directories),
                problems=self._problems,
                directories=self._rooms,
                replica_of=partial(replica_report, self.logs),
                metric_sources=(
                    lambda: self.server.metrics,
                    lambda: self.core.authenticators.metrics,
                    self.lifecycle.metrics,
                    self._groups.metrics,
                    self._transactions.metrics,
                    self._markers.metrics,
                    self.telemetry.metrics,
                    self._metrics,
                ),
            ),
            coming=BROKER_API_KEYS,
            offers_telemetry=self.telemetry.is_offered,
        )

    def _open_doors(self) -> None:
        """Serve every API from now on."""
        self.core.register(
            cluster_id=self.cluster_id,
            controller=self.controller,
            coordinator=self._groups,
            transactions=self._transactions,
            producer_ids=self._producer_ids,
            followed=lambda: self._transactions.image,
        )
        AlterCertificates(self.config, self._certificates, self.metadata).precede(self.dispatcher)
        self._register_own_requests()
        register_replica_apis(self.dispatcher, table=self.table, logs=self.logs)
        self.telemetry.open_doors(self.dispatcher)

    def _register_own_requests(self) -> None:
        own = OwnRequests(self.config)
        for warning in self.core.warnings():
            logger.warning("%s", warning)
        drain = own.guarded(DrainApi(self.lifecycle).handle, refused_drain)
        self.dispatcher.register(DRAIN_BROKER, drain)
        now_ms = self._clock.wall_ms
        self.dispatcher.register(DESCRIBE_CLEANER, DescribeCleanerApi(self.logs, now_ms).handle)
        clean = own.guarded(CleanLogsApi(self.logs, now_ms).handle, refused_cleaning)
        self.dispatcher.register(CLEAN_LOGS, clean)

    def _rooms(self) -> list[RoomReport]:
        """Return the room of each directory, that of the metadata log last if it is another one."""
        rooms = [directory.room for directory in self.logs.directories if directory.is_live]
        rooms += [] if self.member.room in rooms else [self.member.room]
        return [room.report() for room in rooms]

    def _problems(self) -> Iterator[str]:
        """Yield what does not serve and why, for DescribeNode."""
        offline = self.logs.offline
        for partition in self.table:
            at = TopicPartition(partition.topic, partition.index)
            log = partition.log
            failure = partition.storage_failure if log is None else log.failure
            if failure is not None:
                offline.setdefault(at, failure)
            if partition.damage is not None:
                yield f"{at} has damaged records: {partition.damage}"
        yield from offline_problems(offline.items(), self.logs.losses.values())
        for at, reason in self.logs.cleaner.manager.set_aside.items():
            yield f"{at} is not compacted before 'ottla cleaner retry' or a restart: {reason}"
        yield from self.core.authenticators.problems()
        yield from self._fetchers.problems()
        yield from self._groups.problems()
        yield from self._transactions.problems()
        yield from self._markers.problems()
        yield from self.member.problems

    def _metrics(self) -> dict[str, float]:
        """Return plain numbers about this broker, for DescribeNode."""
        return {
            "fetch.sessions": len(self.core.sessions),
            "fetch.sessions.evicted": self.core.sessions.eviction_count,
            "loop.pause.longest.ms": self.own_telemetry.pauses.longest_ever_ms,
            "metadata.applied.offset": self._metadata_offset(),
            "partitions.followed": len(self._fetchers),
            "partitions.led": sum(1 for partition in self.table if partition.is_leader),
            "partitions.offline": len(self.logs.offline),
            "partitions": len(self.logs),
            "partitions.moving": len(self.logs.moves),
            **throttles_of(self.member.image, self.config.node_id),
            "requests.waiting": self.purgatory.waiting_count,
            "errors.unexpected": self.errors.counts.total(),
            **{
                f"errors.unexpected.{kind.replace(' ', '.')}": count
                for kind, count in self.errors.counts.items()
            },
        }

    async def _allocate_producer_ids(self) -> Block:
        request = pb.AllocateProducerIdsRequest(
            broker_id=self.config.node_id,
            broker_epoch=self.lifecycle.lifecycle.broker_epoch,
        )
        answer = await self.controller.allocate_producer_ids(
            request, deadline_ms=self.config.request_timeout_ms
        )
        return ProducerId(answer.producer_id_start), answer.producer_id_count

    async def _until_placed(self, at: TopicPartition, directory_id: UUID) -> None:
        """Wait until the metadata says that a replica of ours lies in a directory (KIP-858)."""
        while not self._replicas.is_placed(at, directory_id):
            await trio.sleep(PLACED_POLL_S)

    def _bound_connections(self, bounds: ConnectionBounds) -> None:
        self.connections.bounds = bounds
        self.server.reconsider_doors()

    def _set_up_cleaner(self, key: str, value: Any) -> None:
        self.logs.cleaner.reconfigure(**{CLEANER_SETTINGS[key]: value})

    def _cordon(self, paths: tuple[str, ...]) -> None:
        """Have directories take no new replica, and all others take some again."""
        try:
            check_cordoned(paths, self.config.log_dirs)
        except ConfigError as error:  # as set for all brokers, or by a request to another one
            logger.warning("%s", error)
        for directory in self.logs.directories:
            directory.is_cordoned = is_cordoned(directory.path, paths)
        self.lifecycle.report_cordoned_directories(
            tuple(
                one.directory_id
                for one in self.logs.directories
                if one.is_cordoned and one.directory_id is not None
            )
        )

    def _on_directory_failed(self, directory: LogDirectory) -> None:
        self._replicas.on_directory_failed(directory.path, directory.failure or directory.path)
        self.lifecycle.report_offline_directories(
            tuple(
                failed.directory_id
                for failed in self.logs.directories
                if not failed.is_live and failed.directory_id is not None
            )
        )


def _machine_id() -> str:
    """Return the machine's own id, as a failure domain; empty where it has none."""
    try:
        return MACHINE_ID_FILE.read_text().strip()
    except OSError:
        return ""
