"""Ledger of a producer: a file that lists each acknowledged or refused record with the time of the
response.

The file begins with a line of JSON that names the partitions to which the run writes
(`LedgerPartition`).  After that, it has one row for each record, in the order of the responses.  If
the writer is killed, the file is therefore valid up to its last complete row.
"""

import json
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

ROW = struct.Struct("<HIqd")
"""Binary format of a row of the ledger: the partition's index in the first line, the number of the
record in its partition, its offset, and the wall-clock seconds of the response."""

NOT_ACKNOWLEDGED = -1
"""Value in the ledger in place of a record's offset if the send failed. The broker may nevertheless
have written the record."""

UNKNOWN_OFFSET = -2
"""Value in the ledger in place of an offset that the acknowledgement did not contain. This occurs
if a connection is lost between two responses. When the later record is acknowledged, librdkafka
also reports the earlier record as delivered, without its offset."""

ROWS_HELD = 4_096


class LedgerPartition(NamedTuple):
    """A partition that a load writes to, and the offset of the first record written in this run."""

    topic: str
    partition: int
    first_offset: int = 0

    def __str__(self) -> str:
        """Return the partition's name, topic and index, in the form that commands accept."""
        return f"{self.topic}-{self.partition}"


class LedgerWriter:
    """Writer of a ledger, the file with the outcome of every record that one run of a load has
    sent. The writer opens and closes the file."""

    def __init__(
        self, path: Path, places: Sequence[LedgerPartition], *, run_id: int, started_s: float
    ) -> None:
        self._file: BinaryIO = path.open("wb")
        head = {"run_id": run_id, "started_s": started_s, "lanes": places}
        self._file.write(json.dumps(head).encode() + b"\n")
        self._rows = bytearray()

    def add(self, place: int, number: int, offset: int, at_s: float) -> None:
        """Append a row for one response to the ledger.

        `place` is the partition's index in the first line of the file, and `number` is the record's
        number within its partition. `at_s` is the time of the response in seconds since 1970."""
        self._rows += ROW.pack(place, number, offset, at_s)
        if len(self._rows) >= ROWS_HELD * ROW.size:
            self.flush()

    def flush(self) -> None:
        """Write all buffered rows to the ledger's file, without fsync."""
        self._file.write(self._rows)
        self._file.flush()
        self._rows.clear()

    def close(self) -> None:
        """Write the remaining rows to the ledger's file and close it."""
        self.flush()
        self._file.close()


@dataclass(slots=True)
class Answers:
    """Outcomes of the records of one partition (acknowledged or failed), in the order of the
    responses."""

    place: LedgerPartition
    numbers: "array[int]" = field(default_factory=lambda: array("L"))
    offsets: "array[int]" = field(default_factory=lambda: array("q"))
    at_s: "array[float]" = field(default_factory=lambda: array("d"))
    failed: "array[int]" = field(default_factory=lambda: array("L"))


@dataclass(slots=True)
class RunLedger:
    """The contents of a ledger: the outcomes of all records of a run, by partition."""

    run_id: int
    started_s: float
    answers: list[Answers]

    @property
    def acknowledged(self) -> int:
        """Number of records of the run that were acknowledged."""
        return sum(len(one.offsets) for one in self.answers)

    @property
    def failed(self) -> int:
        """Number of records of the run whose send failed."""
        return sum(len(one.failed) for one in self.answers)

    @property
    def ended_s(self) -> float:
        """Time of the run's last acknowledgement, in seconds since 1970."""
        return max((one.at_s[-1] for one in self.answers if one.at_s), default=self.started_s)


def read_ledger(path: Path) -> RunLedger:
    """Return the contents of a ledger file, up to its last complete row."""
    head, _, rows = path.read_bytes().partition(b"\n")
    found = json.loads(head)
    ledger = RunLedger(
        run_id=found["run_id"],
        started_s=found["started_s"],
        answers=[Answers(LedgerPartition(*place)) for place in found["lanes"]],
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
