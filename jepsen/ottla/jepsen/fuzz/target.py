"""A fuzz target: a reader of bytes from other programs, the source of its inputs, and its limits.

`check` reads one input. It returns if the bytes are valid, or raises one of `refusals`. Any other
exception, including a failed assertion, is reported as an error of the reader.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from ottla.model.errors import CorruptDataError, NewerReleaseError, ProtocolError
from ottla.model.limits import KIB, MIB

CPU_MS_MAX = 50.0
"""Maximum CPU time in ms that a fuzz target may need for one input. If an input could take longer,
a few clients could stop a broker."""

INPUT_BYTES_MAX = 8 * KIB
"""Default size limit of fuzzing inputs in bytes. Longer inputs find little more and run slower."""


def _no_name(data: bytes) -> str:
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """One reader of untrusted bytes to be fuzzed, with its valid inputs and its limits."""

    name: str
    sentence: str
    """Description of the reader in one sentence, shown to a person who selects a target."""
    check: Callable[[bytes], None]
    seeds: Callable[[Random], Iterable[bytes]]
    """Function that returns valid fuzzing inputs, made by Ottla's own encoders."""
    refusals: tuple[type[Exception], ...] = (ProtocolError, CorruptDataError, NewerReleaseError)
    name_of: Callable[[bytes], str] = _no_name
    """Function that returns the name of an input's form, for example its message type. Errors in
    inputs of different forms are counted separately."""
    allocation_ratio: int = 4
    allocation_free_bytes: int = MIB
    """Number of bytes that the reader may allocate for any input, in addition to a multiple of the
    input's size."""
    input_bytes_max: int = INPUT_BYTES_MAX

    def allocation_max(self, data: bytes) -> int:
        """Return the largest peak allocation in bytes that the reader may have for this input."""
        return self.allocation_ratio * len(data) + self.allocation_free_bytes


def parts_of(data: bytes, count: int) -> list[bytes]:
    """Split a fuzzing input into `count` parts, and return them. Each part but the last is preceded
    by its length in two bytes.

    If a length exceeds the input, the part is the rest of the input. Every input can therefore be
    split.
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
    """Join parts into one fuzzing input, which `parts_of` can split again."""
    heads = (len(part).to_bytes(2) + part for part in parts[:-1])
    return b"".join((*heads, parts[-1]))


def numbered(rows: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    """Yield fuzzing inputs for several readers. Each input begins with the number of its reader;
    `rows` has the inputs of each reader."""
    for number, inputs in enumerate(rows):
        for data in inputs:
            yield number.to_bytes(2) + data


def number_of(data: bytes, count: int) -> int:
    """Select a reader by the first two bytes of a fuzzing input. Returns the reader's number, from
    0 to `count` - 1."""
    return int.from_bytes(data[:2]) % count
