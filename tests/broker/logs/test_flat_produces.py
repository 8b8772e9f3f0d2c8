"""Produce requests read by the flat codec: the same responses and logs as by the generated one."""

from uuid import UUID

import pytest

from ottla.bench.requests import frame_of
from ottla.broker.logs.produce import ProduceForm
from ottla.jepsen.fuzz.mini_broker import TOPIC, WALL_MS, MiniBroker, id_of
from ottla.jepsen.world.disk import SimulatedDisk
from ottla.model.ids import Offset, ProducerId
from ottla.model.limits import MIB
from ottla.node.network.dispatch import HandlerResult, RequestContext
from ottla.storage.log.log import Log
from ottla.wire.apis import PRODUCE
from ottla.wire.batch import patch_max_timestamp
from ottla.wire.batch_builder import build_batch
from ottla.wire.compression import Codec
from ottla.wire.flat.flat_produce import FlatProduce, read_flat_produce
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

VERSIONS = range(9, 14)
BATCH = build_batch([(WALL_MS, b"key", b"v" * 100)])


def frame(
    records: bytes | None = BATCH,
    *,
    version: int = 12,
    acks: int = -1,
    name: str = TOPIC,
    topic_id: UUID | None = None,
    indexes: tuple[int, ...] = (0,),
    topic_count: int = 1,
    transactional_id: str | None = None,
) -> bytes:
    data = [PartitionProduceData(index=index, records=records) for index in indexes]
    topic = TopicProduceData(name=name, topic_id=topic_id or id_of(TOPIC), partition_data=data)
    request = ProduceRequest(
        acks=acks,
        timeout_ms=1_000,
        transactional_id=transactional_id,
        topic_data=[topic] * topic_count,
    )
    return frame_of(request, version)


def sequenced(sequence: int, *, epoch: int = 0, is_transactional: bool = False) -> bytes:
    return build_batch(
        [(WALL_MS, None, b"v")],
        producer_id=ProducerId(7),
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )


def contradicting(record_count: int) -> bytes:
    """Return a batch whose largest timestamp is below its first, so that its records are
    inspected."""
    batch = bytearray(build_batch([(WALL_MS, None, None)] * record_count))
    patch_max_timestamp(batch, 0, max_timestamp=WALL_MS - 5)
    return bytes(batch)


def log_of(broker: MiniBroker) -> Log:
    log = broker.table.by_id[id_of(TOPIC)][0].log
    assert log is not None
    return log


BYTES_PER_BROKER = 16
"""Bytes that are changed, one after the other, before the brokers are replaced."""


class BothCodecs:
    """Two brokers, one of which reads every request with the generated codec."""

    def __init__(self) -> None:
        self.flat = MiniBroker(frame_bytes_max=MIB)
        self.usual = MiniBroker(frame_bytes_max=MIB)
        api = self.usual.core.data.produce
        self.usual.dispatcher.register(PRODUCE, api.handle)

    def reconnect(self) -> None:
        """Give both brokers a new connection."""
        self.flat.reconnect()
        self.usual.reconnect()

    def take(self, data: bytes) -> bytes:
        """Have both serve the bytes, hold them to the same, and return the answer."""
        answers, states = [], []
        for broker in (self.flat, self.usual):
            answers.append(broker.take(bytearray(data), MIB))
            log = log_of(broker)
            found = log.segments[-1].file.pread(0, log.segments[-1].size_bytes)
            producers = {
                key: (each.epoch, each.batches) for key, each in log.active_producers.items()
            }
            counts = broker.table.by_id[id_of(TOPIC)][0].traffic
            states.append(
                (
                    bytes(found),
                    log.end_offset,
                    log.high_watermark,
                    producers,
                    counts.produce_requests,
                    counts.bytes_in,
                    counts.messages_in,
                    counts.failed_produces,
                )
            )
        assert answers[0] == answers[1]
        assert states[0] == states[1]
        assert not self.flat.faults
        return answers[0]


