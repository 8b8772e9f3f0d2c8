"""Writer and reader of the topic `__remote_log_metadata` (the metadata topic), as an ordinary
producer and consumer of this cluster.

Any broker may lead the topic's partitions. Before the first tiered partition, no connection is
opened, no client code is imported and no topic is created. A write returns when this broker has
read its own record back, so that its next decision uses the record.
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import trio

from ottla.broker.tier.metadata_topic import REMOTE_METADATA_TOPIC, remote_metadata_topic
from ottla.broker.tier.remote_log_manager import Backoff
from ottla.broker.tier.remote_states import RemoteStates
from ottla.broker.tier.tier_alarms import MAY_NOT, TierAlarms, is_refusal
from ottla.metadata.image import MetadataImage, Topic
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import Offset, TopicIdPartition, TopicPartition
from ottla.model.seams import Clock
from ottla.model.settings.storage.tier import PROBLEM_PREFIX, TierConfig
from ottla.node.part_registry import PartRegistry
from ottla.storage.tier.remote_metadata import RemoteMetadata
from ottla.storage.tier.remote_records import RemoteLogEntry, encode_record
from ottla.storage.tier.remote_segment import (
    RemoteRecord,
    RemoteSegmentId,
    RemoteSegmentRemoval,
    RemoteSegmentState,
)
from ottla.wire.messages.create_topics_request import CreatableTopic

if TYPE_CHECKING:
    from ottla.client.consumer import Consumer
    from ottla.client.producer import Producer
    from ottla.model.settings.client import ConsumerConfig, ProducerConfig

logger = logging.getLogger("ottla.broker.tier")

WRITE_TIMEOUT_S = 120.0
"""Maximum seconds from the start of a write to the metadata topic until this broker has read the
record back. The write then fails, as in Kafka."""

POLL_S = 1.0
"""Maximum time in seconds that the reader of the metadata topic waits for records before it checks
its positions. A change of the assigned partitions ends the wait at once."""

RETRY_S = 1.0
"""Seconds until a failed step, such as the creation of the metadata topic, is repeated. With a
smaller value, a controller that cannot place the topic's replicas yet gets more requests."""

REPLACED_ADVICE = (
    "nothing is copied or deleted in the object store any longer; do not restart brokers before the"
    " copied records are saved from the bucket with ottla tier restore"
)
"""Text that explains the consequence of a deleted metadata topic, with advice for the operator."""


@cache
def producer_config() -> "ProducerConfig":
    """Return the settings of the producer that writes to `__remote_log_metadata`."""
    from ottla.model.settings.client import ProducerConfig

    return ProducerConfig(
        client_id="ottla-remote-log",
        request_timeout_ms=10_000,
        delivery_timeout_ms=60_000,
        block_ms_max=30_000,
        enable_metrics_push=False,
    )


@cache
def consumer_config() -> "ConsumerConfig":
    """Return the settings of the consumer that reads `__remote_log_metadata`."""
    from ottla.model.settings.client import ConsumerConfig

    return ConsumerConfig(
        client_id="ottla-remote-log",
        auto_offset_reset="earliest",
        default_api_timeout_ms=5_000,
        enable_metrics_push=False,
    )


