"""Records that `ottla consume` takes from a fetch, and its output for each."""

import argparse
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from ottla.cli.records.record_printer import Printer
from ottla.cli.topics.topic_verbs import describe
from ottla.client import ConsumerRecord
from ottla.client.fetch.position_reads import ReadPosition, records_of, wanted_of
from ottla.model.errors import RefusedError
from ottla.model.ids import Epoch, Offset, ProducerId
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.wire.batch import TimestampType, parse_header
from ottla.wire.batch_builder import (
    ControlType,
    RecordToBuild,
    build_batch,
    build_end_transaction_marker,
)
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.records import RecordHeaders
from tests.storage.cleaner.cleaning_bench import compacted_batch


def batch(base_offset: int, *values: bytes) -> bytes:
    return build_batch(
        [RecordToBuild(7, None, value, ()) for value in values], base_offset=Offset(base_offset)
    )


def start() -> ReadPosition:
    return ReadPosition("t", partition=0, offset=0, end_offset=None)


@pytest.mark.parametrize("byte_count", [1, 11, 60, 61, 68])
def test_a_batch_that_the_fetch_cut_off_is_left_for_the_next(byte_count: int) -> None:
    found = records_of(batch(0, b"a", b"b") + batch(2, b"c")[:byte_count], start())

    assert [record.value for record in found] == [b"a", b"b"]


@pytest.mark.parametrize("kept", [(), (0,), (1,), (0, 4), (5,), (3, 8), (8,), (2, 5, 7)])
@pytest.mark.parametrize("end_offset", range(1, 10))
def test_the_end_is_reached_wherever_compaction_left_gaps(
    kept: tuple[int, ...], end_offset: int
) -> None:
    log = [compacted_batch(batch(at, b"a", b"b", b"c"), kept) for at in (0, 3, 6)]
    if not {3, 4, 5} & set(kept):
        del log[1]
    position = ReadPosition("t", partition=0, offset=0, end_offset=end_offset)

    seen: list[int] = []
    for _ in range(len(log) + 1):
        rest = b"".join(one for one in log if parse_header(one).end_offset > position.offset)
        for record in wanted_of(records_of(rest, position), position):
            seen.append(record.offset)
            position.offset = record.offset + 1
        if position.offset >= end_offset:
            break

    assert seen == [offset for offset in kept if offset < end_offset]
    assert position.offset >= end_offset


def transactional(base_offset: int, producer_id: int, *values: bytes) -> bytes:
    return build_batch(
        [RecordToBuild(7, None, value, ()) for value in values],
        base_offset=Offset(base_offset),
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(base_offset: int, producer_id: int, control_type: ControlType) -> bytes:
    return build_end_transaction_marker(
        control_type,
        timestamp_ms=7,
        producer_id=ProducerId(producer_id),
        producer_epoch=0,
        coordinator_epoch=Epoch(0),
        base_offset=Offset(base_offset),
    )


ABORT, COMMIT = ControlType.ABORT, ControlType.COMMIT

LOG = [
    transactional(0, 7, b"a0", b"a1"),
    transactional(2, 8, b"c2"),
    marker(3, 7, ABORT),
    transactional(4, 7, b"c4"),
    marker(5, 7, COMMIT),
    marker(6, 8, COMMIT),
]


@pytest.mark.parametrize(
    ("aborted", "expected"),
    [([(7, 0)], [b"c2", b"c4"]), ([], [b"a0", b"a1", b"c2", b"c4"])],
)
@pytest.mark.parametrize("batch_count", range(1, len(LOG) + 1))
def test_markers_and_aborted_records_lead_to_the_end_and_are_not_shown(
    aborted: list[tuple[int, int]], expected: list[bytes], batch_count: int
) -> None:
    position = ReadPosition("t", partition=0, offset=0, end_offset=7)
    seen: list[bytes | None] = []
    for _ in range(len(LOG) + 1):
        rest = [one for one in LOG if parse_header(one).end_offset > position.offset]
        data = b"".join(rest[:batch_count])
        aborted_here = aborted if position.offset <= 3 else ()  # the marker at 3 ends it
        for record in wanted_of(records_of(data, position, aborted_here), position):
            seen.append(record.value)
            position.offset = record.offset + 1

    assert seen == expected
    assert position.offset == 7


def test_a_batch_whose_bytes_lie_is_refused() -> None:
    data = bytearray(batch(0, b"abc"))
    data[-2] ^= 1

    with pytest.raises(RefusedError, match="CORRUPT_MESSAGE"):
        records_of(bytes(data), start())


def record_of(
    offset: Offset,
    key: bytes | None,
    value: bytes | None,
    headers: RecordHeaders,
    timestamp_type: TimestampType,
) -> ConsumerRecord:
    return ConsumerRecord("t", 3, offset, 9, key, value, headers, Epoch(0), timestamp_type)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (
            record_of(Offset(4), b"k", b"v", (("x", b"1"), ("y", None)), TimestampType(0)),
            '{"topic":"t","partition":3,"offset":4,"tstype":"create","ts":9,"broker":1,'
            '"headers":["x","1","y",null],"key":"k","payload":"v"}',
        ),
        (
            record_of(Offset(5), None, None, (), TimestampType(1)),
            '{"topic":"t","partition":3,"offset":5,"tstype":"logappend","ts":9,"broker":1,'
            '"key":null,"payload":null}',
        ),
    ],
)
def test_json_is_what_kcat_prints(record: ConsumerRecord, line: str) -> None:
    """The lines were printed by kcat 1.7.1 for such records."""
    printer = Printer(argparse.Namespace(json=True, format_string=None, key_delimiter=None))

    assert printer.json(ReadPosition("t", 3, 0, None, leader=1), record) == line


async def test_a_topic_is_described_with_its_id_as_kafka_writes_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic_id = uuid4()
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=1, leader_epoch=2, replica_nodes=[1, 2], isr_nodes=[1]
    )
    topic = MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])

    async def metadata(names: list[str]) -> MetadataResponse:
        return MetadataResponse(topics=[topic])

    admin: Any = SimpleNamespace(cluster=SimpleNamespace(metadata=metadata))
    assert await describe(admin, argparse.Namespace(names=["t"], format="table")) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"t  id {uuid_to_text(topic_id)}",
        "",
        "PARTITION  LEADER  EPOCH  REPLICAS  ISR  OFFLINE",
        "        0       1      2  1,2       1    -",
    ]
