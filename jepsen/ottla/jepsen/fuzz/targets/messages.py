"""Fuzz target: requests, responses and records in every version, from any peer on the network.

An input begins with the number of a message and version. A decoded message must be encoded to bytes
that decode to the same message (a fixpoint).
"""

from collections.abc import Iterator
from functools import cache
from random import Random

from ottla.jepsen.fuzz.chance import FuzzRng
from ottla.jepsen.fuzz.target import FuzzTarget, number_of, numbered
from ottla.model.errors import ProtocolError
from ottla.model.limits import KIB
from ottla.wire import codec
from ottla.wire.codec_examples import all_messages, example
from ottla.wire.codec_types import Message

SEED_BYTES_MAX = 2_000
"""Size limit in bytes of the target's valid example inputs. Longer examples contain nothing that
shorter ones lack."""
EXAMPLES = 2


@cache
def kinds() -> tuple[tuple[type[Message], int], ...]:
    """Return every type of message on the wire, with each of its versions."""
    return tuple(
        (message, version) for _, message in sorted(all_messages()) for version in message.VERSIONS
    )


def _kind_of(data: bytes) -> tuple[type[Message], int]:
    return kinds()[number_of(data, len(kinds()))]


def _name_of(data: bytes) -> str:
    message, version = _kind_of(data)
    return f"{message.__name__} v{version}"


def _check(data: bytes) -> None:
    message, version = _kind_of(data)
    first = codec.decode(message, version, data, min(2, len(data)))
    try:
        again = codec.encode(first, version)
        second = codec.decode(message, version, again)
        assert codec.encode(second, version) == again
    except ProtocolError as error:
        raise AssertionError(f"what was read cannot be written and read: {error}") from error
    # NaN differs from itself.
    assert first == second or "nan" in repr(first)


def _seeds(random: Random) -> Iterator[bytes]:
    return numbered(_examples(kind, version, FuzzRng(random)) for kind, version in kinds())


def _examples(message: type[Message], version: int, rng: FuzzRng) -> Iterator[bytes]:
    yield codec.encode(message(), version)
    for _ in range(EXAMPLES):
        data = codec.encode(example(message, version, rng), version)
        if len(data) <= SEED_BYTES_MAX:
            yield data


MESSAGES = FuzzTarget(
    name="messages",
    sentence="every request, response and record in every version, in both directions",
    check=_check,
    seeds=_seeds,
    name_of=_name_of,
    input_bytes_max=64 * KIB,
)
