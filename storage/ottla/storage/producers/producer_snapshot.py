"""Encoder and decoder of the `.snapshot` file: a log's producers at one offset, byte for byte in
Kafka's format, version 1. Pure.

Format: int16 version, uint32 CRC32C of all bytes after this field, int32 count, then 46 bytes per
producer. A corrupt file is discarded, because its contents can be replayed from the log.
"""

from struct import Struct

from ottla.model.errors import CorruptDataError
from ottla.model.ids import NO_OFFSET, Offset
from ottla.storage.producers.producer_state import ProducerEntry, ProducerStates, SequencedBatch
from ottla.wire.batch import SEQUENCE_COUNT
from ottla.wire.crc import crc32c

VERSION = 1
_HEADER = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")

assert _HEADER.size == 6
assert _ENTRY.size == 46


def encode_snapshot(states: ProducerStates) -> bytes:
    """Return the bytes of a `.snapshot` file that contains the producer states `states`."""
    parts = [_COUNT.pack(len(states.producers))]
    for producer_id, producer in states.producers.items():
        last = producer.batches[-1] if producer.batches else None
        parts.append(
            _ENTRY.pack(
                producer_id,
                producer.epoch,
                -1 if last is None else last.last_sequence,
                NO_OFFSET if last is None else last.last_offset,
                0 if last is None else last.last_offset - last.base_offset,
                producer.last_timestamp_ms,
                producer.coordinator_epoch,
                producer.txn_first_offset,
            )
        )
    body = b"".join(parts)
    return _HEADER.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, end_offset: Offset) -> ProducerStates:
    """Return the producer states in the bytes of a `.snapshot` file for the offset `end_offset`.
    Raises CorruptDataError if the snapshot is corrupt."""
    if len(data) < _HEADER.size + _COUNT.size:
        raise CorruptDataError("producer snapshot: it is cut off")
    version, crc = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if version != VERSION or crc32c(body) != crc:
        raise CorruptDataError("producer snapshot: version or CRC is wrong")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptDataError("producer snapshot: its size does not fit its count")
    states = ProducerStates(end_offset)
    open_offsets: set[int] = set()
    for entry in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator, txn = (
            entry
        )
        if producer_id in states.producers or txn in open_offsets or txn < NO_OFFSET:
            raise CorruptDataError("producer snapshot: a producer or a transaction comes twice")
        if txn != NO_OFFSET:
            open_offsets.add(txn)
        producer = ProducerEntry()
        producer.epoch = epoch
        producer.last_timestamp_ms = timestamp_ms
        producer.coordinator_epoch = coordinator
        producer.txn_first_offset = Offset(txn)
        if last_offset != NO_OFFSET:
            first_sequence = (last_sequence - delta) % SEQUENCE_COUNT if last_sequence >= 0 else -1
            producer.batches.append(
                SequencedBatch(
                    first_sequence,
                    last_sequence,
                    Offset(last_offset - delta),
                    Offset(last_offset),
                    timestamp_ms,
                )
            )
        states.restore(producer_id, producer)
    return states
