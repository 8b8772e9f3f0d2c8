"""Records of the metadata topic beside those of Kafka's RemoteLogMetadataSerde.

`kafka_serde/values.txt` holds values that Kafka 4.4.0 read and wrote again, with the content that
it found. If OTTLA_KAFKA_JARS names a directory with the jars of a Kafka release, it is asked again,
about more.
"""

import os
import subprocess
from pathlib import Path
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, NodeId, Offset, uuid_text
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.remote_records import RemoteLogEntry, decode_record, encode_record
from ottla.storage.tier.remote_segment import (
    RemoteSegment,
    RemoteSegmentId,
    RemoteSegmentRemoval,
    RemoteSegmentState,
    RemoteSegmentUpdate,
)
from tests.storage.tier.tier_examples import FINISHED, STARTED, remote, segment_id, update

HERE = Path(__file__).parent / "kafka_serde"
VALUES = HERE / "values.txt"
PROGRAM = HERE / "RereadValues.java"
JARS = "OTTLA_KAFKA_JARS"
CASES_KEPT, CASES_ASKED = 40, 2_000
TOPICS = ("orders", "a.b-c_d", "x" * 249)


def one_case(number: int) -> tuple[str, RemoteSegment | RemoteSegmentUpdate]:
    """Return a record of random content, with its topic."""
    rng = Random(number)
    topic = rng.choice(TOPICS)
    named = RemoteSegmentId(
        UUID(int=rng.getrandbits(128)),
        rng.choice([0, 7, 2**31 - 1]),
        UUID(int=rng.getrandbits(128)),
    )
    custom = rng.choice([None, b"", b"key", rng.randbytes(200)])
    broker = NodeId(rng.choice([0, 3, 2**31 - 1]))
    time_ms = rng.choice([0, 1_700_000_000_000])
    state = rng.choice(list(RemoteSegmentState))
    if rng.random() < 0.4:
        # Kafka refuses to make an update of the state COPY_STARTED.
        later = rng.choice([one for one in RemoteSegmentState if one is not STARTED])
        return topic, RemoteSegmentUpdate(named, time_ms, custom, later, broker)
    start = rng.choice([0, 5, 2**40])
    epochs = sorted(rng.sample(range(300), rng.choice([1, 2, 5, 140])))
    return topic, RemoteSegment(
        id=named,
        start_offset=Offset(start),
        end_offset=Offset(start + 1_000),
        broker_id=broker,
        max_timestamp_ms=rng.choice([-1, 0, 1_700_000_000_000]),
        event_timestamp_ms=time_ms,
        size_bytes=rng.choice([0, 1, 2**31 - 1]),
        leader_epochs=tuple(
            EpochEntry(Epoch(epoch), Offset(start + index)) for index, epoch in enumerate(epochs)
        ),
        custom_metadata=custom,
        state=state,
        has_empty_transaction_index=rng.random() < 0.5,
    )


def content_of(topic: str, record: RemoteSegment | RemoteSegmentUpdate) -> str:
    """Return the content of a record as the Java program prints it."""
    topic_id, partition, uuid = record.id
    custom = "none" if record.custom_metadata is None else f"x{record.custom_metadata.hex()}"
    words: list[object] = [topic, uuid_text(topic_id), partition, uuid_text(uuid)]
    if isinstance(record, RemoteSegment):
        words += [record.start_offset, record.end_offset, record.broker_id]
        words += [record.max_timestamp_ms, record.event_timestamp_ms, record.size_bytes]
        pairs = (f"{entry.epoch}={entry.start_offset}" for entry in record.leader_epochs)
        words.append(f"{{{','.join(pairs)}}}")
        is_empty = str(record.has_empty_transaction_index).lower()
        words += [custom, int(record.state), is_empty]
    else:
        words += [record.broker_id, record.event_timestamp_ms, custom, int(record.state)]
    return " ".join(str(word) for word in words)


def line_of(number: int) -> str:
    """Return the line that Kafka writes for a record of ours, if it agrees."""
    topic, record = one_case(number)
    [(_, value)] = encode_record(topic, record)
    assert value is not None
    return f"{value.hex()}\t{content_of(topic, record)}"


