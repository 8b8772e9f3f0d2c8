"""Fuzz target: the small files of a node (checkpoints, identities, producer snapshots, settings).

An input begins with the number of its reader. If the file format has a CRC, the CRC is corrected
before reading.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from uuid import UUID

from crc32c import crc32c

from ottla.jepsen.fuzz.target import FuzzTarget, number_of, numbered
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import Epoch, NodeId, Offset, TopicPartition
from ottla.model.limits import PRODUCER_BATCHES_KEPT
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.declare import definitions, load
from ottla.model.settings.storage.topic import TopicConfig
from ottla.node.properties import parse_properties
from ottla.raft import election_state, snapshot
from ottla.raft.election_state import ElectionState
from ottla.raft.voters import ReplicaKey
from ottla.storage.directories.checkpoint_file import format_checkpoint, parse_checkpoint
from ottla.storage.directories.checkpoint_topics import format_topic_ids, parse_topic_ids
from ottla.storage.directories.clean_shutdown import format_clean_shutdown, parse_clean_shutdown
from ottla.storage.directories.meta_properties import (
    MetaProperties,
    format_meta_properties,
    parse_meta_properties,
)
from ottla.storage.disk.directory_names import parse_directory_name
from ottla.storage.producers.producer_batches import add_batches, encode_batches
from ottla.storage.producers.producer_snapshot import decode_snapshot, encode_snapshot
from ottla.storage.producers.producer_state import ProducerEntry, ProducerStates, SequencedBatch
from ottla.storage.segments.epoch_cache import EpochCache, EpochEntry, decode_epochs
from ottla.storage.segments.files import LOG, offset_of
from ottla.storage.segments.partition_metadata import (
    decode_partition_metadata,
    encode_partition_metadata,
)

SOME_ID = UUID(int=0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0)


@dataclass(frozen=True, slots=True)
class FileReader:
    """The reader of one kind of small file of a node, with valid examples."""

    read: Callable[[bytes], None]
    good: tuple[bytes, ...]


def _checkpoint(data: bytes) -> None:
    found = parse_checkpoint(data)
    assert parse_checkpoint(format_checkpoint(found)) == found


def _epochs(data: bytes) -> None:
    found = decode_epochs(data)
    assert decode_epochs(found.encode()).entries == found.entries


def _producers(data: bytes) -> None:
    body = data[6:]
    fixed = data[:2] + crc32c(body).to_bytes(4) + body
    found = decode_snapshot(fixed, Offset(100))
    again = decode_snapshot(encode_snapshot(found), Offset(100))
    assert again.producers.keys() == found.producers.keys()
    assert again.first_unstable_offset() == found.first_unstable_offset()


def _batches(data: bytes) -> None:
    body = data[6:]
    fixed = data[:2] + crc32c(body).to_bytes(4) + body
    beside = _good_producers()
    states = decode_snapshot(beside, Offset(100))
    add_batches(states, fixed, beside)
    add_batches(states, encode_batches(states, beside), beside)
    assert all(len(each.batches) <= PRODUCER_BATCHES_KEPT for each in states.producers.values())


def _topic_ids(data: bytes) -> None:
    found = parse_topic_ids(data)
    assert parse_topic_ids(format_topic_ids(found)) == found


def _partition_metadata(data: bytes) -> None:
    found = decode_partition_metadata(data)
    assert decode_partition_metadata(encode_partition_metadata(found)) == found


def _meta_properties(data: bytes) -> None:
    found = parse_meta_properties(data)
    assert parse_meta_properties(format_meta_properties(found)).node_id == found.node_id


def _clean_shutdown(data: bytes) -> None:
    found = parse_clean_shutdown(data)
    assert parse_clean_shutdown(format_clean_shutdown(found)) == found


def _election(data: bytes) -> None:
    found = election_state.decode(data)
    assert election_state.decode(election_state.encode(found)) == found


def _names(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    parse_directory_name(name)
    offset_of(name, LOG)
    snapshot.parse_name(name)


def _settings(data: bytes) -> None:
    try:
        texts = parse_properties(data.decode())
    except UnicodeDecodeError:
        return
    for config in (TopicConfig, BrokerConfig, ControllerConfig):
        try:
            load(config, texts)
        except ConfigError as error:
            # An error message about a setting must be printable.
            str(error).encode("utf-8", "backslashreplace")
        for key in texts.keys() & definitions(config).keys():
            definitions(config)[key].allowed()


def _good_producers() -> bytes:
    states = ProducerStates(Offset(100))
    for number in range(3):
        producer = ProducerEntry()
        producer.epoch = number
        producer.txn_first_offset = Offset(10 + number if number else -1)
        producer.batches = [SequencedBatch(0, 4, Offset(5), Offset(9), 1_000)]
        states.restore(number, producer)
    return encode_snapshot(states)


def _good_batches() -> bytes:
    beside = _good_producers()
    states = decode_snapshot(beside, Offset(100))
    for producer in states.producers.values():
        producer.batches.insert(0, SequencedBatch(0, 0, Offset(1), Offset(1), 1_000))
    return encode_batches(states, beside)


def _good_settings() -> tuple[bytes, ...]:
    texts = []
    for config in (TopicConfig, BrokerConfig, ControllerConfig):
        lines = [
            f"{key} = {one.default}" for key, one in definitions(config).items() if one.default
        ]
        # One piece at a time, so that one invalid value does not hide all others.
        texts += ["\n".join(lines[at : at + 4]) for at in range(0, len(lines), 4)]
    texts += [
        "process.roles=broker\nnode.id=1\nlisteners=PLAINTEXT://h:9092\nlog.dirs=/a,/b\n"
        "controller.quorum.voters=101@h:1,102@[::1]:2\n",
        "# a\n! b\nc\\=d : e\\\n  f\\u00e9\\t\\\\\nempty=\n",
    ]
    return tuple(text.encode() for text in texts)


def _readers() -> tuple[FileReader, ...]:
    partitions = {TopicPartition("t", at): Offset(at * 1_000) for at in range(3)}
    entries = (EpochEntry(Epoch(0), Offset(0)), EpochEntry(Epoch(3), Offset(700)))
    identity = MetaProperties(cluster_id="abc", node_id=NodeId(1), directory_id=SOME_ID)
    voted = ElectionState(epoch=Epoch(4), leader_id=None, voted=ReplicaKey(NodeId(102), SOME_ID))
    led = ElectionState(epoch=Epoch(4), leader_id=NodeId(102))
    names = (b"topic-0", b"a-b.c-12", b"t-0." + b"a" * 32 + b"-delete", b"0" * 20 + b".log")
    return (
        FileReader(_checkpoint, (format_checkpoint(partitions), format_checkpoint({}))),
        FileReader(_epochs, (EpochCache(entries).encode(), EpochCache().encode(), b"")),
        FileReader(_producers, (_good_producers(), encode_snapshot(ProducerStates()))),
        FileReader(_partition_metadata, (encode_partition_metadata(SOME_ID),)),
        FileReader(_meta_properties, (format_meta_properties(identity),)),
        FileReader(_clean_shutdown, (format_clean_shutdown(7), b"[" * 300, b'{"a":' * 200)),
        FileReader(_election, tuple(map(election_state.encode, (voted, led, ElectionState())))),
        FileReader(_names, (*names, snapshot.file_name(snapshot.BOOTSTRAP_ID).encode())),
        FileReader(_settings, _good_settings()),
        FileReader(_batches, (_good_batches(),)),
        FileReader(_topic_ids, (format_topic_ids(dict.fromkeys(partitions, SOME_ID)),)),
    )


READERS = _readers()


def _check(data: bytes) -> None:
    READERS[number_of(data, len(READERS))].read(data[2:])


def _seeds(random: Random) -> Iterator[bytes]:
    return numbered(reader.good for reader in READERS)


def _name_of(data: bytes) -> str:
    return READERS[number_of(data, len(READERS))].read.__name__.strip("_")


FILES = FuzzTarget(
    name="files",
    sentence="checkpoints, identities, producer snapshots, quorum-state, .properties, file names",
    check=_check,
    seeds=_seeds,
    refusals=(CorruptDataError, ConfigError),
    name_of=_name_of,
)
