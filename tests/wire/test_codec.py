"""Guarantees of the codec for every message, and its treatment of malformed bytes."""

import random
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress
from uuid import UUID

import pytest

from ottla.model.errors import ProtocolError
from ottla.wire import codec, codec_runtime
from ottla.wire.apis import message_module
from ottla.wire.codec_examples import all_messages, example
from ottla.wire.codec_runtime import UUIDS_KEPT_MAX, read_uvarint, write_uvarint
from ottla.wire.codec_types import Message
from ottla.wire.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from ottla.wire.messages.delete_groups_request import DeleteGroupsRequest
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.fetch_response import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.leader_change_message import LeaderChangeMessage
from ottla.wire.messages.leave_group_request import LeaveGroupRequest
from ottla.wire.messages.list_offsets_request import ListOffsetsRequest
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.search_length import length

MIB = 1 << 20
FLIPS_PER_VERSION = length(30, 60)
MEASURED_OF = 6
"""One of this number of flipped messages has its memory measured, which takes ten times the
decoding."""
TRUNCATED_BYTES_MAX = length(500, 1_500)
ALL = sorted(all_messages())
NAMES = [name for name, _ in ALL]
BY_NAME = dict(ALL)


class SeededRng:
    """Chance that a name repeats."""

    def __init__(self, seed: str) -> None:
        self.chance = random.Random(zlib.crc32(seed.encode()))

    def random(self) -> float:
        return self.chance.random()

    def below(self, bound: int) -> int:
        return self.chance.randrange(bound)

    def uuid(self) -> UUID:
        return UUID(int=self.chance.getrandbits(128), version=4)


def examples(name: str) -> Iterator[tuple[int, Message]]:
    """Two random messages of every version."""
    rng = SeededRng(name)
    for version in BY_NAME[name].VERSIONS:
        for _ in range(2):
            yield version, example(BY_NAME[name], version, rng)


def produce_request(records: bytes) -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=records)
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="topic", partition_data=[partition])],
    )


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_as_it_was(name: str) -> None:
    for version, message in examples(name):
        data = codec.encode(message, version)
        assert codec.decode(BY_NAME[name], version, data) == message
        assert codec.decode(BY_NAME[name], version, b"prefix" + data, 6) == message


@pytest.mark.parametrize("name", NAMES)
def test_a_large_message_is_written_as_a_small_one(name: str) -> None:
    for version, message in examples(name):
        assert codec.encode_large(message, version) == codec.encode_chunks(message, version)


