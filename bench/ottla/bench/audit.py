"""Is every acknowledged record there, once and in order?  Reads a run back and says what is not.

Pure but for `read_back`: `audit` compares what the ledger says with what was found.
"""

import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ottla.bench.ledger import UNKNOWN_OFFSET, Answers, LedgerLane, RunLedger
from ottla.bench.load import SILENCE_S, library
from ottla.model.errors import ErrorCode, RefusedError

STAMP = struct.Struct(">QI")
"""How a record of a run begins: the run it belongs to, and its number within its lane."""

READ_AT_ONCE = 10_000
READ_TIMEOUT_S = 0.2
"""How long one read waits to be full; librdkafka hands over nothing before."""

EXAMPLES_MAX = 3

LOGIN = ("security.", "ssl.", "sasl.")
"""How librdkafka's keys begin that say how brokers are reached."""


@dataclass(slots=True)
class AuditedRecords:
    """The records of one run that were read from a lane, in the order of their offsets."""

    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    numbers: "array[int]" = field(default_factory=lambda: array("L"))


@dataclass(slots=True)
class AuditVerdict:
    """What is wrong with a run; `examples` has some of each kind in words."""

    acknowledged: int = 0
    read: int = 0
    lost: int = 0
    doubled: int = 0
    out_of_order: int = 0
    unasked: int = 0
    """Records read that were neither acknowledged nor reported as failed."""
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every acknowledged record is there exactly once, in order."""
        return not (self.lost or self.doubled or self.out_of_order or self.unasked)

    def figures(self) -> dict[str, Any]:
        """Return the counts by name, in the order they are printed."""
        return {
            "acknowledged": self.acknowledged,
            "read_back": self.read,
            "lost": self.lost,
            "doubled": self.doubled,
            "out_of_order": self.out_of_order,
            "unasked": self.unasked,
            "examples": self.examples,
        }


def audit(ledger: RunLedger, found: Mapping[LedgerLane, AuditedRecords]) -> AuditVerdict:
    """Compare what was acknowledged with what was read."""
    verdict = AuditVerdict()
    for answers in ledger.answers:
        _audit_lane(answers, found[answers.lane], verdict)
    return verdict


def _audit_lane(answers: Answers, found: AuditedRecords, verdict: AuditVerdict) -> None:
    lane = answers.lane
    verdict.acknowledged += len(answers.offsets)
    verdict.read += len(found.offsets)
    number_at = dict(zip(found.offsets, found.numbers, strict=True))
    numbers_read = set(found.numbers)
    for number, offset in zip(answers.numbers, answers.offsets, strict=True):
        if offset == UNKNOWN_OFFSET:
            if number not in numbers_read:
                verdict.lost += 1
                _example(verdict, f"{lane}: record {number}, acknowledged without offset, is lost")
        elif number_at.get(offset) != number:
            verdict.lost += 1
            there = number_at.get(offset, "nothing")
            _example(verdict, f"{lane}: record {number} is not at offset {offset}; {there} is")
    known = {*answers.numbers, *answers.failed}
    seen: set[int] = set()
    latest = -1
    for offset, number in zip(found.offsets, found.numbers, strict=True):
        if number in seen:
            verdict.doubled += 1
            _example(verdict, f"{lane}: record {number} is there again at offset {offset}")
        elif number < latest:
            verdict.out_of_order += 1
            _example(verdict, f"{lane}: record {number} at offset {offset} comes after {latest}")
        if number not in known:
            verdict.unasked += 1
            _example(verdict, f"{lane}: record {number} at offset {offset} was never answered for")
        seen.add(number)
        latest = max(latest, number)


def _example(verdict: AuditVerdict, text: str) -> None:
    if len(verdict.examples) < EXAMPLES_MAX:
        verdict.examples.append(text)


def login_of(settings: Mapping[str, str]) -> dict[str, str]:
    """Return those of a producer's settings by which a consumer reaches the same brokers."""
    return {key: text for key, text in settings.items() if key.startswith(LOGIN)}


def read_back(
    bootstrap: str,
    lanes: Sequence[LedgerLane],
    run_id: int,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> dict[LedgerLane, AuditedRecords]:
    """Read every lane from the run's first record to its present end; keep what the run wrote.

    `settings` are the producer's; of these, TLS and login are used.
    """
    confluent = library("confluent_kafka")
    consumer = confluent.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "ottla-bench",
            "enable.auto.commit": False,
            # The last offsets may be a marker's, or compacted: no record leads to such an end.
            "enable.partition.eof": True,
            **login_of(settings),
        }
    )
    found = {lane: AuditedRecords() for lane in lanes}
    by_name = {(lane.topic, lane.partition): lane for lane in lanes}
    missing: dict[LedgerLane, int] = {}
    try:
        for lane in lanes:
            at = confluent.TopicPartition(lane.topic, lane.partition)
            _, end = consumer.get_watermark_offsets(at, timeout=SILENCE_S)
            if end > lane.first_offset:
                missing[lane] = end
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
                    + ", ".join(f"{lane} up to {end}" for lane, end in missing.items()),
                )
            for message in messages:
                lane = by_name[message.topic(), message.partition()]
                next_offset = _take(message, found[lane], run_id)
                if next_offset >= missing.get(lane, next_offset + 1):
                    del missing[lane]
    finally:
        consumer.close()
    return found


def _take(message: Any, found: AuditedRecords, run_id: int) -> int:
    """Keep what the run wrote; return up to where the lane is read.

    Raises RefusedError where the message is an error, other than that the end is reached.
    """
    offset: int = message.offset()
    error = message.error()
    if error is not None:
        if error.code() == error._PARTITION_EOF:
            return offset
        raise RefusedError(error.code(), error.str())
    value = message.value()
    if value is not None and len(value) >= STAMP.size:  # otherwise another's record
        run, number = STAMP.unpack_from(value)
        if run == run_id:
            found.offsets.append(offset)
            found.numbers.append(number)
    return offset + 1
