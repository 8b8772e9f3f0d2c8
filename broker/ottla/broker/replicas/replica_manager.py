"""Applies the metadata to the replicas on this broker: creates, deletes, leads and follows them.

The replica manager is a metadata publisher, and never waits for a disk. Changes in memory are made
at once. Disk work (open, delete, complete a truncation) is added to `LogWork`, whose steps read the
metadata again when they run. Requests are served from the partition table meanwhile: with
NOT_LEADER_OR_FOLLOWER until a new log is open, and as unknown once a topic is deleted.

For each partition, the log of a deleted topic is deleted before a log with the same name is
created. This broker stops following a partition before it leads the partition, follows another
leader or removes it. While disk work of the follower still changes the log, the log is detached,
and the partition neither leads nor follows. The first image is compared with all the logs that were
recovered under an older image.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ottla.broker.cluster.settings.dynamic_settings import (
    PRODUCER_ID_EXPIRATION_MS,
    setting_in_force,
)
from ottla.broker.cluster.settings.topic_settings import topic_config_of, topic_defaults_of_image
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partition_port import PartitionPort
from ottla.broker.replicas.partition_table import PartitionTable
from ottla.broker.replicas.replica_seams import DiskWork, Fetchers, Left, ReplicaLogs
from ottla.broker.replicas.topic_traffic import BrokerTraffic
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.directories import MIGRATING, UNASSIGNED
from ottla.metadata.image import FIRST_EPOCH, MetadataImage, PartitionState
from ottla.metadata.records import BROKER_RESOURCE, TOPIC_RESOURCE
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, NodeId, TopicIdPartition, TopicPartition
from ottla.model.log_events import event
from ottla.model.seams import Clock
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.admin.metadata_cache import IMAGE_CHANGED
from ottla.node.network.purgatory import Purgatory
from ottla.storage.log.log import Log
from ottla.storage.log.log_health import NoSpaceError
from ottla.storage.losses.log_losses import ReplicaPlacement
from ottla.storage.segments.log_config import LogConfig

logger = logging.getLogger("ottla.broker.replicas")


OPEN_RETRY_MS = 5_000
"""Minimum milliseconds between two attempts to create a log after a failure. A smaller value costs
a slow disk more writes, since each attempt may write."""

APPLIED_PER_TURN = 100
"""Number of partitions to which a new metadata image is applied before other tasks run. Each
partition takes about 20 µs. A larger value occupies the event loop longer. A smaller value only
adds iterations."""


class TopicSettings(NamedTuple):
    """Settings of one topic: the values that the broker uses, and the values that the topic's logs
    use."""

    topic: TopicConfig
    log: LogConfig


class ReplicaManager:
    """Metadata publisher that applies the metadata to the replicas on this broker. It owns the
    partition table."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        table: PartitionTable,
        logs: ReplicaLogs,
        purgatory: Purgatory,
        clock: Clock,
        fetchers: Fetchers,
        work: DiskWork,
        port: PartitionPort[Partition],
        on_placed: Callable[[TopicIdPartition, UUID], None],
        on_led: Callable[[Partition], None] = lambda partition: None,
        traffic: BrokerTraffic | None = None,
        errors: UnexpectedErrors | None = None,
    ) -> None:
        """Create the replica manager. `port` is passed to each partition.

        `on_placed` is called for each replica whose log directory differs from the directory in the
        metadata. `on_led` is called for each replica that the metadata names as leader, once its
        log is open. Opening the log may take long.
        """
        self._config = config
        self._local_id = config.node_id
        self.table = table
        self._logs = logs
        self._purgatory = purgatory
        self._clock = clock
        self._fetchers = fetchers
        self._work = work
        self._on_led = on_led
        self._port = port
        self._on_placed = on_placed
        self._traffic = BrokerTraffic() if traffic is None else traffic
        self._errors = errors or UnexpectedErrors()
        self._eligibility = self._is_eligible
        """The one method object that all partitions get. Otherwise each would get one of 64 bytes
        of its own."""
        self._has_published = False
        self._without_log: dict[TopicIdPartition, Partition] = {}
        self._detached: set[Partition] = set()
        """Partitions whose logs a follower's disk operation is still changing. They neither lead
        nor follow."""
        self._retry_at_ms = 0
        self._settings: dict[str, TopicSettings] = {}
        self._topic_defaults: dict[str, str] | None = None

    @property
    def name(self) -> str:
        """Name of this metadata publisher (a component that applies each new metadata image), for
        fault reports."""
        return "replicas"

    async def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Lead, follow and remove partitions as the metadata changes, and request the creation and
        deletion of their logs."""
        if not self._has_published:
            self._begin(image)
        changed = [
            found for found in delta.changed_partitions if _holds(image, found, self._local_id)
        ]
        removed = self._removed(delta, image)
        busy = self._fetchers.leave(
            [partition.key for partition in removed]
            + [found for found in changed if self._has_new_leader(image, found)]
        )
        self.table.image = image
        reset = self._forget_settings(delta)
        # One event for all partitions: the fetch of a follower or consumer that waits for many of
        # them would otherwise read all removed ones again at each removal.
        with self._purgatory.one_event:
            for partition in removed:
                self._remove(partition)
        for topic in delta.deleted_topics:
            self._settings.pop(topic.name, None)
        # Before other tasks get a turn: a lookup of a recreated topic must not find the old log.
        for partition in removed:
            self._delete_soon(partition, busy.get(partition.key))
        for count, found in enumerate(changed, 1):
            self._apply(image, found, busy.get(found))
            if count % APPLIED_PER_TURN == 0:
                await self._work.yield_to_loop()
        # Only now, since a lower min.insync.replicas must not let a deposed leader commit on its
        # own.
        self._apply_settings(reset, image)
        if delta.changed_brokers:
            self._note_brokers()
        if self._logs.losses:
            self._forget_losses(image)
        self.retry()

    def _begin(self, image: MetadataImage) -> None:
        """Apply the first published image to the replicas that were recovered under an older image.

        A replica is deleted if the older image assigns it to this broker and the first published
        image does not. A change between the two images would normally have deleted it.
        """
        self._has_published = True
        self._settings.clear()
        self._topic_defaults = None
        gone = [at for at, log in self._logs if self.is_stray(image, at, log.topic_id)]
        gone += [at for at in self._logs.offline if not self._is_placed_here(image, at)]
        for at in gone:
            logger.info("%s is deleted: it went while this broker started", at)
            self._work.add(at, partial(self._delete_log, at, None))

    def _has_new_leader(self, image: MetadataImage, found: TopicIdPartition) -> bool:
        partition = self.table.by_id.get(found.topic_id, {}).get(found.partition)
        state = image.partition(found)
        return (
            partition is not None
            and state is not None
            and (state.leader, state.leader_epoch) != (partition.leader_id, partition.leader_epoch)
        )

    def _note_brokers(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for partition in self.table:
            partition.on_brokers_changed(now_ms)

    # ---- changes in memory

    def _removed(self, delta: MetadataDelta, image: MetadataImage) -> list[Partition]:
        by_id = self.table.by_id
        gone = [
            partition
            for topic in delta.deleted_topics
            for partition in by_id.get(topic.id, {}).values()
        ]
        for topic_id, index in delta.changed_partitions:
            partition = by_id.get(topic_id, {}).get(index)
            state = image.partition(TopicIdPartition(topic_id, index))
            if partition is not None and (state is None or self._local_id not in state.replicas):
                gone.append(partition)
        return gone

    def _remove(self, partition: Partition) -> None:
        self.table.remove(partition)
        if partition.topic not in self.table.by_name:
            self._traffic.forget(partition.topic)
        self._without_log.pop(partition.key, None)
        partition.remove()

    def _apply(
        self, image: MetadataImage, found: TopicIdPartition, until_left: Left | None
    ) -> None:
        """Apply a metadata image to a partition on this broker. If the partition has no log,
        request its opening."""
        topic = image.topics[found.topic_id]
        state = topic.partitions[found.partition]
        partition = self.table.by_id.get(topic.id, {}).get(found.partition)
        if partition is None:
            partition = Partition(
                topic.name,
                topic.id,
                found.partition,
                local_id=self._local_id,
                is_eligible=self._eligibility,
                port=self._port,
                lag_ms_max=self._config.replica_lag_time_ms_max,
                traffic=self._traffic.of(topic.name),
            )
            self.table.add(partition)
        if until_left is not None and partition.log is not None:
            self._detach_log(partition, until_left)
        partition.apply(
            state, self._settings_of(image, topic.name).topic, self._clock.monotonic_ms()
        )
        if partition.log is not None:
            self._follow(partition)
        elif partition not in self._detached:
            self._open_soon(partition, state)

    def _detach_log(self, partition: Partition, until_left: Left) -> None:
        """Stop leading and following a partition until the follower's running disk operation on its
        log has finished."""
        log = partition.detach_log()
        self._detached.add(partition)

        async def take_back() -> None:
            await until_left()
            self._detached.discard(partition)
            if not partition.is_removed:
                # The replica may have moved to another directory meanwhile, or failed.
                with suppress(RefusedError):
                    self._attach(partition, self._logs.get(_name_of(partition)) or log)
                    return
                self._attach(partition, log)

        self._work.add(_name_of(partition), take_back)

    def _follow(self, partition: Partition) -> None:
        """Start to fetch a partition from its leader. Has no effect if this broker leads the
        partition. The partition must have a log."""
        if not partition.is_leader:
            self._fetchers.follow(partition)

    def _is_eligible(self, replica: NodeId, broker_epoch: int) -> bool:
        broker = self.table.image.brokers.get(replica)
        return broker is not None and broker.is_active and broker_epoch in (broker.epoch, -1)

    def _forget_settings(self, delta: MetadataDelta) -> Iterable[str]:
        """Drop the cached settings of topics that a metadata change may have affected. Returns the
        names of these topics."""
        changed = delta.changed_configs
        defaults_changed = any(
            kind == BROKER_RESOURCE and name in ("", str(self._local_id)) for kind, name in changed
        )
        if defaults_changed:
            self._settings.clear()
            self._topic_defaults = None
        for kind, name in changed:
            if kind == TOPIC_RESOURCE:
                self._settings.pop(name, None)
        if defaults_changed:
            return sorted(self.table.by_name)
        return [name for kind, name in changed if kind == TOPIC_RESOURCE]

    def _apply_settings(self, names: Iterable[str], image: MetadataImage) -> None:
        for name in names:
            for local in list(self.table.by_name.get(name, {}).values()):
                settings = self._settings_of(image, name)
                if local.log is not None:
                    if _keeps_otherwise(local.log.config, settings.log):
                        self._logs.apply_retention_soon()
                    local.log.config = settings.log
                local.apply_config(settings.topic, self._clock.monotonic_ms())

    def _settings_of(self, image: MetadataImage, topic: str) -> "TopicSettings":
        """Return the effective settings of a topic. All topics without dynamic settings share one
        object."""
        name = topic if (TOPIC_RESOURCE, topic) in image.configs else ""
        found = self._settings.get(name)
        if found is None:
            if self._topic_defaults is None:
                self._topic_defaults = topic_defaults_of_image(image, self._config)
            config = topic_config_of(image, name, self._topic_defaults)
            found = self._settings[name] = TopicSettings(
                config,
                LogConfig.of_topic(
                    config,
                    producer_id_expiration_ms=setting_in_force(
                        image, self._config, PRODUCER_ID_EXPIRATION_MS
                    ),
                ),
            )
        return found

    # ---- disk work

    def is_opening(self, topic: str) -> bool:
        """Return whether logs of a topic are being opened on this broker for the first time. If
        they are, the caller can wait until they are open."""
        opening = self.table.opening.get(topic)
        if opening is not None:
            self._work.start_delayed(map(_name_of, opening))
        return opening is not None

    def retry(self) -> None:
        """Retry the creation of logs that failed, if OPEN_RETRY_MS has passed since the last
        attempt. A full disk may have space again."""
        now_ms = self._clock.monotonic_ms()
        if not self._without_log or now_ms < self._retry_at_ms:
            return
        waiting, self._without_log = self._without_log, {}
        for partition in waiting.values():
            self._work.add(_name_of(partition), partial(self._open_log, partition))

    def _delete_soon(self, partition: Partition, until_left: Left | None) -> None:
        self._work.add(
            _name_of(partition), partial(self._delete_log, _name_of(partition), until_left)
        )

    async def _delete_log(self, at: TopicPartition, until_left: Left | None) -> None:
        if until_left is not None:
            await until_left()
        try:
            await self._logs.delete(at)
        except RefusedError as error:
            logger.error("%s is not deleted: %s", at, error.message)

    def _open_soon(self, partition: Partition, state: PartitionState) -> None:
        """Attach the log of a partition if the log exists, or request its creation."""
        if partition.storage_failure is not None:
            return  # `retry` tries again later.
        at = _name_of(partition)
        if not self._work.has_steps(at):  # One of the steps may be the log's deletion.
            with suppress(RefusedError):
                log = self._logs.get(at)
                if log is not None and log.topic_id == partition.topic_id:
                    self._attach(partition, log)
                    self._report_placement(partition, state)
                    return
        opening = self.table.opening.setdefault(partition.topic, {})
        if partition not in opening:
            opening[partition] = None
            self._work.add_later(at, partial(self._open_first, partition))

    async def _open_first(self, partition: Partition) -> None:
        """Open a partition's log for the first time. Requests for the topic may wait until the log
        is open."""
        try:
            await self._open_log(partition)
        finally:
            opening = self.table.opening[partition.topic]
            del opening[partition]
            if not opening:
                del self.table.opening[partition.topic]
                self._purgatory.wake(IMAGE_CHANGED)

    async def _open_log(self, partition: Partition) -> None:
        state = self.table.image.partition(partition.key)
        if partition.is_removed or partition.log is not None or state is None:
            return
        at = _name_of(partition)
        try:
            log = self._logs.get(at)
            if log is not None and log.topic_id != partition.topic_id:
                await self._logs.delete(at)  # Its topic was deleted, and a new topic has the name.
            log = await self._logs.create(
                at,
                partition.topic_id,
                self._settings_of(self.table.image, partition.topic).log,
                directory_id=_assigned_directory_of(state, self._local_id),
                holds_nothing=_holds_nothing(state, self._local_id),
            )
        except RefusedError as error:
            if partition.is_removed:
                return
            if partition.storage_failure != error.message and not isinstance(error, NoSpaceError):
                logger.error("%r is offline: %s", partition, error.message)
            partition.storage_failure = error.message
            if not self._without_log:
                self._retry_at_ms = self._clock.monotonic_ms() + OPEN_RETRY_MS
            self._without_log[partition.key] = partition
            return
        # The partition may have been removed meanwhile; its deletion follows this step.
        if not partition.is_removed and partition.log is None:
            self._attach(partition, log)
            self._report_placement(partition, state)

    def _attach(self, partition: Partition, log: Log) -> None:
        """Attach a log to a partition under the topic's current settings. The partition then begins
        to lead or follow."""
        if log.failure is not None:  # Its directory failed while the log was detached.
            partition.fail(log.failure)
            return
        settings = self._settings_of(self.table.image, partition.topic).log
        if _keeps_otherwise(log.config, settings):
            self._logs.apply_retention_soon()
        log.config = settings
        partition.storage_failure = None
        self._without_log.pop(partition.key, None)
        partition.attach(log, self._clock.monotonic_ms())
        self._follow(partition)
        if partition.is_leader:
            self._on_led(partition)

    def _report_placement(self, partition: Partition, state: PartitionState) -> None:
        directory = self._logs.directory_of(TopicPartition(partition.topic, partition.index))
        placed = None if directory is None else directory.directory_id
        if placed is not None and placed != _directory_of(state, self._local_id):
            self._on_placed(partition.key, placed)

    def on_moved(self, at: TopicPartition, log: Log) -> None:
        """Switch a partition to its log in another log directory, after a move that has copied all
        records."""
        partition = self.table.by_name.get(at.topic, {}).get(at.partition)
        if partition is not None and partition.log is not None:
            log.config = self._settings_of(self.table.image, at.topic).log
            partition.change_log(log)

    def report_place(self, at: TopicPartition, directory_id: UUID) -> None:
        """Report the log directory of this broker's replica to the controller, even if another
        directory was reported before."""
        partition = self.table.by_name.get(at.topic, {}).get(at.partition)
        if partition is not None:
            self._on_placed(partition.key, directory_id)

    def is_placed(self, at: TopicPartition, directory_id: UUID) -> bool:
        """Return whether the metadata names this log directory for the broker's replica.

        If the metadata names another directory, the actual directory is reported to the controller.
        Raises RefusedError if the broker has no replica of the partition.
        """
        partition = self.table.by_name.get(at.topic, {}).get(at.partition)
        state = None if partition is None else self.table.image.partition(partition.key)
        if partition is None or state is None or self._local_id not in state.replicas:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{at} is gone")
        is_placed = _directory_of(state, self._local_id) == directory_id
        if not is_placed:
            self._on_placed(partition.key, directory_id)
        return is_placed

    def on_directory_failed(self, path: str, reason: str) -> None:
        """Stop leading and following the partitions in a log directory that went offline.

        A follower in such a directory must not continue to fetch from its log end. It would count
        as caught up, and would rejoin the ISR with a log that rejects appends.
        """
        failed = [
            partition
            for partition in self.table
            if partition.log is not None and partition.log.directory.startswith(f"{path}/")
        ]
        logger.error(
            "directory %s is offline with %d partitions: %s",
            path,
            len(failed),
            reason,
            extra=event("directory.failed", directory=path, partitions=len(failed)),
        )
        self._fetchers.leave([partition.key for partition in failed])
        with self._purgatory.one_event:
            for partition in failed:
                partition.fail(reason)

    def log_config_of(self, image: MetadataImage, partition: TopicPartition) -> LogConfig:
        """Return the settings with which the log of a partition is opened when the broker
        starts."""
        return self._settings_of(image, partition.topic).log

    def directory_id_of(self, image: MetadataImage, partition: TopicPartition) -> UUID | None:
        """Return the id of the log directory that the metadata names for this broker's replica, or
        None if it names no directory."""
        topic = image.topic(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        if state is None or self._local_id not in state.replicas:
            return None
        return _assigned_directory_of(state, self._local_id)

    async def placements_of(self, image: MetadataImage) -> list[ReplicaPlacement]:
        """Return the replicas that a metadata image assigns to this broker. At broker startup they
        are compared with the logs on disk, to find lost replicas."""
        placements = []
        for count, (found, state) in enumerate(image.partitions_of(self._local_id), 1):
            is_new = state.partition_epoch == 0 and state.leader_epoch == FIRST_EPOCH
            placements.append(
                ReplicaPlacement(
                    topic_id=found.topic_id,
                    partition=TopicPartition(image.topics[found.topic_id].name, found.partition),
                    directory_id=_assigned_directory_of(state, self._local_id),
                    is_counted_on=not is_new
                    and self._local_id in (*state.isr, *state.elr, *state.last_known_elr),
                )
            )
            if count % APPLIED_PER_TURN == 0:
                await self._work.yield_to_loop()
        return placements

    def _forget_losses(self, image: MetadataImage) -> None:
        """Delete the records of losses (lost acknowledged records) of replicas that are in sync
        again, or no longer on this broker.

        The record is kept for a follower with a hole in its log, although the follower may be in
        sync.
        """
        for key, loss in self._logs.losses.items():
            state = image.partition(key)
            is_here = state is not None and self._local_id in state.replicas
            if state is not None and state.leader != self._local_id and self._has_hole(key):
                continue
            if not is_here or _is_in_sync(state, self._local_id):
                self._work.add(loss.partition, partial(self._logs.forget_losses, [key]))

    def _has_hole(self, key: TopicIdPartition) -> bool:
        partition = self.table.by_id.get(key.topic_id, {}).get(key.partition)
        log = None if partition is None else partition.log
        return log is not None and log.hole_offset is not None

    def is_stray(
        self, image: MetadataImage, partition: TopicPartition, topic_id: UUID | None
    ) -> bool:
        """Return whether a log on disk at broker startup belongs to no current replica of this
        broker."""
        topic = image.topic(partition.topic)
        if topic is None or topic.id != topic_id:
            return True
        return not self._is_placed_here(image, partition)

    def _is_placed_here(self, image: MetadataImage, partition: TopicPartition) -> bool:
        topic = image.topic(partition.topic)
        state = None if topic is None else topic.partitions.get(partition.partition)
        return state is not None and self._local_id in state.replicas


def _name_of(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.index)


def _keeps_otherwise(old: LogConfig, new: LogConfig) -> bool:
    return (old.retention_ms, old.retention_bytes, old.is_deleted_by_retention) != (
        new.retention_ms,
        new.retention_bytes,
        new.is_deleted_by_retention,
    )


def _holds(image: MetadataImage, found: TopicIdPartition, broker: NodeId) -> bool:
    state = image.partition(found)
    return state is not None and broker in state.replicas


def _is_in_sync(state: PartitionState | None, replica: NodeId) -> bool:
    """Return whether a replica is in the ISR of its partition, and therefore has all committed
    records."""
    return state is not None and replica in state.isr and state.leader != NO_NODE


def _directory_of(state: PartitionState, replica: NodeId) -> UUID | None:
    return state.directory_of(replica) if state.directories else None


def _assigned_directory_of(state: PartitionState, replica: NodeId) -> UUID | None:
    """Return the id of the log directory that the metadata names for a replica, or None if it names
    no directory."""
    found = _directory_of(state, replica)
    return None if found in (UNASSIGNED, MIGRATING) else found


def _holds_nothing(state: PartitionState, replica: NodeId) -> bool:
    """Return whether a replica is new, which means that it cannot have had any record.

    A replica is new if no log directory was reported for it, or if its partition is unchanged since
    its creation. A replica that was only removed from the ISR is not new, because an unclean
    election may need its records. A replica that lost its log may be created again, because the
    controller knows the loss and elects it last.
    """
    if replica in state.lost:
        return True
    if _assigned_directory_of(state, replica) is None:
        return True
    return state.partition_epoch == 0 and state.leader_epoch == FIRST_EPOCH
