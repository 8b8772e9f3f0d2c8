"""Clients in a random walk: idempotent and other producers, and consumers. The results that they
receive must never be contradicted later."""

from typing import Any, NamedTuple

from ottla.broker.replicas.partition import Partition
from ottla.jepsen.world.disk_waits import bytes_of
from ottla.jepsen.world.invariants.replication import require
from ottla.jepsen.world.walk.replication.broker_life import BrokerLife
from ottla.jepsen.world.walk.replication.replication_batches import batch_of, records_in
from ottla.jepsen.world.walk.replication.replication_cluster import TOPIC
from ottla.jepsen.world.walk.replication.replication_messages import MessagingCluster, ToClient
from ottla.model.errors import ErrorCode
from ottla.model.ids import NO_EPOCH
from ottla.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.wire.messages.delete_records_response import DeleteRecordsResponse
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import FetchResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse

PRODUCER_COUNT = 2
WINDOW = 3
"""Maximum number of batches that a simulated producer sends before the first of them is
acknowledged. Kafka's producer sends five."""

CONSUMER_BYTES = 400


class BatchInFlight(NamedTuple):
    """A produce request with one batch, in flight from a client to a leader."""

    leader: BrokerLife
    producer: "WalkedProducer"
    sequence: int
    number: int
    acks: int


class WalkedProducer:
    """A simulated producer that sends to one partition. It is not idempotent if its id is -1."""

    __slots__ = ("id", "index", "next_sequence", "open")

    def __init__(self, producer_id: int, index: int) -> None:
        self.id = producer_id
        self.index = index
        self.next_sequence = 0
        self.open: dict[int, int] = {}
        """Number that identifies each unacknowledged record of the producer, by the record's
        sequence number."""

    def acknowledge(self, sequence: int) -> None:
        """Record the leader's acknowledgement of the record with this sequence number."""
        self.open.pop(sequence, None)

    @property
    def may_go_on(self) -> bool:
        """True if the producer may send another record.

        No broker knows the producer before the producer's first record is committed. If the
        producer sent a second record earlier, a broker could accept it as the first one, as in
        Kafka.
        """
        if not self.open:
            return True
        first = min(self.open)
        return first > 0 and self.next_sequence - first < WINDOW