def test_a_large_message_is_written_in_hardly_more_memory_than_its_bytes() -> None:
    partitions = [OffsetFetchResponsePartition(partition_index=index) for index in range(20_000)]
    topic = OffsetFetchResponseTopic(partitions=partitions)
    message = OffsetFetchResponse(topics=[topic])
    size = len(codec.encode(message, 1))
    tracemalloc.start()
    codec.encode_large(message, 1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes <= 3 * size


@pytest.mark.parametrize("name", NAMES)
def test_a_message_that_ends_at_any_earlier_byte_is_refused(name: str) -> None:
    rng = SeededRng(name)
    for version in BY_NAME[name].VERSIONS:
        drawn = (codec.encode(example(BY_NAME[name], version, rng), version) for _ in range(6))
        # The longest that is short enough to be cut everywhere in little time.
        by_length = sorted(drawn, key=len)
        data = [one for one in by_length if len(one) <= TRUNCATED_BYTES_MAX or one is by_length[0]][
            -1
        ]
        for end in range(len(data)):
            try:
                codec.decode(BY_NAME[name], version, memoryview(data)[:end])
            except ProtocolError:
                continue
            pytest.fail(f"version {version} is read without its last {len(data) - end} bytes")


@pytest.mark.parametrize("name", NAMES)
def test_a_message_behind_4_kib_is_read_as_one_that_stands_alone(name: str) -> None:
    before = codec.SMALL_BYTES_MAX + 1
    for version, message in examples(name):
        data = codec.encode(message, version)
        found = codec.decode(BY_NAME[name], version, bytes(before) + data, before)
        assert found == codec.decode(BY_NAME[name], version, data)


@pytest.mark.parametrize("name", NAMES)
def test_a_message_with_bytes_behind_it_is_refused(name: str) -> None:
    for version, message in examples(name):
        with pytest.raises(ProtocolError):
            codec.decode(BY_NAME[name], version, codec.encode(message, version) + b"\0")


@pytest.mark.parametrize("name", NAMES)
def test_flipped_bits_make_another_message_or_a_protocol_error_and_nothing_else(name: str) -> None:
    chance = random.Random(name)
    for version, message in examples(name):
        data = codec.encode(message, version)
        for number in range(FLIPS_PER_VERSION if data else 0):
            flipped = bytearray(data)
            for _ in range(chance.choice((1, 1, 2, 8))):
                flipped[chance.randrange(len(data))] = chance.choice((0, 0x7F, 0x80, 0xFF))
            if number % MEASURED_OF:
                with suppress(ProtocolError):
                    codec.decode(BY_NAME[name], version, bytes(flipped))
            else:
                assert_no_other_error(BY_NAME[name], version, bytes(flipped))


COMPILED: set[tuple[str, int]] = set()


def compile_decoders(kind: type[Message], version: int) -> None:
    """Have both decode functions made, whose memory is not the input's."""
    if (kind.__name__, version) in COMPILED:
        return
    COMPILED.add((kind.__name__, version))
    for size in (1, codec.SMALL_BYTES_MAX + 1):
        with suppress(ProtocolError):
            codec.decode(kind, version, bytes(size))


def assert_no_other_error(kind: type[Message], version: int, data: bytes) -> None:
    """Decode, and check the allocated memory against the size of the input."""
    compile_decoders(kind, version)
    tracemalloc.start()
    try:
        codec.decode(kind, version, data)
    except ProtocolError:
        pass
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes <= 4 * len(data) + MIB


@pytest.mark.parametrize("name", NAMES)
def test_garbage_is_refused_without_a_large_allocation(name: str) -> None:
    chance = random.Random(name)
    latest = BY_NAME[name].VERSIONS[-1]
    for data in (b"\0" * 4096, b"\xff" * 4096, b"\x7f" * 4096, chance.randbytes(4096)):
        for version in {BY_NAME[name].VERSIONS[0], latest}:
            assert_no_other_error(BY_NAME[name], version, data)


def test_a_count_that_the_bytes_left_cannot_hold_allocates_nothing() -> None:
    claimed = write_uvarint(500_002) + b"\1" * 500_000
    assert_no_other_error(DeleteGroupsRequest, 2, claimed)
    assert_no_other_error(ListOffsetsRequest, 1, b"\xff" * 4 + b"\x7f\xff\xff\xff" + bytes(99_999))
    with pytest.raises(ProtocolError, match="groups_names is longer"):
        codec.decode(DeleteGroupsRequest, 2, claimed)


def test_a_million_empty_texts_are_refused_though_their_bytes_are_there() -> None:
    """A list of a million is 8 MB of pointers for 1 MB of input."""
    with pytest.raises(ProtocolError, match="groups_names is longer"):
        codec.decode(DeleteGroupsRequest, 2, write_uvarint(MIB + 1) + b"\1" * MIB + b"\0")
    assert_no_other_error(DeleteGroupsRequest, 2, write_uvarint(MIB + 1) + b"\1" * MIB + b"\0")
    names = codec.decode(DeleteGroupsRequest, 2, write_uvarint(8_001) + b"\1" * 8_000 + b"\0")
    assert len(names.groups_names) == 8_000


def test_small_structs_are_bounded_in_number_over_all_arrays() -> None:
    """Else a frame of 100 MiB could become 5 GB of objects."""
    add_partitions = message_module("AddPartitionsToTxnRequest")
    kind = add_partitions.AddPartitionsToTxnRequest
    topic = add_partitions.AddPartitionsToTxnTopic(name="", partitions=[])
    transaction = add_partitions.AddPartitionsToTxnTransaction(topics=[topic] * 1000)
    many = kind(transactions=[transaction] * 100)
    with pytest.raises(ProtocolError, match="topics is longer"):
        codec.decode(kind, 4, codec.encode(many, 4))
    few = kind(transactions=[transaction] * 3)
    assert codec.decode(kind, 4, codec.encode(few, 4)) == few


@pytest.mark.parametrize("name", NAMES)
def test_64_kib_of_the_smallest_elements_stay_below_four_times_and_a_mebibyte(name: str) -> None:
    """The tiniest structs once took fifty-six times their bytes."""
    kind, size = BY_NAME[name], 64 << 10
    version = kind.VERSIONS[-1]
    for count in (1_000, 16_000, 65_000):
        for written in (write_uvarint(count + 1), count.to_bytes(4)):
            for filler in (b"\0", b"\1", b"\1\1\0"):
                data = (written + filler * size)[:size]
                assert_no_other_error(kind, version, data)


def test_an_honest_message_of_half_a_million_partitions_is_read() -> None:
    partitions = [MetadataResponsePartition(replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])] * 1000
    message = MetadataResponse(
        topics=[MetadataResponseTopic(name="t", partitions=partitions)] * 500
    )
    read = codec.decode(MetadataResponse, 9, codec.encode(message, 9))
    assert sum(len(topic.partitions) for topic in read.topics) == 500_000


