"""Makes new fuzzing inputs from old ones, with errors that are common in practice: truncations,
flipped bits, splices, and numbers near limits. The module does no I/O."""

from collections.abc import Sequence
from random import Random

STEPS_MAX = 4
"""Maximum number of changes that one mutation makes to a fuzzing input."""

BYTES = (0x00, 0x01, 0x02, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)
WIDTHS = (1, 2, 4, 8)
NUMBERS = (-1, 0, 1, 2, 127, 128, 255, 256, 32_767, 65_535, 1 << 20, (1 << 31) - 1, -(1 << 31))
TIMES = (1, 1, 2, 2, 8, 1_000)
"""Repeat counts for a piece of an input. A mutation chooses one of them at random. The largest
count reveals code whose running time grows with the square of the input's size."""

RANGE_MAX = 64
"""Maximum number of bytes that one change of an input moves, repeats or removes. A few changes have
no limit."""


def mutated(random: Random, data: bytes, others: Sequence[bytes], bytes_max: int) -> bytes:
    """Return a randomly changed fuzzing input of at most `bytes_max` bytes. Pieces may be copied
    from `others`, which are valid inputs."""
    changed = bytearray(data)
    for _ in range(random.randint(1, STEPS_MAX)):
        _CHANGES[random.randrange(len(_CHANGES))](random, changed, others)
    return bytes(changed[:bytes_max])


def _piece(random: Random, size: int) -> tuple[int, int]:
    start = random.randint(0, size)
    longest = size - start if random.random() < 0.1 else min(RANGE_MAX, size - start)
    return start, start + random.randint(0, longest)


def _flip(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_byte(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    if data:
        at = random.randrange(len(data))
        data[at] = random.choice(BYTES) if random.random() < 0.7 else random.randrange(256)


def _set_number(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    width = random.choice(WIDTHS)
    if len(data) >= width:
        at = random.randrange(len(data) - width + 1)
        number = random.choice((*NUMBERS, len(data), len(data) - at))
        data[at : at + width] = (number & ((1 << (8 * width)) - 1)).to_bytes(width)


def _step_number(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    width = random.choice(WIDTHS)
    if len(data) >= width:
        at = random.randrange(len(data) - width + 1)
        number = int.from_bytes(data[at : at + width]) + random.choice((-2, -1, 1, 2))
        data[at : at + width] = (number & ((1 << (8 * width)) - 1)).to_bytes(width)


def _remove(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    start, end = _piece(random, len(data))
    del data[start:end]


def _repeat(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    start, end = _piece(random, len(data))
    data[end:end] = data[start:end] * random.choice(TIMES)


def _move(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    start, end = _piece(random, len(data))
    piece = data[start:end]
    at = random.randint(0, len(data))
    data[at : at + len(piece)] = piece


def _insert(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    at = random.randint(0, len(data))
    data[at:at] = random.randbytes(random.randint(1, 8))


def _cut(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    del data[random.randint(0, len(data)) :]


def _splice(random: Random, data: bytearray, others: Sequence[bytes]) -> None:
    other = random.choice(others)
    start, end = _piece(random, len(other))
    at = random.randint(0, len(data))
    if random.random() < 0.5:
        data[at:at] = other[start:end]
    else:
        data[at : at + end - start] = other[start:end]


_CHANGES = (
    _flip,
    _set_byte,
    _set_byte,
    _set_number,
    _step_number,
    _remove,
    _repeat,
    _move,
    _insert,
    _cut,
    _splice,
)