class Clients:
    """The simulated clients of one cluster: producers and consumers."""

    def __init__(self, cluster: MessagingCluster) -> None:
        self._cluster = cluster
        self._producers = [
            WalkedProducer(at if at else -1, at % cluster.shape.partition_count)
            for at in range(PRODUCER_COUNT + 1)
        ]

    def produce(self) -> None:
        """Send one more record of a random producer to a broker that considers itself the
        leader."""
        producer = self._producers[self._cluster.chance.below(len(self._producers))]
        if not producer.may_go_on:
            self.retry()
            return
        number = len(self._cluster.sent) + 1
        sequence = producer.next_sequence if producer.id >= 0 else -1
        packet = self._to_leader(producer, sequence, number)
        if packet is None:
            return
        self._cluster.sent[number] = (producer.id, sequence)
        if producer.id >= 0:
            producer.open[sequence] = number
            producer.next_sequence += 1
        self.send_batch(packet)

    def send_batch(self, packet: BatchInFlight) -> None:
        """Send a new batch to the leader of its partition. It is delivered at once, or put among
        the messages in flight."""
        if self._cluster.chance.below(4) == 3:
            self._cluster.send(ToClient(lambda: self.serve_produce(packet)))
        else:
            self.resend_batch(packet)

    def resend_batch(self, packet: BatchInFlight) -> None:
        """Send a producer's batch again to the leader of its partition."""
        self.serve_produce(packet)

    def retry(self) -> None:
        """Send the unacknowledged records of a producer again, in order."""
        waiting = [one for one in self._producers if one.open]
        if not waiting:
            return
        producer = waiting[self._cluster.chance.below(len(waiting))]
        for sequence, number in sorted(producer.open.items()):
            packet = self._to_leader(producer, sequence, number)
            if packet is not None:
                self.resend_batch(packet)

    def _to_leader(
        self, producer: WalkedProducer, sequence: int, number: int
    ) -> BatchInFlight | None:
        leading = [one for one in self._cluster.leaders() if one.index == producer.index]
        if not leading:
            return None
        if len(leading) > 1:
            self._cluster.rare.sometimes("two believe to lead at once")
        chosen = leading[self._cluster.chance.below(len(leading))].local_id
        life = self._cluster.machines[chosen - 1].life
        assert life is not None
        acks = -1 if producer.id >= 0 or self._cluster.chance.below(2) else 1
        return BatchInFlight(life, producer, sequence, number, acks)

    def serve_produce(self, sent: BatchInFlight) -> None:
        """Deliver a producer's batch to the leader to which it was sent."""
        life, producer = sent.leader, sent.producer
        if not self._cluster.is_here(life):
            return
        index = producer.index
        records = memoryview(batch_of(sent.number, producer.id, sent.sequence))
        request = ProduceRequest(
            acks=sent.acks,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    topic_id=self._cluster.topic_id,
                    partition_data=[PartitionProduceData(index=index, records=records)],
                )
            ],
        )
        partition = life.table.find(TOPIC, index) if index in life.machine.store.indexes() else None
        log = None if partition is None else partition.log
        end_offset = None if log is None else log.end_offset

        def answer(response: ProduceResponse) -> None:
            self._judge_produced(sent, response, partition)

        life.produce(request, self._cluster.now_ms, answer)
        if (
            partition is not None
            and partition.is_leader
            and log is not None
            and log.end_offset == end_offset
            and self._is_elsewhere(log, sent, partition.leader_epoch)
        ):
            self._cluster.rare.sometimes("a duplicate is found after a failover")
        self._cluster.trace.add("produce", life.machine.id, sent.number, sent.acks)

    def _is_elsewhere(self, log: Any, sent: BatchInFlight, epoch: int) -> bool:
        """Return whether the log already contains this batch of the producer, appended in an
        earlier leader epoch."""
        producer = log.active_producers.get(sent.producer.id)
        if producer is None or log.last_epoch < 0:
            return False
        return any(
            one.base_sequence == sent.sequence
            and log.end_offset_for_epoch(epoch - 1).offset > one.base_offset
            for one in producer.batches
        )

    def _judge_produced(
        self, sent: BatchInFlight, response: ProduceResponse, partition: Partition | None
    ) -> None:
        (topic,) = response.responses
        (result,) = topic.partition_responses
        producer = sent.producer
        code = result.error_code
        if code == ErrorCode.NONE:
            if sent.acks == -1:
                self._cluster.figures["acknowledged"] += 1
                self._cluster.judge_all()
                self._cluster.judge.check_acknowledged(
                    producer.index, result.base_offset, sent.number
                )
                if producer.id >= 0:
                    self._cluster.send(ToClient(lambda: producer.acknowledge(sent.sequence)))
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._is_forgotten(sent, partition):
            self._cluster.rare.sometimes(
                "a clean start has forgotten all but a producer's last batch"
            )
            producer.acknowledge(sent.sequence)
        elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and partition is not None:
            is_first = bool(producer.open) and min(producer.open) == sent.sequence
            is_leader = partition.leader_epoch == self._cluster.state(producer.index).leader_epoch
            require(
                not (is_first and is_leader),
                "SequencesInOrder",
                f"{partition} refuses {sent.sequence} of producer {producer.id}, which comes next",
            )

    def _is_forgotten(self, sent: BatchInFlight, partition: Partition | None) -> bool:
        """Return whether the partition's leader was shut down cleanly and therefore knows only
        later batches of the producer.

        A producer snapshot has one batch of each producer, as in Kafka. If several batches were in
        flight, the earlier batches are not recognised as duplicates.
        """
        log = None if partition is None else partition.log
        if log is None or not sent.leader.machine.has_stopped_cleanly:
            return False
        known = log.active_producers.get(sent.producer.id)
        return known is not None and sent.sequence < known.batches[0].base_sequence

    def delete_records(self) -> None:
        """Send a client's request that deletes some committed records of a partition."""
        leading = self._cluster.leaders()
        if not leading:
            return
        partition = leading[self._cluster.chance.below(len(leading))]
        life = self._cluster.machines[partition.local_id - 1].life
        assert life is not None
        index = partition.index
        offset = self._deletable_end(index)
        if self._cluster.chance.below(2):
            offset = self._cluster.chance.below(offset + 1)
        asked = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=[asked])], timeout_ms=30_000
        )

        def answer(response: DeleteRecordsResponse) -> None:
            (topic,) = response.topics
            (result,) = topic.partitions
            if result.error_code == ErrorCode.NONE and offset:
                self._cluster.rare.sometimes("records are deleted everywhere")
                log = partition.log
                require(
                    log is not None and log.log_start_offset >= result.low_watermark >= offset,
                    "DeletedEverywhere",
                    f"{partition}: {offset} was requested, the response has {result.low_watermark}",
                )

        life.delete_records(request, self._cluster.now_ms, answer)
        self._cluster.trace.add("delete", partition.local_id, index, offset)

    def _deletable_end(self, index: int) -> int:
        """Return the offset below which records may be deleted without losing a producer's sequence
        numbers.

        As in Kafka, a replica whose log starts above deleted records does not know their producers.
        Records that a producer may still send again, and the record before them, must therefore
        stay.
        """
        committed = self._cluster.judge.committed[index]
        kept = {
            one.id: min(one.open, default=one.next_sequence) - 1
            for one in self._producers
            if one.id >= 0 and one.index == index
        }
        for offset, record in enumerate(committed):
            producer, sequence = self._cluster.sent[record.number]
            if producer >= 0 and sequence >= kept[producer]:
                return offset
        return len(committed)

    def consume(self) -> None:
        """Read committed records for a consumer, from a random broker that considers itself the
        leader."""
        leading = self._cluster.leaders()
        if not leading:
            return
        partition = leading[self._cluster.chance.below(len(leading))]
        life = self._cluster.machines[partition.local_id - 1].life
        assert life is not None
        offset = self._cluster.chance.below(partition.high_watermark + 1)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=CONSUMER_BYTES,
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic_id=self._cluster.topic_id,
                    partitions=[
                        FetchPartition(
                            partition=partition.index,
                            current_leader_epoch=NO_EPOCH,
                            fetch_offset=offset,
                            partition_max_bytes=CONSUMER_BYTES,
                        )
                    ],
                )
            ],
        )
        if partition.leader_epoch < self._cluster.state(partition.index).leader_epoch:
            self._cluster.rare.sometimes("a consumer reads from a deposed leader")
        index = partition.index

        def answer(response: FetchResponse) -> None:
            for topic in response.responses:
                for data in topic.partitions:
                    records: Any = data.records
                    if records:
                        self._cluster.judge.check_read(index, records_in(bytes_of(records)))

        life.fetch(request, self._cluster.now_ms, answer)