def test_unknown_tagged_fields_are_skipped_at_every_level() -> None:
    message = produce_request(b"records")
    plain = codec.encode(message, 9)
    assert plain.endswith(b"records\0\0\0")
    unknown = b"\2" + b"\x63\3abc" + b"\xff\xff\3\0"
    with_tags = plain[:-3] + unknown * 3
    assert codec.decode(ProduceRequest, 9, with_tags) == message


@pytest.mark.parametrize("name", [n for n in NAMES if BY_NAME[n].FLEXIBLE_FROM is not None])
def test_unknown_tagged_fields_are_skipped_in_every_flexible_message(name: str) -> None:
    kind = BY_NAME[name]
    for version in kind.VERSIONS:
        if kind.FLEXIBLE_FROM is not None and version >= kind.FLEXIBLE_FROM:
            data = codec.encode(kind(), version)
            assert data[-1] == 0
            assert codec.decode(kind, version, data[:-1] + b"\1\x63\4abcd") == kind()


def test_many_unknown_tagged_fields_are_skipped() -> None:
    tags = write_uvarint(200) + b"".join(write_uvarint(tag) + b"\1x" for tag in range(100, 300))
    body = codec.encode(HeartbeatRequest(group_id="g"), 4)
    assert codec.decode(HeartbeatRequest, 4, body[:-1] + tags).group_id == "g"


def test_known_and_unknown_tagged_fields_stand_together() -> None:
    partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2), records=b"")
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    data = codec.encode(message, 12)
    known = b"\0\x0d" + bytes.fromhex("00000001 0000000000000002 00")
    assert data.endswith(b"\1" + known + b"\0\0")
    both = data[: -len(known) - 3] + b"\2" + known + b"\x32\2zz" + b"\0\0"
    assert codec.decode(FetchResponse, 12, both) == message


@pytest.mark.parametrize("size", [0x0C, 0x0E])
def test_a_tagged_field_of_another_size_than_it_says_is_refused(size: int) -> None:
    partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2), records=b"")
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    data = codec.encode(message, 12)
    with pytest.raises(ProtocolError):
        codec.decode(
            FetchResponse, 12, data.replace(b"\0\x0d\0\0\0\1", bytes([0, size, 0, 0, 0, 1]))
        )


def test_records_are_never_copied() -> None:
    records = b"r" * 1000
    first, middle, last = codec.encode_chunks(produce_request(records), 9)
    assert middle is records
    frame = bytes(first) + records + bytes(last)  # type: ignore[arg-type]
    decoded = codec.decode(ProduceRequest, 9, frame)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view.obj is frame


def test_records_may_be_anything_with_a_length() -> None:
    class Slice:
        def __len__(self) -> int:
            return 5

    piece = Slice()
    partitions = [PartitionData(records=piece), PartitionData(records=b""), PartitionData()]
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)])
    chunks = codec.encode_chunks(message, 4)
    assert codec.encode_large(message, 4) == chunks
    assert [chunk for chunk in chunks if isinstance(chunk, Slice)] == [piece]
    assert sum(map(len, chunks)) == 4 + 4 + 2 + 4 + 3 * (4 + 2 + 8 + 8 + 4 + 4) + 5
    with pytest.raises(TypeError):
        codec.encode(message, 4)


def test_null_is_refused_where_the_version_has_none() -> None:
    with pytest.raises(ProtocolError, match="topic_data is null"):
        codec.decode(ProduceRequest, 9, bytes.fromhex("00 ffff 00000000 00 00"))
    with pytest.raises(ProtocolError, match="topic_data is null"):
        codec.decode(ProduceRequest, 3, bytes.fromhex("ffff ffff 00000000 ffffffff"))
    with pytest.raises(AssertionError):
        codec.encode(MetadataResponse(topics=[MetadataResponseTopic(name=None)]), 9)
    assert codec.encode(MetadataResponse(topics=[MetadataResponseTopic(name=None)]), 12)


