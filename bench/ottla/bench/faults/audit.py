"""Audit of a steady load: reads its records back, and reports lost, duplicate and reordered
records.

Pure except for `read_back`: `audit` compares the ledger with the records that were read.
"""

import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ottla.bench.faults.ledger import UNKNOWN_OFFSET, Answers, LedgerPartition, RunLedger
from ottla.bench.load import SILENCE_S, library
from ottla.model.errors import ErrorCode, RefusedError

STAMP = struct.Struct(">QI")
"""Binary format of the prefix of every record's value: the id of the run, and the number of the
record within its partition."""

READ_AT_ONCE = 10_000
READ_TIMEOUT_S = 0.2
"""Time in seconds to wait for a full batch of messages when records are read back. librdkafka
returns fewer messages only after this time."""

EXAMPLES_MAX = 3

LOGIN = ("security.", "ssl.", "sasl.")
"""Prefixes of librdkafka's setting keys for TLS and login."""


@dataclass(slots=True)
class AuditedRecords:
    """Records that were read back from one partition after a run of a load, ordered by offset."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    numbers: "array[int]" = field(default_factory=lambda: array("L"))


@dataclass(slots=True)
class AuditVerdict:
    """Numbers of errors that the audit of a run has found, by kind. `examples` describes some of
    each kind."""

    acknowledged: int = 0
    read: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    unasked: int = 0
    """Number of records that were read back although the ledger contains no response for them."""
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """True if the audit has found every acknowledged record stored exactly once, in order."""
        return not (self.lost or self.doubled or self.out_of_order or self.unasked)

    def figures(self) -> dict[str, Any]:
        """Return the numbers of errors by name, in the order in which they are printed."""
        return {
            "acknowledged": self.acknowledged,
            "read_back": self.read,
            "lost": self.lost,
            "doubled": self.doubled,
            "out_of_order": self.out_of_order,
            "unasked": self.unasked,
            "examples": self.examples,
        }


def audit(ledger: RunLedger, found: Mapping[LedgerPartition, AuditedRecords]) -> AuditVerdict:
    """Compare the acknowledged records of a run with the records read back, and return the number
    of errors by kind."""
    verdict = AuditVerdict()
    for answers in ledger.answers:
        _audit_partition(answers, found[answers.place], verdict)
    return verdict


def _audit_partition(answers: Answers, found: AuditedRecords, verdict: AuditVerdict) -> None:
    place = answers.place
    verdict.acknowledged += len(answers.offsets)
    verdict.read += len(found.offsets)
    number_at = dict(zip(found.offsets, found.numbers, strict=True))
    numbers_read = set(found.numbers)
    for number, offset in zip(answers.numbers, answers.offsets, strict=True):
        if offset == UNKNOWN_OFFSET:
            if number not in numbers_read:
                verdict.lost += 1
                _example(verdict, f"{place}: record {number}, acknowledged without offset, is lost")
        elif number_at.get(offset) != number:
            verdict.lost += 1
            there = number_at.get(offset, "nothing")
            _example(verdict, f"{place}: record {number} is not at offset {offset}; {there} is")
    known = {*answers.numbers, *answers.failed}
    seen: set[int] = set()
    latest = -1
    for offset, number in zip(found.offsets, found.numbers, strict=True):
        if number in seen:
            verdict.doubled += 1
            _example(verdict, f"{place}: record {number} is there again at offset {offset}")
        elif number < latest:
            verdict.out_of_order += 1
            _example(verdict, f"{place}: record {number} at offset {offset} comes after {latest}")
        if number not in known:
            verdict.unasked += 1
            _example(verdict, f"{place}: record {number} at offset {offset} was never answered for")
        seen.add(number)
        latest = max(latest, number)


def _example(verdict: AuditVerdict, text: str) -> None:
    if len(verdict.examples) < EXAMPLES_MAX:
        verdict.examples.append(text)


def login_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the TLS and login settings of a producer, with which a consumer can connect to the
    same brokers."""
    return {key: text for key, text in settings.items() if key.startswith(LOGIN)}


def read_back(
    bootstrap: str,
    places: Sequence[LedgerPartition],
    run_id: int,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> dict[LedgerPartition, AuditedRecords]:
    """Read every partition of the run from the run's first record to its current end, and return
    the records of the run, by partition.

    TLS and login are configured as in the producer's `settings`.
    """
    confluent = library("confluent_kafka")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ottla-bench",
            "enable.auto.commit": False,
            # The last offset may belong to a control record or a compacted record, so no message
            # may be delivered at the end.
            "enable.partition.eof": True,
            **login_of(settings),
        }
    )
    found = {place: AuditedRecords() for place in places}
    by_name = {(place.topic, place.partition): place for place in places}
    missing: dict[LedgerPartition, int] = {}
    try:
        for place in places:
            at = confluent.TopicPartition(place.topic, place.partition)
            _, end = consumer.get_watermark_offsets(at, timeout=SILENCE_S)
            if end > place.first_offset:
                missing[place] = end
        consumer.assign(
            [confluent.TopicPartition(la.topic, la.partition, la.first_offset) for la in missing]
        )
        latest = time.monotonic()
        while missing:
            messages = consumer.consume(READ_AT_ONCE, timeout=READ_TIMEOUT_S)
            latest = time.monotonic() if messages else latest
            if time.monotonic() - latest > SILENCE_S:
                raise RefusedError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"nothing could be read for {SILENCE_S:g} s; missing still: "
                    + ", ".join(f"{place} up to {end}" for place, end in missing.items()),
                )
            for message in messages:
                place = by_name[message.topic(), message.partition()]
                next_offset = _take(message, found[place], run_id)
                if next_offset >= missing.get(place, next_offset + 1):
                    del missing[place]
    finally:
        consumer.close()
    return found


def _take(message: Any, found: AuditedRecords, run_id: int) -> int:
    """Store a record that was read back if it belongs to the audited run. Returns the offset up to
    which its partition has been read.

    Raises RefusedError if the message is an error other than the end of the partition.
    """
    offset: int = message.offset()
    error = message.error()
    if error is not None:
        if error.code() == error._PARTITION_EOF:
            return offset
        raise RefusedError(error.code(), error.str())
    value = message.value()
    if value is not None and len(value) >= STAMP.size:  # Any other record belongs to another run.
        run, number = STAMP.unpack_from(value)
        if run == run_id:
            found.offsets.append(offset)
            found.numbers.append(number)
    return offset + 1
