"""Runs of records fill batches as single records do, and give their memory back."""

from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.produce.partition_queue import BatchOutcome
from ottla.client.produce.record_run import EncodedRecords
from ottla.model.errors import ErrorCode
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch import parse_header
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.records import scan

AT = TopicPartition("t", 0)
RECORD_BYTES = 107
VALUE = b"x" * 100


class SameRecords:
    """Records of one value, each of at most RECORD_BYTES."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.taken: list[int] = []

    @property
    def next_bytes(self) -> int:
        return RECORD_BYTES if self.left else 0

    @property
    def largest_bytes(self) -> int:
        return RECORD_BYTES

    def take(self, room_bytes: int, first_delta: int, timestamp_delta: int) -> EncodedRecords:
        count = max(1, min(self.left, room_bytes // RECORD_BYTES))
        # A builder that begins at the wanted offset, of which the records before are cut off.
        builder = BatchBuilder()
        for _ in range(first_delta):
            builder.append(0, None, b"")
        before = builder.size_bytes
        for _ in range(count):
            builder.append(timestamp_delta, None, VALUE)
        self.left -= count
        self.taken.append(count)
        return EncodedRecords(bytes(builder._body)[before - builder.size_bytes :], count)


def accumulator() -> Accumulator:
    made = Accumulator(ProducerConfig(linger_ms=10, batch_bytes=1_000, buffer_bytes_max=2_500))
    made.become(ProducerIdentity(ProducerId(7), 0))
    return made


def test_a_run_joins_the_open_batch_and_opens_others_until_memory_is_short() -> None:
    gathered = accumulator()
    gathered.append(AT, 5, None, VALUE, (), 5)
    run = SameRecords(40)
    looks = [gathered.extend(AT, 9, run, 9)]
    while run.next_bytes and gathered.has_room(run.next_bytes):
        looks.append(gathered.extend(AT, 9, run, 9))
    assert looks[:2] == [False, True]
    assert run.left > 0
    assert gathered.buffered_bytes <= 2_500

    (batch,) = gathered.drain([AT], 1_000)
    assert batch.encoded is not None
    records = list(scan(batch.encoded, 0, parse_header(batch.encoded)))
    assert [record.timestamp_ms for record in records] == [5] + [9] * run.taken[0]
    assert [record.offset for record in records] == list(range(len(records)))
    assert {record.value for record in records} == {VALUE}
    assert len(batch.encoded) <= 1_000


def test_a_batch_of_a_run_that_is_split_gives_all_its_memory_back() -> None:
    gathered = accumulator()
    gathered.extend(AT, 0, SameRecords(6), 0)
    (large,) = gathered.drain([AT], 1_000)
    assert gathered.on_answer(large, ErrorCode.MESSAGE_TOO_LARGE, None, 1_000) is BatchOutcome.SPLIT
    sent = 0
    while found := gathered.drain([AT], 5_000):
        for batch in found:
            sent += batch.record_count
            gathered.on_acknowledged(batch, base_offset=0)
    assert (sent, gathered.buffered_bytes) == (6, 0)