REQUESTS = {
    "plain": lambda version: frame(version=version),
    "acks 1": lambda version: frame(version=version, acks=1),
    "acks 0": lambda version: frame(version=version, acks=0),
    "acks 2": lambda version: frame(version=version, acks=2),
    "large": lambda version: frame(build_batch([(WALL_MS, None, b"v" * 20_000)]), version=version),
    "middle": lambda version: frame(build_batch([(WALL_MS, None, b"v" * 9_000)]), version=version),
    "tiny": lambda version: frame(build_batch([(WALL_MS, None, None)]), version=version),
    "lz4": lambda version: frame(
        build_batch([(WALL_MS, None, b"v" * 500)], codec=Codec.LZ4), version=version
    ),
    "two partitions": lambda version: frame(version=version, indexes=(0, 1)),
    "no partitions": lambda version: frame(version=version, indexes=()),
    "two topics": lambda version: frame(version=version, topic_count=2),
    "unknown topic": lambda version: frame(version=version, name="x", topic_id=UUID(int=9)),
    "internal topic": lambda version: frame(
        version=version,
        name="__consumer_offsets",
        topic_id=id_of("__consumer_offsets"),
    ),
    "unknown index": lambda version: frame(version=version, indexes=(9,)),
    "a transaction": lambda version: frame(version=version, transactional_id="t"),
    "of a transaction": lambda version: frame(sequenced(0, is_transactional=True), version=version),
    "no records": lambda version: frame(None, version=version),
    "empty records": lambda version: frame(b"", version=version),
    "cut off": lambda version: frame(BATCH[:-1], version=version),
    "two batches": lambda version: frame(BATCH + BATCH, version=version),
    "looked at": lambda version: frame(contradicting(3), version=version),
    "looked at apart": lambda version: frame(contradicting(900), version=version),
    "another offset": lambda version: frame(
        build_batch([(WALL_MS, None, b"v")], base_offset=Offset(3)), version=version
    ),
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", REQUESTS)
def test_both_codecs_answer_in_the_same_bytes_and_write_the_same(name: str, version: int) -> None:
    both = BothCodecs()
    for _ in range(3):
        both.take(frame(version=version))
        both.take(REQUESTS[name](version))


@pytest.mark.parametrize("version", VERSIONS)
def test_sequences_hold_in_both_codecs(version: int) -> None:
    both = BothCodecs()
    for sequence, epoch in ((0, 0), (1, 0), (1, 0), (0, 0), (3, 0), (2, 0), (0, 1), (1, 0)):
        both.take(frame(sequenced(sequence, epoch=epoch), version=version))


@pytest.mark.parametrize("version", (9, 13))
def test_a_changed_byte_has_the_same_outcome_in_both_codecs(version: int) -> None:
    sound = frame(version=version)
    for at in range(4, len(sound) - 100):
        if (at - 4) % BYTES_PER_BROKER == 0:
            both = BothCodecs()
        both.reconnect()
        both.take(sound)
        for value in (0, 1, 0x7F, 0xFF):
            changed = bytearray(sound)
            changed[at] = value
            both.take(bytes(changed))


def test_bytes_behind_the_body_are_passed_over_in_both_codecs() -> None:
    both = BothCodecs()
    sound = frame()
    both.take((len(sound) - 1).to_bytes(4, "big") + sound[4:] + b"\0\0\0")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_small_produce_is_read_flat(version: int) -> None:
    broker = MiniBroker(frame_bytes_max=MIB)
    api = broker.core.data.produce
    forms: list[type] = []

    def note(context: RequestContext, request: ProduceForm) -> HandlerResult:
        forms.append(type(request))
        return api.handle(context, request)

    broker.dispatcher.register(PRODUCE, note, read_flat=read_flat_produce)
    for acks in (1, -1):
        assert broker.take(frame(version=version, acks=acks), MIB)
    assert log_of(broker).end_offset == 2
    assert forms == [FlatProduce, FlatProduce]
    assert not broker.faults


def test_a_full_disk_refuses_in_both_codecs_alike_until_it_has_room() -> None:
    both = BothCodecs()
    both.take(frame())
    disks = [log_of(broker).state.disk for broker in (both.flat, both.usual)]
    for disk in disks:
        assert isinstance(disk, SimulatedDisk)
        disk.capacity_bytes = disk.used_bytes
    assert b"is full; retry" in both.take(frame())
    for disk in disks:
        assert isinstance(disk, SimulatedDisk)
        disk.capacity_bytes = None
    both.take(frame())
    assert log_of(both.flat).end_offset == 2