def test_text_that_is_no_utf8_is_refused() -> None:
    data = codec.encode(HeartbeatRequest(group_id="group"), 0).replace(b"group", b"gr\xffup")
    with pytest.raises(ProtocolError, match="UTF-8"):
        codec.decode(HeartbeatRequest, 0, data)


@pytest.mark.parametrize("varint", ["ffffffff7f", "ffffffffff01", "8080808080808000"])
def test_a_varint_of_more_than_32_bits_is_refused(varint: str) -> None:
    with pytest.raises(ProtocolError):
        codec.decode(DeleteGroupsRequest, 2, bytes.fromhex(varint) + bytes(64))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16_383, 16_384, (1 << 32) - 1])
def test_a_varint_is_read_as_it_was_written(value: int) -> None:
    data = write_uvarint(value)
    assert codec_runtime.read_uvarint(memoryview(data), 0) == (value, len(data))


@pytest.mark.parametrize("version", [-1, 14, 99])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="has no version"):
        codec.decode(ProduceRequest, version, b"")
    with pytest.raises(AssertionError, match="has no version"):
        codec.encode(ProduceRequest(), version)


def test_a_set_field_the_version_lacks_is_dropped_only_if_it_may_be() -> None:
    # Ignorable: a topic id is dropped by versions that know names only, and the other way round.
    topic = TopicProduceData(name="t", topic_id=UUID(int=7))
    old = codec.decode(ProduceRequest, 12, codec.encode(ProduceRequest(topic_data=[topic]), 12))
    new = codec.decode(ProduceRequest, 13, codec.encode(ProduceRequest(topic_data=[topic]), 13))
    assert (old.topic_data[0].name, old.topic_data[0].topic_id.int) == ("t", 0)
    assert (new.topic_data[0].name, new.topic_data[0].topic_id.int) == ("", 7)
    # Not ignorable: Kafka refuses to write it.
    message = FetchRequest(topics=[FetchTopic(partitions=[FetchPartition(last_fetched_epoch=3)])])
    assert codec.encode(message, 12)
    with pytest.raises(ProtocolError, match="last_fetched_epoch is set, but version 11"):
        codec.encode(message, 11)


def test_defaults_are_those_of_kafka_and_never_shared() -> None:
    partition = PartitionData()
    assert (partition.last_stable_offset, partition.preferred_read_replica) == (-1, -1)
    assert partition.records is None
    assert partition.aborted_transactions == []
    assert partition.current_leader.leader_id == -1
    assert partition.current_leader is not PartitionData().current_leader
    one, other = FetchRequest(), FetchRequest()
    one.topics.append(FetchTopic())
    assert other.topics == []
    assert one.max_bytes == 2**31 - 1
    assert CreatableTopicResult().num_partitions == -1
    fetch_snapshot = message_module("FetchSnapshotRequest")
    assert fetch_snapshot.FetchSnapshotRequest().cluster_id is None
    assert CreateTopicsResponse() == CreateTopicsResponse(topics=[])
    assert LeaderChangeMessage() != CreateTopicsResponse()


@pytest.mark.parametrize(
    "message",
    [
        HeartbeatRequest(generation_id=1 << 31),
        HeartbeatRequest(group_id="x" * 40_000),
        HeartbeatRequest(group_id="\udc80"),
        # The class of a heartbeat may be compiled, and refuses bytes itself.
        LeaveGroupRequest(group_id=b"bytes"),  # type: ignore[arg-type]
    ],
)
def test_a_value_no_version_carries_is_our_own_bug(message: Message) -> None:
    with pytest.raises(AssertionError, match="cannot be written"):
        codec.encode(message, 0)


def test_the_table_of_known_ids_is_bounded() -> None:
    for number in range(2 * UUIDS_KEPT_MAX):
        codec_runtime.keep_uuid(number.to_bytes(16))
    assert len(codec_runtime._uuids) <= UUIDS_KEPT_MAX


def test_the_compiled_source_can_be_read() -> None:
    text = codec.source(ProduceRequest, 9)
    assert text.startswith("def decode(data, p, end, left, view):")
    assert "def encode(m, out, records):" in text


@pytest.mark.parametrize("bits", range(0, 32, 7))
def test_unsigned_varints_are_read_as_written_at_each_size(bits: int) -> None:
    for value in ((1 << bits) - 1, 1 << bits, (1 << bits) + 1):
        data = write_uvarint(value)
        assert len(data) == max(1, -(-value.bit_length() // 7))
        assert read_uvarint(memoryview(data), 0) == (value, len(data))
