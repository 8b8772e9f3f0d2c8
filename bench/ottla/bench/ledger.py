"""What a producer was told: a file of every record that was acknowledged or refused, and when.

A lane is one partition of one of the topics written.  The file begins with a line of JSON that
names the lanes; then one row a record, in the order of the answers, so that a file whose writer was
killed is good up to its last whole row.
"""

import json
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

ROW = struct.Struct("<HIqd")
"""Lane, number of the record in its lane, offset, wall seconds of the answer."""

NOT_ACKNOWLEDGED = -1
"""The offset of a record whose send failed; it may or may not have been written."""

UNKNOWN_OFFSET = -2
"""The offset of a record that was acknowledged by the answer to a later one: where a connection is
lost between the two, librdkafka reports the earlier as delivered, and not where it lies."""

ROWS_HELD = 4_096


class LedgerLane(NamedTuple):
    """A partition that is written, and the offset of the first record of this run."""

    topic: str
    partition: int
    first_offset: int = 0

    def __str__(self) -> str:
        """Name it as people do."""
        return f"{self.topic}-{self.partition}"


class LedgerWriter:
    """Writes a ledger; owns its file."""

    def __init__(
        self, path: Path, lanes: Sequence[LedgerLane], *, run_id: int, started_s: float
    ) -> None:
        self._file: BinaryIO = path.open("wb")
        head = {"run_id": run_id, "started_s": started_s, "lanes": lanes}
        self._file.write(json.dumps(head).encode() + b"\n")
        self._rows = bytearray()

    def add(self, lane: int, number: int, offset: int, at_s: float) -> None:
        """Note one answer."""
        self._rows += ROW.pack(lane, number, offset, at_s)
        if len(self._rows) >= ROWS_HELD * ROW.size:
            self.flush()

    def flush(self) -> None:
        """Hand all rows to the operating system."""
        self._file.write(self._rows)
        self._file.flush()
        self._rows.clear()

    def close(self) -> None:
        """Write the rest."""
        self.flush()
        self._file.close()


@dataclass(slots=True)
class Answers:
    """What became of one lane's records, in the order of the answers."""

    lane: LedgerLane
    numbers: "array[int]" = field(default_factory=lambda: array("L"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    at_s: "array[float]" = field(default_factory=lambda: array("d"))
    failed: "array[int]" = field(default_factory=lambda: array("L"))


@dataclass(slots=True)
class RunLedger:
    """A whole run."""

    run_id: int
    started_s: float
    answers: list[Answers]

    @property
    def acknowledged(self) -> int:
        """How many records were acknowledged."""
        return sum(len(lane.offsets) for lane in self.answers)

    @property
    def failed(self) -> int:
        """How many sends failed."""
        return sum(len(lane.failed) for lane in self.answers)

    @property
    def ended_s(self) -> float:
        """When the last record was acknowledged."""
        return max((lane.at_s[-1] for lane in self.answers if lane.at_s), default=self.started_s)


def read_ledger(path: Path) -> RunLedger:
    """Read a ledger up to its last whole row."""
    head, _, rows = path.read_bytes().partition(b"\n")
    found = json.loads(head)
    ledger = RunLedger(
        run_id=found["run_id"],
        started_s=found["started_s"],
        answers=[Answers(LedgerLane(*lane)) for lane in found["lanes"]],
    )
    whole = len(rows) - len(rows) % ROW.size
    for index, number, offset, at_s in ROW.iter_unpack(memoryview(rows)[:whole]):
        answers = ledger.answers[index]
        if offset == NOT_ACKNOWLEDGED:
            answers.failed.append(number)
        else:
            answers.numbers.append(number)
            answers.offsets.append(offset)
            answers.at_s.append(at_s)
    return ledger
