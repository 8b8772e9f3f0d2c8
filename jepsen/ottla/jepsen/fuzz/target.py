"""What a fuzz target is: a reader of bytes that others wrote, where its inputs come from, and what
it may cost.

`check` reads one input.  It returns when the bytes mean something, or raises one of `refusals`;
anything else that escapes it, an assertion of its own included, is a finding.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from ottla.model.errors import CorruptDataError, ProtocolError
from ottla.model.limits import KIB, MIB

CPU_MS_MAX = 50.0
"""CPU time that one input may take; more lets a few clients stop a broker."""

INPUT_BYTES_MAX = 8 * KIB
"""Longer inputs say little more and are read less often."""


def _no_name(data: bytes) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """One reader under fire."""

    name: str
    sentence: str
    """What reads the bytes, for a person who wonders which target to run."""
    check: Callable[[bytes], None]
    seeds: Callable[[Random], Iterable[bytes]]
    """Good inputs, made by our own encoders."""
    refusals: tuple[type[Exception], ...] = (ProtocolError, CorruptDataError)
    name_of: Callable[[bytes], str] = _no_name
    """Says of an input what it is read as, to tell findings apart."""
    allocation_ratio: int = 4
    allocation_free_bytes: int = MIB
    """An input may make its reader hold so many times its size, and so much besides."""
    input_bytes_max: int = INPUT_BYTES_MAX

    def allocation_max(self, data: bytes) -> int:
        """Return the bytes that reading this input may take at its peak."""
        return self.allocation_ratio * len(data) + self.allocation_free_bytes


def parts_of(data: bytes, count: int) -> list[bytes]:
    """Split an input into so many parts: all but the last have a length of two bytes in front.

    A length that lies takes what is there, so that every input is some parts.
    """
    parts: list[bytes] = []
    at = 0
    for _ in range(count - 1):
        length = int.from_bytes(data[at : at + 2])
        parts.append(data[at + 2 : at + 2 + length])
        at += 2 + length
    parts.append(data[at:])
    return parts


def joined(*parts: bytes) -> bytes:
    """Return the input that `parts_of` splits into these parts."""
    heads = (len(part).to_bytes(2) + part for part in parts[:-1])
    return b"".join((*heads, parts[-1]))


def numbered(rows: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield inputs that begin with the number of what reads them: one row of inputs a number."""
    for number, inputs in enumerate(rows):
        for data in inputs:
            yield number.to_bytes(2) + data


def number_of(data: bytes, count: int) -> int:
    """Return which of `count` readers an input is for; every input is for one."""
    return int.from_bytes(data[:2]) % count
