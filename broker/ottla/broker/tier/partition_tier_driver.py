"""Tiered storage of one partition on this broker: performs the steps of `remote_log_manager`.

A leader runs two loops. One loop copies segments, in order; the other deletes expired copies. The
loops are separate, so that an upload that hangs does not stop deletions. A follower runs one loop,
which determines the offset up to which its log is copied. The segments of a deleted topic are
deleted from the store.

After a failure, the loop of the partition is retried after a delay, which doubles with each
failure. The object store is then checked before the next copy is announced in the metadata, so that
a store that is down does not fill the metadata topic. An upload that takes too long is cancelled.
(In a plug-in for Kafka, an upload that never returned stopped all further copies of a partition:
Aiven #820.)
"""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

import trio

from ottla.broker.replicas.partition import Partition
from ottla.broker.tier.metadata_topic import REMOTE_METADATA_TOPIC
from ottla.broker.tier.orphans import orphans_among
from ottla.broker.tier.remote_log_manager import (
    Backoff,
    LogSnapshot,
    copied_up_to,
    copies_due,
    expiry_steps,
    lost_start,
    next_state,
    start_of_leader,
    started_copy,
    steps_of_deletion,
    uncopied,
)
from ottla.broker.tier.segment_storage import SegmentMetadata, SegmentStorage, TieredTopic
from ottla.broker.tier.tier_figures import TierFigures
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.errors import OttlaError
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.model.seams import Clock, Rng
from ottla.model.settings.storage.tier import TierConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.model.values import frozen
from ottla.storage.log.log import Log
from ottla.storage.tier.copy_plan import LocalSegment
from ottla.storage.tier.expiry_plan import DeleteSegment, MoveLogStart
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentRemoval,
    RemoteSegmentState,
)
from ottla.storage.tier.segment_upload_driver import SegmentFaultError

logger = logging.getLogger("ottla.broker.tier")

TAKE_OVER_S = 1.0
"""Seconds until a new leader checks again whether its high watermark has reached the log start that
follows from the copied segments."""

ORPHANS_S = 6 * 60 * 60.0
"""Seconds between two searches of a leader for orphans (objects of its partition that belong to no
copied segment). A search sends one request to the store for 1000 objects."""

DELETION_S = 60.0
"""Time in seconds for which a former follower waits while the former leader deletes the copies of a
deleted topic. The follower then deletes the remaining copies."""


@frozen(kw_only=True)
class TierPorts:
    """Settings, interfaces and counters that all tiered partitions of a broker share."""

    config: TierConfig
    node_id: NodeId
    clock: Clock
    rng: Rng
    image: Callable[[], MetadataImage]
    topic: SegmentMetadata
    storage: SegmentStorage
    figures: TierFigures
    errors: UnexpectedErrors
    copy_slots: trio.CapacityLimiter
    """Limit of the number of segments that are copied at the same time."""


def snapshot_of(log: Log) -> LogSnapshot:
    """Return the current state of a tiered log, as input of the decisions about its copies."""
    return LogSnapshot(
        epochs=log.epochs(),
        local_segments=log.local_segments(),
        log_start_offset=log.log_start_offset,
        local_start_offset=log.local_start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        end_offset=log.end_offset,
    )