def test_values_are_those_that_kafka_read_and_wrote() -> None:
    kept = VALUES.read_text().splitlines()
    assert len(kept) == CASES_KEPT
    assert [line_of(number) for number in range(CASES_KEPT)] == kept


@pytest.mark.parametrize("number", range(CASES_KEPT))
def test_a_record_is_read_as_it_was_written(number: int) -> None:
    topic, record = one_case(number)
    [(key, value)] = encode_record(topic, record)
    assert decode_record(key, value) == record
    assert decode_record(None, value) == record


def test_a_kafka_at_hand_reads_and_writes_the_same(tmp_path: Path) -> None:
    jars = os.environ.get(JARS)
    if not jars:
        pytest.skip(f"LOUD: {JARS} is not set; Kafka's serde was NOT asked here")
    expected = [line_of(number) for number in range(CASES_ASKED)]
    assert ask_kafka([line.split("\t")[0] for line in expected], f"{jars}/*", tmp_path) == expected


def ask_kafka(values: list[str], class_path: str, directory: Path) -> list[str]:
    """Return Kafka's lines about values in hex: each written again, and its content."""
    compiler = ["javac", "-d", str(directory), "-cp", class_path, str(PROGRAM)]
    subprocess.run(compiler, check=True, timeout=300)
    program = ["java", "-cp", f"{directory}:{class_path}", "RereadValues"]
    text = "".join(f"{value}\n" for value in values)
    ran = subprocess.run(program, input=text, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def one_record(record: RemoteSegment | RemoteSegmentUpdate) -> RemoteLogEntry:
    [written] = encode_record("orders", record)
    return written


def test_each_state_of_a_segment_has_a_key_of_its_own() -> None:
    keys = {one_record(remote(1, 0, 9)).key, one_record(remote(2, 0, 9)).key}
    keys |= {one_record(update(1, state)).key for state in RemoteSegmentState if state != STARTED}
    assert len(keys) == 5


def test_a_removal_is_a_tombstone_for_each_key_of_the_segment() -> None:
    written = encode_record("orders", RemoteSegmentRemoval(segment_id(1)))
    assert [one.value for one in written] == [None, None, None]
    assert one_record(remote(1, 0, 9)).key == written[0].key
    assert one_record(update(1, FINISHED)).key == written[1].key
    assert [decode_record(*one) for one in written] == [
        RemoteSegmentRemoval(segment_id(1)),
        None,
        None,
    ]


def test_records_of_later_releases_are_skipped() -> None:
    key, value = one_record(remote(1, 0, 9))
    assert value is not None
    assert decode_record(b"\x00\x01" + key[2:], value) is None
    for at in range(3):
        changed = bytearray(value)
        changed[at] = 9
        assert decode_record(None, bytes(changed)) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", one_record(remote(1, 0, 9)).value),
        (one_record(remote(1, 0, 9)).key[:-1], None),
        (one_record(remote(1, 0, 9)).key[:-1] + b"\x04", None),
        (one_record(remote(2, 0, 9)).key, one_record(remote(1, 0, 9)).value),
        (one_record(update(1, FINISHED)).key, one_record(remote(1, 0, 9)).value),
        (None, b""),
        (None, b"\x01\x00"),
        (None, (one_record(remote(1, 0, 9)).value or b"")[:-1]),
        (None, (one_record(remote(1, 0, 9)).value or b"") + b"\x00"),
    ],
)
def test_damaged_records_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptDataError):
        decode_record(key, value)


@given(st.none() | st.binary(max_size=60), st.none() | st.binary(max_size=120))
def test_random_bytes_are_read_or_refused(key: bytes | None, value: bytes | None) -> None:
    try:
        decode_record(key, value)
    except CorruptDataError:
        return


@given(st.integers(0, 300), st.integers(0, 500), st.integers(0, 255))
def test_a_changed_byte_is_read_or_refused(number: int, at: int, byte: int) -> None:
    [(key, value)] = encode_record(*one_case(number))
    assert value is not None
    changed = bytearray(value)
    changed[at % len(changed)] = byte
    try:
        decode_record(key, bytes(changed))
    except CorruptDataError:
        return
