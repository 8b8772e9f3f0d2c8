"""Encodes and decodes records of `__transaction_state`, in Kafka's formats. Pure.

A key consists of the int16 0 and the transactional id. A value consists of an int16 (0 or 1) and a
body. A null value is a tombstone. Keys and values of later versions are skipped when a log is read.
"""

from struct import Struct

from ottla.broker.coordinators.effects import CoordinatorRecord
from ottla.broker.transactions.transaction import STORED, TransactionFacts, TransactionStatus
from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.ids import NO_PRODUCER_ID, ProducerId, TopicPartition
from ottla.wire.codec import decode, encode
from ottla.wire.messages.transaction_log_key import TransactionLogKey
from ottla.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

KEY_VERSION = 0
FLEXIBLE_VALUE = 1
"""First version of a `__transaction_state` record value with tagged fields. A reader of an older
release may skip these fields."""

TRANSACTIONAL_ID_BYTES_MAX = 32_767
"""Maximum number of bytes of a transactional id that fits into a record."""

_int16 = Struct(">h")
_KEY_PREFIX = _int16.pack(KEY_VERSION)


def state_record(
    transactional_id: str, facts: TransactionFacts | None, transaction_version: int = 0
) -> CoordinatorRecord:
    """Return the record that stores the state of a transactional id, or a tombstone if `facts` is
    None.

    The cluster's transaction.version determines the version of the value. A higher version is used
    if the state requires it.
    """
    key = _KEY_PREFIX + encode(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)
    return CoordinatorRecord(key, None if facts is None else _value(facts, transaction_version))


def _value(facts: TransactionFacts, transaction_version: int) -> bytes:
    assert facts.status in STORED
    assert facts.status is not TransactionStatus.EMPTY or not facts.partitions
    value = TransactionLogValue(
        producer_id=facts.producer_id,
        producer_epoch=facts.producer_epoch,
        transaction_timeout_ms=facts.timeout_ms,
        transaction_status=facts.status,
        transaction_partitions=_partitions_of(facts),
        transaction_last_update_timestamp_ms=facts.last_update_ms,
        transaction_start_timestamp_ms=facts.start_ms,
    )
    # A client of version 2 may use a cluster of version 0.  The value then needs the fields for
    # retries.
    if transaction_version >= 1 or facts.client_version:
        value.previous_producer_id = facts.previous_producer_id
        value.next_producer_id = facts.next_producer_id
        value.client_transaction_version = facts.client_version
        return _int16.pack(FLEXIBLE_VALUE) + encode(value, FLEXIBLE_VALUE)
    assert facts.next_producer_id == NO_PRODUCER_ID
    return _int16.pack(0) + encode(value, 0)


def _partitions_of(facts: TransactionFacts) -> list[PartitionsSchema] | None:
    if facts.status is TransactionStatus.EMPTY:
        return None
    by_topic: dict[str, list[int]] = {}
    for topic, index in facts.partitions:
        by_topic.setdefault(topic, []).append(index)
    return [
        PartitionsSchema(topic=name, partition_ids=sorted(by_topic[name]))
        for name in sorted(by_topic)
    ]


def read_state_record(
    key: bytes | None, value: bytes | None
) -> tuple[str, TransactionFacts | None] | None:
    """Decode a record of `__transaction_state`. Returns the transactional id and its state; the
    state of a tombstone is None. Returns None if the key has a later version.

    Raises CorruptDataError if the bytes do not match their version.
    """
    if key is None:
        raise CorruptDataError("a record of __transaction_state has no key")
    try:
        if _prefix_of(key) != KEY_VERSION:
            return None
        transactional_id = decode(TransactionLogKey, KEY_VERSION, key, 2).transactional_id
        return transactional_id, None if value is None else _read_value(value)
    except ProtocolError as error:
        raise CorruptDataError(f"a record of __transaction_state: {error}") from None


def _read_value(data: bytes) -> TransactionFacts:
    version = _prefix_of(data)
    if version not in TransactionLogValue.VERSIONS:
        raise CorruptDataError(f"version {version} of TransactionLogValue")
    value = decode(TransactionLogValue, version, data, 2)
    status = value.transaction_status
    if status not in STORED:
        raise CorruptDataError(f"transaction status {status}")
    return TransactionFacts(
        producer_id=ProducerId(value.producer_id),
        previous_producer_id=ProducerId(value.previous_producer_id),
        next_producer_id=ProducerId(value.next_producer_id),
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=TransactionStatus(status),
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        last_update_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )


def _prefix_of(data: bytes) -> int:
    if len(data) < _int16.size:
        raise CorruptDataError(f"{len(data)} bytes as key or value in __transaction_state")
    prefix: int = _int16.unpack_from(data)[0]
    return prefix