class PartitionTier:
    """Tiered storage of one replica on this broker, in one role: follower, or leader in one leader
    epoch."""

    def __init__(self, partition: Partition, log: Log, ports: TierPorts) -> None:
        self.partition = partition
        self.key = partition.key
        self.is_leader = partition.is_leader
        self.leader_epoch: Epoch = partition.leader_epoch
        self._log = log
        self._ports = ports
        self._being_copied: set[RemoteSegmentId] = set()
        self._has_taken_over = False
        self.wake = trio.lowlevel.ParkingLot()

    def __repr__(self) -> str:
        return f"{self.partition.topic}-{self.partition.index}"

    def is_current(self) -> bool:
        """Return whether the replica still has the role of this object: leader in the same epoch,
        or follower."""
        partition = self.partition
        return (
            not partition.is_removed
            and partition.log is self._log
            and partition.is_leader == self.is_leader
            and partition.leader_epoch == self.leader_epoch
            and self._log.is_tiered
        )

    @property
    def is_disabled(self) -> bool:
        """True if the topic is no longer tiered and its settings require the deletion of its copies
        (KIP-950)."""
        config = self.partition.config
        return not self._log.is_tiered and config.remote_log_delete_on_disable

    # ---- tasks

    async def run(self) -> None:
        """Run the loops of the current role until cancelled. A leader copies segments and deletes
        expired copies. A follower determines the offset up to which the log is copied."""
        figures, clock = self._ports.figures, self._ports.clock
        figures.alarms.on_failure(
            "loads of metadata",
            self.key,
            f"{self}: {REMOTE_METADATA_TOPIC} is not read yet",
            now_ms=clock.monotonic_ms(),
        )
        await self._ports.topic.wait_ready(self.key)
        figures.alarms.on_success("loads of metadata", self.key)
        async with trio.open_nursery() as nursery:
            if self.is_leader:
                nursery.start_soon(self._repeat, "copies", self._copy_round)
                nursery.start_soon(self._repeat, "deletions", self._expiry_round)
                nursery.start_soon(self._repeat, "orphans", self._orphan_round, ORPHANS_S)
            else:
                nursery.start_soon(self._repeat, "copied offset", self._follower_round)

    async def _repeat(
        self, subject: str, work: Callable[[], Awaitable[None]], interval_s: float | None = None
    ) -> None:
        """Call `work` repeatedly, with a pause of `interval_s` seconds after each call. The default
        pause is the interval in the settings. After a failure, a `Backoff` determines the pause."""
        config = self._ports.config
        figures, clock = self._ports.figures, self._ports.clock
        backoff = Backoff(config.task_retry_backoff_ms_max)
        while True:
            pause_ms = config.task_interval_ms if interval_s is None else int(interval_s * 1000)
            try:
                await work()
                backoff.on_success()
                figures.alarms.on_success(subject, self.key)
                if self.is_leader and not self._has_taken_over:
                    pause_ms = min(pause_ms, int(TAKE_OVER_S * 1000))
            except (OttlaError, OSError, trio.TooSlowError) as error:
                pause_ms = backoff.on_failure(is_permanent=isinstance(error, SegmentFaultError))
                reason = str(error) or "it took too long"
                figures.note_failure(subject, self.partition.topic)
                figures.alarms.on_failure(
                    subject, self.key, f"{self}: {reason}", now_ms=clock.monotonic_ms()
                )
                logger.warning("%s: %s fail: %s", self, subject, reason)
            except Exception as error:
                pause_ms = backoff.on_failure()
                self._ports.errors.note("tiered partition", f"{self}, {subject}", error)
            with trio.move_on_after(pause_ms / 1000):
                await self.wake.park()

    # ---- leader

    def _metadata(self) -> RemoteMetadata:
        metadata = self._ports.topic.metadata_of(self.key)
        assert metadata is not None, "tasks run only while the metadata is loaded"
        return metadata

    def _now_ms(self) -> int:
        return self._ports.clock.wall_ms()

    async def _take_over(self) -> bool:
        """Set the log start once to the offset that follows from the copied segments. Returns False
        if the high watermark is still below that offset."""
        if self._has_taken_over:
            return True
        start = start_of_leader(snapshot_of(self._log), self._metadata())
        if start is not None:
            if start > self._log.high_watermark:
                return False
            await self._raise_start(start)
        self._has_taken_over = True
        return True

    async def _raise_start(self, offset: Offset) -> None:
        await self._log.raise_log_start_to(offset)
        self.partition.on_start_raised()

    async def _copy_round(self) -> None:
        if not await self._take_over():
            return
        while self.is_current():
            snapshot, metadata = snapshot_of(self._log), self._metadata()
            self._log.copied_offset = copied_up_to(snapshot, metadata)
            self._note_lag(snapshot, metadata)
            due = copies_due(snapshot, metadata, self._log.config, self._now_ms())
            if not due:
                break
            async with self._ports.copy_slots:
                if self.is_current():
                    await self._copy(due[0], snapshot)
        await self._log.delete_local_segments(self._now_ms())

    def _note_lag(self, snapshot: LogSnapshot, metadata: RemoteMetadata) -> None:
        waiting = uncopied(snapshot, metadata)
        self._ports.figures.note_lag(
            self.key,
            self.partition.topic,
            bytes_=sum(each.size_bytes for each in waiting),
            segments=len(waiting),
        )

    async def _copy(self, local: LocalSegment, snapshot: LogSnapshot) -> None:
        ports = self._ports
        await ports.storage.require_usable()
        key = RemoteSegmentId(*self.key, ports.rng.uuid())
        source = self._log.segment_source(local.base_offset)
        segment = started_copy(
            local,
            snapshot,
            segment_id=key,
            broker_id=ports.node_id,
            has_empty_transaction_index=not await source.transaction_index(),
            now_ms=self._now_ms(),
        )
        self._being_copied.add(key)
        try:
            await ports.topic.write(self.partition.topic, segment)
            try:
                ports.figures.note_request("copy", self.partition.topic)
                with trio.fail_after(ports.config.copy_timeout_ms / 1000):
                    await ports.storage.upload(source, segment, self._tiered_topic())
            except (OttlaError, OSError, trio.TooSlowError):
                await self._delete(segment)
                raise
            if not self.is_current():
                return  # the next leader decides: it may have copied the same records
            finished = next_state(
                key,
                RemoteSegmentState.COPY_FINISHED,
                broker_id=ports.node_id,
                now_ms=self._now_ms(),
            )
            await ports.topic.write(self.partition.topic, finished)
            ports.figures.note_bytes("copy", self.partition.topic, segment.size_bytes)
            logger.debug("%s: copied %d to %d", self, segment.start_offset, segment.end_offset)
        finally:
            self._being_copied.discard(key)

    def _tiered_topic(self) -> TieredTopic:
        image, name = self._ports.image(), self.partition.topic
        topic = image.topic(name)
        settings = image.config(TOPIC_RESOURCE, name)
        return TieredTopic(
            name,
            1 if topic is None else len(topic.partitions),
            tuple(sorted(settings.items())),
        )

    async def _expiry_round(self) -> None:
        if not self._has_taken_over:
            return
        snapshot, metadata = snapshot_of(self._log), self._metadata()
        start = lost_start(snapshot, metadata)
        if start is not None and start <= self._log.high_watermark:
            logger.warning("%s: records below %d are lost in both tiers", self, start)
            await self._raise_start(start)
            snapshot = snapshot_of(self._log)
        self._ports.figures.note_remote(self.key, self.partition.topic, metadata)
        for step in expiry_steps(
            snapshot,
            metadata,
            self._log.config,
            being_copied=self._being_copied,
            now_ms=self._now_ms(),
        ):
            if not self.is_current():
                return
            match step:
                case MoveLogStart(offset):
                    await self._raise_start(offset)
                case DeleteSegment(segment, reason):
                    logger.info(
                        "%s: deleting the copy of %d to %d, because %s",
                        self,
                        segment.start_offset,
                        segment.end_offset,
                        reason,
                    )
                    await self._delete(segment)

    async def _orphan_round(self) -> None:
        """Delete the orphans of this partition: objects in the store that belong to no copied
        segment."""
        objects = await self._ports.storage.objects_of(self.key, self.partition.topic)
        keys = orphans_among(
            objects,
            partition=self.key,
            segment_ids={segment.id.segment_id for segment in self._metadata().all_segments()},
            now_ms=self._now_ms(),
        )
        if keys and self.is_current():
            logger.warning("%s: deleting %d objects that belong to no segment", self, len(keys))
            await self._ports.storage.delete_objects(keys)
            self._ports.figures.orphan_count += len(keys)

    async def _delete(self, segment: RemoteSegment) -> None:
        await delete_copy(self._ports, self.partition.topic, segment)

    def is_tiered_again(self) -> bool:
        """Return whether the partition exists on this broker and its topic is tiered."""
        return not self.partition.is_removed and self._log.is_tiered

    async def give_up_remote(self) -> None:
        """Raise the log start to the local start, because the topic is no longer tiered
        (KIP-950)."""
        if self._log.log_start_offset < self._log.local_start_offset:
            await self._raise_start(self._log.local_start_offset)

    # ---- follower

    async def _follower_round(self) -> None:
        self._log.copied_offset = copied_up_to(snapshot_of(self._log), self._metadata())
        await self._log.delete_local_segments(self._now_ms())