class MetadataTopic:
    """Reader and writer of `__remote_log_metadata`, with the metadata that was read: the copied
    segments of each tiered partition."""

    def __init__(
        self,
        settings: TierConfig,
        *,
        address: Callable[[], tuple[str, int] | None],
        create_topic: Callable[[CreatableTopic], Awaitable[None]],
        clock: Clock,
        alarms: TierAlarms,
    ) -> None:
        """Create a reader to which no tiered partition is assigned yet. `address` returns the
        address of this broker, or None until the cluster knows it. `create_topic` requests the
        creation of the metadata topic, and raises OttlaError if the creation is refused. `alarms`
        collects lasting failures."""
        self._settings = settings
        self._address = address
        self._create_topic = create_topic
        self._clock = clock
        self._alarms = alarms
        self.states = RemoteStates(settings.metadata_partition_count)
        self._is_wanted = trio.Event()
        self._has_image = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()
        self._poll_scope: trio.CancelScope | None = None
        self._producer: Producer | None = None
        self._is_open = trio.Event()
        self._topic: Topic | None = None
        self._sought: set[int] = set()
        """Indexes of the metadata topic's partitions that must be read again from their start."""
        self._is_replaced = False
        """True if the metadata topic was deleted and created again."""
        self._is_refused = False
        """True while ACLs refuse the look-up of end offsets. The consumer then has no partitions.
        Otherwise it would send requests to their leaders several times a second, and each refusal
        is logged."""
        self._creation_error = ""
        """Last error of an attempt to create the metadata topic. An error is logged only if it
        differs from the previous error."""
        self.write_count = 0
        """Number of records that this broker has written to the metadata topic."""

    # ---- assignments

    def assign(self, partition: TopicIdPartition) -> None:
        """Load the metadata of a tiered partition, and keep it up to date."""
        if self.states.assign(partition):
            self._is_wanted.set()
            self._interrupt()

    def unassign(self, partition: TopicIdPartition) -> None:
        """Drop the metadata of a tiered partition, and stop reading it."""
        self.states.unassign(partition)
        self._interrupt()

    def metadata_of(self, partition: TopicIdPartition) -> RemoteMetadata | None:
        """Return the metadata of a tiered partition, or None while it is not loaded."""
        return self.states.metadata_of(partition)

    async def wait_ready(self, partition: TopicIdPartition) -> RemoteMetadata:
        """Wait until the metadata of an assigned tiered partition is loaded, and return it."""
        while (metadata := self.states.metadata_of(partition)) is None:
            await self._changed.park()
        return metadata

    def on_image(self, image: MetadataImage) -> None:
        """Check whether a new metadata image contains the metadata topic. The reader starts when
        the topic exists.

        If the topic was deleted and created again, the loaded metadata remains unchanged. Writes
        are then never read back, so no segment is copied and no copy is deleted. With the empty
        metadata of the new topic, records that only the object store has would count as deleted.
        """
        topic = image.topic(REMOTE_METADATA_TOPIC)
        if topic is None or not topic.partitions:
            return
        if self._topic is None:
            self._topic = topic
            if len(topic.partitions) != self.states.partition_count:
                self.states.reset(len(topic.partitions))
            self._interrupt()
        elif self._topic.id != topic.id and not self._is_replaced:
            self._is_replaced = True
            logger.error("%s was deleted: %s", REMOTE_METADATA_TOPIC, REPLACED_ADVICE)
        self._has_image.set()

    def _interrupt(self) -> None:
        if self._poll_scope is not None:
            self._poll_scope.cancel()

    # ---- writing

    async def write(self, topic: str, record: RemoteRecord) -> None:
        """Write a record about a copied segment to the metadata topic, and wait until this broker
        has read it back. `topic` is the name of the segment's topic. Raises RefusedError if the
        record is not read back within WRITE_TIMEOUT_S, or if the cluster refuses the record."""
        partition = TopicIdPartition(record.id.topic_id, record.id.partition)
        index = self.states.store_of(partition)
        with trio.move_on_after(WRITE_TIMEOUT_S) as patience:
            await self._is_open.wait()
            assert self._producer is not None
            try:
                await self._send(self._producer, index, encode_record(topic, record))
            except RefusedError as error:
                self._has_refused("write", error)
                raise
            self._alarms.on_permission("write")
            while not self._has_seen(partition, record):
                await self._changed.park()
        if patience.cancelled_caught:
            raise RefusedError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"a record of {REMOTE_METADATA_TOPIC} was not read back in time",
            )

    async def _send(
        self, producer: "Producer", index: int, entries: Sequence[RemoteLogEntry]
    ) -> None:
        deliveries = [
            await producer.send(
                REMOTE_METADATA_TOPIC,
                entry.value,
                key=entry.key,
                partition=index,
                timestamp_ms=self._clock.wall_ms(),
            )
            for entry in entries
        ]
        for delivery in deliveries:
            await delivery
        self.write_count += len(deliveries)

    def _has_refused(self, work: str, error: OttlaError | OSError) -> bool:
        """Return whether ACLs caused a failure of work on the metadata topic. The refusal is logged
        once."""
        if not is_refusal(error):
            return False
        if self._alarms.on_refusal(work):
            logger.warning("%s", MAY_NOT)
        return True

    def _has_seen(self, partition: TopicIdPartition, record: RemoteRecord) -> bool:
        metadata = self.states.metadata_of(partition)
        return metadata is not None and has_state(metadata, record.id, record)

    # ---- tasks

    def register_with(self, parts: PartRegistry) -> None:
        """Register the background task that reads and writes the metadata topic, and its problem
        reports."""
        parts.task("metadata of remote segments", self.run)
        parts.problems(self.problems)

    def problems(self) -> Iterator[str]:
        """Yield the description of a problem while the metadata topic cannot be created."""
        if self._creation_error and not self._has_image.is_set():
            yield (
                f"{PROBLEM_PREFIX}{REMOTE_METADATA_TOPIC} cannot be created: {self._creation_error}"
            )
        if self._is_replaced:
            yield f"{PROBLEM_PREFIX}{REMOTE_METADATA_TOPIC} was deleted: {REPLACED_ADVICE}"

    async def run(self) -> None:
        """Create the metadata topic when the first tiered partition is assigned, then read it until
        cancelled."""
        await self._is_wanted.wait()
        backoff = self._backoff()
        while not self._has_image.is_set():
            is_refused = await self._create()
            with trio.move_on_after(backoff.on_failure() / 1000 if is_refused else RETRY_S):
                await self._has_image.wait()
        from ottla.client.consumer import open_consumer
        from ottla.client.producer import open_producer

        address = await self._own_address()
        async with (
            open_producer([address], producer_config()) as self._producer,
            open_consumer([address], consumer_config()) as consumer,
            trio.open_nursery() as nursery,
        ):
            self._is_open.set()
            nursery.start_soon(self._find_ends, consumer)
            await self._read(consumer)

    async def _own_address(self) -> tuple[str, int]:
        while (address := self._address()) is None:
            await trio.sleep(RETRY_S)
        return address

    def _backoff(self) -> Backoff:
        """Return the pauses between attempts that ACLs refuse. The broker that refuses an attempt
        logs each refusal."""
        return Backoff(self._settings.task_retry_backoff_ms_max)

    async def _create(self) -> bool:
        """Request the creation of the metadata topic. Returns True if ACLs refuse the creation."""
        settings = self._settings
        topic = remote_metadata_topic(
            partition_count=settings.metadata_partition_count,
            replication_factor=settings.metadata_replication_factor,
            min_insync_replicas=settings.metadata_min_isr,
        )
        try:
            await self._create_topic(topic)
        except OttlaError as error:
            if self._has_refused("creation", error):
                return True
            if str(error) != self._creation_error:
                self._creation_error = str(error)
                logger.warning("%s cannot be created: %s", REMOTE_METADATA_TOPIC, error)
        else:
            self._alarms.on_permission("creation")
        return False

    async def _find_ends(self, consumer: "Consumer") -> None:
        """Look up end offsets of partitions of the metadata topic until cancelled. Only partitions
        with the metadata of newly assigned tiered partitions are looked up."""
        backoff = self._backoff()
        while True:
            pause_s = RETRY_S / 10
            for index in self.states.new_stores():
                partitions = self.states.unknown_ends(index)
                at = TopicPartition(REMOTE_METADATA_TOPIC, index)
                try:
                    end_offset = (await consumer.end_offsets([at]))[at]
                except (OttlaError, OSError) as error:
                    if self._has_refused("look-up", error):
                        pause_s = backoff.on_failure() / 1000
                        self._is_refused = True
                        self._interrupt()
                        break  # ACLs refuse all partitions of the topic
                    logger.info("the end of %s-%d is unknown yet: %s", at.topic, index, error)
                    continue
                self._alarms.on_permission("look-up")
                backoff.on_success()
                self._is_refused = False
                self.states.begin(index, end_offset, partitions)
                self._sought.add(index)
                self._interrupt()
                self._wake()
            if self.states.new_stores():
                await trio.sleep(pause_s)
            else:
                await self._changed.park()

    async def _read(self, consumer: "Consumer") -> None:
        backoff = self._backoff()
        while True:
            if self._is_refused:
                consumer.assign(set())
                await self._changed.park()
                continue
            wanted = {TopicPartition(REMOTE_METADATA_TOPIC, each) for each in self.states.stores}
            if wanted != consumer.assignment:
                consumer.assign(wanted)
                self._wake()
            for index in self._sought & self.states.stores:
                consumer.seek(TopicPartition(REMOTE_METADATA_TOPIC, index), 0)
            self._sought.clear()
            records = []
            with trio.CancelScope() as self._poll_scope:
                if not wanted:
                    await trio.sleep_forever()  # The consumer would log a poll without partitions.
                try:
                    records = await consumer.poll(POLL_S)
                    self._alarms.on_permission("read")
                    backoff.on_success()
                except (OttlaError, OSError) as error:
                    if self._has_refused("read", error):
                        consumer.assign(set())
                        await trio.sleep(backoff.on_failure() / 1000)
                    else:
                        logger.warning("%s cannot be read: %s", REMOTE_METADATA_TOPIC, error)
                        await trio.sleep(RETRY_S)
            self._poll_scope = None
            for record in records:
                if record.partition not in self._sought:
                    self.states.on_record(record.partition, record.offset, record.key, record.value)
            await self._note_positions(consumer)
            self._wake()

    async def _note_positions(self, consumer: "Consumer") -> None:
        """Record the offsets up to which the metadata topic has been read, for the tiered
        partitions that are still being loaded. The offsets of records are not enough, because
        compaction may have removed the last records."""
        for index in sorted(self.states.stores - self._sought):
            at = TopicPartition(REMOTE_METADATA_TOPIC, index)
            if self.states.is_loading(index) and at in consumer.assignment:
                position: Offset | None = None
                with trio.move_on_after(POLL_S):
                    position = await consumer.position(at)
                if position is not None and index not in self._sought:
                    self.states.on_position(index, position)

    def _wake(self) -> None:
        self._changed.unpark_all()


def has_state(metadata: RemoteMetadata, segment_id: RemoteSegmentId, record: RemoteRecord) -> bool:
    """Return whether a copied segment has reached the state in `record`, or a later state."""
    segment = metadata.get(segment_id)
    if isinstance(record, RemoteSegmentRemoval):
        return segment is None
    if segment is None:
        return record.state is not RemoteSegmentState.COPY_STARTED
    return segment.state >= record.state
