"""Conversion of record acknowledgements to the ranges in ShareFetch and ShareAcknowledge requests.

Pure. A range has one type for all its offsets, or one type for each offset (KIP-932).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

ALONE_COUNT_MIN = 16
"""Minimum number of consecutive records with the same acknowledgement type that form a range of
their own. A range with one type takes about 20 bytes. A range with several types takes one byte per
record."""


class AcknowledgeType(IntEnum):
    """Types of acknowledgements, with Kafka's numbers (int8 on the wire)."""

    GAP = 0
    """No record exists at this offset."""
    ACCEPT = 1
    """The record was processed."""
    RELEASE = 2
    """The record may be delivered again, to this or another consumer."""
    REJECT = 3
    """The record cannot be processed, and is not delivered again."""
    RENEW = 4
    """The timeout of the record's acquisition lock starts again (KIP-1222)."""


class AcknowledgementRange(NamedTuple):
    """A range of consecutive offsets, with one acknowledgement type for all offsets or one type for
    each offset."""

    first: int
    last: int
    types: tuple[int, ...]


def merged(items: Iterable[tuple[int, int, AcknowledgeType]]) -> list[AcknowledgementRange]:
    """Combine acknowledgements into ranges, in order of their offsets. Each item is the first
    offset, the last offset and the type of one acknowledgement.

    No offset may occur in two acknowledgements.
    """
    runs: list[AcknowledgementRange] = []
    for first, last, kind in sorted(items):
        assert first <= last
        before = runs[-1] if runs else None
        assert before is None or before.last < first, "an offset is acknowledged twice"
        if before is not None and before.last + 1 == first and before.types == (kind,):
            runs[-1] = AcknowledgementRange(before.first, last, before.types)
        else:
            runs.append(AcknowledgementRange(first, last, (kind,)))
    return _joined(runs)


def _joined(runs: Iterable[AcknowledgementRange]) -> list[AcknowledgementRange]:
    """Merge short adjacent ranges with different acknowledgement types into ranges that list one
    type for each offset."""
    found: list[AcknowledgementRange] = []
    is_open = False
    """True if the last range can be extended."""
    for run in runs:
        count = run.last - run.first + 1
        is_short = count < ALONE_COUNT_MIN
        if is_open and is_short and found[-1].last + 1 == run.first:
            before = found[-1]
            types = (*_expanded(before), *_expanded(run))
            found[-1] = AcknowledgementRange(before.first, run.last, types)
        else:
            found.append(run)
        is_open = is_short
    return found


def _expanded(run: AcknowledgementRange) -> tuple[int, ...]:
    count = run.last - run.first + 1
    return run.types if len(run.types) == count else run.types * count


def runs_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Return ascending offsets as runs of consecutive offsets: pairs of first and last offset."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and found[-1][1] + 1 == offset:
            found[-1] = (found[-1][0], offset)
        else:
            found.append((offset, offset))
    return found