async def delete_copy(ports: TierPorts, topic: str, segment: RemoteSegment) -> None:
    """Delete a copied segment in three steps: mark it in the metadata, delete its objects, and
    remove it from the metadata."""
    write = partial(ports.topic.write, topic)
    if segment.state is not RemoteSegmentState.DELETE_STARTED:
        await write(
            next_state(
                segment.id,
                RemoteSegmentState.DELETE_STARTED,
                broker_id=ports.node_id,
                now_ms=ports.clock.wall_ms(),
            )
        )
    ports.figures.note_request("delete", topic)
    await ports.storage.delete(segment, topic)
    await write(RemoteSegmentRemoval(segment.id))


class DeletedPartition:
    """Partition whose copies must all be deleted, because its topic was deleted or is no longer
    tiered."""

    def __init__(self, tier: PartitionTier, ports: TierPorts) -> None:
        self._tier = tier
        self.key = tier.key
        self._topic = tier.partition.topic
        self._was_leader = tier.is_leader
        self._ports = ports

    async def run(self) -> None:
        """Delete all copies of the partition. Failed deletions are repeated. Ends early if the
        topic is tiered again."""
        ports = self._ports
        if not self._was_leader:
            await trio.sleep(DELETION_S)
        if not self._tier.partition.is_removed:
            await self._tier.give_up_remote()
        backoff = Backoff(ports.config.task_retry_backoff_ms_max)
        ports.topic.assign(self.key)
        await ports.topic.wait_ready(self.key)
        while (metadata := ports.topic.metadata_of(self.key)) is not None:
            if self._tier.is_tiered_again():
                return  # copies of its next life are among them
            segments = steps_of_deletion(metadata)
            if not segments:
                break
            try:
                for segment in segments:
                    await delete_copy(ports, self._topic, segment)
            except (OttlaError, OSError, trio.TooSlowError) as error:
                logger.warning("copies of the deleted topic %s remain: %s", self._topic, error)
                await trio.sleep(backoff.on_failure() / 1000)
            except Exception as error:
                ports.errors.note("tiered partition", self._topic, error)
                await trio.sleep(backoff.on_failure() / 1000)
        ports.topic.unassign(self.key)
